'use strict';

// Leases in SQL, without a daemon. Renewals have a connection of their own. So has each call that acquires or releases, for as long as it
// lasts; two of these are kept for the next. Waiters have a place in the queue (join_queue) and LISTEN; behind a pooler that gives each
// transaction another session they hear nothing, and poll.

const { ClosedError, DeniedError, HeldError, InvalidArgumentError, LeaseLostError, scopeName, UnavailableError } = require('./errors.js');
const { refused } = require('./arguments.js');
const { together } = require('./scopes.js');
const { clock } = require('./time.js');

const MOST_IDLE = 2; // connections
const POOLED_POLL_MS = 200;
const BUSY_MS = 250; // a tick may be due, and no more may run at the same time
const LOCK_TIMEOUT = '200ms'; // a row that somebody keeps locked must not hold up the renewals of others
const GRANT = 'select g.token::text, g.left_s::text as left, g.units::text, to_json(g.slots)::text as slots, g.is_final::text as final';
const ACQUIRE = `${GRANT}
  from leasehold.acquire_one($1::text, $2::text, $3::float8, $4::text, $5::text::uuid, $6::text::jsonb, $7::float8, $8::text, $9::integer, $10::integer) g`;
const ACQUIRE_ALL = `${GRANT}
  from leasehold.acquire_all($1::text[], $2::text[], make_interval(secs => $3::float8), owner => $4::text, lease_key => $5::text::uuid,
                             labels => $6::text::jsonb, modes => $7::text[], units => $8::integer[]) a, leasehold.granted(a) g`;
const CLAIM = `${GRANT}, (c.lease).key, (extract(epoch from c.at) * 1000)::text as at, c.attempt::text
  from leasehold.claim_tick($1::text, $2::text, make_interval(secs => $3::float8), $4::text::uuid, $5::text::jsonb) c, leasehold.granted(c.lease) g`;
const DOWNGRADE = `${GRANT} from leasehold.downgrade_soon($1::text, $2::text, $3::text::uuid, $4::integer) a, leasehold.granted(a) g`;
const JOIN_QUEUE = `
select position::text, channel
  from leasehold.join_queue($1::text, $2::text, $3::text::uuid, make_interval(secs => $4::float8), $5::text, $6::integer, priority => $7::integer)`;
const CONTENTION = 'select to_json(c)::text as found from leasehold.contention($1::text[], $2::text[], $3::text[]) c';
const HEARTBEAT = 'select left_s::text, given_s::text, reason from leasehold.heartbeat_each($1::text[], $2::text[], $3::text[]::uuid[])';

const ASKED = 'select to_json(r)::text as found, r.token::text from leasehold.asked_each($1::text[], $2::text[], $3::text[]::uuid[]) r';
const ASK = 'select to_json(r)::text as found, r.token::text from leasehold.ask_each($1::text, $2::text, $3::text::uuid, $4::text) r';
const LEAVE_QUEUE = 'select leasehold.leave_each($1::text[], $2::text[], $3::text[]::uuid[])';

const RELEASE = {
  released: 'select leasehold.release_ok($1::text, $2::text, $3::text::uuid, nullif($4::text, $$$$)::jsonb)::text as done',
  failed: 'select leasehold.release_fail($1::text, $2::text, $3::text::uuid, $4::text)::text as done',
};

const RELEASE_ALL = `
select reason from leasehold.release_each($1::text[], $2::text[], $3::text[]::uuid[], $4::boolean[], $5::text[], $6::text::interval) as reason`;

class SqlTransport {
  #config;
  #options;
  #renewal = null;
  #idle = [];
  #open = new Set();
  #isClosed = false;
  #hasWarned = false;
  #isDeaf = false; // it has said that it cannot read requests to hand over

  constructor(config, options) {
    this.#config = configOf(config);
    this.#options = options;
  }

