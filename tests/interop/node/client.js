'use strict';
// A stock Node client (@grpc/grpc-js) against a running daemon: node client.js HOST:PORT PROTO_DIR [CA [KEY CERT]]
// With files it speaks TLS; the token in LEASEHOLD_TEST_TOKEN goes with each call. Prints one "ok NAME" or "not ok NAME: why" a check,
// and exits 0 only when all are ok.

const assert = require('node:assert');
const crypto = require('node:crypto');
const fs = require('node:fs');
const grpc = require('@grpc/grpc-js');
const loader = require('@grpc/proto-loader');

const [target, protoDir, ...files] = process.argv.slice(2);
const definition = loader.loadSync('leasehold/v1/leasehold.proto', {
  includeDirs: [protoDir, '/usr/include'],
  keepCase: true,
  longs: String,
  enums: String,
  defaults: true,
  oneofs: true,
});
const { LeaseService, AdminService } = grpc.loadPackageDefinition(definition).leasehold.v1;

const credentials = files.length
  ? grpc.credentials.createSsl(...files.map((file) => fs.readFileSync(file)))
  : grpc.credentials.createInsecure();
const newClient = () => new LeaseService(target, credentials, { 'grpc.use_local_subchannel_pool': 1 });
const client = newClient();
const admin = new AdminService(target, credentials);

function call(stub, method, request, options = {}) {
  let handle;
  const promise = new Promise((resolve, reject) => {
    const metadata = new grpc.Metadata();
    if (process.env.LEASEHOLD_TEST_TOKEN) metadata.set('authorization', `Bearer ${process.env.LEASEHOLD_TEST_TOKEN}`);
    handle = stub[method](request, metadata, options, (error, reply) =>
      error ? reject(error) : resolve(reply));
  });
  promise.handle = handle;
  return promise;
}

const scope = (key) => ({ namespace: ['node', 'test'], key });
const acquire = (key, more = {}, stub = client, options = {}) =>
  call(stub, 'Acquire', { scope: scope(key), duration: { seconds: 30 }, ...more }, options);
const release = (lease) =>
  call(client, 'Release', { items: [{ lease: { scope: lease.scope, lease_key: lease.lease_key }, success: '{"n":1}' }] });
const newKey = () => `k-${crypto.randomUUID().slice(0, 8)}`;

const checks = {
  async 'a lease lives from acquire to release'() {
    const key = newKey();
    const { lease } = await acquire(key, { owner: 'node-1', labels: { pod: 'a' } });
    assert.ok(BigInt(lease.token) > 0n);
    assert.strictEqual(lease.owner, 'node-1');
    const beat = await call(client, 'Heartbeat', { leases: [{ scope: scope(key), lease_key: lease.lease_key }] });
    assert.strictEqual(beat.results[0].outcome, 'OUTCOME_OK');
    const done = await release(lease);
    assert.strictEqual(done.results[0].outcome, 'OUTCOME_OK');
    const again = await release(lease);
    assert.strictEqual(again.results[0].outcome, 'OUTCOME_LOST');
    assert.strictEqual(again.results[0].end_reason, 'END_REASON_RELEASED');
  },

  async 'a held lease is ABORTED, with details'() {
    const key = newKey();
    await acquire(key, { owner: 'first' });
    const error = await acquire(key).then(() => null, (e) => e);
    assert.strictEqual(error.code, grpc.status.ABORTED);
    assert.match(error.details, /first/);
    const details = error.metadata.get('grpc-status-details-bin');
    assert.strictEqual(details.length, 1);
    assert.ok(details[0].includes('LEASE_HELD'));
  },

  async 'a waiter is granted, a cancelled one is not'() {
    const key = newKey();
    const { lease } = await acquire(key);
    const cancelled = acquire(key, { wait_forever: true, owner: 'cancelled' });
    const waiting = acquire(key, { wait: { seconds: 60 }, owner: 'waiting' }, newClient());
    setTimeout(() => cancelled.handle.cancel(), 100);
    const error = await cancelled.then(() => null, (e) => e);
    assert.strictEqual(error.code, grpc.status.CANCELLED);
    await release(lease);
    const granted = await waiting;
    assert.strictEqual(granted.lease.owner, 'waiting');
    assert.ok(BigInt(granted.lease.token) > BigInt(lease.token));
    await release(granted.lease);
  },

  async 'a deadline of the client ends the wait'() {
    const key = newKey();
    const { lease } = await acquire(key);
    const error = await acquire(key, { wait_forever: true }, client, { deadline: Date.now() + 200 }).then(
      () => null, (e) => e);
    assert.strictEqual(error.code, grpc.status.DEADLINE_EXCEEDED);
    await release(lease);
    await acquire(key);
  },

  async '100 contenders on one scope never overlap'() {
    const key = newKey();
    let holders = 0;
    let last = 0n;
    await Promise.all(Array.from({ length: 100 }, async () => {
      const { lease } = await acquire(key, { wait: { seconds: 60 } });
      holders += 1;
      assert.strictEqual(holders, 1);
      assert.ok(BigInt(lease.token) > last);
      last = BigInt(lease.token);
      holders -= 1;
      await release(lease);
    }));
  },

  async 'a bad field is named'() {
    const error = await call(client, 'Acquire', { scope: { namespace: ['a.b'], key: 'k' }, duration: { seconds: 1 } })
      .then(() => null, (e) => e);
    assert.strictEqual(error.code, grpc.status.INVALID_ARGUMENT);
    assert.match(error.details, /namespace/);
  },

  async 'the status names a version'() {
    const status = await call(admin, 'GetStatus', {});
    assert.match(status.version, /^\d+\.\d+/);
  },
};

(async () => {
  let failed = 0;
  for (const [name, check] of Object.entries(checks)) {
    try {
      await check();
      console.log(`ok ${name}`);
    } catch (error) {
      failed += 1;
      console.log(`not ok ${name}: ${error.stack}`);
    }
  }
  process.exit(failed === 0 ? 0 : 1);
})();
