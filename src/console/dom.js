// Elements from data. Text reaches the page as text nodes and attributes alone; nothing here parses HTML.

const SVG = 'http://www.w3.org/2000/svg';
const SVG_TAGS = new Set(['svg', 'g', 'path', 'line', 'rect', 'circle', 'text', 'polyline', 'marker', 'defs', 'title']);
const HANDLERS = ['onclick', 'oninput', 'onchange', 'onsubmit', 'onpointermove', 'onpointerleave'];

// h('p', {class: 'note', key: 7}, 'text', node, [more]): null and false are left out. A property named on... is a handler;
// `key` keeps an element of a list the same element when the list changes.
export function h(tag, properties, ...children) {
  const node = SVG_TAGS.has(tag) ? document.createElementNS(SVG, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(properties || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name === 'key') node.lhKey = String(value);
    else if (name.startsWith('on')) node[name] = value;
    else if (name === 'style') for (const [part, text] of Object.entries(value)) node.style.setProperty(part, text);
    else node.setAttribute(name, value === true ? '' : String(value));
  }
  for (const child of children.flat(Infinity))
    if (child !== null && child !== undefined && child !== false) node.append(child);
  return node;
}

// Makes `old` look like `fresh` and keeps every element that can stay: focus, selection and what was typed remain.
// What has data-own draws its children itself.
export function morph(old, fresh) {
  if (fresh.hasAttribute('data-own')) return;
  if (old.style.cssText !== fresh.style.cssText) old.style.cssText = fresh.style.cssText;
  for (const { name } of [...old.attributes]) if (!fresh.hasAttribute(name) && name !== 'style') old.removeAttribute(name);
  for (const { name, value } of [...fresh.attributes]) if (name !== 'style' && old.getAttribute(name) !== value) old.setAttribute(name, value);
  for (const name of HANDLERS) if (old[name] !== fresh[name]) old[name] = fresh[name];
  morphChildren(old, [...fresh.childNodes]);
}

export function morphChildren(parent, wanted) {
  const keyed = new Map();
  for (const node of parent.childNodes) if (node.lhKey !== undefined) keyed.set(node.lhKey, node);
  let at = parent.firstChild;
  for (const fresh of wanted) {
    let old = fresh.lhKey !== undefined ? keyed.get(fresh.lhKey) : at;
    if (fresh.lhKey === undefined) while (old && old.lhKey !== undefined) old = old.nextSibling;
    if (!old || old.nodeName !== fresh.nodeName || old.nodeType !== fresh.nodeType) {
      parent.insertBefore(fresh, at);
      continue;
    }
    keyed.delete(old.lhKey);
    if (old !== at) {
      // Moving an element takes its focus away; those in between are moved or removed in their turn.
      if (old.contains(document.activeElement)) while (at !== old) { const next = at.nextSibling; parent.append(at); at = next; }
      else parent.insertBefore(old, at);
    }
    if (old.nodeType === Node.TEXT_NODE) { if (old.data !== fresh.data) old.data = fresh.data; }
    else morph(old, fresh);
    at = old.nextSibling;
  }
  while (at) { const next = at.nextSibling; at.remove(); at = next; }
}

// Times, in words that fit a column. Seconds in; "12 s", "3 min 20 s", "2 h 5 min", "3 d 4 h".
export function span(seconds) {
  if (!Number.isFinite(seconds)) return '–';
  const s = Math.abs(seconds), sign = seconds < 0 ? '−' : '';
  if (s === 0) return '0 s';
  if (s < 0.001) return sign + Math.round(s * 1e6) + ' µs';
  if (s < 1) return sign + Math.round(s * 1000) + ' ms';
  if (s < 10) return sign + Number(s.toFixed(1)) + ' s';
  if (s < 60) return sign + Math.floor(s) + ' s';
  const pair = (big, unit, rest, small) => sign + Math.floor(s / big) + ' ' + unit + (Math.floor(s % big / rest) ? ' ' + Math.floor(s % big / rest) + ' ' + small : '');
  if (s < 3600) return pair(60, 'min', 1, 's');
  if (s < 86400) return pair(3600, 'h', 60, 'min');
  return pair(86400, 'd', 3600, 'h');
}

export const count = new Intl.NumberFormat('en').format;

// 2026-11-23 02:31:04 of the reader's time zone; the element carries the exact time.
export function time(iso) {
  if (!iso) return '–';
  const at = new Date(iso), pad = (n) => String(n).padStart(2, '0');
  const day = `${at.getFullYear()}-${pad(at.getMonth() + 1)}-${pad(at.getDate())}`;
  const clock = `${pad(at.getHours())}:${pad(at.getMinutes())}:${pad(at.getSeconds())}`;
  return h('time', { datetime: iso, title: iso }, `${day} ${clock}`);
}

export const plural = (n, one, many = one + 's') => `${count(n)} ${n === 1 ? one : many}`;

// Said to screen readers, at most one sentence in three seconds, the last one wins.
let saidAt = 0, toSay = null;
export function say(sentence) {
  clearTimeout(toSay);
  toSay = setTimeout(() => { saidAt = Date.now(); document.getElementById('said').textContent = sentence; }, Math.max(0, saidAt + 3000 - Date.now()));
}

// A word that is longer than any column: it may break anywhere, and shorter ones never.
const LONG = /\S{25}/;
const isLong = (node) => node.nodeType === Node.TEXT_NODE ? LONG.test(node.data) : [...node.childNodes].some(isLong);
function tableCell(name, content) {
  const whole = h('div', {}, content);
  return h('td', { 'data-name': name, class: isLong(whole) && 'long' }, whole);
}

// A list as a table, with its head; the head's words name each cell where the page is too narrow for columns.
export function table(caption, head, rows) {
  return h('div', { class: 'wide' }, h('table', {},
    h('caption', { class: 'unseen' }, caption),
    h('thead', {}, h('tr', {}, head.map((name) => h('th', { scope: 'col' }, name)))),
    h('tbody', {}, rows.map(({ key, class: kind, cells }) =>
      h('tr', { key, class: kind }, cells.map((cell, i) => tableCell(head[i], cell)))))));
}
