'use strict';

// leasehold-test: what it does to a lease, seen by the client, by pg and by the rows.

const assert = require('node:assert/strict');
const fs = require('node:fs');
const path = require('node:path');
const { after, before, test } = require('node:test');
const { Client: Pg } = require('pg');
const { Client, HeldError, LeaseLostError, UnavailableError } = require('leasehold-client');
const { start } = require('leasehold-test');
const { wait } = require('./site.js');

let kit;
before(async () => { kit = await start(); });
after(() => kit.close());

/** A test with a world of its own; `made` is closed at its end. */
function say(name, body) {
  test(name, async () => {
    const world = kit.world();
    const made = [];
    const client = (options) => made[made.push(new Client({ database: world.database, ...options })) - 1];
    const pg = async () => {
      const one = made[made.push(Object.assign(new Pg(world.database), { close() { return this.end(); } })) - 1];
      await one.connect();
      return one;
    };
    const row = async (key, columns) =>
      (await kit.db.query(`select ${columns} from leasehold.scope where namespace = $1 and key = $2`, [world.namespace, key])).rows[0];
    let isGood = false;
    try {
      await body({ world, client, pg, row, namespace: world.namespace });
      isGood = true;
    } finally {
      world.silence(false);
      await Promise.all(made.map((each) => each.close()));
      world.close();
      console.log(`test kit-${name.replaceAll(' ', '-')} ${isGood ? 'passed' : 'failed'}`);
    }
  });
}

const lost = async (lease) => {
  await wait('the loss', () => lease.signal.aborted);
  return lease.lost.reason;
};

say('the example of the page works', async () => {
  const page = fs.readFileSync(path.join(process.env.LEASEHOLD_NODE_PACKAGE, '../../docs/use/testing.md'), 'utf8');
  const AsyncFunction = (async () => {}).constructor;
  await new AsyncFunction('require', `${/```js\n([^]*?)```/.exec(page)[1]}; if (lease.lost.reason !== 'forced') throw lease.lost;`)(require);
});

say('worlds do not see each other', async ({ client, namespace }) => {
  const other = kit.world();
  assert.notEqual(other.namespace, namespace);
  await client().acquire(namespace, 'k');
  await client().withLease(other.namespace, 'k', (lease) => lease.check());
  await assert.rejects(client().acquire(namespace, 'k'), HeldError);
});

say('a waiter hears of the release in another session', async ({ client, namespace }) => {
  const first = await client().acquire(namespace, 'k');
  let ahead = null;
  const waiting = client({ pollMs: 600000 }).acquire(namespace, 'k', { waitMs: Infinity, onQueued: (news) => { ahead = news.ahead; } });
  await wait('a place in the queue', () => ahead === 0);
  await first.release();
  assert.ok((await waiting).token > first.token);
});

say('notifications go to those who listen', async ({ pg }) => {
  const [one, two, deaf] = [await pg(), await pg(), await pg()];
  const heard = [];
  for (const [name, each] of Object.entries({ one, two, deaf })) each.on('notification', ({ channel, payload }) => heard.push(`${name} ${channel} ${payload}`));
  await one.query('listen "A b"');
  await two.query('listen "A b"');
  await deaf.query('listen "A b"');
  await deaf.query('unlisten *');
  await deaf.query('begin');
  await deaf.query(`select pg_notify($1, $2)`, ['A b', 'hi']);
  assert.deepEqual(heard, []);
  await deaf.query('commit');
  await wait('both', () => heard.length >= 2);
  assert.deepEqual(heard.sort(), ['one A b hi', 'two A b hi']);
});

say('a transaction is one session of its own', async ({ pg }) => {
  const [one, two] = [await pg(), await pg()];
  await one.query('begin');
  await one.query('create table mine (n integer)');
  const seen = two.query("select to_regclass('mine') as mine"); // waits for the end of the transaction
  await assert.rejects(one.query('select 1 / 0'), { code: '22012' });
  one.connection.stream.destroy(); // its transaction with it
  assert.equal((await seen).rows[0].mine, null);
});

say('guard fences', async ({ client, pg, world, namespace }) => {
  const lease = await client().acquire(namespace, 'k');
  const application = await pg();
  await application.query('begin');
  await lease.guard(application);
  await application.query('commit');
  assert.equal(await world.lose('k'), true);
  await application.query('begin');
  await assert.rejects(lease.guard(application), LeaseLostError);
  await application.query('rollback');
  assert.equal(await world.lose('k'), false);
});

