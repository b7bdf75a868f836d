'use strict';

const { Connection } = require('./connection.js');
const { Faults } = require('./faults.js');

const MOST_MS = 365 * 86400000;
const MINE = '(namespace = $1 or starts_with(namespace, $1 || $$.$$))';
const FORCE = `select key from leasehold.force_release($1::text, $2::text, 'a test', all_holders => true)`;
// Everything that is remembered happened that much earlier.
const TIMES = {
  scope: ['acquired_at', 'heartbeat_at', 'deadline', 'ended_at', 'check_at'],
  share: ['acquired_at', 'heartbeat_at', 'deadline', 'ended_at', 'check_at'],
};
const AGE = Object.entries(TIMES).map(([table, columns]) => `update leasehold.${table}
  set ${columns.map((column) => `${column} = ${column} - make_interval(secs => $2::float8)`).join(', ')} where ${MINE}`);

/** The namespace of one test, and what the test does to those who hold leases there. */
class World {
  #backend;
  #faults = new Faults();
  #connections = new Set();

  constructor(backend, namespace) {
    this.#backend = backend;
    this.namespace = namespace;
    /** For new Client({ database }), and for new pg.Client(database). */
    this.database = { stream: () => this.#connect() };
  }

  #connect() {
    const connection = new Connection(this.#backend, this.#faults);
    this.#connections.add(connection);
    connection.once('close', () => this.#connections.delete(connection));
    return connection;
  }

  /** An administrator ends the lease of this key. False: nobody has it. */
  async lose(key) {
    return (await this.#backend.query(FORCE, [this.namespace, key])).length > 0;
  }

  /** The leases here are so much older. Those whose time is over end. */
  async pass(ms) {
    if (!(ms > 0 && ms <= MOST_MS)) throw new RangeError(`ms must be a number above 0, at most ${MOST_MS} (365 days), not ${ms}`);
    for (const statement of AGE) await this.#backend.query(statement, [this.namespace, ms / 1000]);
    await this.reap();
  }

  /** What cron does where there is no daemon: ends what has expired. */
  async reap() {
    await this.#backend.query('select count(*) from leasehold.reap()');
  }

  /** The answer of the next 'acquire', 'renewal' or 'release' comes that much later. */
  delay(verb, ms) {
    if (!(ms > 0 && ms < 2 ** 31)) throw new RangeError(`ms must be a number above 0 and below ${2 ** 31}, not ${ms}`);
    this.#faults.add(verb, { action: 'delay', ms });
  }

  /** The next one is done, its answer gets lost, and its connection is cut. */
  drop(verb) {
    this.#faults.add(verb, { action: 'drop' });
  }

  /** No answer arrives any more; with false they arrive, late. */
  silence(isSilent = true) {
    this.#faults.setSilence(isSilent);
  }

  /** Ends its connections. */
  close() {
    this.#faults.clear();
    for (const connection of this.#connections) connection.destroy();
  }
}

module.exports = { World };
