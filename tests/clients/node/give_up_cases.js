'use strict';

// The cases about callers that give up.

const assert = require('node:assert/strict');
const leasehold = require('leasehold-client');
const { LONG_MS, wait } = require('./site.js');

async function givenBack(site, first) {
  await wait('the late grant', async () => BigInt(await site.row('token')) > first.token);
  await wait('its release', async () => (await site.row('state')) === 'free');
}

module.exports = {
  async cancelled_wait_leaves_the_queue(site) {
    const client = site.client();
    const first = await site.acquire(client, { durationMs: LONG_MS });
    const stop = new AbortController();
    const waiting = site.acquire(client, { waitMs: Infinity, signal: stop.signal });
    const outcome = assert.rejects(waiting, (error) => error === stop.signal.reason);
    await wait('a waiter', async () => (await site.waiters()) === '1');
    stop.abort(new Error('enough'));
    await outcome;
    await wait('an empty queue', async () => (await site.waiters()) === '0');
    await first.release();
    assert.equal(await site.row('state, token'), `free|${first.token}`);
  },
  async grant_after_giving_up_is_released(site) {
    const proxy = await site.proxy();
    const client = site.client(proxy.target);
    await (await site.acquire(client)).release(); // connects
    await (site.on === 'grpc' ? proxy.decide('drop') : proxy.freeze(true));
    const stop = new AbortController();
    const outcome = assert.rejects(site.acquire(client, { durationMs: LONG_MS, signal: stop.signal }), { name: 'AbortError' });
    await wait('the grant', async () => (await site.row('state')) === 'held');
    stop.abort();
    await outcome;
    await (site.on === 'grpc' ? proxy.decide('pass') : proxy.freeze(false));
    await wait('the release', async () => (await site.row('state')) === 'free');
  },
  async late_request_is_given_back(site) {
    const proxy = await site.proxy();
    const client = site.client(proxy.target);
    const first = await site.acquire(client);
    await first.release(); // connects
    const { replies } = await proxy.state();
    await proxy.decideRequest('hold', 'pass');
    const stop = new AbortController();
    const outcome = assert.rejects(site.acquire(client, { durationMs: LONG_MS, signal: stop.signal }), { name: 'AbortError' });
    await wait('the request', async () => (await proxy.state()).held > 0);
    stop.abort();
    await outcome;
    await wait('the answer to its release', async () => (await proxy.state()).replies > replies);
    await proxy.letRequestsGo();
    await givenBack(site, first);
  },
  async late_statement_is_given_back(site) {
    const proxy = await site.proxy();
    const client = site.client(proxy.target, { patienceMs: 5000, strategy: leasehold.failFast });
    const first = await site.acquire(client);
    await first.release(); // connects
    const { letGo, hasAnswered } = proxy.hold(/from leasehold\.acquire_one\(/);
    await assert.rejects(site.acquire(client, { durationMs: LONG_MS }), leasehold.UnavailableError);
    await wait('the answer to its release', () => hasAnswered('release_each'));
    letGo();
    await givenBack(site, first);
  },
  async grant_taken_back_is_acquired_anew(site) {
    const proxy = await site.proxy();
    await proxy.decide('drop');
    const waiting = site.acquire(site.client(proxy.target), { waitMs: LONG_MS });
    await wait('the grant', async () => (await site.row('state')) === 'held');
    const first = await site.row('lease_key');
    await proxy.refuse(true);
    await proxy.cut();
    await wait('the end of the connection', async () => (await proxy.state()).connections === 0);
    // The daemon took it back, or wrote its answer before the connection broke.
    await site.psql(`select leasehold.release_ok('cases', '${site.key}', '${first}')`);
    await proxy.decide('pass');
    await proxy.refuse(false);
    const lease = await waiting;
    const [leaseKey, token] = (await site.row('lease_key, token')).split('|');
    assert.notEqual(leaseKey, first);
    assert.equal(token, String(lease.token));
  },
};
