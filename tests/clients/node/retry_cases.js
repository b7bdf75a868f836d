'use strict';

// The cases about retries.

const assert = require('node:assert/strict');
const fs = require('node:fs');
const path = require('node:path');
const { inspect } = require('node:util');
const leasehold = require('leasehold-client');
const { LONG_MS, wait } = require('./site.js');

const { sqlstates } = require(process.env.LEASEHOLD_CASES);

/** grpc-js 1.12 tells of a connection that was refused as of one that broke. */
const isOld = require('@grpc/grpc-js/package.json').version.startsWith('1.12.');
const REFUSED = isOld ? 'SOCKET_CLOSED_WHILE_IN_FLIGHT' : 'SOCKET_NOT_AVAILABLE';

/** A strategy repeats an acquire that found the key held; the client's refuses, and so does one whose delay is longer than the request's time. */
async function decidesAboutHeld(site, client) {
  const steps = [];
  const first = await site.acquire(client);
  const untilReleased = (retry) => {
    steps.push(retry);
    if (steps.length === 2) first.release().catch(() => {});
    return 20;
  };
  await (await site.acquire(client, { strategy: untilReleased })).release();
  assert.ok(steps.length >= 2 && steps.every(({ reason, error }) => reason === 'LEASE_HELD' && error instanceof leasehold.HeldError), steps);
  await site.acquire(client);
  for (const strategy of [undefined, leasehold.bestEffort, () => 3600000]) await assert.rejects(site.acquire(client, { strategy }), leasehold.HeldError);
  const wrong = new Error('the strategy is broken');
  await assert.rejects(site.acquire(client, { strategy: () => { throw wrong; } }), (error) => error === wrong);
  await assert.rejects(site.acquire(client, { strategy: 7 }), { field: 'strategy' });
}

