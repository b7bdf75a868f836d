'use strict';

// The cases about leaders.

const assert = require('node:assert/strict');
const leasehold = require('leasehold-client');
const { LONG_MS, wait } = require('./site.js');

module.exports = {
  async leader_killed_is_followed(site) {
    const program = site.program('lead', LONG_MS);
    const first = BigInt((await program.line('token')).split(' ')[1]);
    const leaders = [];
    const next = site.client().lead('cases', site.key, { durationMs: LONG_MS, onLeader: (owner) => leaders.push(owner), owner: 'the next' }, (lease) => lease.token);
    await wait('a candidate', async () => (await site.waiters()) === '1');
    program.child.kill('SIGKILL');
    assert.ok((await next) > first);
    assert.deepEqual(leaders, ['program', 'the next']);
  },
  async leader_stopped_is_followed(site) {
    const program = site.program('lead', 4000);
    await program.line('working');
    const stop = new AbortController();
    site.later(() => stop.abort());
    const token = new Promise((resolve) => {
      site.client().lead('cases', site.key, { signal: stop.signal }, async (lease) => {
        resolve(lease.token);
        await new Promise((end) => lease.signal.addEventListener('abort', end));
      }).catch(() => {});
    });
    await wait('a candidate', async () => (await site.waiters()) === '1');
    program.child.kill('SIGSTOP');
    const second = await token;
    const before = program.count('working');
    program.child.kill('SIGCONT');
    await program.line('lost');
    assert.ok(program.count('working') <= before + 1); // a step that had begun
    assert.equal(await site.row('state, token'), `held|${second}`);
  },
  async candidate_says_alive_while_it_waits(site) {
    await site.acquire(site.client(), { durationMs: LONG_MS });
    const proxy = await site.proxy();
    site.program('lead', 3000, proxy.target);
    await wait('a candidate', async () => (await site.waiters()) === '1');
    const { messages_sent: sent } = await proxy.state();
    await wait('its messages', async () => (await proxy.state()).messages_sent >= sent + 4);
    assert.equal(await site.waiters(), '1');
  },
  async stopped_candidate_is_passed_over(site) {
    const first = site.program('lead', LONG_MS);
    await first.line('token');
    const proxy = await site.proxy();
    await proxy.actAsHttp();
    const stopped = site.program('lead', 3000, proxy.target);
    await wait('a candidate', async () => (await site.waiters()) === '1');
    const second = site.program('lead', LONG_MS);
    await wait('a second candidate', async () => (await site.waiters()) === '2');
    stopped.child.kill('SIGSTOP');
    first.child.kill('SIGKILL');
    await second.line('token');
  },
  async leader_goes_on_after_a_reset(site) {
    const proxy = await site.proxy();
    await proxy.actAsHttp();
    const leader = site.program('lead', 6000, proxy.target);
    await leader.line('working');
    site.program('lead', 6000);
    await wait('a candidate', async () => (await site.waiters()) === '1');
    const [token, beats, { requests }] = [await site.row('token'), await site.beats(), await proxy.state()];
    await proxy.cut();
    await wait('renewals over another connection', async () => (await site.beats()) > beats + 3 && (await proxy.state()).requests > requests);
    assert.deepEqual([await site.row('token'), await site.waiters()], [token, '1']);
  },
  async reset_is_no_release(site) {
    const proxy = await site.proxy();
    const leader = site.program('lead', 30000, proxy.target);
    await leader.line('working');
    await proxy.cut();
    assert.match(await leader.line('lost'), /unreachable/);
  },
  async leader_resigns(site) {
    const client = site.client();
    const terms = [];
    const stand = () => {
      const over = client.lead('cases', site.key, (lease) => new Promise((resign) => terms.push({ token: lease.token, resign })));
      over.catch(() => {});
      return over;
    };
    const elected = (n) => wait(`the term ${n}`, () => terms.length === n);
    const first = stand();
    await elected(1);
    const second = stand();
    await wait('a second candidate', async () => (await site.waiters()) === '1');
    terms[0].resign();
    await first;
    await elected(2);
    const third = stand(); // the first, again
    await wait('the first as a candidate', async () => (await site.waiters()) === '1');
    terms[1].resign();
    await second;
    await elected(3);
    terms[2].resign();
    await third;
    assert.ok(terms[0].token < terms[1].token && terms[1].token < terms[2].token);
    assert.equal(await site.row('state, last_outcome'), 'free|ok');
  },
  async stream_that_fails_costs_no_lease(site) {
    const client = site.client();
    const transport = client._transport;
    const { tie } = transport;
    const failures = [];
    await client.lead('cases', site.key, { durationMs: 6000 }, async (lease) => {
      transport.tie = function fail(request) {
        if (failures.length < 2) throw failures.push(new leasehold.UnavailableError('credentials: /run/token is empty')) && failures.at(-1);
        return tie.call(this, request);
      };
      lease._tie = null; // the stream goes on; the client does not know any more
      await wait('another stream', () => lease._tie !== null || !lease.isHeld());
      assert.ok(failures.length === 2 && lease.isHeld());
    });
    assert.equal(await site.row('state'), 'free');
  },
};
