'use strict';

// The cases of tests/clients/cases.json, which says what each is about. One process for each transport: cases.js TRANSPORT [WORD,...]
// Cases that are not here are in NOUN_cases.js. "pglite" is no transport of that list: it is those on sql, with leasehold-test.

const assert = require('node:assert/strict');
const { test } = require('node:test');
const net = require('node:net');
const leasehold = require('leasehold-client');
const { LONG_MS, Site, wait } = require('./site.js');

const tables = require(process.env.LEASEHOLD_CASES);

/** A case that hangs is ended, so that its servers and programs are. */
function within(ms, promise) {
  let timer;
  const late = new Promise((resolve, reject) => { timer = setTimeout(() => reject(new Error(`not done within ${ms / 1000} s`)), ms); });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

const cases = {
  ...require('./shared_cases.js'),
  ...require('./transaction_cases.js'),
  ...require('./leader_cases.js'),
  ...require('./release_cases.js'),
  ...require('./retry_cases.js'),
  ...require('./answer_cases.js'),
  ...require('./together_cases.js'),
  ...require('./look_cases.js'),
  ...require('./tick_cases.js'),
  ...require('./priority_cases.js'),
  ...require('./hand_over_cases.js'),
  ...require('./give_up_cases.js'),
  ...require('./wait_cases.js'),
  ...require('./renewal_cases.js'),
  ...require('./loss_cases.js'),
  ...require('./argument_cases.js'),
  ...require('./secure_cases.js'),
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
  async work_in_hand_keeps_the_process(site) {
    const program = site.program('wait', 12000);
    await program.line('token');
    await wait('a renewal', async () => (await site.beats()) >= 1 || program.child.exitCode !== null);
    assert.equal(program.child.exitCode, null);
    await site.force();
    assert.equal(await program.ended, 0);
    assert.equal(await program.line('lost'), 'lost forced');
  },
  async lost_release_is_repeated(site) {
    const proxy = await site.proxy();
    const lease = await site.acquire(site.client(proxy.target));
    await proxy.decide('cut', 'pass');
    await lease.release();
    assert.equal((await proxy.state()).actions.cut, 1);
    assert.equal(await site.row('state, last_outcome'), 'free|ok');
  },
  async close_leaves_nothing(site) {
    const program = site.program('close', 6000);
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
    assert.ok(warnings.filter((text) => text.includes("a listener's")).length >= 3, warnings);
    await assert.rejects(site.acquire(client, { onRenewed: 'print' }), { field: 'onRenewed' });
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
  await Promise.all(list.filter(({ name }) => only.split(',').some((part) => name.includes(part))).map(({ name }) => all.test(name, async () => {
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
