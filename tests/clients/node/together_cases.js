'use strict';

// The cases about leases of several keys.

const assert = require('node:assert/strict');
const leasehold = require('leasehold-client');
const { LONG_MS, wait } = require('./site.js');

/** Keys of a case, and a column of each one's row. */
function several(site, count) {
  const keys = Array.from({ length: count }, (_, n) => `${site.key}-${n}`);
  const rows = (columns) => Promise.all(keys.map((key) => site.psql(`select ${columns} from leasehold.scope where namespace = 'cases' and key = '${key}'`)));
  return { keys, rows, scopes: keys.map((key) => ({ namespace: 'cases', key })) };
}

module.exports = {
  async all_or_none(site) {
    const client = site.client();
    const { keys, scopes, rows } = several(site, 3);
    const all = await client.acquireAll(scopes, { durationMs: LONG_MS, owner: 'all' });
    assert.equal(all.token, all.tokens[0]);
    assert.deepEqual(await rows('state, owner, token'), all.tokens.map((token) => `held|all|${token}`));
    const pg = await site.pg();
    await pg.query('begin');
    await all.guard(pg);
    await pg.query('commit');
    await assert.rejects(all.downgrade(), { message: 'a lease of several keys cannot be downgraded' });
    await assert.rejects(all.releaseIn(pg, () => assert.fail('it ran')), { message: 'a lease of several keys cannot end in a transaction' });
    await all.release();
    const other = await client.acquire('cases', keys[1], { owner: 'in the way' });
    await assert.rejects(client.acquireAll(scopes), (error) => error instanceof leasehold.HeldError && error.holder === 'in the way' && error.message.includes(keys[1]));
    await other.release();
    assert.deepEqual(await rows('state'), ['free', 'free', 'free']);
    const shared = scopes.map((scope) => ({ ...scope, shared: true, units: 2 }));
    await client.withAll(shared, () => client.withAll(shared, async () => assert.deepEqual(await rows('units'), ['4', '4', '4'])));
    const wrong = { 'scopes must be 1 to 100, are 0': [], 'scopes must name each key once': [scopes[0], scopes[0]],
      'a scope has no option ttl; it has namespace, key, shared, units': [{ ...scopes[0], ttl: 3 }], 'key must be 1 to 1024 bytes, has 0': [{ namespace: 'cases', key: '' }] };
    for (const [message, given] of Object.entries(wrong)) await assert.rejects(client.acquireAll(given), { name: 'InvalidArgumentError', message });
    if (site.on !== 'grpc') await assert.rejects(client.acquireAll(scopes, { waitMs: 3 }), /waitMs must be 0 for several keys in SQL/);
  },
  async all_wait_together(site) {
    const client = site.client();
    const { keys, scopes, rows } = several(site, 2);
    const waiters = (key) => site.psql(`select count(*) from leasehold.queue where namespace = 'cases' and key = '${key}'`);
    const places = (n) => wait(`${n} places`, async () => (await waiters(keys[0])) === String(n) && (await waiters(keys[1])) === String(n));
    const first = await client.acquire('cases', keys[0], { durationMs: LONG_MS });
    const one = client.acquireAll(scopes, { waitMs: LONG_MS, durationMs: LONG_MS });
    await places(1);
    const two = client.acquireAll(scopes.toReversed?.() ?? [...scopes].reverse(), { waitMs: Infinity, durationMs: LONG_MS });
    await places(2);
    assert.notEqual(await site.psql(`select state from leasehold.scope where key = '${keys[1]}'`), 'held');
    await first.release();
    const both = await one;
    assert.deepEqual(await rows('token'), both.tokens.map(String));
    await both.release();
    const held = await two;
    const stop = new AbortController();
    const third = client.acquireAll(scopes, { waitMs: LONG_MS, signal: stop.signal });
    await places(1);
    stop.abort(new Error('enough'));
    await assert.rejects(third, /enough/);
    await places(0);
    await held.release();
  },
  async what_is_left_of_several_is_given_back(site) {
    const proxy = await site.proxy();
    await proxy.decide('drop');
    const { keys, scopes, rows } = several(site, 2);
    const waiting = site.client(proxy.target).acquireAll(scopes, { waitMs: 120000, durationMs: LONG_MS });
    await wait('the lost answer', async () => (await proxy.state()).actions.drop && (await rows('state')).every((state) => state === 'held'));
    const [, before] = await rows('lease_key');
    await site.psql(`select from leasehold.force_release('cases', '${keys[0]}', 'a test')`);
    await proxy.decide('pass');
    await proxy.cut();
    const both = await waiting;
    const [after] = await rows('lease_key');
    assert.notEqual(after, before);
    assert.deepEqual(await rows('state, token, lease_key'), both.tokens.map((token) => `held|${token}|${after}`));
    await both.release();
  },
  async all_are_lost_as_one(site) {
    const client = site.client();
    const { keys, scopes, rows } = several(site, 2);
    const { heartbeat } = client._transport;
    const requests = [];
    client._transport.heartbeat = function watch(refs, timeoutMs) {
      requests.push(refs.length);
      return heartbeat.call(this, refs, timeoutMs);
    };
    let told = 0;
    const work = client.withAll(scopes, { durationMs: 12000 }, async (lease) => {
      lease.signal.addEventListener('abort', () => { told += 1; });
      await wait('renewals', async () => (await rows('heartbeats')).every((beats) => Number(beats) >= 2));
      assert.deepEqual([...new Set(requests)], [2]);
      await site.psql(`select from leasehold.force_release('cases', '${keys[1]}', 'a test')`);
      await wait('the loss', () => !lease.isHeld());
      assert.deepEqual(await rows('state'), ['held', 'free']);
    });
    await assert.rejects(work, { name: 'LeaseLostError', reason: 'forced' });
    assert.equal(told, 1);
    await wait('the other', async () => (await rows('state'))[0] === 'free');
  },
  async all_are_released_with_one_result(site) {
    const client = site.client();
    const { scopes, rows } = several(site, 3);
    const end = () => rows("state, last_outcome, coalesce(last_error, last_result ->> 'rows')");
    await client.withAll(scopes, (lease) => { lease.result = { rows: 3 }; });
    assert.deepEqual(await end(), ['free|ok|3', 'free|ok|3', 'free|ok|3']);
    await assert.rejects(client.withAll(scopes, () => { throw new Error('the disk is full'); }), /full/);
    assert.deepEqual(await end(), Array(3).fill('free|failed|Error: the disk is full'));
    assert.ok((await client.acquireAll(scopes)).tryRelease({ result: { rows: 4 } }));
    await (await client.acquireAll(scopes)).release({ result: { rows: 5 } });
    assert.deepEqual(await end(), ['free|ok|5', 'free|ok|5', 'free|ok|5']);
  },
};
