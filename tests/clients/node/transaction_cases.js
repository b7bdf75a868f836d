'use strict';

// The cases about leases in a transaction of the application.

const assert = require('node:assert/strict');
const leasehold = require('leasehold-client');
const { LONG_MS } = require('./site.js');

module.exports = {
  async released_in_a_transaction(site) {
    await site.call('running');
    const [client, pg] = [site.client(), await site.pg()];
    const becomes = (state) => pg.query('update call set state = $1 where id = $2', [state, site.key]);
    const lease = await site.acquire(client, { durationMs: 12000 });
    const wrong = new Error('the disk is full');
    await assert.rejects(lease.releaseIn(pg, async () => { await becomes('done'); throw wrong; }), (error) => error === wrong);
    assert.deepEqual([await site.callState(), lease.isHeld()], ['running', true]);
    await site.renewed();
    await assert.rejects(lease.releaseIn(pg, { result: 1n }, () => becomes('done')), TypeError);
    assert.deepEqual([await site.callState(), lease.isHeld()], ['running', true]);
    assert.equal(await lease.releaseIn(pg, { result: { rows: 3 } }, async () => { await becomes('done'); return 7; }), 7);
    assert.deepEqual([await site.callState(), lease.isHeld(), lease.lost], ['done', false, null]);
    assert.equal(await site.row("state, last_outcome, last_result ->> 'rows'"), 'free|ok|3');
    await lease.release();
    const second = await site.acquire(client);
    await second.releaseIn(pg, { failure: 'no such payee' }, () => becomes('broken'));
    assert.equal(await site.row('state, last_outcome, last_error'), 'free|failed|no such payee');
  },
  async acquired_in_a_transaction(site) {
    await site.call('queued');
    const [client, pg] = [site.client(), await site.pg()];
    const becomes = (state) => pg.query('update call set state = $1 where id = $2', [state, site.key]);
    const wrong = new Error('the disk is full');
    await assert.rejects(client.acquireIn(pg, 'cases', site.key, async (lease) => {
      await becomes('running');
      assert.ok(lease.token > 0n && !lease.isHeld());
      throw wrong;
    }), (error) => error === wrong);
    assert.equal(await site.callState(), 'queued');
    assert.ok(['', 'free'].includes(await site.row('state')));
    const lease = await client.acquireIn(pg, 'cases', site.key, { durationMs: 12000, owner: 'worker-1' }, ({ token }) => becomes(`token ${token}`));
    assert.deepEqual([await site.callState(), lease.isHeld()], [`token ${lease.token}`, true]);
    await site.renewed();
    const held = await client.acquireIn(pg, 'cases', site.key, () => assert.fail('it ran')).catch((error) => error);
    assert.ok(held instanceof leasehold.HeldError && held.holder === 'worker-1', held);
    await assert.rejects(client.acquireIn(pg, 'cases', site.key, { waitMs: 3 }, () => assert.fail('it ran')), /waitMs must be 0 in a transaction/);
    await lease.release();
  },
  async lost_lease_rolls_back(site) {
    await site.call('running');
    const pg = await site.pg();
    const lease = await site.acquire(site.client(), { durationMs: LONG_MS });
    await assert.rejects(lease.releaseIn(pg, async () => {
      await pg.query("update call set state = 'done' where id = $1", [site.key]);
      await site.force();
    }), (error) => error instanceof leasehold.LeaseLostError && error.reason === 'forced');
    assert.deepEqual([await site.callState(), lease.lost.reason], ['running', 'forced']);
  },
  async open_transaction_is_refused(site) {
    await site.call('running');
    const [client, pg] = [site.client(), await site.pg()];
    const lease = await site.acquire(client);
    await pg.query('begin');
    await pg.query("update call set state = 'done' where id = $1", [site.key]);
    await assert.rejects(lease.releaseIn(pg, () => assert.fail('it ran')), /client must have no transaction open/);
    await assert.rejects(client.acquireIn(pg, 'cases', `${site.key} 2`, () => assert.fail('it ran')), /client must have no transaction open/);
    await pg.query('commit');
    assert.deepEqual([await site.callState(), lease.isHeld()], ['done', true]);
    await lease.release();
  },
  async unanswered_commit_of_a_release_is_looked_up(site) {
    await site.call('running');
    const client = site.client();
    const lease = await site.acquire(client, { durationMs: 12000 });
    const [before, after] = [await site.commitProxy('before'), await site.commitProxy('after')];
    const becomes = (pg) => () => pg.query("update call set state = 'done' where id = $1", [site.key]);
    await assert.rejects(lease.releaseIn(before, becomes(before)), /terminated/);
    assert.deepEqual([await site.callState(), lease.isHeld()], ['running', true]);
    await site.renewed();
    const [waiting] = await site.queue(client, 1);
    await lease.releaseIn(after, becomes(after));
    assert.deepEqual([await site.callState(), lease.isHeld(), lease.lost], ['done', false, null]);
    await (await waiting).release();
  },
  async unanswered_commit_of_an_acquire_is_looked_up(site) {
    await site.call('queued');
    const client = site.client();
    const [before, after] = [await site.commitProxy('before'), await site.commitProxy('after')];
    const becomes = (pg) => () => pg.query("update call set state = 'running' where id = $1", [site.key]);
    await assert.rejects(client.acquireIn(before, 'cases', site.key, becomes(before)),
      (error) => error instanceof leasehold.UnavailableError && error.reason === 'UNKNOWN_OUTCOME' && /COMMIT was not answered/.test(error.message));
    assert.equal(await site.callState(), 'queued');
    assert.ok(['', 'free'].includes(await site.row('state')));
    const lease = await client.acquireIn(after, 'cases', site.key, { durationMs: 12000 }, becomes(after));
    assert.deepEqual([await site.callState(), lease.isHeld()], ['running', true]);
    await site.renewed();
    await lease.release();
  },
};
