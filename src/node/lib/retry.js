'use strict';

// Whether and when a request that failed is repeated: the reasons, numbers and strategies of leasehold_retry.h.

const { debuglog } = require('node:util');
const { HeldError, scopeName, UnavailableError } = require('./errors.js');
const { clock, sleep } = require('./time.js');

/** isUnsent: nothing was done; isAlways: repeated whatever the strategy says; isNext: at the next address. */
const reason = (isUnsent, isAlways, isNext) => Object.freeze({ isUnsent, isAlways, isNext });
const REASONS = Object.freeze({
  UNKNOWN: reason(false, false, false),
  SOCKET_NOT_AVAILABLE: reason(true, false, true),
  ENDPOINT_NOT_AVAILABLE: reason(true, false, true),
  SOCKET_CLOSED_WHILE_IN_FLIGHT: reason(false, false, true),
  CIRCUIT_BREAKER_OPEN: reason(true, false, true),
  BLOCKING_TIMEOUT: reason(true, true, false),
  SHUTTING_DOWN: reason(true, true, true),
  DATABASE_UNAVAILABLE: reason(true, false, true),
  OVERLOADED: reason(true, false, true),
  SCOPE_BUSY: reason(true, false, false),
  OUTCOME_RETRY: reason(true, false, false),
  LEASE_HELD: reason(true, false, false),
  RETRY_INFO: reason(true, false, false),
});
const CONTROLLED_MS = [1, 10, 50, 100, 500, 1000];
const BLOCKED_MS = 1000; // a server that blocked for so long is asked again at once

/** The default: repeats all but LEASE_HELD, after 1, 2, 4 ... 256, 500 ms. */
const bestEffort = (retry) => (retry.reason === 'LEASE_HELD' ? null : Math.min(2 ** (retry.failures - 1), 500));

/** Repeats nothing. */
const failFast = () => null;

/** 1, 10, 50, 100, 500, then 1000 ms. */
const controlledBackoff = (failures) => CONTROLLED_MS[Math.min(Math.max(failures, 1), CONTROLLED_MS.length) - 1];

/** NODE_DEBUG=leasehold shows it. */
const debug = debuglog('leasehold');
function logged({ verb, delayMs, error, attempts, reasons, ...scope }) {
  const decided = delayMs === null ? 'fails' : `is repeated after ${delayMs} ms`;
  debug('%s of %s %s: %s; attempts: %d, reasons: %s', verb, scopeName(scope), decided, error.message, attempts, reasons.join(', '));
}

/** Null: it is final. */
function reasonOf(error) {
  if (!(error instanceof HeldError || error instanceof UnavailableError)) return null;
  if (error.reason in REASONS) return error.reason;
  return error instanceof HeldError ? null : 'UNKNOWN';
}

/** Of a client. */
class Retries {
  constructor(strategy = bestEffort, log = logged) {
    this.strategy = strategy;
    this.log = log;
  }

  /** A request that may be repeated. */
  of(verb, { namespace, key, strategy = this.strategy }) {
    return new Retrying({ verb, namespace, key }, strategy, this.log);
  }
}

class Retrying {
  #request;
  #strategy;
  #log;
  #attempts = 0;
  #failures = 0;
  #reasons = [];
  #begun = clock(); // the attempt

  constructor(request, strategy, log) {
    this.#request = request;
    this.#strategy = strategy;
    this.#log = log;
  }

  /** Before the next attempt; null: there is none. */
  delayMs(error, remainingMs) {
    const why = reasonOf(error);
    if (why === null) return null;
    this.#attempts += 1;
    this.#failures += 1;
    if (!this.#reasons.includes(why)) this.#reasons.push(why);
    const { retryAfterMs = 0 } = error;
    const retry = { ...this.#request, reason: why, error, attempts: this.#attempts, failures: this.#failures, reasons: [...this.#reasons], remainingMs, retryAfterMs };
    const delayMs = this.#decide(retry);
    this.#log({ ...retry, delayMs });
    this.#begun = clock() + (delayMs ?? 0); // the next one's
    return delayMs;
  }

  #decide(retry) {
    if (retry.reason === 'BLOCKING_TIMEOUT' && clock() - this.#begun >= BLOCKED_MS) {
      this.#failures = 0;
      return 0;
    }
    const delayMs = REASONS[retry.reason].isAlways ? controlledBackoff(retry.failures) : this.#strategy(retry);
    return typeof delayMs === 'number' && delayMs <= retry.remainingMs ? Math.max(delayMs, 0) : null;
  }

  /** Calls it again while it is not answered. */
  async repeat(until, signal, call) {
    for (;;) {
      try {
        return await call();
      } catch (error) {
        const delayMs = this.delayMs(error, until - clock());
        if (delayMs === null) throw error;
        await sleep(delayMs, signal);
      }
    }
  }
}

module.exports = { bestEffort, controlledBackoff, failFast, Retries, REASONS };
