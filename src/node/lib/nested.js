'use strict';

// The lease in whose work something is called: its loss ends acquires that wait there, and its deadline goes on to calls of other services.

const { setMaxListeners } = require('node:events');
const { AsyncLocalStorage } = require('node:async_hooks');

const current = new AsyncLocalStorage();

/** The lease whose work this is, with those around it. */
function within(lease, work) {
  setMaxListeners(0, lease.signal); // each acquire that waits listens: any number is no leak
  return current.run([lease, ...(current.getStore() ?? [])], work);
}

const signalsAround = () => (current.getStore() ?? []).map((lease) => lease.signal);

/** For a call that must be over before the leases are whose work this is; without any, Infinity. */
function deadline() {
  const held = current.getStore() ?? [];
  return held.length ? new Date(Date.now() + Math.min(...held.map((lease) => lease.remainingMs()))) : Infinity;
}

module.exports = { deadline, signalsAround, within };
