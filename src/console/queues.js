// Who waits for what, how long, behind whom; and who waits for whom in turn.
import { h, count, plural, span, table, time } from './dom.js';
import { api, dotted, idOf, scopeLink, seconds } from './api.js';
import { mode, place, titled, who, within } from './page.js';
import { graph } from './charts.js';
import { store } from './store.js';

const MOST = 1000, DRAWN = 60, HOLDERS = 10;
const hasPlace = ({ away, position }) => !away && position !== '0';

export const queues = {
  name: 'queues', label: 'Queues', every_s: 2, data: null,
  title: () => 'Queues',
  badge: () => { const n = store.sum('waiting'); return n ? { text: n, words: 'wait' } : null; },
  async load({ parts }) {
    const namespace = parts[0] || '', data = await api.all('queue', { namespace, include_children: true }, 'waiters', MOST);
    queues.data = data;
    if (place().name === 'queues') store.tell('waiting', namespace, data.more ? null : data.waiters.filter(hasPlace).map(({ scope }) => dotted(scope.namespace)));
  },
  leave() { store.tell('waiting', '', null); },
  draw() {
    const namespace = place().parts[0], { waiters, waits, more, partial } = queues.data || { waiters: [], waits: [] };
    const placed = waiters.filter(hasPlace).length, others = waiters.length - placed;
    const scopes = new Set(waiters.map((waiter) => idOf(dotted(waiter.scope.namespace), waiter.scope.key)));
    return [
      titled(waiters.length ? `${more ? 'More than ' : ''}${plural(placed, 'request')} wait${placed === 1 ? 's' : ''} for ${plural(scopes.size, 'scope')}${others ? `, ${count(others)} away or passed over` : ''}` : 'Nobody waits', queues),
      within('queues', namespace),
      waiters.length ? picture(waiters, waits, store.at(scopes), null, partial) : null,
      waiters.length ? h('section', { class: 'card', key: 'list' }, h('h2', {}, 'Who waits'), waiterTable(waiters, true, store.at(scopes))) : null,
    ];
  },
};

// `holders`: the known ones of each scope, by scope.
export function waiterTable(unordered, withScope, holders) {
  const waiters = inOrder(unordered), withPriority = waiters.some(({ priority }) => priority);
  const line = (waiter, i) => {
    const namespace = dotted(waiter.scope.namespace), before = waiters[i - 1];
    const sameScope = before && before.scope.key === waiter.scope.key && dotted(before.scope.namespace) === namespace;
    return { key: waiter.ticket, cells: [
      ...(withScope ? [[h('a', { href: scopeLink(namespace, waiter.scope.key) }, waiter.scope.key), h('br'), h('small', { class: 'mute' }, namespace)]] : []),
      waiter.away ? 'away, keeps its place' : waiter.position === '0' ? 'passed over' : waiter.position, who(waiter.owner, waiter.principal), ...(withPriority ? [waiter.priority] : []), mode(waiter), span(seconds(waiter.waiting)),
      sameScope ? before.owner || before.principal : holders.get(idOf(namespace, waiter.scope.key))?.length > 1 ? 'the holders' : 'the holder', waiter.wait_until ? time(waiter.wait_until) : 'no limit'] };
  };
  return table('Who waits, in order', [...(withScope ? ['Scope'] : []), 'Place', 'Who', ...(withPriority ? ['Priority'] : []), 'For', 'Waiting', 'Behind', 'Until'], waiters.map(line));
}

// Scopes stay where they are; in each those that have a place come in the order in which they are served, and then the others.
function inOrder(waiters) {
  const scopes = new Map(), place_of = (waiter) => +waiter.position || Infinity;
  for (const waiter of waiters) {
    const id = idOf(dotted(waiter.scope.namespace), waiter.scope.key);
    if (!scopes.has(id)) scopes.set(id, []);
    scopes.get(id).push(waiter);
  }
  return [...scopes.values()].flatMap((each) => each.sort((a, b) => place_of(a) === place_of(b) ? 0 : place_of(a) - place_of(b)));
}

// The graph of these waiters, the holders that are known (by scope), and the holders that wait for another scope. A request is a node of its own: of two
// with one name nobody knows that they are one process. Those of one name in one queue are drawn once.
export function picture(waiters, waits, holders, here, isPartial) {
  const nodes = new Map(), edges = new Map(), seen = new Set();
  const named = (raw) => raw.principal + '\u0000' + raw.owner, at = (raw) => idOf(dotted(raw.namespace), raw.key);
  function node(kind, name, words, note) {
    const id = kind + name;
    if (!nodes.has(id) && nodes.size < DRAWN) nodes.set(id, { id, kind, name: words, note });
    return id;
  }
  const person = (role, scope, each) => node('owner', role + scope + '\u0000' + named(each), each.owner || each.principal, each.owner ? each.principal : '');
  const target = (raw) => node('scope', at(raw), raw.key, dotted(raw.namespace));
  const edge = (from, to, kind) => nodes.has(from) && nodes.has(to) && edges.set(from + to, { from, to, kind });
  const waiting = new Set(waits.map((wait) => at(wait.holds) + '\u0000' + named(wait)));
  const drawHolders = (id) => {
    if (!seen.has(id)) for (const held of (holders.get(id) || []).slice(0, HOLDERS)) if (!waiting.has(id + '\u0000' + named(held))) edge(node('scope', id, held.key, held.namespace), person('h', id, held), 'holds');
    seen.add(id);
  };
  if (here) drawHolders(here);
  for (const wait of waits) {
    const by = person('w', at(wait.wants), wait);
    edge(target(wait.holds), by, 'holds');
    edge(by, target(wait.wants), 'waits');
  }
  for (const waiter of waiters) {
    edge(person('w', at(waiter.scope), waiter), target(waiter.scope), 'waits');
    drawHolders(at(waiter.scope));
  }
  if (!edges.size) return null;
  const drawn = graph([...nodes.values()], [...edges.values()], here && 'scope' + here);
  return h('section', { class: 'card', key: 'graph' }, h('h2', {}, 'Which wait for which'),
    drawn.circles && h('p', { class: 'note bad' }, 'The red ones wait for each other in a circle, as their lease keys tell: none of them gets on until one gives up or its lease ends.'),
    drawn.picture, h('p', { class: 'mute' }, `Round: holders and waiters. Dashed: waits for. Solid: held by.${nodes.size >= DRAWN ? ` The first ${DRAWN} only.` : ''}${[...holders.values()].some((each) => each.length > HOLDERS) ? ` Of each scope the ${HOLDERS} oldest holders.` : ''}${isPartial ? ' Not every lease was looked at.' : ''}`));
}
