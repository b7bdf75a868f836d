'use strict';

const crypto = require('node:crypto');
const { setMaxListeners } = require('node:events');
const os = require('node:os');
const { GrpcTransport } = require('./grpc.js');
const { SqlTransport } = require('./sql.js');
const { Declared } = require('./declared.js');
const { Lease, asyncDispose } = require('./lease.js');
const { Renewer } = require('./renewer.js');
const { check, checkNoMore, checkOptions, optionsAndWork, refused, requestOf, requestOfAll, ACQUIRE, ALL, CLIENT, LEAD, LISTENERS, TICKS, TLS, WATCH } = require('./arguments.js');
const { ClosedError, DeniedError, InvalidArgumentError, LeaseLostError, UnavailableError } = require('./errors.js');
const { signalsAround, within } = require('./nested.js');
const { Retries } = require('./retry.js');
const { refsOf } = require('./scopes.js');
const { Story } = require('./telemetry.js');
const { Tick } = require('./ticks.js');
const { clock, sleep } = require('./time.js');
const { acquireIn } = require('./transaction.js');

const WATCH_AGAIN_MS = 300; // after it broke
const FLUSH_MS = 1000; // how long close() waits for what is being given up

/** Any number of leases, renewed together. */
class Client {
  #renewer;
  #retries;
  #closing = new AbortController();
  #closed = null;
  #tasks = new Set();
  #warn;
  #tell; // makes of a listener one that never throws: news cost neither the lease nor the process

