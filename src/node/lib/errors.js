'use strict';

/** What this package throws, but InvalidArgumentError. `code` is for programs that compare strings. */
class LeaseholdError extends Error {
  constructor(message, code, options) {
    super(message, options);
    this.name = this.constructor.name;
    this.code = code;
  }
}

/** Another holds the lease, or waits for it, and the wait has passed. */
class HeldError extends LeaseholdError {
  constructor(message, { holder = null, ahead = 0, holderCount = 0, unitsFree = null, isAlive = null, silentMs = null, heldMs = null, reason = 'LEASE_HELD' } = {}) {
    super(message, 'LEASEHOLD_HELD');
    Object.assign(this, { holder, ahead, holderCount, unitsFree, isAlive, silentMs, heldMs, reason });
  }
}

/** The lease ended before it was released. */
class LeaseLostError extends LeaseholdError {
  constructor(message, reason, options) {
    super(message, 'LEASEHOLD_LOST', options);
    this.reason = reason;
  }
}

/** The coordinator refuses; nothing to do with another holder. */
class DeniedError extends LeaseholdError {
  constructor(message, reason) {
    super(message, 'LEASEHOLD_DENIED');
    this.reason = reason;
  }
}

/** No server answered in time. Nothing is known to be lost. */
class UnavailableError extends LeaseholdError {
  constructor(message, { reason = 'UNKNOWN', retryAfterMs = 0, ...options } = {}) {
    super(message, 'LEASEHOLD_UNAVAILABLE', options);
    this.reason = reason;
    this.retryAfterMs = retryAfterMs; // as the server says
  }
}

/** The client was closed. */
class ClosedError extends LeaseholdError {
  constructor() {
    super('the client is closed', 'LEASEHOLD_CLOSED');
  }
}

/** An argument is out of bounds. */
class InvalidArgumentError extends RangeError {
  constructor(message, field = '', bound = '') {
    super(message);
    this.name = 'InvalidArgumentError';
    this.code = 'LEASEHOLD_INVALID_ARGUMENT';
    this.field = field;
    this.bound = bound;
  }
}

/** As errors name a scope. A namespace that has a slash stands in quotes: a/b/k would name two scopes. */
function scopeName({ namespace, key }) {
  return namespace.includes('/') ? `"${namespace}"/${key}` : `${namespace}/${key}`;
}

/** What an answer to a release means; null: done. */
function errorOfRelease(ref, { outcome, reason, message }) {
  if (outcome === 'ok') return null;
  if (outcome === 'lost') return new LeaseLostError(`the lease ${scopeName(ref)} is lost: ${message}`, reason);
  if (outcome === 'denied') return new DeniedError(message, reason);
  if (outcome === 'invalid') return new InvalidArgumentError(message, 'result');
  return new UnavailableError(message, { reason: 'OUTCOME_RETRY' });
}

module.exports = { errorOfRelease, scopeName, LeaseholdError, HeldError, LeaseLostError, DeniedError, UnavailableError, ClosedError, InvalidArgumentError };
