// Who did what, newest first.
import { h, plural, table, time } from './dom.js';
import { api, dotted, scopeLink, session } from './api.js';
import { changed, place, titled, within } from './page.js';

const PAGE = 100, SEARCHED = 1000;
let data = null, find = '';
const says = ({ principal, peer, action, namespace, key, token, reason, outcome }) => [principal, peer, action.replaceAll('_', ' '), dotted(namespace), key, token, reason, outcome].join('\n').toLowerCase();

export const audit = {
  name: 'audit', label: 'Audit', every_s: 3,
  title: () => 'Audit',
  async load({ parts, choice }) {
    if (!session.can('admin')) return;
    data = await api.get('audit', { namespace: parts[0] || '', include_children: true, page_size: find ? SEARCHED : PAGE, page_token: choice.get('page') || '' });
  },
  draw() {
    const { parts, choice } = place(), below = '#/audit' + (parts[0] ? '/' + encodeURIComponent(parts[0]) : '');
    if (!session.can('admin')) return [titled('Audit', audit), h('p', { class: 'note', key: 'no' }, `${session.principal} has the right admin nowhere, and only administrators see the audit.`)];
    const entries = (data?.entries || []).filter((entry) => says(entry).includes(find.toLowerCase()));
    return [titled('Audit', audit), within('audit', parts[0]),
      h('p', { class: 'row', key: 'find' }, h('input', { type: 'search', 'aria-label': 'Search who, what, where, why', placeholder: 'Who, what, where, why', maxlength: 255, value: find,
        oninput: (event) => { find = event.target.value; dispatchEvent(new Event('lh-draw')); changed(); } }),
      find && h('span', { class: 'mute' }, `${plural(entries.length, 'row')} among ${plural(data?.entries.length || 0, 'row')}`)),
      h('section', { class: 'card', key: 'list' }, entries.length ? auditTable(entries) : h('p', { class: 'none' }, find ? 'No row fits.' : 'Nothing was done by an administrator, and nothing was denied.')),
      h('p', { class: 'row', key: 'pages' }, choice.get('page') && h('a', { href: below }, 'Newest'), data?.next_page_token && h('a', { href: `${below}?page=${encodeURIComponent(data.next_page_token)}` }, 'Older'))];
  },
};

export const auditTable = (entries) => table('Audit, newest first', ['When', 'Who', 'Did', 'Where', 'Reason or change', 'Outcome'], entries.map((entry) => {
  const namespace = dotted(entry.namespace);
  return { key: [entry.at, entry.principal, entry.action, namespace, entry.key].join('\u0000'), cells: [
    time(entry.at), [entry.principal, h('br'), h('small', { class: 'mute' }, entry.peer)], [entry.action.replaceAll('_', ' '), entry.count > 1 ? ` (${entry.count} times)` : null],
    entry.key ? [h('a', { href: scopeLink(namespace, entry.key) }, entry.key), h('br'), h('small', { class: 'mute' }, namespace, +entry.token ? ` · token ${entry.token}` : null)] : namespace || '–',
    entry.reason || '–', h('span', { class: `liveness ${entry.outcome === 'done' ? 'alive' : 'dead'}` }, entry.outcome)] };
}));
