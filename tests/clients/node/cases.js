'use strict';

// The cases of tests/clients/cases.json, which says what each is about. One process for each transport: cases.js TRANSPORT [WORD]
// "pglite" is no transport of that list: it is those on sql, with leasehold-test.

const assert = require('node:assert/strict');
const { test } = require('node:test');
const net = require('node:net');
const { inspect } = require('node:util');
const v8 = require('node:v8');
const vm = require('node:vm');
const leasehold = require('leasehold-client');
const { clock } = require('leasehold-client/lib/time.js');
const { LONG_MS, Site, wait, sleep } = require('./site.js');

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

const cases = {
  ...require('./shared_cases.js'),
  ...require('./transaction_cases.js'),
  ...require('./leader_cases.js'),
  ...require('./release_cases.js'),
  ...require('./retry_cases.js'),
  ...require('./together_cases.js'),
  ...require('./look_cases.js'),
  ...require('./tick_cases.js'),
  ...require('./priority_cases.js'),
  ...require('./hand_over_cases.js'),
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
    assert.match(await program.line('ended'), /^ended LEASEHOLD_LOST told 1 the lease cases\/node-\d+-blocked\S* .* is lost: unreachable/);
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
    const declared = client.declare('cases', { durationMs: 9000, onGranted: tell('granted'), onRenewed: tell('renewed'), onReleased: tell('released'),
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
    await loud.withLease('cases', site.key, { durationMs: 9000, onGranted: fails, onRenewed: fails, onReleased: fails }, async (lease) => {
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
const pglite = on === 'pglite' ? require('./pglite.js') : null;
const isOurs = ({ on: transports, only: languages = ['node'], name }) => languages.includes('node') && !(name in tables.left_out.node)
  && (on === 'pglite' ? transports.includes('sql') && !(name in tables.pglite.left_out) : transports.includes(on));
const list = tables.cases.filter(isOurs);
test(on, { concurrency: 4 }, async (all) => {
  await Promise.all(list.filter(({ name }) => name.includes(only)).map(({ name }) => all.test(name, async () => {
    const site = await (pglite?.PgliteSite ?? Site).make(on, name);
    let isGood = false;
    try {
      await within(180000, cases[name](site));
      isGood = true;
    } finally {
      await site.close();
      console.log(`case ${name} on ${on} ${isGood ? 'passed' : 'failed'}`);
    }
  })));
  await pglite?.PgliteSite.end();
});
