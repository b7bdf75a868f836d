'use strict';

// The cases about arguments, and about errors as types.

const assert = require('node:assert/strict');
const { inspect } = require('node:util');
const leasehold = require('leasehold-client');
const { wait } = require('./site.js');

const tables = require(process.env.LEASEHOLD_CASES);

module.exports = {
  async deferred_work_is_refused(site) {
    const client = site.client();
    for (const work of [function* () {}, async function* () {}]) {
      for (const verb of ['withLease', 'lead']) await assert.rejects(client[verb]('cases', site.key, {}, work), /work must be a function, and no generator/);
    }
    assert.equal(await site.row('state'), '');
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
};
