// What is held, by whom, how alive: the tree of namespaces beside a list of which only the rows on the screen exist.
import { h, morphChildren, count, plural, say, span } from './dom.js';
import { api, isUnder, lease, remaining, scopeLink, since } from './api.js';
import { live } from './live.js';
import { store } from './store.js';
import { mode, place, state, trouble } from './page.js';

const SORTS = { trouble: 'trouble first', name: 'by name', age: 'longest held first', left: 'least time left first' };
// Held too long is no trouble by itself.
const WORSE = { dead: 0, silent: 1 };
const KINDS = { silent: ['Silent', 'silent'], overdue: ['Held too long', 'overdue'], dead: ['Expired', 'dead'] };
const SPARE_ROWS = 6, TREE_ROWS = 500, TREE_OPEN = 60, TYPING_MS = 300;

let shown = [], counts = {}, drawnVersion = -1, ticking = 0, frame = null, found = null, typing = 0;

export const leases = {
  name: 'leases', label: 'Leases', every_s: 10, choice: null,
  title: () => `Leases${leases.choice?.namespace ? ' in ' + leases.choice.namespace : ''}`,
  badge: () => store.spacesAt ? { text: about('held'), words: 'held' } : null,
  enter({ parts, choice }) {
    leases.choice = { namespace: parts.join('.'), search: (choice.get('search') || '').slice(0, 255), kind: KINDS[choice.get('kind')] ? choice.get('kind') : '', sort: SORTS[choice.get('sort')] ? choice.get('sort') : 'trouble' };
    clearInterval(ticking);
    ticking = setInterval(tick, 500);
    store.wanted = () => { const [first, last] = rowsSeen(); return shown[first + last >> 1]?.at ?? null; };
  },
  leave() { clearInterval(ticking); clearTimeout(typing); store.wanted = () => null; },
  isReady: () => store.has(leases.choice.namespace) && (choose(), true),
  async load() {
    await Promise.all([store.cover(leases.choice.namespace), store.loadSpaces()]);
    await lookUp();
    choose();
  },
  draw() {
    const { namespace } = leases.choice;
    return [
      h('h1', { key: 'h1', tabindex: -1 }, headline(namespace)),
      trouble(leases), tiles(namespace),
      h('div', { class: 'split', key: 'split' },
        h('section', { class: 'tree card', 'aria-label': 'Namespaces', tabindex: 0 }, tree()),
        h('section', { class: 'list card', 'aria-label': 'Held leases' }, toolbar(), rowsFrame())),
    ];
  },
  drawn() { frame = document.querySelector('.window'); paint(); },
};

function go(change) {
  const { namespace, ...choice } = { ...leases.choice, ...change };
  const query = new URLSearchParams(Object.entries(choice).filter(([name, value]) => value && !(name === 'sort' && value === 'trouble')));
  history.replaceState(null, '', `#/leases${namespace ? '/' + encodeURIComponent(namespace) : ''}${query.size ? '?' + query : ''}`);
  leases.enter(place());
  choose();
  redraw();
}
const redraw = () => dispatchEvent(new Event('lh-draw'));

// The page does not have all that is held: the daemon searches, so far at a time.
async function lookUp(further = false) {
  const { namespace, search } = leases.choice, before = further ? found : null;
  if (!search || store.has(namespace)) { found = null; return; }
  const answer = await api.get('leases', { namespace, include_children: true, search, page_size: 1000, page_token: before?.token });
  if (leases.choice.namespace !== namespace || leases.choice.search !== search) return;
  found = { namespace, search, token: answer.next_page_token, leases: [...(before?.leases || []), ...answer.leases.map((raw, i) => lease(raw, i === 0))] };
}
const isFound = () => found && found.namespace === leases.choice.namespace && found.search === leases.choice.search;
const lookAgain = (further) => lookUp(further).then(() => { choose(); redraw(); say(plural(shown.length, 'lease') + ' found'); }, () => {});

// The list as chosen: which, in which order.
function choose() {
  const { namespace, search, kind, sort } = leases.choice, words = isFound() ? '' : search.toLowerCase();
  const list = [];
  counts = { silent: 0, overdue: 0, dead: 0 };
  for (const held of store.leases.values()) if (isUnder(held.namespace, namespace) && held.kind in counts) counts[held.kind]++;
  for (const held of isFound() ? found.leases : store.leases.values()) {
    if (!isUnder(held.namespace, namespace)) continue;
    if (kind && held.kind !== kind) continue;
    if (words && !`${held.namespace}/${held.key}\n${held.owner}\n${held.principal}\n${held.token}`.toLowerCase().includes(words)) continue;
    list.push(held);
  }
  const name = (a, b) => a.id < b.id ? -1 : a.id > b.id ? 1 : 0;
  const by = { name, trouble: (a, b) => (WORSE[a.kind] ?? 2) - (WORSE[b.kind] ?? 2) || name(a, b),
    age: (a, b) => a.acquired_at < b.acquired_at ? -1 : a.acquired_at > b.acquired_at ? 1 : name(a, b), left: (a, b) => a.until - b.until || name(a, b) };
  shown = list.sort(by[sort]);
  drawnVersion = store.version;
}

