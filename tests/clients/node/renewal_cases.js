'use strict';

// The cases about renewals.

const assert = require('node:assert/strict');
const v8 = require('node:v8');
const vm = require('node:vm');
const { LONG_MS, wait } = require('./site.js');

/** A grant's answer that comes late: a lock in the database, or a delay by the proxy. */
async function slow(site, proxy, ms) {
  if (site.on === 'grpc') {
    await proxy.decide(['delay', ms / 1000], 'pass');
    return;
  }
  await proxy.freeze(true);
  setTimeout(() => proxy.freeze(false), ms);
}

module.exports = {
  async deadline_counts_from_the_request(site) {
    const proxy = await site.proxy();
    const client = site.client(proxy.target);
    await (await site.acquire(client)).release(); // connects
    await slow(site, proxy, 2000);
    const lease = await site.acquire(client, { durationMs: 20000 });
    assert.ok(lease.remainingMs() <= 16000 - 1900, String(lease.remainingMs())); // a fifth is the margin; timers have their steps
  },
  async renewal_keeps_the_lease(site) {
    const lease = await site.acquire(site.client(), { durationMs: 12000 });
    await wait('four renewals', async () => (await site.beats()) >= 4);
    assert.equal(await site.row('state, token'), `held|${lease.token}`);
    await lease.release();
  },
  async one_request_renews_all(site) {
    const client = site.client();
    const heartbeat = client._transport.heartbeat;
    const requests = [];
    client._transport.heartbeat = function watch(refs, timeoutMs) {
      requests.push(refs.length);
      return heartbeat.call(this, refs, timeoutMs);
    };
    const keys = Array.from({ length: 50 }, (_, n) => `${site.key}-${n}`);
    const leases = await Promise.all(keys.map((key) => client.acquire('cases', key, { durationMs: 12000, waitMs: LONG_MS })));
    const least = `select count(*) from leasehold.scope where key like '${site.key}-%' and heartbeats > 0`;
    await wait('a renewal of each', async () => (await site.psql(least)) === '50');
    await wait('one request', () => requests.includes(50));
    assert.ok(leases.every((lease) => lease.isHeld()));
  },
  async lost_replies_cost_no_lease(site) {
    const proxy = await site.proxy();
    const lease = await site.acquire(site.client(proxy.target), { durationMs: 9000 });
    // Never two losses in a row: there is time for two tries between a renewal and the deadline.
    await proxy.decide('pass', 'drop', 'pass', 'cut', 'pass', ['delay', 0.2], 'pass', 'truncate', 'cycle');
    await wait('four renewals, and losses', async () => {
      const { actions } = await proxy.state();
      return ((await site.beats()) >= 4 && actions.drop && actions.cut) || !lease.isHeld();
    });
    assert.equal(await site.row('state, token'), `held|${lease.token}`);
    await lease.release();
    assert.equal(await site.row('state, last_outcome'), 'free|ok');
  },
  async broken_connections_cost_no_lease(site) {
    // Behind a pooler a session keeps the name of whoever had it last, and may have another case's transaction meanwhile.
    const [target, whose] = site.on === 'pooler' ? [{ ...site.config, database: 'apart' }, "usename = 'apart'"]
      : [site.target, `application_name = '${site.config.application_name}'`];
    const lease = await site.acquire(site.client(target, { patienceMs: 20000 }), { durationMs: 15000 });
    for (let n = 0; n < 2; n++) {
      const beats = await site.beats();
      await wait('a renewal', async () => (await site.beats()) > beats);
      const end = `select count(pg_terminate_backend(pid)) from pg_stat_activity where ${whose}`;
      await wait('the end of a connection', async () => (await site.psql(end)) !== '0');
    }
    const beats = await site.beats();
    await wait('two renewals', async () => (await site.beats()) > beats + 1);
    await lease.release();
    assert.equal(await site.row('state, last_outcome'), 'free|ok');
  },
  async dropped_lease_is_renewed(site) {
    v8.setFlagsFromString('--expose-gc');
    const collect = vm.runInNewContext('gc');
    await site.acquire(site.client(), { durationMs: 12000 });
    await wait('two renewals', async () => collect() ?? (await site.beats()) >= 2);
    assert.equal(await site.row('state'), 'held');
  },
  async no_renewal_after_release(site) {
    const proxy = await site.proxy();
    const client = site.client(proxy.target);
    const lease = await site.acquire(client, { durationMs: 12000 });
    await wait('a renewal', async () => (await site.beats()) >= 1);
    await (site.on === 'grpc' ? proxy.decide(['delay', 1], 'pass') : proxy.freeze(true));
    await wait('a renewal in flight', () => lease._asked !== null);
    const released = lease.release();
    if (site.on === 'sql') await proxy.freeze(false);
    await released;
    const renewed = [];
    const heartbeat = client._transport.heartbeat;
    client._transport.heartbeat = function watch(refs, timeoutMs) {
      renewed.push(...refs.map((ref) => ref.key));
      return heartbeat.call(this, refs, timeoutMs);
    };
    await client.acquire('cases', `${site.key}-other`, { durationMs: 9000 });
    await wait('renewals of another lease', () => renewed.filter((key) => key === `${site.key}-other`).length >= 2);
    assert.ok(!renewed.includes(site.key));
    assert.equal(lease.lost, null);
  },
  async daemon_restarts(site) {
    const daemon = await site.daemon();
    const lease = await site.acquire(site.client(daemon.target), { durationMs: 15000 });
    await daemon.kill();
    await daemon.start();
    const beats = await site.beats();
    await wait('two renewals', async () => (await site.beats()) > beats + 1 || !lease.isHeld());
    assert.equal(await site.row('state, token'), `held|${lease.token}`);
    await lease.release();
  },
  async hanging_daemon_is_left(site) {
    const daemon = await site.daemon();
    const lease = await site.acquire(site.client(`${daemon.target},${site.target}`), { durationMs: 12000 });
    await daemon.signal('SIGSTOP');
    const beats = await site.beats();
    // More than its deadline allows without a renewal.
    await wait('renewals elsewhere', async () => (await site.beats()) >= beats + 4 || !lease.isHeld());
    assert.equal(await site.row('state, token'), `held|${lease.token}`);
    await lease.release();
  },
  async renewal_has_its_own_connection(site) {
    const lease = await site.acquire(site.client(), { durationMs: 12000 });
    const application = await site.pg();
    await application.query('begin');
    await lease.guard(application);
    const beats = await site.beats();
    await wait('two renewals', async () => (await site.beats()) >= beats + 2);
    await application.query('rollback');
    await lease.release();
  },
};
