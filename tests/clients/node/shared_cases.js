'use strict';

// The cases about shared leases.

const assert = require('node:assert/strict');
const leasehold = require('leasehold-client');
const { LONG_MS, wait } = require('./site.js');

const facts = ({ mode, units, slots }) => [mode, units, slots];

/** What Held says of a refused acquire. */
async function refused(asked) {
  const error = await asked.then(() => assert.fail('granted'), (reason) => reason);
  assert.ok(error instanceof leasehold.HeldError, error);
  return [error.holder, error.holderCount, error.unitsFree];
}

module.exports = {
  async readers_share_and_a_writer_waits(site) {
    const client = site.client();
    const [first, second] = [await site.acquire(client, { shared: true, owner: 'first' }), await site.acquire(client, { shared: true, owner: 'second' })];
    assert.equal(await site.row('state, units'), 'shared|2');
    assert.ok(second.token > first.token);
    assert.deepEqual(facts(first), ['shared', 1, []]);
    assert.deepEqual(await refused(site.acquire(client)), ['first', 2, null]);
    const seen = [];
    const [waiting] = await site.queue(client, 1, { onQueued: ({ holderCount, unitsFree }) => seen.push([holderCount, unitsFree]) });
    await wait('news of the queue', () => seen.length > 0);
    assert.deepEqual(seen[0], [2, null]);
    await first.release();
    assert.equal(await site.row('state, units'), 'shared|1');
    await second.release();
    const writer = await waiting;
    assert.deepEqual(facts(writer), ['exclusive', 0, []]);
    assert.equal((await refused(site.acquire(client, { shared: true })))[1], 1);
  },
  async units_fit_the_capacity(site) {
    const client = site.client();
    await site.psql("select leasehold.set_policy('nodefive', capacity => 5)");
    const share = (units, options) => client.acquire('nodefive', site.key, { shared: true, units, ...options });
    const [first, second] = [await share(2, { owner: 'first' }), await share(2)];
    assert.deepEqual([facts(first), facts(second)], [['shared', 2, [1, 2]], ['shared', 2, [3, 4]]]);
    assert.deepEqual(await refused(share(2)), ['first', 2, 1]);
    await first.release();
    const third = await share(3, { waitMs: LONG_MS });
    assert.deepEqual(facts(third), ['shared', 3, [1, 2, 5]]);
    assert.equal((await refused(share(1)))[2], 0);
    for (const [options, bound] of [[{ units: 6 }, /5/], [{ units: 0 }, /^1 to/], [{ shared: false, units: 2 }, /without shared/]]) {
      await assert.rejects(share(1, options), (error) => {
        assert.ok(error instanceof leasehold.InvalidArgumentError, error);
        assert.equal(error.field, 'units');
        assert.match(error.bound, bound);
        return true;
      });
    }
  },
  async shared_waiters_are_served_in_order(site) {
    const client = site.client();
    const first = await site.acquire(client);
    const waiting = [];
    for (const shared of [true, true, false, true]) waiting.push(...await site.queue(client, waiting.length + 1, { shared }));
    const modes = `select string_agg(mode, ' ' order by position) from leasehold.queue where key = '${site.key}'`;
    assert.equal(await site.psql(modes), 'shared shared exclusive shared');
    await first.release();
    const readers = [await waiting[0], await waiting[1]];
    assert.deepEqual([await site.row('state, units'), await site.waiters()], ['shared|2', '2']);
    for (const reader of readers) await reader.release();
    const writer = await waiting[2];
    assert.deepEqual([await site.row('state'), await site.waiters()], ['held', '1']);
    await writer.release();
    assert.ok((await waiting[3]).token > writer.token && writer.token > readers[1].token);
  },
  async downgrade_lets_readers_in(site) {
    const client = site.client();
    const lease = await site.acquire(client, { durationMs: 12000 });
    const [first, leaseKey] = [lease.token, await site.row('lease_key')];
    const [waiting] = await site.queue(client, 1, { shared: true });
    await lease.downgrade();
    const reader = await waiting;
    assert.deepEqual(facts(lease), ['shared', 1, []]);
    assert.ok(lease.token > first && reader.token > lease.token);
    await lease.downgrade(); // again: the same
    assert.equal(await site.shares(), `${lease.token}|1\n${reader.token}|1`);
    assert.equal(await site.psql(`select lease_key from leasehold.share where token = ${lease.token}`), leaseKey);
    const application = await site.pg();
    await application.query('begin');
    await lease.guard(application);
    await application.query('commit');
    assert.equal((await refused(site.acquire(client)))[1], 2);
    const beats = await site.beatsOf(lease);
    await wait('a renewal', async () => (await site.beatsOf(lease)) > beats);
    await lease.release();
    assert.equal(await site.shares(), `${reader.token}|1`);
    await assert.rejects(lease.downgrade(), { reason: 'released' });
  },
  async lost_downgrade_is_repeated(site) {
    const proxy = await site.proxy();
    const lease = await site.acquire(site.client(proxy.target));
    await proxy.decide('cut', 'pass');
    await lease.downgrade(2);
    assert.equal((await proxy.state()).actions.cut, 1);
    assert.deepEqual(facts(lease), ['shared', 2, []]);
    assert.equal(await site.shares(), `${lease.token}|2`);
    await lease.release();
  },
  async shared_leases_end_one_by_one(site) {
    const client = site.client();
    const kept = await site.acquire(client, { durationMs: 12000, shared: true });
    const ended = await site.acquire(client, { durationMs: 12000, shared: true });
    await wait('a renewal of each', async () => (await site.beatsOf(kept)) >= 1 && (await site.beatsOf(ended)) >= 1);
    await site.psql(`select from leasehold.force_release('cases', '${site.key}', 'a test', ${ended.token})`);
    const reason = await site.lost(ended);
    if (site.on === 'grpc') assert.equal(reason, 'forced');
    await assert.rejects(ended.downgrade(), leasehold.LeaseLostError);
    const beats = await site.beatsOf(kept);
    await wait('a renewal', async () => (await site.beatsOf(kept)) > beats || !kept.isHeld());
    await kept.release();
  },
};
