'use strict';

// The cases about requests to hand a lease over.

const assert = require('node:assert/strict');
const leasehold = require('leasehold-client');
const { LONG_MS, wait } = require('./site.js');

module.exports = {
  async holder_is_asked(site) {
    const client = site.client();
    const told = [];
    const lease = await site.acquire(client, { durationMs: 12000, owner: 'worker-1', onAsked: (request) => told.push(request) });
    const ask = (reason) => client.askHandOver('cases', site.key, reason);
    assert.equal(await lease.refuseHandOver('too early'), false);
    const [asked, ...others] = await ask('its host is drained');
    assert.deepEqual([asked.owner, asked.token, asked.reason, asked.refusal, others], ['worker-1', lease.token, 'its host is drained', '', []]);
    assert.ok(asked.answerInMs > 0 && asked.answerInMs <= 30000 && asked.answerBy - asked.askedAt === 30000, asked);
    await wait('the request', () => told.length);
    assert.deepEqual([told[0].reason, told[0].askedBy, told[0].askedAt], ['its host is drained', asked.askedBy, asked.askedAt]);
    await site.renewed();
    assert.equal(told.length, 1);
    assert.ok(await lease.refuseHandOver('in a minute') && await lease.refuseHandOver('and again'));
    assert.deepEqual((await ask('well?')).map(({ refusal, askedAt }) => [refusal, askedAt]), [['in a minute', asked.askedAt]]);
    // The time to answer has passed: it may be asked again.
    await site.psql(`update leasehold.hand_over set answer_by = now() - interval '1 s' where namespace = 'cases' and key = '${site.key}'`);
    assert.equal((await ask('and now?'))[0].refusal, '');
    await wait('another request', () => told.length === 2);
    assert.ok(told[1].reason === 'and now?' && lease.isHeld());
    await lease.release();
    assert.deepEqual(await ask('nobody'), []);
  },
  async waiter_asks_the_holder(site) {
    const told = [];
    const holder = await site.acquire(site.client(), { durationMs: 12000, onAsked: (request) => told.push(request) });
    const [waiting] = await site.queue(site.client(), 1, { owner: 'worker-2', durationMs: LONG_MS, askHandOver: true });
    await wait('the request', () => told.length);
    assert.equal(told[0].refusal, '');
    if (site.on === 'grpc') assert.equal(told[0].askedBy, 'worker-2');
    await holder.release();
    await (await waiting).release();
  },
  async leader_is_asked_on_its_stream(site) {
    const told = [];
    let asked = null;
    await site.client().lead('cases', site.key, { durationMs: LONG_MS, onAsked: (request) => told.push(request) }, async (lease) => {
      await site.client().askHandOver('cases', site.key, 'a better one is there');
      await wait('the request', () => told.length); // long before its next renewal
      asked = [told[0].reason, lease.isHeld()];
    });
    assert.deepEqual(asked, ['a better one is there', true]);
  },
  async refusal_of_an_ended_lease_is_false(site) {
    const client = site.client();
    const lease = await site.acquire(client, { durationMs: LONG_MS }); // no renewal tells of the end
    assert.equal((await client.askHandOver('cases', site.key, '')).length, 1);
    await site.psql(`select from leasehold.force_release('cases', '${site.key}', 'a test')`);
    assert.equal(await lease.refuseHandOver('not now'), false);
  },
  async unreadable_requests_cost_no_lease(site) {
    const [said, told] = [[], []];
    const client = site.client(undefined, { warn: (words) => said.push(words) });
    const lease = await site.acquire(client, { durationMs: 6000, onAsked: (request) => told.push(request) });
    const request = (answerBy) => site.psql(`select from leasehold.ask_hand_over('cases', '${site.key}', reason => 'well?');
      update leasehold.hand_over set answer_by = ${answerBy} where namespace = 'cases' and key = '${site.key}'`);
    await request("'infinity'"); // from which asked() cannot subtract
    await wait('a renewal after more than the duration', async () => (await site.row("heartbeat_at > acquired_at + interval '8 s'")) === 't');
    assert.ok(lease.isHeld() && told.length === 0);
    const heard = said.filter((words) => !words.includes('pooler'));
    assert.ok(heard.length === 1 && heard[0].includes('requests to hand over are not heard'), said.join('\n'));
    await request("now() + interval '30 s'");
    await wait('the request', () => told.length);
    assert.equal(told[0].reason, 'well?');
    await lease.release();
  },
  async wrong_words_are_named(site) {
    const client = site.client();
    await assert.rejects(client.askHandOver('cases', site.key, 'x'.repeat(1025)), { field: 'reason', message: 'reason must be at most 1024 bytes, has 1025' });
    await assert.rejects(site.acquire(client, { askHandOver: true }), { field: 'askHandOver', message: /^askHandOver must be false without a wait/ });
    await assert.rejects(client.askHandOver('cases', '', 'x'), { field: 'key' });
    const lease = await site.acquire(client);
    await assert.rejects(lease.refuseHandOver(''), { field: 'reason', message: 'reason must be 1 to 1024 bytes, has 0' });
    await lease.release();
    await assert.rejects(lease.refuseHandOver('too late'), leasehold.LeaseLostError);
  },
};
