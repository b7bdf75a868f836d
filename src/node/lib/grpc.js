'use strict';

// Leases through daemons. Each address has a connection of its own, and each call goes to one address: the one that answered last.
// A call that is not answered in its time moves the client to the next one, so a daemon that hangs is left after one call.

const fs = require('node:fs');
const net = require('node:net');
const grpc = require('@grpc/grpc-js');
const loader = require('@grpc/proto-loader');
const { ClosedError, DeniedError, errorOfRelease, HeldError, InvalidArgumentError, LeaseLostError, UnavailableError } = require('./errors.js');
const { REASONS } = require('./retry.js');
const { together } = require('./scopes.js');
const { traceparent } = require('./telemetry.js');
const { clock } = require('./time.js');

const SILENCE_MS = 15000; // a waiter hears something every 5 s: a daemon that is silent for three times as long hangs
const ALIVE_MS = 15000; // the longest time between two `alive`: proxies end streams on which nothing is sent for 50 or 60 s
const CLAIM_MS = 5000; // then a claim is sent again: the tick of one whose answer got lost is found before its lease expires
const UNSENT = /No connection established|Name resolution|Waiting for LB pick/i; // gRPC's words; it has no other sign
const BROKEN = /triggered by internal client error/; // grpc-js: INTERNAL where its own socket fails, other than by ECONNRESET and ETIMEDOUT
const CHANNEL = {
  'grpc.use_local_subchannel_pool': 1,
  'grpc.enable_retries': 0, // this package repeats calls itself
  'grpc.keepalive_time_ms': 5000, // a leader's stream says nothing for long: this finds a daemon that hangs
  'grpc.keepalive_timeout_ms': 5000,
  'grpc.initial_reconnect_backoff_ms': 100,
  'grpc.max_reconnect_backoff_ms': 1000,
};
const { ConsoleService, LeaseService, ScheduleService } = grpc.loadPackageDefinition(
  loader.fromJSON(require('./leasehold.json'), { keepCase: true, longs: String, enums: String, defaults: true, oneofs: true }),
).leasehold.v1;

/** Of the methods that are none of LeaseService's. */
const SERVICES = { Explain: ConsoleService, ClaimTick: ScheduleService };

const durationOf = (ms) => ({ seconds: Math.floor(ms / 1000), nanos: Math.floor((ms % 1000) * 1e6) });
const dateOf = (at) => (at ? new Date(Number(at.seconds) * 1000 + at.nanos / 1e6) : null);
const msOf = (duration) => (duration ? Number(duration.seconds) * 1000 + duration.nanos / 1e6 : 0);
const scopeOf = ({ namespace, key }) => ({ namespace: namespace.split('.'), key });
const refOf = (ref) => ({ scope: scopeOf(ref), lease_key: ref.leaseKey });
const reasonOf = (reason) => (/RELEASED|FAILED|EXPIRED|FORCED|MAX_HOLD/.test(reason) ? reason.slice('END_REASON_'.length).toLowerCase() : 'unknown');

class GrpcTransport {
  #servers;
  #current = 0;
  #calls = new Set();
  #isClosed = false;

  constructor({ server, tls, tokenFile, patienceMs }) {
    this.patienceMs = patienceMs;
    this.tls = tls ?? tlsOfEnvironment();
    this.tokenFile = tokenFile ?? process.env.LEASEHOLD_TOKEN_FILE;
    const addresses = (server ?? (process.env.LEASEHOLD_SERVER || '127.0.0.1:7420')).split(',').map((each) => each.trim());
    if (!addresses.every(Boolean)) throw new InvalidArgumentError(`server "${server}" has an empty address`, 'server', 'host:port,host:port');
    const far = addresses.find((address) => !isLocal(address));
    if (this.tokenFile && !this.tls && far !== undefined) {
      throw new InvalidArgumentError(`server '${far}': a token is sent over TLS, unix sockets and loopback only: set tls`, 'server', 'unix:PATH or loopback, without tls');
    }
    this.#servers = addresses.map((address) => ({ address, stub: null, stamp: null }));
  }