  async #connect() {
    if (this.#isClosed) throw new ClosedError();
    const session = new Session(this.#config, this.#options.patienceMs);
    this.#open.add(session);
    session.onEnd = () => this.#open.delete(session);
    await session.open();
    if (!this.#isClosed) return session;
    session.break();
    throw new ClosedError();
  }

  async #with(use) {
    let session = null;
    while (!(session && !session.isBroken)) session = this.#idle.pop() ?? (await this.#connect());
    try {
      return await use(session);
    } finally {
      if (this.#isClosed || this.#idle.length >= MOST_IDLE) await session.close();
      else if (!session.isBroken) this.#idle.push(session);
    }
  }

  async acquire(request, waitMs, signal) {
    if (request.scopes && request.waitMs) throw refused('waitMs', request.waitMs, '0 for several keys in SQL, which do not wait');
    if (request.scopes) return this.#with((session) => this.#tryAll(session, request));
    if (request.isTick) return this.#with((session) => this.#claim(session, request, signal));
    return this.#with((session) => this.#queueFor(session, request, waitMs, signal));
  }

  async #try(session, request) {
    const sent = clock();
    const [row] = await session.query(ACQUIRE, acquireValues(request));
    return row && { ...grantOf(row, sent), tie: null };
  }

  async #tryAll(session, { scopes, durationMs, owner, leaseKey, labels }) {
    const sent = clock();
    const columns = [({ namespace }) => namespace, ({ key }) => key].map((of) => scopes.map(of));
    const rows = await session.query(ACQUIRE_ALL,
      [...columns, durationMs / 1000, owner, leaseKey, JSON.stringify(labels), scopes.map(modeOf), scopes.map(({ units }) => units)]);
    if (rows.length) return { ...together(rows.map((row) => grantOf(row, sent))), tie: null };
    throw await this.#held(session, scopes);
  }

