'use strict';

// The cases about releases that nobody waits for.

const assert = require('node:assert/strict');
const leasehold = require('leasehold-client');
const { LONG_MS, wait } = require('./site.js');

/** Nothing is released before `go` is called; how many were in each request. */
function holdUpReleases({ _transport: transport }) {
  const { releaseAll } = transport;
  const requests = [];
  let isOpen = false;
  transport.releaseAll = async function watch(items, timeoutMs) {
    if (!isOpen) throw new leasehold.UnavailableError('held up');
    requests.push(items.length);
    return releaseAll.call(this, items, timeoutMs);
  };
  return { requests, go: () => { isOpen = true; } };
}

module.exports = {
  async nothing_is_told_after_the_release(site) {
    const said = [];
    const say = (what) => () => said.push(what);
    const proxy = await site.proxy();
    const client = site.client(proxy.target);
    const lease = await site.acquire(client, { durationMs: 12000, onRenewed: say('renewed'), onReleased: say('released'), onAsked: say('asked') });
    await wait('a renewal that is answered', () => said.length > 0);
    await (site.on === 'grpc' ? proxy.decide(['delay', 5], 'pass') : proxy.freeze(true));
    await site.client().askHandOver('cases', site.key, '');
    await wait('a renewal in flight', async () => (await site.beats()) >= 2);
    assert.equal(lease.tryRelease(), true);
    if (site.on === 'sql') await proxy.freeze(false);
    await wait('the release', async () => (await site.row('state')) === 'free');
    await client.close();
    assert.deepEqual(said, ['renewed', 'released']);
  },
  async try_release_waits_for_nothing(site) {
    const client = site.client();
    const lease = await site.acquire(client, { durationMs: LONG_MS });
    const { go } = holdUpReleases(client);
    assert.equal(lease.tryRelease({ result: { rows: 3 } }), true);
    assert.ok(!lease.isHeld() && lease.lost === null && !lease.signal.aborted);
    assert.equal(lease.tryRelease(), false);
    await lease.release();
    assert.equal(await site.row('state'), 'held');
    go();
    const is = (wanted) => wait(wanted, async () => (await site.row("state, last_outcome, coalesce(last_error, last_result ->> 'rows')")) === wanted);
    await is('free|ok|3');
    assert.ok((await site.acquire(client)).tryRelease({ failure: 'no such payee' }));
    await is('free|failed|no such payee');
  },
  async try_releases_go_together(site) {
    const client = site.client();
    const result = { n: 'it\'s "quoted" \\ ' };
    const leases = [];
    for (let n = 0; n < 100; n++) leases.push(await client.acquire('cases', `${site.key}-${n}`, { durationMs: LONG_MS }));
    const { go, requests } = holdUpReleases(client);
    for (const lease of leases) lease.tryRelease({ result });
    go();
    const done = `select count(*) from leasehold.scope where key like '${site.key}-%' and state = 'free' and last_result ->> 'n' like 'it%quoted%'`;
    await wait('the releases', async () => (await site.psql(done)) === '100');
    assert.ok(requests.length <= 10 && requests.reduce((sum, each) => sum + each) === 100, requests);
  },
  async acquire_follows_its_own_try_release(site) {
    const client = site.client();
    for (let n = 0; n < 20; n++) (await site.acquire(client, { durationMs: LONG_MS })).tryRelease();
    await client.acquireIn(await site.pg(), 'cases', site.key, async () => {});
    assert.equal(await site.row('state'), 'held');
    await assert.rejects(site.acquire(site.client()), leasehold.HeldError);
  },
  async close_sends_what_try_release_left(site) {
    const client = site.client();
    for (let n = 0; n < 20; n++) (await client.acquire('cases', `${site.key}-${n}`, { durationMs: LONG_MS })).tryRelease();
    await client.close();
    assert.equal(await site.psql(`select count(*) from leasehold.scope where key like '${site.key}-%' and state = 'free' and last_outcome = 'ok'`), '20');
  },
  async undelivered_release_is_logged(site) {
    const proxy = await site.proxy();
    const warnings = [];
    const client = site.client(proxy.target, { warn: (words) => warnings.push(words) });
    const lease = await site.acquire(client, { durationMs: LONG_MS });
    await proxy.freeze(true);
    lease.tryRelease();
    await client.close();
    assert.ok(warnings.some((words) => words.includes(site.key) && words.endsWith('it is left to expire')), warnings);
    assert.equal(await site.row('state'), 'held');
  },
};
