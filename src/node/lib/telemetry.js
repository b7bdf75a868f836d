'use strict';

// Spans and metrics by OpenTelemetry's API, where the program has it (@opentelemetry/api); else nothing is done.
//
// Spans: leasehold.acquire, until the lease is granted or refused; leasehold.hold, from the grant to the end; leasehold.release. All are below
// the caller's span. A metric has the namespace and the mode. The key is on spans alone: nothing bounds how many there are. The lease key,
// which is the credential, is nowhere.

const { DeniedError, HeldError, ClosedError, InvalidArgumentError, LeaseLostError, UnavailableError } = require('./errors.js');
const { clock } = require('./time.js');

const api = installed();
const ERRORS = [
  [HeldError, 'held'], [LeaseLostError, 'lost'], [DeniedError, 'denied'], [ClosedError, 'closed'], [UnavailableError, 'unavailable'], [InvalidArgumentError, 'invalid'],
];

function installed() {
  try {
    return require('@opentelemetry/api');
  } catch (error) {
    if (error.code === 'MODULE_NOT_FOUND') return null;
    throw error;
  }
}

/** 'cancelled' where the caller's signal ends it; else OpenTelemetry's word for what is not listed. */
function errorType(error, signal) {
  const known = ERRORS.find(([kind]) => error instanceof kind);
  return known?.[1] ?? (signal?.aborted ? 'cancelled' : '_OTHER');
}

const made = { provider: null, of: null };

/** A program may set its SDK after it has loaded this. */
function instruments() {
  const provider = api.metrics.getMeterProvider();
  if (made.provider !== provider) {
    const meter = provider.getMeter('leasehold');
    made.provider = provider;
    made.of = {
      waiting: meter.createUpDownCounter('leasehold.waiting', { unit: '{acquire}', description: 'Acquires that are under way' }),
      held: meter.createUpDownCounter('leasehold.held', { unit: '{lease}', description: 'Leases that this process holds' }),
      duration: meter.createHistogram('leasehold.acquire.duration', { unit: 's', description: 'From an acquire to its grant or refusal' }),
      failures: meter.createCounter('leasehold.acquire.failures', { unit: '{acquire}', description: 'Acquires that were not granted' }),
    };
  }
  return made.of;
}

/** One acquisition. Each of its spans ends once. A token is too large for a number, and an attribute is no bigint. */
class Story {
  #key;
  #labels;
  #spans = {};
  #begun = clock();
  #around; // of the acquire: the hold is below the same span, whoever tells of the grant

  constructor({ namespace, key, shared }) {
    if (!api) return;
    this.#key = key;
    this.#labels = { 'leasehold.namespace': namespace, 'leasehold.mode': shared ? 'shared' : 'exclusive' };
    this.#begin('acquire');
    instruments().waiting.add(1, this.#labels);
  }

  #begin(name, more = {}) {
    const attributes = { ...this.#labels, 'leasehold.key': this.#key, ...more };
    this.#spans[name] = api.trace.getTracer('leasehold').startSpan(`leasehold.${name}`, { attributes }, this.#around);
    this.#around ??= api.context.active();
  }

  /** Runs the work with this span as the current one. */
  during(name, work) {
    const span = this.#spans[name];
    return span ? api.context.with(api.trace.setSpan(api.context.active(), span), work) : work();
  }

  /** Whether this call has ended it. `words`: what went wrong. */
  #end(name, words, attributes = {}) {
    const span = this.#spans[name];
    if (!span) return false;
    delete this.#spans[name];
    span.setAttributes(attributes);
    if (words) span.setStatus({ code: api.SpanStatusCode.ERROR, message: words });
    span.end();
    return true;
  }

  granted(token) {
    const seconds = (clock() - this.#begun) / 1000;
    if (!this.#end('acquire', null, { 'leasehold.waited': seconds, 'leasehold.token': String(token) })) return;
    const { waiting, duration, held } = instruments();
    waiting.add(-1, this.#labels);
    duration.record(seconds, this.#labels);
    this.#begin('hold', { 'leasehold.token': String(token) });
    held.add(1, this.#labels);
  }

  refused(error, signal) {
    const seconds = (clock() - this.#begun) / 1000;
    const kind = errorType(error, signal);
    // Losing a race is an outcome, and no error of the span.
    if (!this.#end('acquire', kind === 'held' ? null : String(error?.message ?? error), { 'leasehold.waited': seconds, 'error.type': kind })) return;
    const { waiting, duration, failures } = instruments();
    const labels = { ...this.#labels, 'error.type': kind };
    waiting.add(-1, this.#labels);
    duration.record(seconds, labels);
    failures.add(1, labels);
  }

  downgraded(token) {
    if (!this.#spans.hold) return;
    const shared = { 'leasehold.mode': 'shared' };
    instruments().held.add(-1, this.#labels);
    this.#labels = { ...this.#labels, ...shared };
    instruments().held.add(1, this.#labels);
    this.#spans.hold.setAttributes({ ...shared, 'leasehold.token': String(token) });
  }

  releasing() {
    if (!this.#spans.hold || this.#spans.release) return;
    this.#around = api.context.active();
    this.#begin('release');
  }

  /** A release that was not done. */
  stayed(words) {
    this.#end('release', words);
  }

  /** Of a lease that was held; no reason: it was released. */
  ended(reason) {
    const words = reason && `lost: ${reason}`;
    const why = reason ? { 'error.type': 'lost', 'leasehold.reason': reason } : {};
    this.#end('release', words, why);
    if (this.#end('hold', words, why)) instruments().held.add(-1, this.#labels);
  }
}

/** Metadata for a daemon, which reads nothing else of the caller's context (W3C Trace Context). */
function traceparent() {
  const span = api?.trace.getSpanContext(api.context.active());
  return span && api.isSpanContextValid(span) ? `00-${span.traceId}-${span.spanId}-${span.traceFlags.toString(16).padStart(2, '0')}` : null;
}

/** Work for many leases belongs to no caller's span. */
const apart = (work) => (api ? api.context.with(api.ROOT_CONTEXT, work) : work());

module.exports = { apart, Story, traceparent };