  /** Gives up soon where somebody keeps the row locked. */
  downgrade({ namespace, key, leaseKey }, units, timeoutMs) {
    return this.#with(async (session) => {
      const sent = clock();
      const [row] = await session.query(DOWNGRADE, [namespace, key, leaseKey, units], timeoutMs);
      return grantOf(row, sent);
    });
  }

  async #queueFor(session, request, waitMs, signal) {
    const place = [request.namespace, request.key, request.leaseKey];
    let until = clock() + waitMs;
    let grant = await this.#try(session, request);
    if (grant || waitMs === 0) return grant ?? Promise.reject(await this.#held(session, [request]));
    const pollMs = this.#pollMs(session);
    let isListening = session.isPooled;
    let asked = '';
    try {
      for (;;) {
        // A place that is not asked for again is free after this.
        const ttl = Math.min(Math.max(2 * pollMs, 10000), 86400000) / 1000;
        const [{ position, channel }] = await session.query(JOIN_QUEUE, [...place, ttl, modeOf(request), request.units, request.priority]);
        if (!isListening) await session.listen(channel);
        isListening = true;
        session.hasNews = false;
        grant = await this.#try(session, request);
        if (grant) return grant;
        if (request.askHandOver) asked = await this.#askAsWaiter(session, place, asked);
        if (request.whileAlive) until = (await this.#held(session, [request])).isAlive !== false ? Infinity : Math.min(until, clock() + request.waitMs);
        if (clock() >= until) throw Object.assign(await this.#held(session, [request]), { reason: 'WAIT_TIMEOUT' });
        if (request.onQueued) {
          const { holder, holderCount, unitsFree, isAlive, silentMs, heldMs } = await this.#held(session, [request]);
          request.onQueued({ holder, ahead: Number(position) - 1, holderCount, unitsFree, isAlive, silentMs, heldMs });
        }
        await session.news(Math.min(pollMs, until - clock()), signal);
        signal.throwIfAborted();
      }
    } finally {
      if (!grant && !session.isBroken) await session.query('select leasehold.leave_queue($1::text, $2::text, $3::text::uuid)', place).catch(() => {});
      await unlisten(session);
    }
  }

  /** Asks the holders to hand over, once: `asked` says whom it has asked, and so does the answer. */
  async #askAsWaiter(session, place, asked) {
    const { holders_now: now } = await this.#contention(session, [{ namespace: place[0], key: place[1] }]);
    if (now !== asked) await session.query(ASK, [...place, '']);
    return now;
  }

  #pollMs({ isPooled }) {
    const pollMs = isPooled ? Math.min(this.#options.pollMs, POOLED_POLL_MS) : this.#options.pollMs;
    if (isPooled && !this.#hasWarned) {
      this.#hasWarned = true;
      this.#options.warn(`a connection pooler is between this client and PostgreSQL: waiters hear no notifications, and poll every ${pollMs} ms`);
    }
    return pollMs;
  }

  /** The next tick of a schedule. */
  async #claim(session, { namespace, durationMs, owner, leaseKey, labels }, signal) {
    const pollMs = this.#pollMs(session);
    try {
      if (!session.isPooled) await session.listen((await session.query('select leasehold.tick_channel($1::text) as channel', [namespace]))[0].channel);
      for (;;) {
        signal.throwIfAborted();
        const sent = clock();
        session.hasNews = false;
        const [row] = await session.query(CLAIM, [namespace, owner, durationMs / 1000, leaseKey, JSON.stringify(labels)]);
        if (row) return { ...grantOf(row, sent), tie: null, claimed: { key: row.key, at: new Date(Number(row.at)), attempt: Number(row.attempt) } };
        const [{ left }] = await session.query('select (extract(epoch from leasehold.until_tick($1::text)) * 1000)::text as left', [namespace]);
        await session.news(left === null ? pollMs : Math.min(pollMs, Math.max(Number(left), BUSY_MS)), signal);
      }
    } finally {
      await unlisten(session);
    }
  }

  async #contention(session, scopes) {
    return contentionOf(await session.query(CONTENTION, contentionValues(scopes)));
  }

  async #held(session, scopes) {
    return heldOf(scopes, await this.#contention(session, scopes));
  }

  /** All in one transaction, and one by one if that fails for one of them. */
  /** Of renewals that are committed, in half of the time that is left. Without an answer the next renewal reads them. */
  async #requests(columns, until) {
    try {
      const rows = await this.#renewal.query(ASKED, columns, (until - clock()) / 2);
      return new Map(rows.map((row) => [JSON.parse(row.found).n, handOverOf(row)]));
    } catch (error) {
      if (!this.#isDeaf) this.#options.warn(`requests to hand over are not heard: ${error.message}`);
      this.#isDeaf = true;
      return new Map();
    }
  }

  async heartbeat(refs, timeoutMs) {
    const until = clock() + timeoutMs;
    if (!this.#renewal || this.#renewal.isBroken) this.#renewal = await this.#connect();
    const renew = async (some) => {
      const columns = ['namespace', 'key', 'leaseKey'].map((name) => some.map((ref) => ref[name]));
      const rows = await this.#renewal.query(HEARTBEAT, columns, until - clock());
      const requests = some.some(({ isListening }) => isListening) ? await this.#requests(columns, until) : new Map();
      return rows.map(({ left_s: left, given_s: given, reason }, n) => (reason ? { outcome: 'lost', reason }
        : { outcome: 'ok', remainingMs: Number(left) * 1000, isFinal: Number(given) * 1000 < some[n].durationMs, asked: some[n].isListening ? requests.get(n + 1) : undefined }));
    };
    try {
      return await renew(refs);
    } catch (error) {
      if (refs.length === 1 || this.#renewal.isBroken) throw error;
    }
    const beats = [];
    for (const ref of refs) {
      beats.push(...(await renew([ref]).catch(({ message }) => [{ outcome: 'retry', message }])));
    }
    return beats;
  }

  /** Alone it waits for somebody who keeps the row locked. */
  async release(ref, { isFailed, value }, timeoutMs) {
    const [{ reason }] = await this.#with((session) => releaseEach(session, [{ ref, isFailed, value }], '0', timeoutMs));
    if (reason) throw new LeaseLostError(`the lease ${scopeName(ref)} is lost`, reason);
  }

  /** All in one statement, and one by one if that fails for one of them. */
  async releaseAll(items, timeoutMs) {
    const until = clock() + timeoutMs;
    const some = async (part) => (await this.#with((session) => releaseEach(session, part, LOCK_TIMEOUT, until - clock())))
      .map(({ reason }) => (reason ? { outcome: 'lost', reason, message: 'it was not held any more' } : { outcome: 'ok' }));
    const answerOf = (error) => {
      const { message, reason, field } = error;
      return [{ outcome: error instanceof UnavailableError ? 'retry' : reason ? 'denied' : field ? 'invalid' : 'retry', reason, message }];
    };
    try {
      return await some(items);
    } catch (error) {
      if (items.length === 1 || CONNECTION.test(error.reason)) return items.flatMap(() => answerOf(error));
    }
    const answers = [];
    for (const item of items) answers.push(...(await some([item]).catch(answerOf)));
    return answers;
  }

  /** A place that the database keeps all the same is free soon: nobody asks for it again. */
  leaveQueue(refs, timeoutMs) {
    const columns = ['namespace', 'key', 'leaseKey'].map((name) => refs.map((ref) => ref[name]));
    return this.#with((session) => session.query(LEAVE_QUEUE, columns, timeoutMs)).catch((error) => {
      if (error instanceof UnavailableError) throw error;
    });
  }

  askHandOver({ namespace, key, reason }, timeoutMs) {
    return this.#with(async (session) => (await session.query(ASK, [namespace, key, null, reason], timeoutMs)).map(handOverOf));
  }

  /** False: there is no request, or no lease. */
  refuseHandOver({ namespace, key, leaseKey }, reason, timeoutMs) {
    const sql = 'select leasehold.refuse_hand_over($1::text, $2::text, $3::text::uuid, $4::text)::text as done';
    return this.#with(async (session) => (await session.query(sql, [namespace, key, leaseKey, reason], timeoutMs))[0].done === 'true');
  }

  explain({ namespace, key }, timeoutMs) {
    return this.#with(async (session) => {
      const [{ found }] = await session.query("select (to_jsonb(e) || jsonb_build_object('token', e.token::text))::text as found from leasehold.explain($1::text, $2::text) e", [namespace, key], timeoutMs);
      const { last_heartbeat_at: beat, expires_at: expires, rests_until: rests, first_waiter: firstWaiter, since, token, ...rest } = JSON.parse(found);
      const dateOf = (text) => (text === null ? null : new Date(text));
      return { ...rest, firstWaiter, token: token === null ? null : BigInt(token), since: dateOf(since), lastHeartbeatAt: dateOf(beat), expiresAt: dateOf(expires), restsUntil: dateOf(rests) };
    });
  }

  async close() {
    this.#isClosed = true;
    const idle = [this.#renewal, ...this.#idle].filter(Boolean);
    await Promise.all([...this.#open].map((session) => (idle.includes(session) ? session.close() : session.break())));
  }
}

/** What pg takes. It knows one host, and says "Invalid URL" to others. A password may stand in it: errors show nothing of it. */
function configOf(config) {
  const url = typeof config === 'string' ? config : config.connectionString;
  const hosts = /^postgres(?:ql)?:\/\/(?:[^@/]*@)?([^/?]*)/i.exec(url ?? '')?.[1] ?? config.host;
  if (typeof hosts === 'string' && hosts.includes(',')) {
    throw new InvalidArgumentError('database must name one host: pg connects to one, and this names several', 'database', 'one host');
  }
  return typeof config === 'string' ? { connectionString: config } : config;
}

const acquireValues = ({ namespace, key, durationMs, owner, leaseKey, labels, atLeastMs, shared, units, priority }) =>
  [namespace, key, durationMs / 1000, owner, leaseKey, JSON.stringify(labels), atLeastMs === undefined ? null : atLeastMs / 1000, modeOf({ shared }), units, priority];

/** Rows of reasons, null for what is released. */
const releaseEach = (session, items, patience, timeoutMs) => session.query(RELEASE_ALL, [
  ...['namespace', 'key', 'leaseKey'].map((name) => items.map(({ ref }) => ref[name])), items.map(({ isFailed }) => isFailed), items.map(({ value }) => value), patience,
], timeoutMs);

const contentionValues = (scopes) => [scopes.map(({ namespace }) => namespace), scopes.map(({ key }) => key), scopes.map(modeOf)];
const contentionOf = ([{ found }]) => JSON.parse(found);

/** Of the one that is in the way. */
function heldOf(scopes, { n, state, holder, advice, waiters, holders, units_free: unitsFree, is_alive: isAlive, silent_s: silent, held_s: held }) {
  const by = state === 'held' ? `held by ${holder ?? 'another'}` : state;
  return new HeldError(`${scopeName(scopes[n - 1])} is ${by}: ${advice}`,
    { holder, ahead: waiters, holderCount: holders, unitsFree, ...(isAlive === null ? {} : { isAlive, silentMs: silent * 1000, heldMs: held * 1000 }) });
}

const handOverOf = ({ found, token }) => {
  const { asked_us: asked, asked_by: askedBy, principal, reason, answer_by_us: answerBy, answer_in_us: answerIn, refusal, owner } = JSON.parse(found);
  return { askedAt: new Date(asked / 1000), askedBy, principal, reason, answerBy: new Date(answerBy / 1000), answerInMs: answerIn / 1000, refusal, owner, token: token === '0' ? null : BigInt(token) };
};

async function unlisten(session) {
  if (!session.isPooled && !session.isBroken) await session.query('unlisten *').catch(() => session.break());
}

const modeOf = ({ shared }) => (shared ? 'shared' : 'exclusive');
const grantOf = ({ token, left, units, slots, final }, sent) => ({
  token: BigInt(token),
  units: Number(units),
  slots: JSON.parse(slots ?? '[]'),
  deadline: sent + Number(left) * 1000,
  isFinal: final === 'true',
});

/** One connection. It keeps the process alive only while something waits for it. */
class Session {
  isBroken = false;
  isPooled = false;
  hasNews = false;
  onEnd = () => {};
  #client;
  #patienceMs;
  #trouble = null;
  #wake = () => {};

  constructor(config, patienceMs) {
    const { Client } = require('pg');
    this.#patienceMs = patienceMs;
    try {
      this.#client = new Client({ application_name: 'leasehold', ...config, connectionTimeoutMillis: patienceMs });
    } catch (error) {
      throw new InvalidArgumentError(`database must be what pg takes: ${error.message}`, 'database', 'a connection URL, or what pg takes');
    }
    this.#client.on('error', (error) => this.#end(error));
    this.#client.on('end', () => this.#end(new Error('the connection has ended')));
    this.#client.on('notification', () => {
      this.hasNews = true;
      this.#wake();
    });
  }

  #end(error) {
    this.isBroken = true;
    this.#trouble ??= error;
    this.#wake();
    this.onEnd();
  }

  async open() {
    try {
      await this.#client.connect();
    } catch (error) {
      this.#end(error);
      this.break();
      throw errorOf(error, 'SOCKET_NOT_AVAILABLE');
    }
    const [{ pid }] = await this.query('select pg_backend_pid()::text as pid');
    this.isPooled = Number(pid) !== this.#client.processID;
  }

  /** Its rows. A statement that is not answered in time breaks the connection: what it was to do may still happen. */
  async query(text, values = [], timeoutMs = this.#patienceMs) {
    if (this.isBroken) throw errorOf(this.#trouble);
    this.#client.ref();
    const timer = setTimeout(() => this.break(new Error('PostgreSQL does not answer in time')), Math.max(timeoutMs, 1));
    try {
      return (await this.#client.query(text, values)).rows;
    } catch (error) {
      throw errorOf(this.#trouble ?? error);
    } finally {
      clearTimeout(timer);
      this.#client.unref();
    }
  }

  listen(channel) {
    return this.query(`listen ${this.#client.escapeIdentifier(channel)}`);
  }

  /** Until a notification comes, at most so long, or the signal aborts, or the connection breaks. */
  news(ms, signal) {
    return new Promise((resolve) => {
      if (this.hasNews || this.isBroken || signal.aborted) return resolve();
      this.#client.ref();
      const timer = setTimeout(() => this.#wake(), Math.min(Math.max(ms, 0), 2 ** 31 - 1));
      this.#wake = () => {
        clearTimeout(timer);
        signal.removeEventListener('abort', this.#wake);
        this.#wake = () => {};
        this.#client.unref();
        resolve();
      };
      signal.addEventListener('abort', this.#wake);
    });
  }

  break(error = new ClosedError()) {
    this.#end(error);
    this.#client.connection.stream.destroy();
  }

  async close() {
    if (this.isBroken) return;
    this.isBroken = true;
    const timer = setTimeout(() => this.break(), this.#patienceMs);
    await this.#client.end().catch(() => {});
    clearTimeout(timer);
  }
}

/** By SQLSTATE, after which a repetition may succeed. 25P03 and 25P04: a limit of the server ended the session; 25006 and 0A000: a standby. */
const REASON_OF = [[/^(08|57P|25P03|25P04|25006|0A000|53300)/, 'DATABASE_UNAVAILABLE'], [/^(53|58|57014)/, 'OVERLOADED'], [/^(40|55P03)/, 'SCOPE_BUSY']];

/** The reasons after which another statement would fail, too. */
const CONNECTION = /^(SOCKET|DATABASE)_/;

/** An error of this package from one of PostgreSQL's, or of the connection's, for this reason. */
function errorOf(error, broken = 'SOCKET_CLOSED_WHILE_IN_FLIGHT') {
  if (typeof error.severity !== 'string') return error instanceof ClosedError ? error : new UnavailableError(error.message, { cause: error, reason: broken });
  const { code, message, detail = '', hint = '' } = error;
  const words = message.slice(message.indexOf(' ') + 1); // a condition of Leasehold's begins with its name
  const refusals = { LH003: 'NAMESPACE_FROZEN', LH004: 'QUOTA_EXCEEDED', LH005: 'HOOK_REJECTED', LH006: 'LEASE_ENDED', LH007: 'ACCESS_DENIED' };
  if (code === 'LH001') return new LeaseLostError(words, 'unknown');
  if (code === 'LH002') return new InvalidArgumentError(words, detail, hint);
  if (refusals[code]) return new DeniedError(words, refusals[code]);
  if (code === '42501') return new DeniedError(message, 'ACCESS_DENIED');
  if (code.startsWith('28')) return new DeniedError(message, 'UNAUTHENTICATED');
  const reason = REASON_OF.find(([states]) => states.test(code))?.[1];
  return reason ? new UnavailableError(message, { cause: error, reason }) : new DeniedError(message, code);
}

module.exports = { SqlTransport, ACQUIRE, CONTENTION, RELEASE, acquireValues, contentionOf, contentionValues, errorOf, grantOf, heldOf };