  constructor(target = {}, ...more) {
    checkNoMore('Client', more, 'one object, as in { server, tokenFile }');
    const options = typeof target === 'string' ? { server: target } : target;
    checkOptions('Client', options, CLIENT);
    if (options.tls !== undefined) checkOptions('tls', options.tls, TLS);
    const { server, database, owner, patienceMs = 5000, pollMs = 5000 } = options;
    const warn = (this.#warn = warner(options.warn));
    if (server !== undefined && database !== undefined) throw new InvalidArgumentError('server and database exclude each other', 'database');
    this.owner = owner ?? `${os.hostname()} pid ${process.pid}`;
    this._transport =
      database === undefined ? new GrpcTransport({ ...options, patienceMs }) : new SqlTransport(database, { patienceMs, pollMs, warn });
    setMaxListeners(0, this.#closing.signal); // each acquire that waits listens: any number is no leak
    this.#tell = (listener) => listener && harmless(listener, (error) => warn(`a listener failed: ${error?.stack ?? error}`));
    this.#retries = new Retries(options.strategy, this.#tell(options.retryLog));
    this.#renewer = new Renewer(this._transport, patienceMs, warn, this.#retries);
  }

  declare(namespace, options = {}, ...more) {
    checkNoMore('declare', more, 'namespace, options');
    checkOptions('declare', options, ACQUIRE);
    requestOf(namespace, 'any', options);
    return new Declared(this, namespace, options);
  }

  async acquire(namespace, key, options = {}, ...more) {
    checkNoMore('acquire', more, 'namespace, key, options');
    checkOptions('acquire', options, ACQUIRE);
    return this.#acquire(this.#request(namespace, key, options), options.signal);
  }

  async withLease(namespace, key, ...given) {
    const [options, work] = optionsAndWork('withLease', given, ACQUIRE);
    const { signal } = options;
    return this.#work(await this.#acquire(this.#request(namespace, key, options), signal), signal, work);
  }

  async acquireAll(scopes, options = {}, ...more) {
    checkNoMore('acquireAll', more, 'scopes, options');
    checkOptions('acquireAll', options, ALL);
    return this.#acquire(this.#complete(requestOfAll(scopes, options)), options.signal);
  }

  async withAll(scopes, ...given) {
    const [options, work] = optionsAndWork('withAll', given, ALL, 'scopes');
    const { signal } = options;
    return this.#work(await this.#acquire(this.#complete(requestOfAll(scopes, options)), signal), signal, work);
  }

  async acquireIn(pg, namespace, key, ...given) {
    const [options, work] = optionsAndWork('acquireIn', given, ACQUIRE, 'client, namespace, key');
    const request = this.#request(namespace, key, options);
    if (request.waitMs !== 0 || request.whileAlive) throw refused('waitMs', request.waitMs, '0 in a transaction, without whileAlive');
    if (this.#closing.signal.aborted) throw new ClosedError();
    request.story = new Story(request);
    try {
      await this.#renewer.releaser.follow(refsOf(request));
      const giveUp = () => this.#giveUp(request, Promise.resolve({}));
      return await acquireIn(pg, request, this.#renewer, work, giveUp);
    } catch (error) {
      request.story.refused(error);
      throw error;
    }
  }

  async lead(namespace, key, ...given) {
    const [options, work] = optionsAndWork('lead', given, LEAD);
    const { signal, onLeader: listener, ...rest } = options;
    const onLeader = this.#tell(listener);
    for (let leader = ''; ; leader = '') {
      const see = (owner) => {
        if (owner && owner !== leader) onLeader?.((leader = owner));
      };
      const request = this.#request(namespace, key, { durationMs: 15000, ...defined(rest), waitMs: Infinity, onQueued: ({ holder }) => see(holder) });
      request.isHold = true;
      const lease = await this.#acquire(request, signal);
      see(request.owner);
      try {
        return await this.#work(lease, signal, work);
      } catch (error) {
        if (error !== lease.lost || error.reason === 'closed' || signal?.aborted) throw error;
      }
    }
  }

  async *ticks(name, options = {}, ...more) {
    checkNoMore('ticks', more, 'name, options');
    checkOptions('ticks', options, TICKS);
    const { signal, ...rest } = options;
    for (;;) {
      const request = { ...this.#request(name, 'any', { ...defined(rest), waitMs: Infinity }), key: '', isTick: true };
      const lease = await this.#acquire(request, signal);
      const tick = new Tick(lease, request.claimed, (work) => this.#work(lease, signal, work), this.#warn);
      let isLeft = true;
      try {
        yield tick;
        isLeft = false;
      } finally {
        await tick._end(isLeft);
      }
    }
  }

  async explain(namespace, key, ...more) {
    checkNoMore('explain', more, 'namespace, key');
    requestOf(namespace, key, {});
    if (this.#closing.signal.aborted) throw new ClosedError();
    const until = clock() + this.#renewer.patienceMs;
    const once = () => this._transport.explain({ namespace, key }, Math.max(until - clock(), 1));
    return this.#retries.of('Explain', { namespace, key }).repeat(until, this.#closing.signal, once);
  }

  async askHandOver(namespace, key, reason = '', ...more) {
    checkNoMore('askHandOver', more, 'namespace, key, reason');
    requestOf(namespace, key, {});
    check('reason', reason);
    if (this.#closing.signal.aborted) throw new ClosedError();
    const until = clock() + this.#renewer.patienceMs;
    const once = () => this._transport.askHandOver({ namespace, key, reason, owner: this.owner }, Math.max(until - clock(), 1));
    try {
      return await this.#retries.of('AskHandOver', { namespace, key }).repeat(until, this.#closing.signal, once);
    } catch (error) {
      if (error instanceof LeaseLostError) return []; // nobody holds it
      throw error;
    }
  }

  async *watch(namespace = '', options = {}, ...more) {
    checkNoMore('watch', more, 'namespace, options');
    checkOptions('watch', options, WATCH);
    const { key = '', children = false, signal } = options;
    if (key && (children || !namespace)) throw refused('key', key, 'absent with children, or without a namespace');
    requestOf(namespace || 'any', key || 'any', {});
    if (!this._transport.watch) throw new InvalidArgumentError('watch needs a server: in SQL nothing tells of each change', 'database', 'a server');
    const stop = new AbortController();
    const abort = () => stop.abort();
    const signals = [signal, this.#closing.signal].filter(Boolean);
    for (const each of signals) each.addEventListener('abort', abort, { once: true });
    if (signals.some(({ aborted }) => aborted)) abort();
    try {
      while (!stop.signal.aborted) {
        try {
          yield* this._transport.watch({ namespace, key, children }, stop.signal);
        } catch (error) {
          if (!stop.signal.aborted && !(error instanceof UnavailableError)) throw error;
        }
        await sleep(WATCH_AGAIN_MS, stop.signal);
      }
    } finally {
      for (const each of signals) each.removeEventListener('abort', abort);
    }
    if (signal?.aborted) throw signal.reason;
  }

  close() {
    this.#closed ??= this.#close();
    return this.#closed;
  }

  async [asyncDispose]() {
    await this.close();
  }

  #request(namespace, key, options) {
    return this.#complete(requestOf(namespace, key, options));
  }

  #complete(request) {
    const listeners = Object.fromEntries([...LISTENERS, 'onAsked', 'onQueued'].map((name) => [name, this.#tell(request[name])]));
    return { ...request, ...listeners, owner: request.owner ?? this.owner, leaseKey: crypto.randomUUID() };
  }

  async #acquire(request, signal) {
    signal?.throwIfAborted();
    if (request.isTick) return this.#granted(request, signal); // before a tick has come, there is nothing to tell of but time
    const story = (request.story = new Story(request));
    try {
      return await story.during('acquire', () => this.#granted(request, signal));
    } catch (error) {
      story.refused(error, signal);
      throw error;
    }
  }

  async #granted(request, signal) {
    const stop = new AbortController();
    const signals = [signal, ...signalsAround(), this.#closing.signal].filter(Boolean);
    const abort = () => stop.abort(this.#closing.signal.aborted ? new ClosedError() : signals.find(({ aborted }) => aborted).reason);
    for (const each of signals) each.addEventListener('abort', abort, { once: true });
    if (signals.some(({ aborted }) => aborted)) abort();
    try {
      await this.#renewer.releaser.follow(refsOf(request), stop.signal);
      const grant = await this.#grant(request, stop.signal);
      if (grant.claimed) Object.assign(request, { claimed: grant.claimed, key: grant.claimed.key });
      request.story ??= new Story(request);
      const lease = new Lease(this.#renewer, request, grant);
      this.#renewer.add(lease);
      return lease;
    } finally {
      for (const each of signals) each.removeEventListener('abort', abort);
    }
  }

  /** Repeats what was not answered, under the same lease key: the same acquisition, with its old place in the queue. */
  async #grant(request, signal) {
    const waitUntil = request.whileAlive ? Infinity : clock() + request.waitMs;
    const retrying = this.#retries.of(request.scopes ? 'AcquireAll' : request.isTick ? 'ClaimTick' : 'Acquire', request);
    for (let isRepeated = false; ; ) {
      signal.throwIfAborted();
      const asked = this._transport.acquire({ ...request }, Math.max(waitUntil - clock(), 0), signal);
      try {
        return await unlessAborted(asked, signal);
      } catch (error) {
        if (signal.aborted) {
          this.#giveUp(request, asked);
          throw signal.reason;
        }
        let delayMs = null;
        try {
          delayMs = retrying.delayMs(error, waitUntil + this.#renewer.patienceMs - clock());
        } catch (thrown) {
          this.#giveUp(request, asked); // the strategy has failed
          throw thrown;
        }
        if (delayMs !== null) {
          isRepeated ||= error instanceof UnavailableError;
          await sleep(delayMs, signal);
        } else if (isRepeated && error instanceof DeniedError && error.reason === 'LEASE_ENDED') {
          // The daemon granted it, saw the connection break, and took the lease back; or one of several has ended.
          isRepeated = false;
          if (request.scopes) {
            const over = new AbortController();
            this.#giveUp(request, asked).finally(() => over.abort());
            await unlessAborted(sleep(this.#renewer.patienceMs, over.signal), signal); // the others are in the way
          }
          request.leaseKey = crypto.randomUUID();
        } else {
          if (isRepeated || error instanceof UnavailableError) this.#giveUp(request, asked);
          throw error;
        }
      }
    }
  }

  /** Sees to it that what was granted unheard is released, once the request is over. */
  #giveUp({ durationMs, ...request }, asked) {
    return this.#background(async () => {
      await asked.then(({ tie, claimed }) => {
        tie?.close();
        if (claimed) request.key = claimed.key;
      }, () => {});
      await this.#renewer.givenUp.add(refsOf({ ...request, durationMs }), durationMs);
    });
  }

  async #work(lease, signal, work) {
    const abort = () => lease._abort(signal.reason);
    const alive = setInterval(() => {}, 2 ** 31 - 1); // the work may wait for nothing but lease.signal
    signal?.addEventListener('abort', abort, { once: true });
    if (signal?.aborted) abort();
    let value;
    let failed = null;
    try {
      value = await within(lease, () => work(lease));
    } catch (error) {
      failed = { error };
    } finally {
      signal?.removeEventListener('abort', abort);
    }
    try {
      await lease.release(failed ? { failure: failed.error ?? 'unknown' } : {});
    } catch (error) {
      if (!failed) throw error;
      if (error === lease.lost) {
        if (failed.error !== error) error.cause ??= failed.error;
        throw error;
      }
    } finally {
      clearInterval(alive);
      lease._tie?.close();
    }
    if (failed) throw failed.error;
    return value;
  }

  #background(task) {
    const running = task().catch(() => {}).finally(() => this.#tasks.delete(running)); // the lease ends by its deadline
    this.#tasks.add(running);
    return running;
  }

  async #close() {
    for (const lease of this.#renewer.leases) {
      lease._lose('closed');
      lease._tie?.close();
    }
    this.#closing.abort();
    await new Promise(setImmediate); // acquires that wait now give up
    const enough = new AbortController();
    const flushed = [this.#renewer.releaser.close(FLUSH_MS), this.#renewer.givenUp.close()];
    await Promise.race([Promise.allSettled([...flushed, ...this.#tasks]), sleep(FLUSH_MS, enough.signal)]);
    enough.abort();
    await this._transport.close();
    await Promise.allSettled(this.#tasks);
  }
}

const defined = (options) => Object.fromEntries(Object.entries(options).filter(([, value]) => value !== undefined));

/** For the operator; it never throws. */
function warner(warn) {
  const emit = (words) => process.emitWarning(words, 'LeaseholdWarning');
  return warn ? harmless(warn, (error, words) => emit(`${words} (and warn failed: ${error})`)) : emit;
}

/** Calls it, now; onError(error, ...its arguments), also for a promise that it returns. */
function harmless(listener, onError) {
  return (...news) => void new Promise((resolve) => resolve(listener(...news))).catch((error) => onError(error, ...news));
}

function unlessAborted(promise, signal) {
  return new Promise((resolve, reject) => {
    const abort = () => reject(signal.reason);
    signal.addEventListener('abort', abort, { once: true });
    promise.then(resolve, reject).finally(() => signal.removeEventListener('abort', abort));
  });
}

module.exports = { Client };
