'use strict';

// The cases about waiting, and about who is in the way.

const assert = require('node:assert/strict');
const leasehold = require('leasehold-client');
const { LONG_MS, wait, sleep } = require('./site.js');

module.exports = {
  async held_names_the_holder(site) {
    const client = site.client();
    const first = await site.acquire(client, { owner: 'the first' });
    const [waiting] = await site.queue(client, 1);
    await assert.rejects(site.acquire(client), (error) => {
      assert.ok(error instanceof leasehold.HeldError && error instanceof leasehold.LeaseholdError, error);
      assert.deepEqual([error.holder, error.ahead, error.code], ['the first', 1, 'LEASEHOLD_HELD']);
      return true;
    });
    await first.release();
    await (await waiting).release();
  },
  async held_tells_of_the_holder(site) {
    const client = site.client();
    const lease = await site.acquire(client, { durationMs: LONG_MS });
    const ask = () => site.acquire(client).then(() => assert.fail('granted'), (error) => error);
    const held = await ask();
    assert.ok(held.isAlive && held.silentMs >= 0 && held.silentMs < 100000 && held.heldMs >= 0 && held.heldMs < 100000, held);
    await site.silence(280);
    const silent = await ask();
    assert.ok(silent.isAlive === false && silent.silentMs >= 280000 && silent.heldMs >= 280000, silent);
    await lease.release();
  },
  async wait_lasts_while_the_holder_is_alive(site) {
    const client = site.client(undefined, { pollMs: 500 });
    const first = await site.acquire(client, { durationMs: LONG_MS });
    const [waiting] = await site.queue(client, 1, { durationMs: LONG_MS, waitMs: 0, whileAlive: true });
    await first.release();
    const second = await waiting;
    await site.silence(280);
    await assert.rejects(site.acquire(client, { whileAlive: true }), leasehold.HeldError);
    assert.equal(await site.row('token'), String(second.token));
    await second.release();
  },
  async wait_is_granted(site) {
    const client = site.client();
    const first = await site.acquire(client);
    const [waiting] = await site.queue(client, 1);
    await first.release();
    const second = await waiting; // in SQL the waiter takes what is free: the row says so no sooner
    assert.equal(await site.row('token'), String(second.token));
  },
  async wait_passes(site) {
    const client = site.client();
    await site.acquire(client);
    await assert.rejects(site.acquire(client, { waitMs: 300 }), leasehold.HeldError);
    await wait('an empty queue', async () => (await site.waiters()) === '0');
  },
  async waiters_are_served_in_order(site) {
    const client = site.client();
    const first = await site.acquire(client);
    const order = [];
    const waiting = [];
    for (let n = 1; n <= 3; n++) {
      waiting.push(client.withLease('cases', site.key, { waitMs: LONG_MS }, () => order.push(n)));
      await wait('a place in the queue', async () => (await site.waiters()) === String(n));
    }
    await first.release();
    await Promise.all(waiting);
    assert.deepEqual(order, [1, 2, 3]);
  },
  async deadline_does_not_count_the_wait(site) {
    const client = site.client();
    const first = await site.acquire(client);
    const [waiting] = await site.queue(client, 1, { durationMs: 9000 });
    await sleep(10000); // the wait that must not count
    await first.release();
    const lease = await waiting;
    await wait('a renewal', async () => (await site.beats()) >= 1);
    assert.ok(lease.isHeld());
  },
  async wait_hears_notify(site) {
    const client = site.client(undefined, { pollMs: 600000 });
    const first = await site.acquire(client);
    const waiting = site.acquire(client, { waitMs: Infinity });
    await wait('a waiter that listens', async () => (await site.isListening()) && (await site.waiters()) === '1');
    await first.release();
    await (await waiting).release();
  },
  async pooler_is_noticed(site) {
    const said = [];
    const client = site.client(undefined, { warn: (words) => said.push(words) });
    for (let n = 0; n < 2; n++) {
      const first = await site.acquire(client);
      const waiting = client.withLease('cases', site.key, { waitMs: LONG_MS }, () => {});
      await wait('a waiter', async () => (await site.waiters()) === '1');
      await first.release();
      await waiting;
    }
    assert.equal(said.filter((words) => words.includes('poll')).length, 1, said.join('\n'));
  },
};
