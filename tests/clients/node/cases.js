'use strict';

// The cases of tests/clients/cases.json, which says what each is about. One process for each transport: cases.js TRANSPORT [WORD]
// "pglite" is no transport of that list: it is those on sql, with leasehold-test.

const assert = require('node:assert/strict');
const net = require('node:net');
const { test } = require('node:test');
const { inspect } = require('node:util');
const v8 = require('node:v8');
const vm = require('node:vm');
const leasehold = require('leasehold-client');
const { clock } = require('leasehold-client/lib/time.js');
const { Site, wait, sleep } = require('./site.js');
const { PgliteSite } = require('./pglite.js');

const LONG_MS = 300000;
const tables = require(process.env.LEASEHOLD_CASES);

/** A case that hangs is ended, so that its servers and programs are. */
function within(ms, promise) {
  let timer;
  const late = new Promise((resolve, reject) => { timer = setTimeout(() => reject(new Error(`not done within ${ms / 1000} s`)), ms); });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

/** A grant's answer that comes late: a lock in the database, or a delay by the proxy. */
async function slow(site, proxy, ms) {
  if (site.on === 'grpc') {
    await proxy.decide(['delay', ms / 1000], 'pass');
    return;
  }
  await proxy.freeze(true);
  setTimeout(() => proxy.freeze(false), ms);
}

const facts = ({ mode, units, slots }) => [mode, units, slots];

/** What Held says of a refused acquire. */
async function refused(asked) {
  const error = await asked.then(() => assert.fail('granted'), (reason) => reason);
  assert.ok(error instanceof leasehold.HeldError, error);
  return [error.holder, error.holderCount, error.unitsFree];
}

/** Keys of a case, and a column of each one's row. */
function several(site, count) {
  const keys = Array.from({ length: count }, (_, n) => `${site.key}-${n}`);
  const rows = (columns) => Promise.all(keys.map((key) => site.psql(`select ${columns} from leasehold.scope where namespace = 'cases' and key = '${key}'`)));
  return { keys, rows, scopes: keys.map((key) => ({ namespace: 'cases', key })) };
}

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

const cases = {
  async acquire_and_release(site) {
    const lease = await site.acquire(site.client(), { owner: 'somebody' });
    assert.equal(await site.row('state, owner, token'), `held|somebody|${lease.token}`);
    assert.ok(lease.isHeld() && lease.remainingMs() > 0 && lease.remainingMs() <= 24000);
    await lease.release({ result: { rows: 3 } });
    assert.equal(await site.row("state, last_outcome, last_result ->> 'rows'"), 'free|ok|3');
    assert.ok(!lease.isHeld() && lease.lost === null && !lease.signal.aborted);
  },
  async failed_work_is_released_as_failed(site) {
    const wrong = new Error('the disk is full');
    const work = site.client().withLease('cases', site.key, async () => { throw wrong; });
    await assert.rejects(work, (error) => error === wrong);
    assert.equal(await site.row('state, last_outcome, last_error'), 'free|failed|Error: the disk is full');
  },
  async token_grows(site) {
    const client = site.client();
    const tokens = [];
    for (let n = 0; n < 2; n++) tokens.push(await client.withLease('cases', site.key, (lease) => lease.token));
    assert.ok(tokens[1] > tokens[0]);
  },
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
  async deadline_counts_from_the_request(site) {
    const proxy = await site.proxy();
    const client = site.client(proxy.target);
    await (await site.acquire(client)).release(); // connects
    await slow(site, proxy, 2000);
    const lease = await site.acquire(client, { durationMs: 20000 });
    assert.ok(lease.remainingMs() <= 16000 - 1900, String(lease.remainingMs())); // a fifth is the margin; timers have their steps
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
  async renewal_keeps_the_lease(site) {
    const lease = await site.acquire(site.client(), { durationMs: 12000 });
    await wait('four renewals', async () => (await site.beats()) >= 4);
    assert.equal(await site.row('state, token'), `held|${lease.token}`);
    await lease.release();
  },
  async one_request_renews_all(site) {
    const client = site.client();
    const heartbeat = client._transport.heartbeat;
    const requests = [];
    client._transport.heartbeat = function watch(refs, timeoutMs) {
      requests.push(refs.length);
      return heartbeat.call(this, refs, timeoutMs);
    };
    const keys = Array.from({ length: 50 }, (_, n) => `${site.key}-${n}`);
    const leases = await Promise.all(keys.map((key) => client.acquire('cases', key, { durationMs: 12000, waitMs: LONG_MS })));
    const least = `select count(*) from leasehold.scope where key like '${site.key}-%' and heartbeats > 0`;
    await wait('a renewal of each', async () => (await site.psql(least)) === '50');
    await wait('one request', () => requests.includes(50));
    assert.ok(leases.every((lease) => lease.isHeld()));
  },
  async lost_replies_cost_no_lease(site) {
    const proxy = await site.proxy();
    const lease = await site.acquire(site.client(proxy.target), { durationMs: 9000 });
    // Never two losses in a row: there is time for two tries between a renewal and the deadline.
    await proxy.decide('pass', 'drop', 'pass', 'cut', 'pass', ['delay', 0.2], 'pass', 'truncate', 'cycle');
    await wait('four renewals, and losses', async () => {
      const { actions } = await proxy.state();
      return ((await site.beats()) >= 4 && actions.drop && actions.cut) || !lease.isHeld();
    });
    assert.equal(await site.row('state, token'), `held|${lease.token}`);
    await lease.release();
    assert.equal(await site.row('state, last_outcome'), 'free|ok');
  },
  async broken_connections_cost_no_lease(site) {
    const lease = await site.acquire(site.client(), { durationMs: 9000 });
    for (let n = 0; n < 2; n++) {
      const beats = await site.beats();
      await wait('a renewal', async () => (await site.beats()) > beats);
      // Behind a pooler, those that the packages' own statements use: other cases have transactions open.
      const ours = site.on === 'pooler' ? "query like '%leasehold.heartbeat(%'" : `application_name = '${site.config.application_name}'`;
      const end = `select count(pg_terminate_backend(pid)) from pg_stat_activity where pid <> pg_backend_pid() and datname = current_database() and ${ours}`;
      await wait('the end of a connection', async () => (await site.psql(end)) !== '0');
    }
    const beats = await site.beats();
    await wait('two renewals', async () => (await site.beats()) > beats + 1);
    await lease.release();
    assert.equal(await site.row('state, last_outcome'), 'free|ok');
  },
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
  async released_lease_is_not_held(site) {
    const lease = await site.client().withLease('cases', site.key, async (held) => {
      await held.release({ result: { rows: 3 } });
      assert.ok(!held.isHeld() && held.remainingMs() === 0);
      assert.throws(() => held.check(), { name: 'LeaseLostError', reason: 'released', message: /was released/ });
      await held.release();
      return held;
    });
    assert.ok(lease.lost === null && !lease.signal.aborted);
    assert.equal(await site.row("state, last_outcome, last_result ->> 'rows'"), 'free|ok|3');
  },
  async copy_holds_nothing(site) {
    const client = site.client();
    const lease = await site.acquire(client);
    for (const each of [lease, client]) {
      for (const way of [structuredClone, (given) => Object.assign(Object.create(Object.getPrototypeOf(given)), given)]) {
        const copy = way(each);
        assert.ok(!('isHeld' in copy) || assert.throws(() => copy.isHeld(), TypeError) === undefined);
        assert.ok(!('acquire' in copy) || (await assert.rejects(copy.acquire('cases', site.key), TypeError)) === undefined);
      }
    }
    assert.throws(() => JSON.stringify(lease), /BigInt/);
    lease.check();
    await lease.release();
  },
  async dropped_lease_is_renewed(site) {
    v8.setFlagsFromString('--expose-gc');
    const collect = vm.runInNewContext('gc');
    await site.acquire(site.client(), { durationMs: 6000 });
    await wait('two renewals', async () => collect() ?? (await site.beats()) >= 2);
    assert.equal(await site.row('state'), 'held');
  },
  async blocked_event_loop_is_told(site) {
    const program = site.program('block', 6000);
    assert.equal(await program.line('held'), 'held false');
    assert.match(await program.line('ended'), /^ended LEASEHOLD_LOST told 1 the lease cases\/node-blocked\S* .* is lost: unreachable/);
    assert.match(await program.line('warned'), /the event loop did not run for \d/);
  },
  async listener_that_throws_costs_nothing(site) {
    const said = [];
    const warn = (words) => {
      if (said.push(words) > 1) return Promise.reject(new Error('warn is broken too, later'));
      throw new Error('warn is broken too');
    };
    const client = site.client(undefined, { warn });
    const listener = () => { throw new Error('the listener is broken'); };
    const later = async () => listener();
    const first = await site.acquire(client, { durationMs: 6000 });
    const [waiting] = await site.queue(client, 1, { onQueued: listener });
    const leading = client.lead('cases', `${site.key}-led`, { durationMs: 6000, onLeader: later }, async (lease) => {
      const beats = `select heartbeats > 0 from leasehold.scope where key = '${site.key}-led'`;
      if (site.on !== 'grpc') await wait('a renewal of the leader', async () => (await site.psql(beats)) === 't');
      return lease.token;
    });
    await wait('two warnings', () => said.filter((words) => words.includes('the listener is broken')).length >= 2);
    await first.release();
    await (await waiting).release();
    assert.equal(typeof (await leading), 'bigint');
    assert.equal(await site.psql(`select state from leasehold.scope where key = '${site.key}-led'`), 'free');
  },
  async deferred_work_is_refused(site) {
    const client = site.client();
    for (const work of [function* () {}, async function* () {}]) {
      for (const verb of ['withLease', 'lead']) await assert.rejects(client[verb]('cases', site.key, {}, work), /work must be a function, and no generator/);
    }
    assert.equal(await site.row('state'), '');
  },
  async work_in_hand_keeps_the_process(site) {
    const program = site.program('wait', 3000);
    await program.line('token');
    await wait('two renewals', async () => (await site.beats()) >= 2 || program.child.exitCode !== null);
    assert.equal(program.child.exitCode, null);
    await site.force();
    assert.equal(await program.ended, 0);
    assert.equal(await program.line('lost'), 'lost forced');
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
  async lost_release_is_repeated(site) {
    const proxy = await site.proxy();
    const lease = await site.acquire(site.client(proxy.target));
    await proxy.decide('cut', 'pass');
    await lease.release();
    assert.equal((await proxy.state()).actions.cut, 1);
    assert.equal(await site.row('state, last_outcome'), 'free|ok');
  },
  async no_renewal_after_release(site) {
    const proxy = await site.proxy();
    const client = site.client(proxy.target);
    const lease = await site.acquire(client, { durationMs: 12000 });
    await wait('a renewal', async () => (await site.beats()) >= 1);
    await (site.on === 'grpc' ? proxy.decide(['delay', 1], 'pass') : proxy.freeze(true));
    await wait('a renewal in flight', () => lease._asked !== null);
    const released = lease.release();
    if (site.on === 'sql') await proxy.freeze(false);
    await released;
    const renewed = [];
    const heartbeat = client._transport.heartbeat;
    client._transport.heartbeat = function watch(refs, timeoutMs) {
      renewed.push(...refs.map((ref) => ref.key));
      return heartbeat.call(this, refs, timeoutMs);
    };
    await client.acquire('cases', `${site.key}-other`, { durationMs: 3000 });
    await wait('renewals of another lease', () => renewed.filter((key) => key === `${site.key}-other`).length >= 2);
    assert.ok(!renewed.includes(site.key));
    assert.equal(lease.lost, null);
  },
  async close_leaves_nothing(site) {
    const program = site.program('close', 3000);
    assert.equal(await program.line('left'), 'left');
    assert.deepEqual([await program.line('lost'), await program.line('waiter')], ['lost closed', 'waiter LEASEHOLD_CLOSED']);
    assert.equal(await program.ended, 0); // by itself
    const connections = `select count(*) from pg_stat_activity where application_name = '${site.config.application_name}'`;
    if (site.on !== 'pooler') await wait('the end of its connections', async () => (await site.psql(connections)) === '0');
    const beats = await site.beats();
    await wait('the deadline', async () => (await site.row("state = 'free' or deadline < clock_timestamp()")) === 't');
    assert.ok((await site.beats()) <= beats);
  },
  async exit_leaves_nothing(site) {
    const program = site.program('exit', 3000);
    assert.equal(await program.ended, 7);
    assert.equal(program.lines.length, 1);
    await wait('the deadline', async () => (await site.row("state = 'free' or deadline < clock_timestamp()")) === 't');
  },
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
    const share = (units, options) => client.acquire('nodefive', 'k', { shared: true, units, ...options });
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
  async denied_is_a_type(site) {
    await site.psql("select leasehold.set_policy('nodefrozen', frozen => true)");
    const denied = await wait('Denied', async () => { // a daemon follows within a second
      try {
        await (await site.client().acquire('nodefrozen', 'k')).release();
        return null;
      } catch (error) {
        return error;
      }
    });
    assert.ok(denied instanceof leasehold.DeniedError);
    assert.equal(denied.reason, 'NAMESPACE_FROZEN');
  },
  async unavailable_is_a_type(site) {
    const target = site.on === 'grpc' ? '127.0.0.1:1' : { ...site.config, host: '127.0.0.1', port: 1 };
    await assert.rejects(site.acquire(site.client(target, { patienceMs: 300 })), leasehold.UnavailableError);
  },
  async invalid_argument_is_told(site) {
    await assert.rejects(site.acquire(site.client(), { durationMs: 1 }), (error) => {
      assert.ok(error instanceof leasehold.InvalidArgumentError && error instanceof RangeError, error);
      assert.equal(error.field, 'duration');
      assert.notEqual(error.bound, '');
      return true;
    });
  },
  async wrong_arguments_are_named(site) {
    const names = { duration: 'durationMs', wait: 'waitMs', at_least: 'atLeastMs', timeout: 'patienceMs' };
    for (const { argument, value: seconds } of tables.wrong_arguments) {
      const name = names[argument] ?? argument;
      const value = name !== argument && typeof seconds === 'number' ? seconds * 1000 : seconds;
      const given = { namespace: 'cases', key: site.key, ...(name === 'units' && { shared: true }), [name]: value };
      const { namespace, key, patienceMs, server, ...options } = given;
      const call = async () => {
        if (['patienceMs', 'server'].includes(name)) new leasehold.Client({ [name]: value });
        else await site.client().acquire(namespace, key, options);
      };
      await assert.rejects(call(), (error) => {
        assert.ok(error instanceof leasehold.InvalidArgumentError, error);
        assert.equal(error.field, ['patienceMs'].includes(name) ? name : argument);
        assert.equal(error.message, `${name} must be ${error.bound}, not ${inspect(value)}`);
        return true;
      });
    }
    assert.equal(await site.row('state'), '');
  },
  async unknown_options_are_named(site) {
    const client = site.client();
    const never = () => assert.fail('it ran');
    for (const name of ['duration', 'wait', 'ttlMs']) {
      const told = { name: 'InvalidArgumentError', field: name, message: new RegExp(`has no option ${name}; it has .*durationMs`) };
      await assert.rejects(site.acquire(client, { [name]: 5 }), told);
      await assert.rejects(client.withLease('cases', site.key, { [name]: 5 }, never), told);
      await assert.rejects(client.lead('cases', site.key, { [name]: 5 }, never), told);
      assert.throws(() => new leasehold.Client({ [name]: 5 }), { field: name, message: /it has server,/ });
      assert.throws(() => new leasehold.Client({ tls: { [name]: 5 } }), { field: name, message: /it has caFile,/ });
    }
    await assert.rejects(client.withLease('cases', site.key, {}, 7), { field: 'work' });
    const misplaced = { field: 'arguments', message: /has no place for \{ durationMs \}; it takes / };
    await assert.rejects(client.withLease('cases', site.key, never, { durationMs: 5000 }), misplaced);
    await assert.rejects(client.lead('cases', site.key, never, { durationMs: 5000 }), misplaced);
    await assert.rejects(client.acquire('cases', site.key, {}, never), { field: 'arguments', message: /a function; it takes namespace, key, options$/ });
    assert.throws(() => new leasehold.Client('127.0.0.1:1', { durationMs: 5000 }), misplaced);
    assert.equal(await site.row('state'), '');
    await client.withLease('cases', site.key, { durationMs: undefined, waitMs: undefined }, async (lease) => {
      await assert.rejects(lease.release({ results: 3 }), { field: 'results' });
    });
    assert.equal(await site.row('last_outcome'), 'ok');
  },
  async token_goes_to_loopback_only(site) {
    for (const [address, isNear] of Object.entries(tables.token_addresses)) {
      const make = (server) => site.client(server, { tokenFile: '/nonexistent' });
      if (isNear) {
        make(address);
        continue;
      }
      for (const server of [address, `127.0.0.1:7420,${address}`]) {
        assert.throws(() => make(server), (error) => {
          assert.ok(error instanceof leasehold.InvalidArgumentError && error.field === 'server', error);
          assert.ok(error.message.startsWith(`server '${address}': a token is sent over TLS`), error.message);
          return true;
        });
      }
    }
  },
  async loopback_needs_no_proxy(site) {
    let seen = 0;
    const proxy = net.createServer((socket) => { seen += 1; socket.destroy(); });
    await new Promise((resolve) => proxy.listen(0, '127.0.0.1', resolve));
    process.env.grpc_proxy = `http://127.0.0.1:${proxy.address().port}`;
    try {
      await site.client(site.target.replace('127.0.0.1', 'localhost')).withLease('cases', site.key, (lease) => lease.check());
    } finally {
      delete process.env.grpc_proxy;
      proxy.close();
    }
    assert.equal(seen, 0);
  },
  async daemon_restarts(site) {
    const daemon = await site.daemon();
    const lease = await site.acquire(site.client(daemon.target), { durationMs: 15000 });
    await daemon.kill();
    await daemon.start();
    const beats = await site.beats();
    await wait('two renewals', async () => (await site.beats()) > beats + 1 || !lease.isHeld());
    assert.equal(await site.row('state, token'), `held|${lease.token}`);
    await lease.release();
  },
  async hanging_daemon_is_left(site) {
    const daemon = await site.daemon();
    const lease = await site.acquire(site.client(`${daemon.target},${site.target}`), { durationMs: 12000 });
    await daemon.signal('SIGSTOP');
    const beats = await site.beats();
    // More than its deadline allows without a renewal.
    await wait('renewals elsewhere', async () => (await site.beats()) >= beats + 4 || !lease.isHeld());
    assert.equal(await site.row('state, token'), `held|${lease.token}`);
    await lease.release();
  },
  async guard_fences(site) {
    const lease = await site.acquire(site.client());
    const application = await site.pg();
    await application.query('begin');
    await lease.guard(application);
    await application.query('commit');
    await site.force();
    await application.query('begin');
    await assert.rejects(lease.guard(application), leasehold.LeaseLostError);
    await application.query('rollback');
  },
  async released_in_a_transaction(site) {
    await site.call('running');
    const [client, pg] = [site.client(), await site.pg()];
    const becomes = (state) => pg.query('update call set state = $1 where id = $2', [state, site.key]);
    const lease = await site.acquire(client, { durationMs: 6000 });
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
    const lease = await client.acquireIn(pg, 'cases', site.key, { durationMs: 6000, owner: 'worker-1' }, ({ token }) => becomes(`token ${token}`));
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
    const lease = await site.acquire(client, { durationMs: 6000 });
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
    const lease = await client.acquireIn(after, 'cases', site.key, { durationMs: 6000 }, becomes(after));
    assert.deepEqual([await site.callState(), lease.isHeld()], ['running', true]);
    await site.renewed();
    await lease.release();
  },
  async renewal_has_its_own_connection(site) {
    const lease = await site.acquire(site.client(), { durationMs: 6000 });
    const application = await site.pg();
    await application.query('begin');
    await lease.guard(application);
    const beats = await site.beats();
    await wait('two renewals', async () => (await site.beats()) >= beats + 2);
    await application.query('rollback');
    await lease.release();
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
    const work = client.withAll(scopes, { durationMs: 6000 }, async (lease) => {
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
  async explain_says_who_holds(site) {
    const client = site.client();
    const ask = () => client.explain('cases', site.key);
    const never = await ask();
    assert.deepEqual([never.state, never.holder, never.waiters, never.holders], ['free', null, 0, 0]);
    assert.match(never.advice, /acquire it/);
    const lease = await site.acquire(client, { owner: 'worker-1', durationMs: LONG_MS });
    const [waiting] = await site.queue(client, 1);
    const held = await ask();
    assert.deepEqual([held.state, held.holder, held.token, held.liveness, held.mode], ['held', 'worker-1', lease.token, 'alive', 'exclusive']);
    assert.deepEqual([held.waiters, held.holders, held.heartbeats], [1, 1, 0]);
    assert.ok(held.since <= held.lastHeartbeatAt && held.lastHeartbeatAt < held.expiresAt && held.firstWaiter && held.principal);
    assert.equal(typeof held.policy, 'object');
    await lease.release();
    await (await waiting).release();
    await client.withLease('cases', site.key, { shared: true, units: 3 }, async () => {
      const shared = await ask();
      assert.deepEqual([shared.state, shared.mode, shared.units, shared.holders], ['shared', 'shared', 3, 1]);
    });
    const after = await ask();
    assert.ok(after.state === 'free' && after.since >= held.since && after.token === null);
    await client.withLease('cases', site.key, { atLeastMs: 60000 }, () => {});
    assert.ok((await ask()).restsUntil > new Date());
    await assert.rejects(client.explain('cases', ''), { message: 'key must be 1 to 1024 bytes, has 0' });
  },
  async watch_begins_with_what_is_held(site) {
    const client = site.client();
    const lease = await site.acquire(client, { owner: 'worker-1', durationMs: LONG_MS });
    const events = client.watch('cases', { key: site.key });
    const next = async () => (await events.next()).value;
    const [first, synced] = [await next(), await next()];
    assert.deepEqual([first.kind, first.namespace, first.key, first.token, first.owner], ['held', 'cases', site.key, lease.token, 'worker-1']);
    assert.equal(synced.kind, 'synced');
    await (await client.acquire('cases', `${site.key}-other`)).release();
    await lease.release({ result: { rows: 3 } });
    await assert.rejects(client.withLease('cases', site.key, { shared: true, units: 2 }, () => { throw new Error('the disk is full'); }));
    await site.acquire(client);
    await site.force();
    const told = [];
    while (told.length < 5) told.push(await next());
    assert.deepEqual(told.map(({ kind }) => kind), ['released', 'acquired', 'failed', 'acquired', 'forced']);
    assert.ok(told.every(({ key }) => key === site.key));
    assert.deepEqual([told[0].result, told[2].error, told[2].mode, told[2].units, told[4].reason], ['{"rows": 3}', 'Error: the disk is full', 'shared', 2, 'a test']);
    await events.return();
    for await (const { kind } of client.watch()) {
      assert.ok(['held', 'synced'].includes(kind));
      break;
    }
    const stop = new AbortController();
    const stopped = client.watch('cases', { signal: stop.signal });
    await stopped.next();
    stop.abort(new Error('enough'));
    await assert.rejects(async () => { for await (const each of stopped) assert.notEqual(each.kind, 'forced'); }, /enough/);
    await assert.rejects(client.watch('cases', { key: 'k', children: true }).next(), { field: 'key' });
    await assert.rejects(new leasehold.Client({ database: site.config }).watch('cases').next(), /^InvalidArgumentError: watch needs a server/);
  },
  async watch_goes_on_after_a_restart(site) {
    const daemon = await site.daemon();
    const lease = await site.acquire(site.client(), { durationMs: LONG_MS });
    const events = site.client(daemon.target).watch('cases', { key: site.key });
    const kinds = async (n) => {
      const found = [];
      while (found.length < n) found.push((await events.next()).value.kind);
      return found;
    };
    assert.deepEqual(await kinds(2), ['held', 'synced']);
    await daemon.kill();
    await daemon.start();
    assert.deepEqual(await kinds(2), ['held', 'synced']);
    await lease.release();
    assert.deepEqual(await kinds(1), ['released']);
    await events.return();
  },
  async reaping_calls_back(site) {
    const namespace = `reap-${process.pid}-${site.key.includes('_') ? on : 'x'}`;
    for (let n = 0; n < 5; n++) await site.psql(`select from leasehold.acquire('${namespace}', 'job-${n}', '30 s', 'worker-job-${n}')`);
    const tokens = (await site.psql(`select token from leasehold.scope where namespace = '${namespace}' order by key`)).split('\n');
    await site.psql(`update leasehold.scope set ${['acquired_at', 'heartbeat_at', 'deadline', 'check_at'].map((each) => `${each} = ${each} - interval '1 h'`)} `
      + `where namespace = '${namespace}' and key <> 'job-4'`);
    const pg = await site.pg();
    await pg.query('create temporary table reaped (token text)');
    const putBack = async ({ namespace: of, key, owner, token, acquiredAt, deadline }) => {
      assert.ok(of === namespace && owner === `worker-${key}` && acquiredAt < deadline);
      await pg.query('insert into reaped values ($1)', [String(token)]);
      if (key === 'job-1') throw new Error('the disk is full');
    };
    assert.deepEqual(await leasehold.reapStale(pg, putBack, { namespaces: [namespace] }), { ended: 3, failed: 1 });
    assert.deepEqual((await pg.query('select token from reaped order by token')).rows.map(({ token }) => token).sort(), [tokens[0], tokens[2], tokens[3]].sort());
    assert.equal(await site.psql(`select string_agg(state, ' ' order by key) from leasehold.scope where namespace = '${namespace}'`), 'free held free free held');
    assert.match(await site.psql(`select reap_error from leasehold.scope where namespace = '${namespace}' and key = 'job-1'`), /the disk is full/);
    assert.deepEqual(await leasehold.reapStale(pg, () => {}, { namespaces: ['reap'], children: true }), { ended: 0, failed: 0 });
    assert.deepEqual(await leasehold.reapStale(pg, () => {}, { namespaces: [namespace] }), { ended: 1, failed: 0 });
    await assert.rejects(leasehold.reapStale(pg, 7), { field: 'work' });
    await assert.rejects(leasehold.reapStale(pg, () => {}, { namespaces: ['a..b'] }), { field: 'namespace' });
  },
  async callbacks_tell_of_a_lease(site) {
    const client = site.client();
    const told = [];
    const tell = (word) => ({ key }) => { told.push(`${word} ${key}`); };
    const declared = client.declare('cases', { durationMs: 3000, onGranted: tell('granted'), onRenewed: tell('renewed'), onReleased: tell('released'),
      onLost: ({ reason }) => { told.push(`lost ${reason}`); } });
    const words = (key) => told.filter((each) => each.endsWith(` ${key}`)).map((each) => each.split(' ')[0]).filter((each, n, all) => each !== all[n - 1]);
    await declared.withLease(site.key, () => wait('renewals', () => told.filter((each) => each === `renewed ${site.key}`).length >= 2));
    assert.deepEqual(words(site.key), ['granted', 'renewed', 'released']);
    told.length = 0;
    const forced = await declared.acquire(site.key);
    await site.force();
    await site.lost(forced);
    assert.equal(told.at(-1), 'lost forced');
    assert.ok(!words(site.key).includes('released'));
    (await declared.acquire(`${site.key}-2`)).tryRelease();
    await wait('the release', () => words(`${site.key}-2`).at(-1) === 'released');
    const pg = await site.pg();
    await (await declared.acquireIn(pg, `${site.key}-3`, async () => {})).releaseIn(pg, async () => {});
    assert.deepEqual([words(`${site.key}-3`)[0], words(`${site.key}-3`).at(-1)], ['granted', 'released']);
    const warnings = [];
    const fails = () => { throw new Error("a listener's"); };
    const loud = site.client(undefined, { warn: (text) => warnings.push(text) });
    await loud.withLease('cases', site.key, { durationMs: 3000, onGranted: fails, onRenewed: fails, onReleased: fails }, async (lease) => {
      await wait('two renewals', async () => (await site.beats()) >= 2);
      assert.ok(lease.isHeld());
    });
    assert.ok(warnings.length >= 3 && warnings.every((text) => text.includes("a listener's")), warnings);
    await assert.rejects(site.acquire(client, { onRenewed: 'print' }), { field: 'onRenewed' });
  },
  async lost_lease_ends_nested_calls(site) {
    const client = site.client();
    const other = `${site.key}-other`;
    const held = await site.client().acquire('cases', other, { durationMs: LONG_MS });
    const queued = () => site.psql(`select count(*) from leasehold.queue where key = '${other}'`);
    let waiting = null;
    const work = client.withLease('cases', site.key, { durationMs: 6000 }, async () => {
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
  async deadline_travels_in_metadata(site) {
    const grpc = require('@grpc/grpc-js');
    const bytes = { requestStream: false, responseStream: false, requestSerialize: (value) => value, requestDeserialize: (value) => value,
      responseSerialize: (value) => value, responseDeserialize: (value) => value };
    const server = new grpc.Server();
    const service = { Ask: { path: '/other.Service/Ask', ...bytes } };
    server.addService(service, { Ask: (call, answer) => answer(null, Buffer.from(String(call.getDeadline() === Infinity ? 'none' : call.getDeadline() - Date.now()))) });
    const port = await new Promise((resolve, reject) => { server.bindAsync('127.0.0.1:0', grpc.ServerCredentials.createInsecure(), (error, found) => (error ? reject(error) : resolve(found))); });
    const stub = new (grpc.makeGenericClientConstructor(service))(`127.0.0.1:${port}`, grpc.credentials.createInsecure());
    site.later(() => { stub.close(); server.forceShutdown(); });
    const ask = () => new Promise((resolve, reject) => { stub.Ask(Buffer.alloc(0), { deadline: leasehold.deadline() }, (error, found) => (error ? reject(error) : resolve(String(found)))); });
    assert.equal(await ask(), 'none');
    const client = site.client();
    await client.withLease('cases', site.key, { durationMs: 30000 }, async (lease) => {
      const most = lease.remainingMs();
      const left = Number(await ask());
      assert.ok(left > 0 && left <= most + 20, [left, most]);
      await client.withLease('cases', `${site.key}-inner`, { durationMs: LONG_MS }, async () => {
        const inner = Number(await ask());
        assert.ok(inner > 0 && inner <= most + 20, [inner, most]);
      });
    });
    assert.equal(leasehold.deadline(), Infinity);
  },
  async declared_lease_is_used_everywhere(site) {
    const deploy = site.client().declare('cases', { durationMs: LONG_MS, owner: 'ci-7', labels: { of: 'the case' } });
    const facts = () => site.row("owner, labels ->> 'of', extract(epoch from duration)::integer");
    const usual = 'ci-7|the case|300';
    const lease = await deploy.acquire(site.key);
    assert.equal(await facts(), usual);
    await lease.release();
    await deploy.withLease(site.key, { owner: 'ci-8' }, async () => {
      assert.equal(await facts(), 'ci-8|the case|300');
      await assert.rejects(deploy.acquire(site.key, { owner: undefined }), { holder: 'ci-8' });
    });
    assert.equal(await deploy.withLease(site.key, facts), usual);
    assert.equal(await deploy.lead(site.key, facts), usual);
    const pg = await site.pg();
    await (await deploy.acquireIn(pg, site.key, async () => {})).release();
    assert.equal(await facts(), usual);
    await assert.rejects(site.client().declare('cases', { shared: true }).lead(site.key, facts), { field: 'shared' });
  },
  async bounds_are_told_before_any_request(site) {
    const nowhere = site.on === 'grpc' ? '127.0.0.1:9' : { host: '127.0.0.1', port: 9 };
    const client = site.client(nowhere, { patienceMs: 1 });
    let checked = 0;
    const texts = ['namespace', 'key', 'owner', 'label_name', 'label_value'];
    for (const { kind, value: text, times, words } of require(process.env.LEASEHOLD_BOUNDS).filter((row) => texts.includes(row.kind))) {
      const value = text.repeat(times);
      const labels = { label_name: { [value]: '' }, label_value: { of: value } }[kind];
      const options = { ...(kind === 'owner' && { owner: value }), ...(labels && { labels }) };
      const [namespace, key] = [kind === 'namespace' ? value : 'cases', kind === 'key' ? value : site.key];
      for (const way of [async () => client.declare(namespace, options).acquire(key), () => client.acquire(namespace, key, options)]) {
        const error = await way().then(() => assert.fail('granted'), (reason) => reason);
        checked += 1;
        if (words === null) assert.ok(error instanceof leasehold.UnavailableError, error);
        else assert.deepEqual([error.name, error.message, error.field], ['InvalidArgumentError', words, kind]);
      }
    }
    assert.ok(checked > 60);
    assert.throws(() => client.declare('a..b'), { message: 'segment 2 of namespace must be 1 to 63 bytes, has 0' });
    assert.throws(() => client.declare('cases', { labels: Object.fromEntries([...Array(17).keys()].map((n) => [n, ''])) }), { message: 'labels must be at most 16, are 17' });
    assert.throws(() => client.declare('cases', { ttl: 5 }), { message: /^declare has no option ttl/ });
  },
  async leased_work_runs_once(site) {
    let runs = 0;
    const once = () => site.client().withLease('cases', site.key, { atLeastMs: LONG_MS }, () => { runs += 1; });
    await once();
    await assert.rejects(once(), leasehold.HeldError);
    assert.deepEqual([runs, await site.row('state, at_least')], [1, 'free|00:05:00']);
  },
};

const [on, only = ''] = process.argv.slice(2);
const isOurs = ({ on: transports, only: languages = ['node'], name }) => languages.includes('node') && !(name in tables.left_out.node)
  && (on === 'pglite' ? transports.includes('sql') && !(name in tables.pglite.left_out) : transports.includes(on));
const list = tables.cases.filter(isOurs);
test(on, { concurrency: 4 }, async (all) => {
  await Promise.all(list.filter(({ name }) => name.includes(only)).map(({ name }) => all.test(name, async () => {
    const site = await (on === 'pglite' ? PgliteSite : Site).make(on, name);
    let isGood = false;
    try {
      await within(180000, cases[name](site));
      isGood = true;
    } finally {
      await site.close();
      console.log(`case ${name} on ${on} ${isGood ? 'passed' : 'failed'}`);
    }
  })));
  await PgliteSite.end();
});
