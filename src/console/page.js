// What the views share: where the page is, small words, and the dialogs that change something.
import { h, plural, say } from './dom.js';
import { session } from './api.js';

// #/leases/payments?kind=silent: the view, its path and its choices.
export function place() {
  const [path, query] = location.hash.replace(/^#\/?/, '').split('?');
  const parts = path.split('/').map((part) => { try { return decodeURIComponent(part); } catch { return part; } });
  return { name: parts[0] || 'leases', parts: parts.slice(1), choice: new URLSearchParams(query) };
}

export const trouble = (view) => view.trouble && h('p', { class: 'note bad', key: 'trouble', role: 'alert' }, view.trouble);
export const state = (held) => h('span', { class: `liveness ${held.kind}` }, held.words);

// 1, 2, 3, 7 as "1–3, 7".
export function ranges(slots) {
  const found = [];
  for (const slot of slots) if (found.at(-1)?.[1] === slot - 1) found.at(-1)[1] = slot; else found.push([slot, slot]);
  return found.map(([first, last]) => first === last ? first : `${first}–${last}`).join(', ');
}
// What is held or waited for: "exclusive", "shared: 2 units, slots 1–2".
export const mode = ({ mode: name, units, slots }) => name !== 'MODE_SHARED' ? 'exclusive' : `shared: ${plural(units, 'unit')}${slots?.length ? `, ${slots.length === 1 ? 'slot' : 'slots'} ${ranges(slots)}` : ''}`;
export const changed = () => dispatchEvent(new Event('lh-changed'));
export const facts = (pairs) => h('dl', { class: 'facts' }, pairs.filter(Boolean).map(([name, value]) => h('div', { key: name }, h('dt', {}, name), h('dd', {}, value))));
export const who = (owner, principal) => [owner || h('span', { class: 'mute' }, 'no owner given'), h('br'), h('small', { class: 'mute' }, principal)];
export const titled = (words, view) => [h('h1', { key: 'h1', tabindex: -1 }, words), trouble(view)];

// A button that puts `text` where the next paste takes it from.
export const copy = (text, what) => text ? h('button', { class: 'copy', onclick: async () => {
  try { await navigator.clipboard.writeText(text); say(`The ${what} is copied.`); } catch { say(`The browser does not copy: select the ${what}.`); }
} }, `Copy ${what}`) : null;

// A line above a list that says what it is limited to, with a way to all of it.
export const within = (view, namespace) => namespace && h('p', { key: 'within', class: 'row' }, 'In ', h('code', {}, namespace), h('a', { href: '#/' + view }, 'Show all namespaces'));

// `run(form)` carries it out; what it answers is shown in place of the form. Escape and Cancel change nothing.
export function dialog(title, action, danger, fields, run) {
  const failed = h('p', { class: 'note bad', role: 'alert', hidden: true });
  const submit = h('button', { class: danger ? 'danger' : 'main' }, action);
  const close = (words) => h('button', { type: 'button', onclick: () => box.close() }, words);
  const form = h('form', { oninput: () => { failed.hidden = true; }, onsubmit: async (event) => {
    event.preventDefault();
    failed.hidden = true;
    submit.disabled = true;
    try {
      const done = await run(Object.fromEntries(new FormData(form)));
      changed();
      if (!done) return box.close();
      const shut = close('Close');
      form.replaceChildren(h('h2', {}, title), ...[done].flat(), h('div', { class: 'row' }, shut));
      shut.focus();
    } catch (error) {
      failed.textContent = error.message;
      failed.hidden = false;
    } finally { submit.disabled = false; }
  } }, h('h2', { id: 'dialog-title' }, title), fields, failed, h('div', { class: 'row' }, submit, close('Cancel')));
  const box = h('dialog', { 'aria-label': title }, form), from = document.activeElement;
  box.addEventListener('close', () => { box.remove(); (from?.isConnected ? from : document.querySelector('#main h1'))?.focus(); });
  document.body.append(box);
  box.showModal();
}

// A button that acts at once and says what came of it; there is none without the right.
export const actButton = (namespace, words, label, run) => session.can('admin', namespace) && h('button', { 'aria-label': label, onclick: async (event) => {
  const button = event.currentTarget;
  button.disabled = true;
  try { say(await run() || 'Done.'); } catch (error) { dialog(`${words}: refused`, 'Try again', false, [h('p', { class: 'note bad' }, error.message)], run); }
  button.disabled = false;
  changed();
} }, words);
