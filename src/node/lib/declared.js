'use strict';

const { checkOptions, optionsAndWork, refused, ACQUIRE, LEAD } = require('./arguments.js');

/** The leases of a namespace: what is wrong with its name or options is told when they are declared. Options given with a key count first. */
class Declared {
  #client;
  #options;

  constructor(client, namespace, options) {
    this.#client = client;
    this.#options = { ...options };
    this.namespace = namespace;
  }

  #with(what, options, names = ACQUIRE) {
    checkOptions(what, options, names);
    const given = Object.entries(options).filter(([, value]) => value !== undefined);
    return { ...this.#options, ...Object.fromEntries(given) };
  }

  async acquire(key, options = {}, ...more) {
    return this.#client.acquire(this.namespace, key, this.#with('acquire', options), ...more);
  }

  async withLease(key, ...given) {
    const [options, work] = optionsAndWork('withLease', given, ACQUIRE, 'key');
    return this.#client.withLease(this.namespace, key, this.#with('withLease', options), work);
  }

  async acquireIn(pg, key, ...given) {
    const [options, work] = optionsAndWork('acquireIn', given, ACQUIRE, 'client, key');
    return this.#client.acquireIn(pg, this.namespace, key, this.#with('acquireIn', options), work);
  }

  /** It waits for ever: the declaration's wait is for the others. */
  async lead(key, ...given) {
    const [options, work] = optionsAndWork('lead', given, LEAD, 'key');
    const all = this.#with('lead', options, LEAD);
    if (all.shared) throw refused('shared', true, "false for a leader's lease");
    const known = Object.fromEntries(LEAD.filter((name) => name in all).map((name) => [name, all[name]]));
    return this.#client.lead(this.namespace, key, known, work);
  }
}

module.exports = { Declared };
