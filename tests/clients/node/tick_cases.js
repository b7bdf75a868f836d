'use strict';

// The cases about the ticks of a schedule.

const assert = require('node:assert/strict');
const crypto = require('node:crypto');
const { LONG_MS, wait } = require('./site.js');

/** A schedule of a name of its own, which by itself has no tick in this century. */
async function schedule(site, expression = 'every 365 d', settings = {}) {
  const name = `ticks-${crypto.randomUUID()}`;
  const given = Object.entries({ starts_at: "'2100-01-01Z'", backoff: "'0'", ...settings }).map(([setting, value]) => `${setting} => ${value}`);
  await site.psql(`select from leasehold.set_schedule('${name}', '${expression}', ${given.join(', ')})`);
  return name;
}

const runNow = async (site, name) => new Date(await site.psql(`select to_json(leasehold.run_schedule_now('${name}')) #>> '{}'`)).getTime();
const rows = (site, name, columns = 'state, attempts') => site.psql(`select ${columns} from leasehold.tick where schedule = '${name}' order by at`);
const count = async (site, name, condition) => Number(await site.psql(`select count(*) from leasehold.tick where schedule = '${name}' and ${condition}`));

/** The next tick of a loop of which this takes no other. */
async function next(worker) {
  const { value, done } = await worker.next();
  assert.equal(done, false);
  return value;
}

/** A client, and what says that its worker waits. */
async function waitingWorker(site) {
  if (site.on === 'grpc') {
    const proxy = await site.proxy();
    return [site.client(proxy.target), async () => (await proxy.state()).requests > 0];
  }
  const client = site.client(undefined, { pollMs: 600000 });
  const asked = site.listens ?? `select count(*) from pg_stat_activity where application_name = '${site.config.application_name}' and state = 'idle' and query like '%leasehold.until_tick%'`;
  return [client, async () => (await site.psql(asked)) !== '0'];
}

