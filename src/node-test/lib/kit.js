'use strict';

const fs = require('node:fs');
const path = require('node:path');
const { Backend } = require('./backend.js');
const { World } = require('./world.js');

const SCRIPT = path.join(__dirname, '..', 'leasehold.sql');
const SETTINGS = ['server_version', 'server_encoding', 'client_encoding', 'DateStyle', 'TimeZone', 'integer_datetimes', 'standard_conforming_strings'];
// Another server on another timeline, whose sequences have not jumped yet: Leasehold compares these with what it wrote down.
const FORGET = 'with forgotten as (update leasehold.incarnation set timeline = timeline - 1, postmaster_start = postmaster_start - interval $$1 day$$)'
  + ' select setval($$leasehold.epoch_mark$$, 1)';

/** One PGlite with the schema. */
class Kit {
  #backend;
  #isOwn;
  #count = 0;

  constructor(db, backend, isOwn) {
    this.db = db;
    this.#backend = backend;
    this.#isOwn = isOwn;
  }

  /** Without a name, one that no other test has. */
  world(namespace = `test-${++this.#count}`) {
    return new World(this.#backend, namespace);
  }

  /** Every connection breaks, and PostgreSQL goes on with a new timeline, as a standby that was promoted. */
  async failOver() {
    for (const connection of this.#backend.connections) connection.cut();
    await this.#backend.query(FORGET);
    await this.#backend.query('select count(*) from leasehold.reap()'); // whoever reaps first notices
  }

  async close() {
    for (const connection of this.#backend.connections) connection.destroy();
    this.#backend.stopListening();
    if (this.#isOwn) await this.db.close();
  }
}

async function start({ db, sql = SCRIPT } = {}) {
  const own = db ?? (await require('@electric-sql/pglite').PGlite.create());
  try {
    await own.exec(fs.readFileSync(sql, 'utf8'));
    await own.query('select count(*) from leasehold.reap()'); // nothing expires before the first
    const [{ pid, ...settings }] = (await own.query(
      `select pg_backend_pid() as pid, ${SETTINGS.map((name) => `current_setting('${name}') as "${name}"`).join(', ')}`)).rows;
    return new Kit(own, new Backend(own, pid, settings), db === undefined);
  } catch (error) {
    if (db === undefined) await own.close();
    throw error;
  }
}

module.exports = { Kit, start };
