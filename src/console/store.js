// The leases that the page knows: loaded by pages, kept by the stream of changes. Renewals are no changes, so one page is asked
// for again at a time: now the one on the screen, now the next in turn. Whatever an answer does not have any more goes.
import { api, dotted, idOf, isUnder, lease } from './api.js';
import { live } from './live.js';

const MOST = 20000, PAGE = 1000, TURN_MS = 2000, SHORT_TURN_MS = 1000, SHORT = 300, SPACES_EVERY_MS = 3000, SPACES_SHARE = 0.05;

export const store = {
  leases: new Map(), namespace: null, isWhole: false, version: 0, spaces: [], lists: {}, spacesAt: 0, spacesEvery_ms: SPACES_EVERY_MS,
  pages: [], turn: 0, timer: 0, loading: null, wanted: () => null,

  // Everything in `namespace`, unless it is here already.
  has: (namespace) => store.isWhole && store.namespace !== null && isUnder(namespace, store.namespace),
  async cover(namespace) {
    if (!store.has(namespace)) await store.load(namespace);
  },
  async load(namespace = store.namespace ?? '') {
    if (store.loading?.namespace === namespace) return store.loading.promise;
    const promise = fill(namespace).finally(() => { if (store.loading?.promise === promise) store.loading = null; });
    store.loading = { namespace, promise };
    return promise;
  },
  async loadSpaces() {
    const begun = Date.now(), { namespaces } = await api.all('namespaces', {}, 'namespaces', 5000);
    store.spaces = namespaces.map((row) => ({ name: dotted(row.namespace), held: +row.held, waiting: +row.waiting, expired: +row.expired, failing: +row.failing, partial: row.partial }));
    store.spacesAt = Date.now();
    // Counts that take the database long are asked for less often.
    store.spacesEvery_ms = Math.max(SPACES_EVERY_MS, (store.spacesAt - begun) / SPACES_SHARE);
    store.version++;
    dispatchEvent(new Event('lh-spaces'));
  },
  // The namespaces with their counts. What a whole list on this page has counts by that list, so that no two numbers of a page are of two moments.
  rows() {
    if (counted.version !== store.version) counted = { version: store.version, rows: recount() };
    return counted.rows;
  },
  // The whole list of what is `field` in `namespace`, as a view shows it: a name for each of its entries; null: there is no such list any more.
  tell(field, namespace, names) {
    store.lists[field] = names && { namespace, names };
    store.version++;
  },
  sum: (field, namespace = '') => store.rows().reduce((sum, row) => sum + (isUnder(row.name, namespace) ? row[field] : 0), 0),
  // The leases of these scopes by scope, the oldest first.
  at(ids) {
    const found = new Map([...ids].map((id) => [id, []]));
    for (const held of store.leases.values()) found.get(held.at)?.push(held);
    for (const holders of found.values()) holders.sort((a, b) => Number(BigInt(a.token) - BigInt(b.token)));
    return found;
  },
  // Counts of a namespace end at 10,000.
  isPartial: (namespace = '') => store.rows().some((row) => row.partial && isUnder(row.name, namespace)),
};

let counted = { version: -1, rows: [] };
function recount() {
  const rows = new Map(store.spaces.map((row) => [row.name, { ...row }]));
  const count = (fields, namespace, each) => {
    for (const row of rows.values()) if (isUnder(row.name, namespace)) for (const field of fields) row[field] = 0;
    each((name, field) => {
      if (!rows.has(name)) rows.set(name, { name, held: 0, waiting: 0, expired: 0, failing: 0, partial: false });
      rows.get(name)[field]++;
    });
  };
  if (store.has(store.namespace)) {
    count(['held', 'expired'], store.namespace, (add) => { for (const { namespace, kind } of store.leases.values()) { add(namespace, 'held'); if (kind === 'dead') add(namespace, 'expired'); } });
    for (const row of rows.values()) if (store.has(row.name)) row.partial = false;
  }
  for (const [field, list] of Object.entries(store.lists)) if (list) count([field], list.namespace, (add) => { for (const name of list.names) add(name, field); });
  return [...rows.values()].filter((row) => row.held || row.waiting || row.failing || row.partial).sort((a, b) => a.name < b.name ? -1 : 1);
}