  /** The address in use, and what goes with a call. The files of TLS and the token may be replaced at any time. */
  #open() {
    if (this.#isClosed) throw new ClosedError();
    const server = this.#servers[this.#current];
    const metadata = new grpc.Metadata();
    const trace = traceparent();
    if (trace) metadata.set('traceparent', trace);
    try {
      const files = [this.tls?.caFile, this.tls?.certFile, this.tls?.keyFile].filter(Boolean).map((file) => fs.statSync(file));
      const stamp = JSON.stringify(files.map(({ ino, size, mtimeMs }) => [ino, size, mtimeMs]));
      if (server.stamp !== stamp) {
        server.stub?.close(); // its calls go on
        server.stub = this.#connect(LeaseService, server.address);
        server.others = {};
        server.stamp = stamp;
      }
      if (this.tokenFile) {
        const token = fs.readFileSync(this.tokenFile, 'latin1').trim();
        if (!token) throw new Error(`${this.tokenFile} is empty`);
        metadata.set('authorization', `Bearer ${token}`);
      }
    } catch (error) {
      throw new UnavailableError(`credentials: ${error.message}`, { cause: error });
    }
    return { server, metadata };
  }

  #connect(Service, address) {
    const isPlain = !this.tls || address.startsWith('unix:');
    const read = (file) => (file ? fs.readFileSync(file) : null);
    const { caFile, keyFile, certFile, serverName } = this.tls ?? {};
    const credentials = isPlain ? grpc.credentials.createInsecure() : grpc.credentials.createSsl(read(caFile), read(keyFile), read(certFile));
    const name = serverName && !isPlain ? { 'grpc.ssl_target_name_override': serverName, 'grpc.default_authority': serverName } : {};
    // A proxy of the environment is another host: it leads nowhere, and would read what loopback keeps.
    const near = isLocal(address) ? { 'grpc.enable_http_proxy': 0 } : {};
    return new Service(address, credentials, { ...CHANNEL, ...name, ...near });
  }

  #failed(server, ref, status) {
    const error = this.#isClosed ? new ClosedError() : errorOf(ref, status);
    if (error instanceof UnavailableError && REASONS[error.reason]?.isNext && this.#servers[this.#current] === server) {
      this.#current = (this.#current + 1) % this.#servers.length;
    }
    return error;
  }

  #unary(method, ref, request, timeoutMs, signal) {
    return new Promise((resolve, reject) => {
      const { server, metadata } = this.#open();
      const cancel = () => call.cancel();
      signal?.addEventListener('abort', cancel);
      const call = this.#stub(server, method)[method](request, metadata, { deadline: Date.now() + timeoutMs }, (error, reply) => {
        this.#calls.delete(call);
        signal?.removeEventListener('abort', cancel);
        error ? reject(this.#failed(server, ref, error)) : resolve(reply);
      });
      this.#calls.add(call);
    });
  }

  /** All use one connection. */
  #stub({ address, stub, others }, method) {
    const Service = SERVICES[method];
    if (!Service) return stub;
    return (others[method] ??= new Service(address, grpc.credentials.createInsecure(), { channelOverride: stub.getChannel() }));
  }

  /** One try. A leader's call is a stream that goes on: `tie`. */
  async acquire(request, waitMs, signal) {
    if (request.scopes) return this.#acquireAll(request, waitMs, signal);
    if (request.isTick) return this.#claim(request, signal);
    const { server, metadata } = this.#open();
    const sent = clock();
    const call = request.isHold ? server.stub.Hold(metadata) : server.stub.AcquireStream(messageOf(request, waitMs), metadata);
    const tie = request.isHold ? new Tie(call, request, waitMs) : null;
    this.#calls.add(call);
    call.on('status', () => this.#calls.delete(call));
    const cancel = () => call.cancel();
    let watchdog = setTimeout(cancel, this.patienceMs);
    signal?.addEventListener('abort', cancel);
    try {
      return await new Promise((resolve, reject) => {
        call.on('data', (event) => {
          if (!event.granted && !event.queued) return;
          clearTimeout(watchdog);
          if (event.granted) {
            try {
              resolve({ ...grantsOf(event, [event.granted], request, sent)[0], tie });
            } catch (error) {
              reject(error);
              cancel();
            }
          } else {
            watchdog = setTimeout(cancel, SILENCE_MS);
            request.onQueued?.(contentionOf(event.queued));
          }
        });
        call.on('error', (status) => reject(this.#failed(server, request, status)));
        call.on('end', () => reject(new UnavailableError('the daemon ended the stream without a grant')));
      });
    } finally {
      clearTimeout(watchdog);
      signal?.removeEventListener('abort', cancel);
    }
  }

  async #acquireAll(request, waitMs, signal) {
    const sent = clock();
    const items = request.scopes.map((scope) => ({ scope: scopeOf(scope), ...shareOf(scope) }));
    const { scope, ...rest } = messageOf(request, waitMs);
    const answer = await this.#unary('AcquireAll', request, { ...rest, items }, waitMs + this.patienceMs, signal);
    return { ...together(grantsOf(answer, answer.leases, request, sent)), tie: null };
  }

  /** The next tick of a schedule. */
  async #claim(request, signal) {
    const { namespace, durationMs, owner, leaseKey, labels } = request;
    const message = { namespace: { segments: namespace.split('.') }, wait: durationOf(CLAIM_MS), duration: durationOf(durationMs), owner, lease_key: leaseKey, labels };
    for (;;) {
      signal.throwIfAborted();
      const sent = clock();
      const answer = await this.#unary('ClaimTick', request, message, CLAIM_MS + this.patienceMs, signal);
      const { lease, at, attempt } = answer;
      if (lease) return { ...grantsOf(answer, [lease], request, sent)[0], tie: null, claimed: { key: lease.scope.key, at: dateOf(at), attempt } };
    }
  }

  /** The stream of a leader that has the lease already. */
  tie(request) {
    const { server, metadata } = this.#open();
    const call = server.stub.Hold(metadata);
    this.#calls.add(call);
    call.on('status', () => this.#calls.delete(call));
    return new Tie(call, request, 0);
  }

  async heartbeat(refs, timeoutMs) {
    const { results } = await this.#unary('Heartbeat', refs[0], { leases: refs.map(refOf) }, timeoutMs);
    check(results, refs);
    const outcomes = { OUTCOME_OK: 'ok', OUTCOME_LOST: 'lost' };
    return results.map((each, n) => ({
      outcome: outcomes[each.outcome] ?? 'retry',
      remainingMs: atMost(each.remaining, refs[n].durationMs),
      isFinal: each.deadline_is_final,
      reason: reasonOf(each.end_reason),
      message: each.message,
      asked: each.asked && handOverOf(each.asked),
    }));
  }

  async askHandOver({ reason, owner, ...scope }, timeoutMs) {
    const { holders } = await this.#unary('AskHandOver', scope, { scope: scopeOf(scope), reason, owner }, timeoutMs);
    return holders.map((holder) => handOverOf(holder.asked, holder.owner, holder.token === '0' ? null : BigInt(holder.token)));
  }

  /** False: there is no request, or no lease. */
  refuseHandOver(ref, reason, timeoutMs) {
    return this.#unary('RefuseHandOver', ref, { lease: refOf(ref), reason }, timeoutMs).then(() => true, (error) => {
      if (error instanceof LeaseLostError || error.reason === 'NOT_ASKED') return false;
      throw error;
    });
  }

  async downgrade(ref, units, timeoutMs) {
    const sent = clock();
    const answer = await this.#unary('Downgrade', ref, { lease: refOf(ref), units }, timeoutMs);
    return grantsOf(answer, [answer.lease].filter(Boolean), ref, sent)[0];
  }

  /** Of each: outcome ok, lost, denied, invalid or retry. */
  async releaseAll(items, timeoutMs) {
    const asked = items.map(({ ref, isFailed, value }) => ({ lease: refOf(ref), ...(isFailed ? { failure: value } : { success: value }) }));
    const { results } = await this.#unary('Release', items[0].ref, { items: asked }, timeoutMs);
    check(results, items.map(({ ref }) => ref));
    const outcomes = { OUTCOME_OK: 'ok', OUTCOME_LOST: 'lost', OUTCOME_DENIED: 'denied', OUTCOME_REJECTED: 'denied', OUTCOME_INVALID: 'invalid' };
    return items.map((item, n) => {
      const { outcome, message, end_reason: ended } = results[n];
      const reason = outcome === 'OUTCOME_LOST' ? reasonOf(ended) : outcome === 'OUTCOME_DENIED' ? 'ACCESS_DENIED' : 'HOOK_REJECTED';
      return { outcome: outcomes[outcome] ?? 'retry', reason, message: message || 'no answer to a release' };
    });
  }

  async release(ref, item, timeoutMs) {
    const [answer] = await this.releaseAll([{ ref, ...item }], timeoutMs);
    const error = errorOfRelease(ref, answer);
    if (error) throw error;
  }

  async explain({ namespace, key }, timeoutMs) {
    const found = await this.#unary('Explain', { namespace, key }, { scope: scopeOf({ namespace, key }) }, timeoutMs);
    const isHeld = ['held', 'shared'].includes(found.state);
    return {
      state: found.state, advice: found.advice, waiters: found.waiters, holders: found.holders, policy: JSON.parse(found.policy || '{}'),
      holder: found.holder || null, principal: found.principal || null, token: found.token === '0' ? null : BigInt(found.token),
      liveness: found.liveness || null, since: dateOf(found.since), heartbeats: isHeld ? Number(found.heartbeats) : null,
      lastHeartbeatAt: dateOf(found.last_heartbeat_at), expiresAt: dateOf(found.expires_at), firstWaiter: found.first_waiter || null,
      mode: found.mode === 'MODE_UNSPECIFIED' ? null : modeOf(found.mode), units: isHeld ? found.units : null, restsUntil: dateOf(found.rests_until),
    };
  }

  /** Until the stream breaks, or the signal aborts. */
  async *watch({ namespace, key, children }, signal) {
    const { server, metadata } = this.#open();
    const request = { namespace: namespace ? namespace.split('.') : [], include_children: children, include_initial: true, key, alive: true };
    const call = server.stub.WatchLeases(request, metadata);
    const cancel = () => call.cancel();
    this.#calls.add(call);
    call.on('status', () => this.#calls.delete(call));
    signal.addEventListener('abort', cancel, { once: true });
    if (signal.aborted) cancel();
    try {
      for await (const event of call) if (event.type !== 'TYPE_ALIVE') yield eventOf(event);
    } catch (status) {
      throw this.#failed(server, { namespace, key }, status);
    } finally {
      signal.removeEventListener('abort', cancel);
      call.on('error', () => {});
      call.cancel();
    }
  }

  async close() {
    this.#isClosed = true;
    for (const call of this.#calls) call.cancel();
    for (const { stub } of this.#servers) stub?.close();
    await new Promise(setImmediate);
  }
}

/**
 * A stream whose end ends the lease: when the process dies, the next leader follows at once. The process says `alive` on it, while it
 * waits too: proxies answer for one that is stopped, so the daemon renews for nobody else.
 */
class Tie {
  #call;
  #sequence = 0;
  #lost = null;

  constructor(call, request, waitMs) {
    this.#call = call;
    this.isWorking = () => true; // the lease's, once it is granted; so is the next
    this.onAsked = () => {};
    call.write({ acquire: messageOf(request, waitMs) });
    this.#alive();
    const timer = setInterval(() => this.#alive(), Math.min(ALIVE_MS, request.durationMs / 3)).unref();
    call.on('status', () => clearInterval(timer));
    call.on('data', (event) => {
      if (event.asked) this.onAsked(handOverOf(event.asked));
      if (event.lost) this.#lost = reasonOf(event.lost.end_reason);
    });
    call.on('error', () => {}); // a status follows
  }

  #alive() {
    if (!this.isWorking()) return;
    this.#sequence += 1;
    this.#call.write({ alive: { sequence: this.#sequence } });
  }

  /** function(why the lease has ended, or null) */
  onEnd(tell) {
    this.#call.on('status', () => tell(this.#lost));
  }

  close() {
    this.#call.cancel();
  }
}

const modeOf = (mode) => (mode === 'MODE_SHARED' ? 'shared' : 'exclusive');

function eventOf({ type, lease, reason, end_reason: ended, result, error }) {
  const word = type.slice('TYPE_'.length).toLowerCase();
  const isEnd = ['released', 'expired', 'forced'].includes(word) && ended !== 'END_REASON_UNSPECIFIED';
  const { scope, token = '0', owner = '', principal = '', mode, units = 0 } = lease ?? {};
  return {
    kind: word === 'initial' ? 'held' : isEnd ? reasonOf(ended) : word,
    namespace: scope?.namespace.join('.') ?? '', key: scope?.key ?? '', token: BigInt(token), owner, principal, mode: modeOf(mode), units, reason, result, error,
  };
}

const handOverOf = ({ asked_at: askedAt, asked_by: askedBy, principal, reason, answer_by: answerBy, answer_in: answerIn, refusal }, owner = '', token = null) =>
  ({ askedAt: dateOf(askedAt), askedBy, principal, reason, answerBy: dateOf(answerBy), answerInMs: msOf(answerIn), refusal, owner, token });

/** Milliseconds of an answer, as far as they can be true. */
const atMost = (duration, most) => Math.min(Math.max(msOf(duration), 0), most);

/** Refuses what is about other leases than were asked for. An answer may name none. */
function check(answers, refs) {
  if (answers.length === refs.length && answers.every(({ lease_key: key }, n) => key === '' || key === refs[n].leaseKey)) return;
  throw new UnavailableError('the server answered for other leases than it was asked for');
}

/** What an answer grants: no later than it came, and for no longer than was asked. */
function grantsOf({ waited }, leases, request, sent) {
  check(leases, request.scopes?.map(() => request) ?? [request]);
  const since = sent + atMost(waited, clock() - sent);
  return leases.map(({ token, units, slots, remaining, deadline_is_final: isFinal }) =>
    ({ token: BigInt(token), units, slots, deadline: since + atMost(remaining, request.durationMs), isFinal }));
}

function messageOf(request, waitMs) {
  let wait = waitMs === Infinity ? { wait_forever: true } : { wait: durationOf(waitMs) };
  if (request.whileAlive) wait = { wait_while_alive: true, wait: durationOf(request.waitMs) };
  const rest = request.atLeastMs === undefined ? {} : { at_least: durationOf(request.atLeastMs) };
  if (request.askHandOver && (waitMs || request.whileAlive)) rest.ask_hand_over = true;
  return { ...refOf(request), duration: durationOf(request.durationMs), owner: request.owner, labels: request.labels, priority: request.priority, ...wait, ...rest, ...shareOf(request) };
}

const shareOf = ({ shared, units }) => (shared ? { mode: 'MODE_SHARED', units } : {});

/** The fields of a protobuf message: google.rpc.Status and what it carries are read without their generated code. */
function* fieldsOf(data) {
  let at = 0;
  const number = () => {
    for (let value = 0, scale = 1; ; scale *= 128) {
      value += (data[at] & 127) * scale;
      if (data[at++] < 128) return value;
    }
  };
  while (at < data.length) {
    const tag = number();
    if (tag % 8 === 0) {
      yield [tag >> 3, number()];
    } else if (tag % 8 === 2) {
      const size = number();
      yield [tag >> 3, data.subarray(at, (at += size))];
    } else {
      at += tag % 8 === 1 ? 8 : 4;
    }
  }
}

/** A Contention's bytes, read as the field `queued` of an AcquireEvent: the loader makes functions for messages of calls only. */
function asQueued(body) {
  const size = [];
  for (let left = body.length; size.push(left > 127 ? (left % 128) + 128 : left), left > 127; left = Math.floor(left / 128));
  return LeaseService.service.AcquireStream.responseDeserialize(Buffer.concat([Buffer.from([10, ...size]), body])).queued;
}

function contentionOf({ holder, liveness, waiters_ahead: ahead, holder_count: holderCount, units_free: unitsFree }) {
  const facts = { holder: holder?.owner || null, ahead, holderCount, unitsFree: unitsFree?.value ?? null };
  if (!holder) return facts;
  const now = msOf(holder.deadline) - msOf(holder.remaining); // the database's clock
  const isAlive = ['LIVENESS_ALIVE', 'LIVENESS_OVERDUE'].includes(liveness);
  return { ...facts, isAlive, silentMs: now - msOf(holder.heartbeat_at), heldMs: now - msOf(holder.acquired_at) };
}

/** What google.rpc.ErrorInfo and Contention say in the details of a failure. */
function detailsOf(status) {
  const found = { reason: '', field: '', limit: '', retryAfterMs: 0 };
  for (const [, any] of [...fieldsOf(status.metadata?.get('grpc-status-details-bin')[0] ?? Buffer.alloc(0))].filter(([field]) => field === 3)) {
    const { 1: type = '', 2: body = Buffer.alloc(0) } = Object.fromEntries(fieldsOf(any));
    for (const [field, value] of fieldsOf(body)) {
      if (String(type).endsWith('google.rpc.ErrorInfo')) {
        if (field === 1) found.reason = String(value);
        if (field !== 3) continue;
        const { 1: name, 2: text } = Object.fromEntries(fieldsOf(value));
        if (['field', 'limit'].includes(String(name))) found[String(name)] = String(text);
      }
    }
    if (String(type).endsWith('google.rpc.RetryInfo')) {
      const { 1: seconds = 0, 2: nanos = 0 } = Object.fromEntries(fieldsOf(Object.fromEntries(fieldsOf(body))[1] ?? Buffer.alloc(0)));
      found.retryAfterMs = msOf({ seconds, nanos });
    }
    if (String(type).endsWith('leasehold.v1.Contention')) Object.assign(found, contentionOf(asQueued(body)));
  }
  return found;
}

/** What follows from a code without a reason. CANCELLED and DEADLINE_EXCEEDED: cut short, to ask the next. */
function evidenceOf(code, words) {
  if (UNSENT.test(words)) return 'SOCKET_NOT_AVAILABLE';
  return BROKEN.test(words) || ['UNAVAILABLE', 'CANCELLED', 'DEADLINE_EXCEEDED'].includes(grpc.status[code]) ? 'SOCKET_CLOSED_WHILE_IN_FLIGHT' : 'UNKNOWN';
}

function errorOf(ref, status) {
  const { reason, field, limit, retryAfterMs, ...contention } = detailsOf(status);
  const words = status.details ?? status.message;
  if (['LEASE_HELD', 'WAIT_TIMEOUT'].includes(reason)) return new HeldError(words, { ...contention, reason });
  if (reason === 'NOT_HELD') return new LeaseLostError(words, 'unknown');
  if (['INVALID_ARGUMENT', 'MESSAGE_TOO_LARGE'].includes(reason)) return new InvalidArgumentError(words, field, limit);
  const refusals = ['NAMESPACE_FROZEN', 'HOOK_REJECTED', 'LEASE_ENDED', 'QUOTA_EXCEEDED', 'UNAUTHENTICATED', 'ACCESS_DENIED', 'NOT_ASKED'];
  const codes = ['UNAUTHENTICATED', 'PERMISSION_DENIED', 'UNIMPLEMENTED', 'FAILED_PRECONDITION'];
  if (refusals.includes(reason) || codes.includes(grpc.status[status.code])) return new DeniedError(words, reason || grpc.status[status.code]);
  const why = reason in REASONS ? reason : retryAfterMs && !reason ? 'RETRY_INFO' : evidenceOf(status.code, words);
  return new UnavailableError(words, { cause: status, reason: why, retryAfterMs });
}

/** As for libleasehold. Each of them means TLS, unless LEASEHOLD_TLS=no. Commands of `leasehold run` have the key of their lease in LEASEHOLD_KEY. */
function tlsOfEnvironment({ LEASEHOLD_CA, LEASEHOLD_CERT, LEASEHOLD_KEY, LEASEHOLD_TLS_KEY, LEASEHOLD_SERVER_NAME, LEASEHOLD_TLS } = process.env) {
  const keyFile = LEASEHOLD_TLS_KEY || (LEASEHOLD_CERT ? LEASEHOLD_KEY : undefined);
  const any = LEASEHOLD_CA || LEASEHOLD_CERT || keyFile || LEASEHOLD_SERVER_NAME;
  if (LEASEHOLD_TLS !== 'yes' && (LEASEHOLD_TLS === 'no' || !any)) return null;
  return { caFile: LEASEHOLD_CA, certFile: LEASEHOLD_CERT, keyFile, serverName: LEASEHOLD_SERVER_NAME };
}

/** What is sent there without TLS nobody else reads. A name that only begins like a loopback address is another host's. */
function isLocal(address) {
  const [, host] = /^(localhost|[0-9.]+|\[::1\])(?::[0-9]+)?$/i.exec(address) ?? [];
  return address.startsWith('unix:') || (host !== undefined && (!/^[0-9.]/.test(host) || (net.isIPv4(host) && host.startsWith('127.'))));
}

module.exports = { GrpcTransport };
