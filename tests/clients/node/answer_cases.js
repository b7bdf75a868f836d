'use strict';

// The cases about answers that cannot be true.

const assert = require('node:assert/strict');
const leasehold = require('leasehold-client');
const { LONG_MS, wait } = require('./site.js');

const OTHER = { lease_key: '6f1ed002-ab5f-4cbc-9c4a-3b1e0a2f9b10' };
const AGES = 9e9; // seconds
const UNAVAILABLE = { code: 'LEASEHOLD_UNAVAILABLE' };

module.exports = {
  async answers_for_other_leases_are_refused(site) {
    const liar = await site.liar();
    const client = site.client(liar.target, { strategy: leasehold.failFast });
    const lost = await client.acquire('cases', 'lost', { durationMs: 3000 });
    const kept = await client.acquire('cases', 'kept', { durationMs: LONG_MS });
    await liar.lie(OTHER);
    await assert.rejects(kept.downgrade(), UNAVAILABLE);
    await assert.rejects(kept.release(), UNAVAILABLE);
    await wait('the loss', () => !lost.isHeld());
  },
  async doubtful_grants_are_given_back(site) {
    const liar = await site.liar();
    const client = site.client(liar.target, { strategy: leasehold.failFast });
    const isGivenBack = async () => {
      const { asked, released } = await liar.state();
      return released.includes(asked.at(-1));
    };
    const scopes = ['a', 'b'].map((key) => ({ namespace: 'cases', key }));
    for (const lies of [OTHER, { status: 'UNAVAILABLE' }, { is_garbage: true }, { leases: 1 }]) {
      await liar.lie(lies);
      await assert.rejects(client.acquireAll(scopes), UNAVAILABLE);
      await wait('the release of both', isGivenBack);
      if (lies.leases) continue;
      await assert.rejects(client.acquire('cases', 'k'), UNAVAILABLE);
      await wait('the release', isGivenBack);
    }
    await liar.lie({ status: 'UNAVAILABLE' });
    const waiting = client.acquire('cases', 'k', { waitMs: LONG_MS, strategy: leasehold.bestEffort });
    const denied = assert.rejects(waiting, { code: 'LEASEHOLD_DENIED' });
    const { asked: { length } } = await liar.state();
    await wait('an answer', async () => (await liar.state()).asked.length > length);
    await liar.lie({ status: 'PERMISSION_DENIED' });
    await denied;
    await wait('the release of what was denied', isGivenBack);
  },
  async times_are_believed_as_far_as_they_can_be_true(site) {
    const liar = await site.liar();
    const client = site.client(liar.target);
    const isTrue = (lease) => assert.ok(lease.isHeld() && lease.remainingMs() <= 3000, `${lease.lost} ${lease.remainingMs()}`);
    for (const lies of [{ waited: AGES }, { remaining: AGES }, { waited: AGES, remaining: AGES }]) {
      await liar.lie(lies);
      const { renewals } = await liar.state();
      const lease = await client.acquire('cases', 'k', { durationMs: 3000 });
      isTrue(lease);
      await wait('two renewals', async () => (await liar.state()).renewals >= renewals + 2);
      isTrue(lease);
      await lease.downgrade();
      isTrue(lease);
      await lease.release();
    }
    await liar.lie({ waited: -AGES, remaining: -AGES });
    assert.equal((await client.acquire('cases', 'k')).isHeld(), false);
  },
};