// A count of the namespaces, with a plus where they have more than was counted.
const about = (field, namespace = '') => count(store.sum(field, namespace)) + (store.sum(field, namespace) && store.isPartial(namespace) ? '+' : '');

// Twice a second: new data makes a new list; without it, times and bars go on.
function tick() {
  if (live.paused || document.hidden) return;
  if (store.version === drawnVersion) return paint();
  choose();
  redraw();
}

function headline(namespace) {
  const where = namespace ? ` in ${namespace}` : '', held = store.sum('held', namespace), failing = store.sum('failing', namespace);
  const wrong = [failing && `${plural(failing, 'reap')} ${failing === 1 ? 'fails' : 'fail'}`, counts.dead && `${count(counts.dead)} expired`, counts.silent && `${plural(counts.silent, 'holder')} silent`].filter(Boolean);
  return wrong.length ? `${wrong.join(', ')}${where}` : held ? `${store.isPartial(namespace) ? 'More than ' : ''}${plural(held, 'lease')} held${where}, every holder alive` : store.isPartial(namespace) ? `What is held${where} is not known: keys are on their way` : `Nothing is held${where}`;
}

function tiles(namespace) {
  const link = (href, field, words, kind) => h('a', { class: `tile ${store.sum(field, namespace) ? kind : ''}`, href }, h('b', {}, about(field, namespace)), h('span', {}, words));
  const button = (kind, n, words, tone) => h('button', { class: `tile ${tone}`, 'aria-pressed': String(leases.choice.kind === kind), onclick: () => { go({ kind: leases.choice.kind === kind ? '' : kind }); say(plural(shown.length, 'lease') + ' shown'); } },
    h('b', {}, n), h('span', {}, words));
  const below = namespace ? '/' + encodeURIComponent(namespace) : '';
  return h('div', { class: 'tiles', key: 'tiles', role: 'group', 'aria-label': 'What there is' },
    button('', about('held', namespace), 'Held', ''), link('#/queues' + below, 'waiting', 'Waiting', ''),
    Object.entries(KINDS).map(([kind, [words, tone]]) => button(kind, count(counts[kind]) + (counts[kind] && !store.has(namespace) ? '+' : ''), words, counts[kind] ? tone : '')),
    link('#/failures' + below, 'failing', 'Failing reaps', 'dead'));
}

function tree() {
  const root = { name: '', held: 0, bad: 0, more: '', below: new Map() };
  const spaces = store.rows();
  for (const row of spaces.slice(0, TREE_ROWS)) {
    let at = root, path = '';
    const add = (node) => { node.held += row.held; node.bad += Math.max(row.failing, row.expired); if (row.partial) node.more = '+'; };
    add(root);
    for (const segment of row.name.split('.')) {
      path = path ? path + '.' + segment : segment;
      if (!at.below.has(segment)) at.below.set(segment, { name: path, held: 0, bad: 0, more: '', below: new Map() });
      add(at = at.below.get(segment));
    }
  }
  const item = (node, label) => {
    const here = node.name === leases.choice.namespace, isOpen = spaces.length <= TREE_OPEN || node.name === '' || isUnder(leases.choice.namespace, node.name);
    return h('li', { key: node.name },
      h('a', { class: node.bad && 'trouble', href: node.name ? '#/leases/' + encodeURIComponent(node.name) : '#/leases', 'aria-current': here && 'true', title: node.name },
        h('span', {}, label), h('span', {}, count(node.held) + node.more, h('span', { class: 'unseen' }, node.bad ? ` held, ${count(node.bad)} expired or failing` : ' held'))),
      isOpen && node.below.size ? h('ul', {}, [...node.below].map(([segment, child]) => item(child, segment))) : null);
  };
  return [h('ul', {}, item(root, 'All namespaces')), spaces.length > TREE_ROWS && h('p', { class: 'mute' }, `The first ${TREE_ROWS} namespaces.`)].filter(Boolean);
}

