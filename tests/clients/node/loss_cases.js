'use strict';

// The cases about leases that are lost.

const assert = require('node:assert/strict');
const leasehold = require('leasehold-client');
const { clock } = require('leasehold-client/lib/time.js');
const { LONG_MS, wait } = require('./site.js');

module.exports = {
  async forced_end_is_told(site) {
    const lease = await site.acquire(site.client(), { durationMs: 6000 });
    let told = 0;
    lease.signal.addEventListener('abort', () => { told += 1; });
    await site.force();
    assert.equal(await site.lost(lease), 'forced');
    await assert.rejects(lease.release(), leasehold.LeaseLostError);
    assert.throws(() => lease.check(), leasehold.LeaseLostError);
    assert.equal(told, 1);
  },
  async hold_that_the_policy_ends_is_told(site) {
    await site.psql("select leasehold.set_policy('nodeending', max_hold => '8 s', end_at_max_hold => true)");
    const client = site.client();
    const [renewed, long] = await Promise.all([6000, 30000].map((durationMs) => client.acquire('nodeending', `${site.key}-${durationMs}`, { durationMs })));
    assert.deepEqual([await site.lost(renewed), await site.lost(long)], ['max_hold', 'max_hold']);
    assert.match(renewed.lost.message, /the policy of nodeending ends a lease after max_hold/);
    const renewals = `select deadline - acquired_at from leasehold.scope where namespace = 'nodeending' and key = '${site.key}-6000' and heartbeats > 0`;
    assert.equal(await site.psql(renewals), '00:00:08');
  },
  async unheard_loss_is_told_at_the_end(site) {
    const lost = (cause) => (error) => {
      assert.ok(error instanceof leasehold.LeaseLostError, error);
      assert.deepEqual([error.reason, error.cause], ['forced', cause]);
      return true;
    };
    const work = site.client().withLease('cases', site.key, { durationMs: LONG_MS }, async () => { await site.force(); });
    await assert.rejects(work, lost(undefined));
    const wrong = new Error('the disk is full');
    const fails = site.client().withLease('cases', site.key, { durationMs: LONG_MS }, async () => { await site.force(); throw wrong; });
    await assert.rejects(fails, lost(wrong));
  },
  async blocked_event_loop_is_told(site) {
    const program = site.program('block', 6000);
    assert.equal(await program.line('held'), 'held false');
    assert.match(await program.line('ended'), /^ended LEASEHOLD_LOST told 1 the lease cases\/node-\d+-blocked\S* .* is lost: unreachable/);
    assert.match(await program.line('warned'), /the event loop did not run for \d/);
  },
  async silence_is_told_before_the_deadline(site) {
    const proxy = await site.proxy();
    const lease = await site.acquire(site.client(proxy.target), { durationMs: 12000 });
    const left = [];
    lease.signal.addEventListener('abort', () => left.push(lease._deadline - clock()));
    await proxy.freeze(true);
    assert.equal(await site.lost(lease), 'unreachable');
    assert.ok(left.length === 1 && left[0] > 0, String(left));
    await proxy.freeze(false);
  },
  async stopped_process_wakes_up_without_the_lease(site) {
    const program = site.program('work', 3000);
    await program.line('working');
    program.child.kill('SIGSTOP');
    site.reap();
    const other = await site.acquire(site.client(), { waitMs: LONG_MS });
    const before = program.count('working');
    program.child.kill('SIGCONT');
    assert.match(await program.line('lost'), /^lost (unreachable|expired|unknown) true$/);
    assert.ok(program.count('working') <= before + 1); // a step that had begun
    assert.equal(await site.row('state, token'), `held|${other.token}`);
  },
  async lost_lease_ends_nested_calls(site) {
    const client = site.client();
    const other = `${site.key}-other`;
    const held = await site.client().acquire('cases', other, { durationMs: LONG_MS });
    const queued = () => site.psql(`select count(*) from leasehold.queue where key = '${other}'`);
    let waiting = null;
    const work = client.withLease('cases', site.key, { durationMs: 12000 }, async () => {
      waiting = client.acquire('cases', other, { waitMs: LONG_MS });
      waiting.catch(() => {});
      await wait('a place in the queue', async () => (await queued()) === '1');
      await site.force();
      await waiting;
    });
    await assert.rejects(work, { name: 'LeaseLostError', reason: 'forced' });
    await assert.rejects(waiting, { name: 'LeaseLostError', reason: 'forced' });
    await wait('an empty queue', async () => (await queued()) === '0');
    held.check();
    await held.release();
    await (await client.acquire('cases', other)).release();
  },
};
