'use strict';

const crypto = require('node:crypto');
const os = require('node:os');
const { GrpcTransport } = require('./grpc.js');
const { SqlTransport } = require('./sql.js');
const { Lease, asyncDispose } = require('./lease.js');
const { Renewer } = require('./renewer.js');
const { checkUnits, ClosedError, DeniedError, InvalidArgumentError, UnavailableError } = require('./errors.js');
const { clock, sleep } = require('./time.js');

const RETRY_AFTER_MS = 100;
const FLUSH_MS = 1000; // how long close() waits for what is being given up

/** Any number of leases, renewed together. */
class Client {
  #renewer;
  #closing = new AbortController();
  #closed = null;
  #tasks = new Set();

  constructor(target = {}) {
    const options = typeof target === 'string' ? { server: target } : target;
    const { server, database, owner, patienceMs = 5000, pollMs = 5000, warn = (words) => process.emitWarning(words, 'LeaseholdWarning') } = options;
    if (server !== undefined && database !== undefined) throw new InvalidArgumentError('server and database exclude each other', 'database');
    this.owner = owner ?? `${os.hostname()} pid ${process.pid}`;
    this._transport =
      database === undefined ? new GrpcTransport({ ...options, patienceMs }) : new SqlTransport(database, { patienceMs, pollMs, warn });
    this.#renewer = new Renewer(this._transport, patienceMs, warn);
  }

  async acquire(namespace, key, options = {}) {
    return this.#acquire(this.#request(namespace, key, options), options.signal);
  }

  async withLease(namespace, key, options, work) {
    if (typeof options === 'function') [options, work] = [{}, options];
    const { signal } = options;
    return this.#work(await this.#acquire(this.#request(namespace, key, options), signal), signal, work);
  }

  async lead(namespace, key, options, work) {
    if (typeof options === 'function') [options, work] = [{}, options];
    const { signal, onLeader } = options;
    for (let leader = ''; ; leader = '') {
      const see = (owner) => {
        if (owner && owner !== leader) onLeader?.((leader = owner));
      };
      const request = this.#request(namespace, key, { durationMs: 15000, ...options, waitMs: Infinity, onQueued: ({ holder }) => see(holder) });
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

  close() {
    this.#closed ??= this.#close();
    return this.#closed;
  }

  async [asyncDispose]() {
    await this.close();
  }

  #request(namespace, key, { durationMs = 30000, waitMs = 0, owner = this.owner, labels = {}, shared = false, units = 1, atLeastMs, onQueued }) {
    for (const [field, value] of Object.entries({ namespace, key, owner })) {
      if (typeof value !== 'string') throw new InvalidArgumentError(`${field} must be a string, not ${typeof value}`, field, 'a string');
    }
    if (!Number.isFinite(durationMs)) throw new InvalidArgumentError(`durationMs must be a number, not ${durationMs}`, 'duration', 'a number');
    if (!(waitMs >= 0)) throw new InvalidArgumentError(`waitMs must be a number from 0 to Infinity, not ${waitMs}`, 'wait', '0 to Infinity');
    if (atLeastMs !== undefined && !Number.isFinite(atLeastMs)) throw new InvalidArgumentError(`atLeastMs must be a number, not ${atLeastMs}`, 'at_least', 'a number');
    checkUnits(units);
    if (!shared && units !== 1) throw new InvalidArgumentError(`units must be 1 without shared, not ${units}`, 'units', '1 without shared');
    return { namespace, key, durationMs, waitMs, owner, labels, shared, units, atLeastMs, onQueued, isHold: false, leaseKey: crypto.randomUUID() };
  }

  async #acquire(request, signal) {
    signal?.throwIfAborted();
    const stop = new AbortController();
    const abort = () => stop.abort(this.#closing.signal.aborted ? new ClosedError() : signal.reason);
    const signals = [signal, this.#closing.signal].filter(Boolean);
    for (const each of signals) each.addEventListener('abort', abort, { once: true });
    if (this.#closing.signal.aborted) abort();
    try {
      const grant = await this.#grant(request, stop.signal);
      const lease = new Lease(this.#renewer, request, grant);
      this.#renewer.add(lease);
      return lease;
    } finally {
      for (const each of signals) each.removeEventListener('abort', abort);
    }
  }

  /** Repeats what was not answered, under the same lease key: the same acquisition, with its old place in the queue. */
  async #grant(request, signal) {
    const waitUntil = clock() + request.waitMs;
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
        if (error instanceof UnavailableError) {
          if (clock() >= waitUntil + this.#renewer.patienceMs) {
            this.#giveUp(request, asked);
            throw error;
          }
          isRepeated = true;
          await sleep(RETRY_AFTER_MS, signal);
        } else if (isRepeated && error instanceof DeniedError && error.reason === 'LEASE_ENDED') {
          // The daemon granted it, saw the connection break, and took the lease back.
          isRepeated = false;
          request.leaseKey = crypto.randomUUID();
        } else {
          throw error;
        }
      }
    }
  }

  /** Sees to it that what was granted unheard is released: once the request is over, for as long as a lease would live. */
  #giveUp({ namespace, key, leaseKey, durationMs }, asked) {
    this.#background(async () => {
      await asked.then((grant) => grant.tie?.close(), () => {});
      for (const until = clock() + durationMs; clock() < until; await sleep(2 * RETRY_AFTER_MS, this.#closing.signal, true)) {
        try {
          return await this._transport.giveUp({ namespace, key, leaseKey }, this.#renewer.patienceMs);
        } catch (error) {
          if (!(error instanceof UnavailableError) || this.#closing.signal.aborted) return;
        }
      }
    });
  }

  async #work(lease, signal, work) {
    const abort = () => lease._abort(signal.reason);
    signal?.addEventListener('abort', abort, { once: true });
    if (signal?.aborted) abort();
    let value;
    let outcome = {};
    try {
      value = await work(lease);
    } catch (error) {
      outcome = { failure: error ?? 'unknown', error };
    } finally {
      signal?.removeEventListener('abort', abort);
    }
    try {
      if (lease.lost && 'error' in outcome && outcome.error !== lease.lost) lease.lost.cause ??= outcome.error;
      await lease.release(outcome);
    } catch (error) {
      if (!('error' in outcome) || error === lease.lost) throw error;
    } finally {
      lease._tie?.close();
    }
    if ('error' in outcome) throw outcome.error;
    return value;
  }

  #background(task) {
    const running = task().catch(() => {}).finally(() => this.#tasks.delete(running)); // the lease ends by its deadline
    this.#tasks.add(running);
  }

  async #close() {
    for (const lease of this.#renewer.leases) {
      lease._lose('closed');
      lease._tie?.close();
    }
    this.#closing.abort();
    await new Promise(setImmediate); // acquires that wait now give up
    const enough = new AbortController();
    await Promise.race([Promise.allSettled(this.#tasks), sleep(FLUSH_MS, enough.signal)]);
    enough.abort();
    await this._transport.close();
    await Promise.allSettled(this.#tasks);
  }
}

function unlessAborted(promise, signal) {
  return new Promise((resolve, reject) => {
    const abort = () => reject(signal.reason);
    signal.addEventListener('abort', abort, { once: true });
    promise.then(resolve, reject).finally(() => signal.removeEventListener('abort', abort));
  });
}

module.exports = { Client };
