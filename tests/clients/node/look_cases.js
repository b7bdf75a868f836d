'use strict';

// The cases about explain and watch.

const assert = require('node:assert/strict');
const leasehold = require('leasehold-client');
const { LONG_MS } = require('./site.js');

module.exports = {
  async explain_says_who_holds(site) {
    const client = site.client();
    const ask = () => client.explain('cases', site.key);
    const never = await ask();
    assert.deepEqual([never.state, never.holder, never.waiters, never.holders], ['free', null, 0, 0]);
    assert.match(never.advice, /acquire it/);
    const lease = await site.acquire(client, { owner: 'worker-1', durationMs: LONG_MS });
    const [waiting] = await site.queue(client, 1);
    const held = await ask();
    assert.deepEqual([held.state, held.holder, held.token, held.liveness, held.mode], ['held', 'worker-1', lease.token, 'alive', 'exclusive']);
    assert.deepEqual([held.waiters, held.holders, held.heartbeats], [1, 1, 0]);
    assert.ok(held.since <= held.lastHeartbeatAt && held.lastHeartbeatAt < held.expiresAt && held.firstWaiter && held.principal);
    assert.equal(typeof held.policy, 'object');
    await lease.release();
    await (await waiting).release();
    await client.withLease('cases', site.key, { shared: true, units: 3 }, async () => {
      const shared = await ask();
      assert.deepEqual([shared.state, shared.mode, shared.units, shared.holders], ['shared', 'shared', 3, 1]);
    });
    const after = await ask();
    assert.ok(after.state === 'free' && after.since >= held.since && after.token === null);
    await client.withLease('cases', site.key, { atLeastMs: 60000 }, () => {});
    assert.ok((await ask()).restsUntil > new Date());
    await assert.rejects(client.explain('cases', ''), { message: 'key must be 1 to 1024 bytes, has 0' });
  },
  async watch_begins_with_what_is_held(site) {
    const client = site.client();
    const lease = await site.acquire(client, { owner: 'worker-1', durationMs: LONG_MS });
    const events = client.watch('cases', { key: site.key });
    const next = async () => (await events.next()).value;
    const [first, synced] = [await next(), await next()];
    assert.deepEqual([first.kind, first.namespace, first.key, first.token, first.owner], ['held', 'cases', site.key, lease.token, 'worker-1']);
    assert.equal(synced.kind, 'synced');
    await (await client.acquire('cases', `${site.key}-other`)).release();
    await lease.release({ result: { rows: 3 } });
    await assert.rejects(client.withLease('cases', site.key, { shared: true, units: 2 }, () => { throw new Error('the disk is full'); }));
    await site.acquire(client);
    await site.force();
    const told = [];
    while (told.length < 5) told.push(await next());
    assert.deepEqual(told.map(({ kind }) => kind), ['released', 'acquired', 'failed', 'acquired', 'forced']);
    assert.ok(told.every(({ key }) => key === site.key));
    assert.deepEqual([told[0].result, told[2].error, told[2].mode, told[2].units, told[4].reason], ['{"rows": 3}', 'Error: the disk is full', 'shared', 2, 'a test']);
    await events.return();
    for await (const { kind } of client.watch()) {
      assert.ok(['held', 'synced'].includes(kind));
      break;
    }
    const stop = new AbortController();
    const stopped = client.watch('cases', { signal: stop.signal });
    await stopped.next();
    stop.abort(new Error('enough'));
    await assert.rejects(async () => { for await (const each of stopped) assert.notEqual(each.kind, 'forced'); }, /enough/);
    await assert.rejects(client.watch('cases', { key: 'k', children: true }).next(), { field: 'key' });
    await assert.rejects(new leasehold.Client({ database: site.config }).watch('cases').next(), /^InvalidArgumentError: watch needs a server/);
  },
  async watch_goes_on_after_a_restart(site) {
    const daemon = await site.daemon();
    const lease = await site.acquire(site.client(), { durationMs: LONG_MS });
    const events = site.client(daemon.target).watch('cases', { key: site.key });
    const kinds = async (n) => {
      const found = [];
      while (found.length < n) found.push((await events.next()).value.kind);
      return found;
    };
    assert.deepEqual(await kinds(2), ['held', 'synced']);
    await daemon.kill();
    await daemon.start();
    assert.deepEqual(await kinds(2), ['held', 'synced']);
    await lease.release();
    assert.deepEqual(await kinds(1), ['released']);
    await events.return();
  },
};