module.exports = {
  async sqlstates_are_told_alike(site) {
    const kinds = { Lost: leasehold.LeaseLostError, InvalidArgument: leasehold.InvalidArgumentError, Denied: leasehold.DeniedError, Unavailable: leasehold.UnavailableError };
    let asked = 0;
    const client = site.client(undefined, { strategy: () => { asked += 1; return null; } });
    for (const [state, expected] of Object.entries(sqlstates)) {
      const [kind, reason] = expected.split(' ');
      asked = 0;
      await assert.rejects(client.acquire('cases', `sqlstate ${state}`), (error) => {
        assert.ok(error instanceof kinds[kind] && (!reason || error.reason === reason), `${state}: ${inspect(error)}`);
        return true;
      });
      assert.equal(asked, kind === 'Unavailable' ? 1 : 0, state);
    }
  },
  async strategy_decides_about_retries(site) {
    const proxy = await site.proxy();
    const client = site.client(proxy.target, { strategy: leasehold.failFast });
    const asked = [];
    await proxy.refuse(true);
    await assert.rejects(site.acquire(client, { waitMs: 60000 }), { code: 'LEASEHOLD_UNAVAILABLE', reason: REFUSED });
    const patient = (retry) => {
      asked.push(retry);
      if (asked.length === 3) proxy.refuse(false);
      return 20;
    };
    const lease = await site.acquire(client, { waitMs: 60000, strategy: patient }); // counts before the client's
    assert.ok(asked.length >= 3, asked);
    asked.forEach(({ verb, namespace, key, reason, reasons, attempts, failures, remainingMs }, n) => {
      assert.deepEqual([verb, namespace, key, attempts, failures], ['Acquire', 'cases', site.key, n + 1, n + 1]);
      assert.deepEqual([reason, reasons], [REFUSED, [REFUSED]]);
      assert.ok(remainingMs > 0);
    });
    await proxy.decide('cut', 'pass');
    asked.length = 0;
    await lease.release(); // by the strategy of its acquire
    assert.deepEqual(asked.map(({ verb, reason }) => [verb, reason]), [['Release', 'SOCKET_CLOSED_WHILE_IN_FLIGHT']]);
    await decidesAboutHeld(site, client);
  },
  async retries_are_logged(site) {
    const steps = [];
    const proxy = await site.proxy();
    const client = site.client(proxy.target, { retryLog: (step) => steps.push(step) });
    await proxy.refuse(true);
    const acquired = site.acquire(client, { waitMs: 60000 });
    await wait('two retries', () => steps.length >= 2);
    await proxy.refuse(false);
    const lease = await acquired;
    for (const { verb, reason } of steps) assert.deepEqual([verb, reason], ['Acquire', REFUSED]);
    assert.deepEqual(steps.slice(0, 2).map(({ delayMs }) => delayMs), [1, 2]);
    steps.length = 0;
    await assert.rejects(site.acquire(client), leasehold.HeldError);
    assert.deepEqual(steps.map(({ reason, delayMs }) => [reason, delayMs]), [['LEASE_HELD', null]]);
    await lease.release();
  },
  async dead_address_is_spared(site) {
    const proxy = await site.proxy();
    await proxy.refuse(true);
    let asked = 0;
    const client = site.client(proxy.target, { strategy: () => (asked += 1) && 1 });
    const acquired = site.acquire(client, { waitMs: 120000 });
    acquired.catch(() => {});
    await wait('three hundred retries', () => asked >= 300);
    const { accepted } = await proxy.state();
    assert.ok(isOld || accepted < 100, `${accepted} connections`); // grpc-js 1.12 pauses where nobody listens, and not after a reset
    await proxy.refuse(false);
    await (await acquired).release();
  },
  async retry_reasons_are_those_of_c() {
    const { REASONS, Retries } = require('leasehold-client/lib/retry.js');
    const { bestEffort, controlledBackoff, failFast } = leasehold;
    const header = fs.readFileSync(path.join(process.env.LEASEHOLD_NODE_PACKAGE, '../leasehold_retry.h'), 'utf8');
    const table = {};
    for (const line of /also if not idempotent.*\n([^]*?)\n \*\n/.exec(header)[1].split('\n')) {
      const [names, unsent, always, where] = line.replace(/^ \*\s+/, '').split(/ {2,}/);
      for (const name of names.split(', ')) table[name] = { isUnsent: unsent === 'yes', isAlways: always === 'yes', isNext: where === 'the next' };
    }
    assert.deepEqual(REASONS, table);
    assert.deepEqual(Object.keys(REASONS), [...header.matchAll(/^ {4}LH_RETRY_(\w+),$/gm)].map(([, name]) => name));
    const listed = /controlled_backoff_us.*\/\* ([0-9, ]+) ms/.exec(header)[1].split(', ').map(Number);
    assert.deepEqual([1, 2, 3, 4, 5, 6].map(controlledBackoff), listed);
    assert.deepEqual([1, 2, 3, 9, 10, 99].map((failures) => bestEffort({ reason: 'UNKNOWN', failures })), [1, 2, 4, 256, 500, 500]);
    const retrying = new Retries(failFast, () => {}).of('Acquire', { namespace: 'a', key: 'b' });
    const ends = new leasehold.UnavailableError('it ends', { reason: 'SHUTTING_DOWN' });
    assert.deepEqual([60000, 60000, 5].map((left) => retrying.delayMs(ends, left)), [1, 10, null]); // whatever the strategy says
    assert.equal(retrying.delayMs(new leasehold.UnavailableError('no'), 60000), null);
  },
  async retries_are_logged_in_sql(site) {
    const steps = [];
    const client = site.client({ ...site.config, port: 1 }, { retryLog: (step) => { steps.push(step); throw new Error('a log that fails'); } });
    const stop = new AbortController();
    const outcome = assert.rejects(site.acquire(client, { waitMs: 60000, signal: stop.signal }), { name: 'AbortError' });
    await wait('three retries', () => steps.length >= 3);
    stop.abort();
    await outcome;
    assert.deepEqual(steps.slice(0, 3).map(({ verb, reason, delayMs }) => [verb, reason, delayMs]), [1, 2, 4].map((ms) => ['Acquire', 'SOCKET_NOT_AVAILABLE', ms]));
    const held = [];
    const other = site.client(undefined, { retryLog: (step) => { held.push(step); throw new Error('a log that fails'); } });
    await site.acquire(other);
    await assert.rejects(site.acquire(other), leasehold.HeldError);
    assert.deepEqual(held.map(({ reason, delayMs }) => [reason, delayMs]), [['LEASE_HELD', null]]);
  },
  async strategy_decides_in_sql(site) {
    const proxy = await site.proxy();
    const client = site.client(proxy.target, { patienceMs: 60000, strategy: leasehold.failFast });
    await proxy.refuse(true);
    await assert.rejects(site.acquire(client, { waitMs: 60000 }), { code: 'LEASEHOLD_UNAVAILABLE', reason: 'SOCKET_NOT_AVAILABLE' });
    const asked = [];
    let end = () => proxy.refuse(false);
    const strategy = (retry) => {
      asked.push(retry);
      if (asked.length === 3) end();
      return 20;
    };
    const told = () => asked.splice(0).map(({ verb, reason, key, attempts, failures, remainingMs }, n) => {
      assert.deepEqual([key, attempts, failures, remainingMs > 0], [site.key, n + 1, n + 1, true]);
      return `${verb} ${reason}`;
    });
    const lease = await site.acquire(client, { waitMs: 60000, strategy }); // counts before the client's
    assert.deepEqual(told(), Array(3).fill('Acquire SOCKET_NOT_AVAILABLE'));
    const pg = await site.pg();
    await pg.query('begin');
    await pg.query(`select from leasehold.scope where namespace = 'cases' and key = '${site.key}' for update`);
    end = () => pg.query('rollback');
    await lease.downgrade();
    assert.deepEqual(told(), Array(3).fill('Downgrade SCOPE_BUSY'));
    end = () => proxy.refuse(false);
    await proxy.freeze(true);
    const released = lease.release();
    await wait('the release, which is not answered', async () => (await site.row('state')) === 'free');
    await proxy.refuse(true);
    await proxy.freeze(false);
    await released;
    assert.deepEqual(told(), ['Release SOCKET_CLOSED_WHILE_IN_FLIGHT', 'Release SOCKET_NOT_AVAILABLE', 'Release SOCKET_NOT_AVAILABLE']);
    assert.equal(await site.row('state, last_outcome'), 'free|ok');
  },
  async busy_scope_is_unavailable(site) {
    const asked = [];
    const [first, next] = site.on === 'grpc' ? [await site.proxy(), await site.proxy()] : [];
    const target = next && `${first.target},${next.target}`;
    const client = site.client(target, { patienceMs: 60_000, strategy: ({ reason }) => { asked.push(reason); return null; } });
    const lease = await site.acquire(client, { durationMs: LONG_MS });
    // In SQL an acquire never waits for the row.
    const calls = [() => lease.downgrade(), ...(site.on === 'grpc' ? [() => site.acquire(client)] : [])];
    const pg = await site.pg();
    for (const call of calls) {
      await pg.query('begin');
      await pg.query(`select from leasehold.scope where namespace = 'cases' and key = '${site.key}' for update`);
      await assert.rejects(call(), { code: 'LEASEHOLD_UNAVAILABLE', reason: 'SCOPE_BUSY' });
      await pg.query('rollback');
      await lease.release(); // again: nothing
    }
    assert.deepEqual(asked, calls.map(() => 'SCOPE_BUSY'));
    if (next) assert.equal((await next.state()).requests, 0);
  },
  async strategy_may_wait_for_a_holder(site) {
    const steps = [];
    await decidesAboutHeld(site, site.client(undefined, { strategy: leasehold.failFast, retryLog: (step) => steps.push(step) }));
    assert.ok(steps.every(({ reason }) => reason === 'LEASE_HELD'), steps);
    assert.deepEqual([steps[0].delayMs, steps.at(-1).delayMs], [20, null]);
  },
};
