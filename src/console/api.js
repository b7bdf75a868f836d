// The daemon's JSON: asking, changing, who is signed in, and its kinds of values as numbers.

export class Refused extends Error {
  constructor(message, status, reason) { super(message); this.status = status; this.reason = reason; }
}

// At most four questions at once: the daemon serves 64 connections to everybody.
const AT_ONCE = 4;
const waiting = [];
let running = 0;

async function ask(path, options) {
  if (running >= AT_ONCE) await new Promise((go) => waiting.push(go));
  running++;
  try {
    const answer = await fetch('api/v1/' + path, { ...options, signal: AbortSignal.timeout(20000), cache: 'no-store' });
    const body = await answer.json().catch(() => ({}));
    if (!answer.ok) throw new Refused(sentence(body.error) || `The daemon answered with status ${answer.status}.`, answer.status, body.error?.reason);
    return body;
  } catch (error) {
    if (error instanceof Refused) throw error;
    throw new Refused(error.name === 'TimeoutError' ? 'The daemon did not answer within 20 s.' : 'The daemon does not answer.', 0, '');
  } finally {
    running--;
    waiting.shift()?.();
  }
}

const sentence = (error) => error && [error.message, ...(error.violations || []).map((each) => `${each.field} ${each.description}`)].join('; ');

export const api = {
  get(path, parameters = {}) {
    const query = new URLSearchParams(Object.entries(parameters).filter(([, value]) => value !== undefined && value !== null));
    return ask(query.size ? `${path}?${query}` : path, {});
  },
  post: (path, body) => ask(path, { method: 'POST', body: JSON.stringify(body),
    headers: { 'Content-Type': 'application/json', ...(session.csrf ? { 'X-CSRF-Token': session.csrf } : {}) } }),
  // All pages of a list, at most `most` entries; the last answer's other fields with them.
  async all(path, parameters, field, most) {
    const found = [];
    let answer, token;
    do {
      answer = await api.get(path, { ...parameters, page_size: 1000, page_token: token });
      found.push(...answer[field]);
      token = answer.next_page_token;
    } while (token && found.length < most);
    return { ...answer, [field]: found.slice(0, most), more: Boolean(token) };
  },
};

export const session = {
  principal: null, csrf: '', cookie: false, rights: new Map(), openToAll: false,
  async load() { take(await api.get('session')); },
  // The right in this namespace; without one, anywhere.
  can(right, namespace) {
    const where = session.rights.get(right) || [];
    return namespace === undefined ? where.length > 0 : where.some((prefix) => isUnder(namespace, prefix));
  },
};

function take({ principal, rights, csrf_token, signed_in, authorization }) {
  session.csrf = csrf_token;
  session.cookie = signed_in;
  session.rights = new Map(rights.map(({ right, namespaces }) => [right.replace('RIGHT_', '').toLowerCase(), namespaces.map(dotted)]));
  session.mustSignIn = authorization && !session.can('read');
  session.principal = principal;
}

export const signIn = async (token) => take(await api.post('sign-in', { token }));
export const signOut = () => api.post('sign-out', {});

export const dotted = (namespace) => (namespace?.segments || namespace || []).join('.');
export const isUnder = (namespace, prefix) => prefix === '' || namespace === prefix || namespace.startsWith(prefix + '.');
export const seconds = (duration) => duration ? parseFloat(duration) : NaN;
export const idOf = (namespace, key) => namespace + '\u0000' + key;
export const scopeLink = (namespace, key) => `#/scope/${encodeURIComponent(namespace)}/${encodeURIComponent(key)}`;

// The database's clock less ours, from the last answer that told both a deadline and what remains of it.
let ahead_ms = 0;
export const databaseNow = () => Date.now() + ahead_ms;
export const since = (iso) => iso ? (databaseNow() - Date.parse(iso)) / 1000 : NaN;

const LIVENESS = {
  LIVENESS_ALIVE: ['alive', 'alive'], LIVENESS_SUSPECTED_DEAD: ['silent', 'silent'],
  LIVENESS_OVERDUE: ['overdue', 'held too long'], LIVENESS_EXPIRED: ['dead', 'expired'], LIVENESS_UNSPECIFIED: ['', 'unknown'],
};

// A Lease of the API as the views use it. `until` is when it ends on performance.now(), in seconds.
export function lease(raw, tellsTime) {
  const namespace = dotted(raw.scope.namespace), remaining = seconds(raw.remaining), deadline_ms = Date.parse(raw.deadline);
  if (tellsTime && raw.deadline) ahead_ms = deadline_ms - remaining * 1000 - Date.now();
  const [kind, words] = LIVENESS[raw.liveness] || ['', raw.liveness];
  const at = idOf(namespace, raw.scope.key), shared = raw.mode === 'MODE_SHARED';
  return { id: shared ? at + '\u0000' + raw.token : at, at, shared, namespace, key: raw.scope.key, owner: raw.owner, principal: raw.principal, token: raw.token, labels: raw.labels || {},
    kind, words, duration: seconds(raw.duration), grace: seconds(raw.grace), until: performance.now() / 1000 + remaining,
    asked: raw.asked && { by: raw.asked.asked_by || raw.asked.principal, principal: raw.asked.principal, reason: raw.asked.reason, asked_at: raw.asked.asked_at, answer_by: raw.asked.answer_by, refusal: raw.asked.refusal },
    acquired_at: raw.acquired_at, heartbeats: raw.heartbeats, heartbeat_at: raw.heartbeat_at, units: raw.units, slots: raw.slots || [], mode: raw.mode };
}
export const remaining = (held) => held.until - performance.now() / 1000;