module.exports = {
  async tick_is_claimed_once(site) {
    const name = await schedule(site);
    const got = [];
    let finish;
    const finished = new Promise((resolve) => { finish = resolve; });
    for (let n = 0; n < 2; n++) {
      const loop = async (client) => {
        for await (const tick of client.ticks(name, { owner: 'worker-1', durationMs: LONG_MS, labels: { kind: 'report' } })) {
          await tick.run(async (lease) => {
            assert.ok(lease === tick.lease && lease.isHeld() && lease.namespace === name && lease.key === tick.at.toISOString().replace('.000', ''));
            got.push([tick.at.getTime(), tick.attempt, lease.token]);
            await finished;
            lease.result = { rows: 3 };
          });
        }
      };
      loop(site.client()).catch(() => {});
    }
    const at = await runNow(site, name);
    await wait('a tick', () => got.length);
    assert.equal(await rows(site, name, 'state, attempts, token, owner'), `running|1|${got[0][2]}|worker-1`);
    assert.equal(await site.psql(`select labels ->> 'kind' from leasehold.lease where namespace = '${name}'`), 'report');
    finish();
    await wait('its end', async () => (await rows(site, name, "state, result ->> 'rows'")) === 'done|3');
    const other = await runNow(site, name);
    await wait('the next', async () => (await rows(site, name, 'state')) === 'done\ndone');
    assert.deepEqual(got.map(([instant, attempt]) => [instant, attempt]), [[at, 1], [other, 1]]);
    assert.ok(got[1][2] > got[0][2]);
  },
  async failed_tick_is_tried_again(site) {
    const name = await schedule(site);
    const at = await runNow(site, name);
    const attempts = [];
    const said = [];
    for await (const tick of site.client(undefined, { warn: (words) => said.push(words) }).ticks(name)) {
      attempts.push([tick.at.getTime(), tick.attempt]);
      await tick.run(() => {
        if (tick.attempt === 1) throw new Error('the disk is full');
      });
      if (tick.attempt === 2) break;
      assert.equal(await rows(site, name, 'state, attempts, error'), 'failed|1|Error: the disk is full');
    }
    assert.deepEqual(attempts, [[at, 1], [at, 2]]);
    assert.equal(await rows(site, name), 'done|2');
    assert.equal(said.filter((words) => /^the tick .*, attempt 1, has failed: Error: the disk is full/.test(words)).length, 1);
  },
  async lost_tick_lets_the_loop_go_on(site) {
    const name = await schedule(site);
    await runNow(site, name);
    const told = [];
    for await (const tick of site.client(undefined, { warn: () => {} }).ticks(name, { durationMs: 12000, onLost: ({ reason }) => told.push(reason) })) {
      await tick.run(async (lease) => {
        if (tick.attempt === 2) return;
        await wait('a renewal', async () => (await site.beatsOf(lease)) > 0);
        await site.psql(`select from leasehold.force_release('${name}', '${lease.key}', 'a test')`);
        await site.lost(lease);
      });
      if (tick.attempt === 2) break;
    }
    assert.deepEqual(told, ['forced']);
    assert.equal(await rows(site, name), 'done|2');
  },
  async missed_tick_is_not_yielded(site) {
    const name = await schedule(site);
    await runNow(site, name);
    // An hour later.
    await site.psql(`update leasehold.tick set at = at - interval '1 h', claim_until = now() - interval '1 s' where schedule = '${name}'`);
    await site.psql(`update leasehold.schedule set look_at = now() where name = '${name}'`);
    const worker = site.client().ticks(name);
    const waiting = next(worker);
    await wait('the miss', async () => (await rows(site, name)) === 'missed|0');
    const at = await runNow(site, name);
    assert.equal((await waiting).at.getTime(), at);
    assert.equal(await rows(site, name), 'missed|0\nrunning|1');
    await worker.return();
  },
  async leaving_the_loop_releases_the_tick(site) {
    const name = await schedule(site);
    const client = site.client();
    await runNow(site, name);
    for await (const { attempt } of client.ticks(name, { durationMs: LONG_MS })) {
      assert.equal(attempt, 1);
      break;
    }
    assert.equal(await rows(site, name), 'failed|1');
    assert.match(await rows(site, name, 'error'), /^the loop was left/);
    for await (const tick of client.ticks(name, { durationMs: LONG_MS })) {
      await tick.run(() => assert.equal(tick.attempt, 2));
      break;
    }
    assert.equal(await rows(site, name), 'done|2');
    await runNow(site, name);
    assert.equal(await count(site, name, "state = 'due'"), 1);
  },
  async cancelled_wait_claims_nothing(site) {
    const name = await schedule(site);
    const [client, isWaiting] = await waitingWorker(site);
    const stop = new AbortController();
    const outcome = assert.rejects(client.ticks(name, { signal: stop.signal }).next(), (error) => error === stop.signal.reason);
    await wait('a worker that waits', isWaiting);
    stop.abort(new Error('enough'));
    await outcome;
    await client.explain(name, 'k'); // the daemon has seen the end of the call before it
    const at = await runNow(site, name);
    const other = site.client().ticks(name);
    const tick = await next(other);
    assert.deepEqual([tick.at.getTime(), tick.attempt], [at, 1]);
    await other.return();
  },
  async run_now_is_seen(site) {
    const name = await schedule(site);
    const [client, isWaiting] = await waitingWorker(site);
    const worker = client.ticks(name);
    const waiting = next(worker);
    await wait('a worker that waits', isWaiting);
    const at = await runNow(site, name);
    assert.equal((await waiting).at.getTime(), at);
    await worker.return();
  },
  async paused_schedule_waits(site) {
    const name = await schedule(site, '0 0 1 1 *', { starts_at: 'null' });
    await site.psql(`select leasehold.pause_schedule('${name}')`);
    await site.psql(`select from leasehold.set_schedule('${name}', 'every 1 s', tick_deadline => '1 h')`);
    const worker = site.client().ticks(name);
    const waiting = next(worker);
    // Instants pass: they are skipped, as soon as somebody looks.
    await wait('two of them', async () => (await site.psql(`select coalesce(leasehold.until_tick('${name}')::text, 'never')`)) === 'never'
      && (await count(site, name, "state = 'skipped'")) >= 2);
    assert.equal(await count(site, name, 'attempts > 0'), 0);
    const passed = new Date(await site.psql(`select to_json(max(at)) #>> '{}' from leasehold.tick where schedule = '${name}'`));
    await site.psql(`select leasehold.pause_schedule('${name}', false)`);
    assert.ok((await waiting).at > passed);
    await worker.return();
  },
  async unknown_schedule_is_named(site) {
    const client = site.client();
    await assert.rejects(client.ticks('no-such').next(), { name: 'InvalidArgumentError', message: /name.* is no-such/ });
    await assert.rejects(client.ticks('a..b').next(), { field: 'namespace', message: /^segment 2 of namespace must be 1 to 63 bytes/ });
    await assert.rejects(client.ticks('a', { waitMs: 5 }).next(), { message: /^ticks has no option waitMs/ });
  },
  async workers_share_ticks(site) {
    const name = await schedule(site, undefined, { overlap: 3 });
    const got = [];
    for (let n = 0; n < 3; n++) {
      const loop = async (client) => {
        for await (const { at } of client.ticks(name)) got.push(at.getTime()); // the end of the body makes it done
      };
      loop(site.client()).catch(() => {});
    }
    // As if nobody had looked for 8 s.
    await site.psql(`select from leasehold.set_schedule('${name}', 'every 1 s', ends_at => now(), catch_up => 'all', overlap => 3, tick_deadline => '1 h')`);
    await site.psql(`update leasehold.schedule set made_until = ends_at - interval '8 s', look_at = now() where name = '${name}'`);
    await wait('all', async () => got.length >= 8 && (await count(site, name, "state <> 'done'")) === 0);
    assert.equal(new Set(got).size, got.length);
    assert.equal(await count(site, name, 'attempts <> 1'), 0);
  },
  async lost_answer_of_a_claim_is_found(site) {
    const name = await schedule(site);
    const proxy = await site.proxy();
    await runNow(site, name);
    await proxy.decide('drop', 'pass');
    const worker = site.client(proxy.target, { patienceMs: 5000 }).ticks(name, { durationMs: LONG_MS });
    const { attempt } = await next(worker);
    assert.deepEqual([attempt, (await proxy.state()).actions.drop, await rows(site, name)], [1, 1, 'running|1']);
    await worker.return();
  },
};