say('a lease that is lost is told', async ({ client, world, namespace }) => {
  const lease = await client().acquire(namespace, 'k', { durationMs: 6000 });
  const shared = [await client().acquire(namespace, 's', { durationMs: 6000, shared: true }), await client().acquire(namespace, 's', { durationMs: 6000, shared: true })];
  assert.deepEqual([await world.lose('k'), await world.lose('s')], [true, true]);
  assert.equal(await lost(lease), 'forced');
  for (const each of shared) await lost(each);
});

say('time passes for this world alone', async ({ client, world, namespace, row }) => {
  const lease = await client().acquire(namespace, 'k', { durationMs: 6000 });
  const below = await client().acquire(`${namespace}.below`, 'k', { shared: true });
  const beside = await client().acquire(`${namespace}-beside`, 'k');
  await world.pass(1000);
  assert.equal((await row('k', 'state')).state, 'held');
  await world.pass(3600000);
  assert.equal((await row('k', 'state')).state, 'free');
  assert.equal(await lost(lease), 'expired');
  await assert.rejects(below.release(), { name: 'LeaseLostError' });
  await beside.release();
});

say('a rest is over when its time has passed', async ({ client, world, namespace }) => {
  const nightly = () => client().withLease(namespace, 'nightly', { atLeastMs: 50000 }, (lease) => lease.token);
  const first = await nightly();
  await assert.rejects(nightly(), HeldError);
  await world.pass(60000);
  assert.ok((await nightly()) > first);
});

say('an acquire whose answer is lost is repeated', async ({ client, world, namespace, row }) => {
  world.drop('acquire');
  const lease = await client().acquire(namespace, 'k');
  assert.equal((await row('k', 'token')).token.toString(), lease.token.toString());
  assert.equal((await kit.db.query('select count(*)::integer as n from leasehold.scope where namespace = $1', [namespace])).rows[0].n, 1);
});

say('a renewal whose answer is lost costs no lease', async ({ client, world, namespace, row }) => {
  const lease = await client().acquire(namespace, 'k', { durationMs: 6000 });
  world.drop('renewal');
  await wait('two renewals', async () => Number((await row('k', 'heartbeats')).heartbeats) >= 2);
  lease.check();
});

say('a release whose answer is lost is repeated', async ({ client, world, namespace, row }) => {
  const lease = await client().acquire(namespace, 'k');
  world.drop('release');
  await lease.release();
  assert.deepEqual(await row('k', 'state, last_outcome'), { state: 'free', last_outcome: 'ok' });
});

say('a late answer leaves less of the lease', async ({ client, world, namespace }) => {
  world.delay('acquire', 2000);
  const lease = await client().acquire(namespace, 'k', { durationMs: 20000 });
  assert.ok(lease.remainingMs() <= 16000 - 1900, String(lease.remainingMs())); // a fifth is the margin
});

say('silence is told before the deadline', async ({ client, world, namespace }) => {
  const lease = await client().acquire(namespace, 'k', { durationMs: 6000 });
  world.silence();
  await assert.rejects(client({ patienceMs: 200 }).acquire(namespace, 'other'), UnavailableError);
  assert.equal(await lost(lease), 'unreachable');
});

for (const source of ['epoch', 'wal']) say(`a failover keeps leases and ends nothing: ${source}`, async ({ client, world, namespace, row }) => {
  await kit.db.query('select leasehold.set_life_source($1)', [source]);
  const lease = await client().acquire(namespace, 'k', { durationMs: 6000 });
  const before = (await kit.db.query('select id from leasehold.incarnation')).rows;
  await kit.failOver();
  assert.notDeepEqual((await kit.db.query('select id from leasehold.incarnation')).rows, before);
  const { heartbeats } = await row('k', 'heartbeats');
  await wait('a renewal', async () => Number((await row('k', 'heartbeats')).heartbeats) > Number(heartbeats));
  await lease.release();
  const next = await client().acquire(namespace, 'k');
  assert.ok(next.token - lease.token >= 2n ** 24n); // a jump: what was drawn and lost stays behind
  await next.release();
  assert.equal(await world.lose('k'), false);
});

say('wrong use is refused by its name', async ({ world }) => {
  assert.throws(() => world.drop('renew'), /verb must be acquire, renewal, release, not renew/);
  assert.throws(() => world.delay('release', 0), /ms must be a number above 0 and below 2147483648, not 0/);
  await assert.rejects(world.pass(-1), /ms must be a number above 0, at most 31536000000 \(365 days\), not -1/);
});
