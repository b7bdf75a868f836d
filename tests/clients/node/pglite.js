'use strict';

// A site in this process: leasehold-test in the place of a server. To the cases it is one on sql.

const { Client: Pg } = require('pg');
const { start } = require('leasehold-test');
const { Site } = require('./site.js');

let kit = null;
const NAMESPACE = 'cases';

class PgliteSite extends Site {
  static async make(on, name) {
    kit ??= start();
    const world = (await kit).world(NAMESPACE);
    const site = new PgliteSite();
    site.listens = 'select count(*) from pg_listening_channels()';
    site.later(() => world.close());
    return Object.assign(site, { on: 'sql', key: `node-${name}`, target: world.database, config: world.database });
  }

  static async end() {
    if (kit) await (await kit).close();
  }

  /** As psql prints it. */
  async psql(sql) {
    const client = new Pg({ ...this.config, types: { getTypeParser: () => (value) => value } });
    await client.connect();
    try {
      const { rows } = await client.query({ text: sql, rowMode: 'array' });
      return rows.map((row) => row.map((value) => value ?? '').join('|')).join('\n');
    } finally {
      await client.end();
    }
  }

  async isListening() {
    return (await this.psql(`select count(*) from pg_listening_channels()`)) !== '0';
  }

  async proxy() {
    const world = (await kit).world(NAMESPACE);
    this.later(() => world.close());
    return { target: world.database, freeze: async (frozen) => world.silence(frozen) };
  }
}

module.exports = { PgliteSite };
