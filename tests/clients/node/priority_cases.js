'use strict';

// The cases about the priority of waiters.

const assert = require('node:assert/strict');
const { inspect } = require('node:util');
const leasehold = require('leasehold-client');
const { LONG_MS, wait } = require('./site.js');

module.exports = {
  async priority_is_served_first(site) {
    const namespace = `urgent${site.on}`;
    const queue = (columns) => site.psql(`select ${columns} from leasehold.queue where namespace = '${namespace}' and key = '${site.key}'`);
    await site.psql(`select leasehold.set_policy('${namespace}', max_priority => 9, ageing => '1 day')`);
    const lease = await site.client().acquire(namespace, site.key, { durationMs: LONG_MS });
    const order = [];
    const waiting = [];
    for (const [owner, priority] of [['first', 0], ['low', 2], ['high', 9], ['late', 9]]) {
      const options = { owner, priority, durationMs: LONG_MS, waitMs: LONG_MS };
      waiting.push(site.client(undefined, { pollMs: 500 }).withLease(namespace, site.key, options, () => order.push(owner)));
      await wait('a place in the queue', async () => (await queue('count(*)')) === String(waiting.length));
    }
    if (site.on !== 'grpc') { // each has joined again since
      const until = (columns) => site.psql(`select ${columns} from leasehold.waiter where namespace = '${namespace}' and key = '${site.key}'`);
      const seen = await until('max(wait_until)');
      await wait('all to join again', async () => (await until(`min(wait_until) > '${seen}'`)) !== 'f');
    }
    assert.equal(await queue("string_agg(priority::text, ' ' order by position)"), '9 9 2 0');
    await lease.release();
    await Promise.all(waiting);
    assert.deepEqual(order, ['high', 'late', 'low', 'first']);
  },
  /** Of who has the right lease alone. */
  async priority_above_the_policy_is_denied(site) {
    const user = `worker_${process.pid}`;
    let client;
    if (site.on === 'grpc') {
      const { target, ca, worker } = await site.secure();
      client = site.client(target, { tls: { caFile: ca }, tokenFile: worker });
    } else {
      await site.psql(`create role ${user} login in role leasehold_client`);
      await site.psql(`select from leasehold.access_grant('role:${user}', 'secure', 'lease')`);
      client = site.client({ ...site.config, user });
    }
    await site.psql("select leasehold.set_policy('secure', max_priority => 9)");
    const lease = await client.acquire('secure', site.key, { priority: 9 });
    for (const waitMs of [0, LONG_MS]) {
      await assert.rejects(client.acquire('secure', site.key, { priority: 10, waitMs }), (error) => {
        assert.ok(error instanceof leasehold.DeniedError, error);
        assert.equal(error.reason, 'ACCESS_DENIED');
        assert.match(error.message, /priority must be at most 9.* is 10/);
        return true;
      });
    }
    await lease.release();
  },
  async wrong_priority_is_named(site) {
    const client = site.client();
    for (const value of [-1, 1001, 1.5, '7', true, null]) {
      await assert.rejects(site.acquire(client, { priority: value }), { field: 'priority', message: `priority must be 0 to 1000, not ${inspect(value)}` });
    }
    await (await site.acquire(client, { priority: 1000 })).release(); // an administrator's
  },
};