function toolbar() {
  const { search, sort } = leases.choice;
  return h('div', { class: 'bar-row row' },
    h('input', { type: 'search', 'aria-label': 'Search key, owner, principal, token', placeholder: 'Key, owner, principal, token', maxlength: 255, value: search,
      oninput: (event) => { go({ search: event.target.value }); say(plural(shown.length, 'lease') + ' found'); clearTimeout(typing); typing = setTimeout(() => lookAgain(false), TYPING_MS); } }),
    h('select', { 'aria-label': 'Order', onchange: (event) => go({ sort: event.target.value }) }, Object.entries(SORTS).map(([name, words]) => h('option', { value: name, selected: name === sort }, words))),
    h('span', { class: 'mute' }, live.paused ? `${plural(shown.length, 'lease')}; paused` : plural(shown.length, 'lease'),
      isFound() ? found.token ? ', so far' : '' : !store.isWhole && !store.loading && store.leases.size ? `, among the first ${count(store.leases.size)}: search, or choose a namespace` : ''),
    isFound() && found.token ? h('button', { onclick: () => lookAgain(true) }, 'Search further') : null);
}

function rowsFrame() {
  return h('div', { role: 'table', 'aria-label': 'Held leases', 'aria-rowcount': shown.length + 1 },
    h('div', { role: 'rowgroup' }, h('div', { class: 'lease-head', role: 'row', 'aria-rowindex': 1 },
      ['Scope', 'Holder', 'State, mode', 'Time left', 'Held for', 'Token'].map((name, i) => h('span', { role: 'columnheader', class: i > 3 && 'num' }, name)))),
    h('div', { class: 'window', role: 'rowgroup', 'data-own': true }));
}

// The height of a row is the style sheet's.
const rowHeight = () => parseFloat(getComputedStyle(frame).getPropertyValue('--row'));

function rowsSeen() {
  if (!frame?.isConnected) return [0, 0];
  const height = rowHeight(), top = -frame.getBoundingClientRect().top;
  const first = Math.max(0, Math.floor(top / height) - SPARE_ROWS);
  return [first, Math.min(shown.length, first + Math.ceil(innerHeight / height) + 2 * SPARE_ROWS)];
}

// Rows on the screen, and the one that has the focus, wherever it is.
function paint() {
  if (!frame?.isConnected) return;
  const height = rowHeight(), [first, last] = rowsSeen();
  frame.style.height = Math.max(1, shown.length) * height + 'px';
  const rows = [];
  for (let i = first; i < last; i++) rows.push(row(shown[i], i, height));
  const focused = frame.contains(document.activeElement) ? document.activeElement.closest('.lease')?.lhKey : null;
  if (focused) {
    const at = shown.findIndex((held) => held.id === focused);
    if (at >= 0 && (at < first || at >= last)) rows.push(row(shown[at], at, height));
    else if (at < 0) document.querySelector('.list input').focus({ preventScroll: true });
  }
  if (!shown.length) rows.push(h('p', { class: 'none bar-row', role: 'row', key: 'none' }, h('span', { role: 'cell' }, store.loading ? 'Loading …' : leases.choice.search || leases.choice.kind ? 'No lease fits.' : 'Nothing is held here.')));
  morphChildren(frame, rows);
}

function row(held, i, height) {
  const left = Math.max(0, remaining(held)), labels = Object.entries(held.labels).map(([name, value]) => `${name}=${value}`).join(' ');
  const part = Math.min(1, left / held.duration || 0), age = since(held.acquired_at);
  return h('div', { class: `lease ${held.kind}`, role: 'row', 'aria-rowindex': i + 2, key: held.id, style: { transform: `translateY(${i * height}px)` } },
    h('span', { role: 'cell', title: `${held.namespace} / ${held.key}` }, h('a', { href: scopeLink(held.namespace, held.key) }, held.key), h('small', {}, held.namespace)),
    h('span', { role: 'cell', title: `${held.owner} ${labels}` }, held.owner || h('span', { class: 'mute' }, 'no owner given'), h('small', {}, labels ? `${held.principal} · ${labels}` : held.principal)),
    h('span', { role: 'cell', title: mode(held) }, state(held), h('small', {}, mode(held))),
    h('span', { role: 'cell' }, h('span', { class: `bar ${held.kind}` }, h('i', { style: { '--part': `${(part * 100).toFixed(1)}%` } })), h('small', {}, `${span(left)} of ${span(held.duration)}`)),
    h('span', { role: 'cell', class: 'num' }, span(age)), h('span', { role: 'cell', class: 'num mono' }, held.token));
}

let asked = false;
const later = () => { if (!asked) { asked = true; requestAnimationFrame(() => { asked = false; paint(); }); } };
addEventListener('scroll', later, { passive: true });
addEventListener('resize', later);