async function fill(namespace) {
  store.namespace = namespace;
  store.isWhole = false;
  store.pages = [];
  let token = '', from = '';
  do {
    const page = { token, from, namespace };
    token = await refresh(page);
    if (store.namespace !== namespace) return;
    store.pages.push(page);
    from = page.to;
  } while (token && store.pages.length * PAGE < MOST);
  store.isWhole = !token;
  // What is held elsewhere now is of no use: the stream would keep it up to date in vain.
  for (const [id, held] of store.leases) if (!isUnder(held.namespace, namespace)) store.leases.delete(id);
  store.version++;
}

// Loads one page, and forgets the leases between its ends that are held no more; the token of the page behind it.
async function refresh(page) {
  const begun = performance.now();
  const { leases, next_page_token } = await api.get('leases', { namespace: page.namespace, include_children: true, page_size: PAGE, page_token: page.token });
  if (store.namespace !== page.namespace) return '';
  const found = new Set();
  leases.forEach((raw, i) => {
    const held = lease(raw, i === 0);
    found.add(held.id);
    // An event that came meanwhile is newer than this answer.
    const known = store.leases.get(held.id) || gone.get(held.id);
    if (!(known && known.heard > begun)) put(held, known);
  });
  page.to = next_page_token ? idOf(dotted(leases.at(-1).scope.namespace), leases.at(-1).scope.key) : '';
  for (const [id, held] of store.leases)
    if (!found.has(id) && held.at > page.from && (!page.to || held.at < page.to || held.at === page.to && !held.shared) && !(held.heard > begun)) store.leases.delete(id);
  store.version++;
  return next_page_token;
}
function put(held, known) {
  if (known?.token === held.token && known.heard) held.heard = known.heard;
  store.leases.set(held.id, held);
}

// What an event ended a moment ago, so that an older list does not bring it back.
const gone = new Map();

live.onevents = (events) => {
  const now = performance.now();
  for (const { type, lease: raw } of events) {
    const held = lease(raw, false);
    held.heard = now;
    const known = store.leases.get(held.id);
    if (type === 'TYPE_DOWNGRADED') store.leases.delete(held.at);
    if (type === 'TYPE_ACQUIRED' || type === 'TYPE_DOWNGRADED') { if (isUnder(held.namespace, store.namespace ?? '') && store.leases.size < MOST) { store.leases.set(held.id, held); gone.delete(held.id); } }
    else if (!known || BigInt(known.token) <= BigInt(held.token)) { store.leases.delete(held.id); gone.set(held.id, held); }
  }
  for (const [id, held] of gone) { if (gone.size <= 5000 && now - held.heard < 30000) break; gone.delete(id); }
  store.version++;
};

live.onsynced = () => { store.loadSpaces().catch(() => {}); store.load().catch(() => {}); };

async function turn() {
  const begun = Date.now();
  try {
    if (!live.isOpen || live.paused || document.hidden) return;
    if (Date.now() - store.spacesAt > store.spacesEvery_ms) await store.loadSpaces();
    if (store.pages.length && !store.loading) {
      const seen = store.wanted();
      const at = store.turn++ % 2 && seen !== null ? store.pages.findIndex((page) => !page.to || seen <= page.to) : (store.turn >> 1) % store.pages.length;
      const page = store.pages[Math.max(0, at)], before = page.to;
      const next = await refresh(page);
      // A page that ends elsewhere now: those behind it are loaded again.
      if (page.to !== before && at < store.pages.length - 1 && store.pages[at + 1].from === before) Object.assign(store.pages[at + 1], { from: page.to, token: next });
      else if (page.to && at === store.pages.length - 1 && store.pages.length * PAGE < MOST) store.pages.push({ token: next, from: page.to, to: '', namespace: page.namespace });
    }
  } catch { /* the view that asks says what is wrong */ } finally {
    setTimeout(turn, Math.max(250, (store.leases.size > SHORT ? TURN_MS : SHORT_TURN_MS) - (Date.now() - begun)));
  }
}
turn();
