'use strict';
// A stock Node client that works through restarts: node worker.js TARGETS SERVICE_CONFIG PROTO_DIR. See test_rolling_restart.py.

const crypto = require('node:crypto');
const fs = require('node:fs');
const grpc = require('@grpc/grpc-js');
const loader = require('@grpc/proto-loader');

const WORKERS = 4;
const TIMEOUT_MS = 60000;
const [targets, config, protoDir] = process.argv.slice(2);
const definition = loader.loadSync('leasehold/v1/leasehold.proto', { includeDirs: [protoDir, '/usr/include'], keepCase: true });
const { LeaseService } = grpc.loadPackageDefinition(definition).leasehold.v1;
const client = new LeaseService('ipv4:' + targets, grpc.credentials.createInsecure(), {
  'grpc.service_config': fs.readFileSync(config, 'utf8'),
  'grpc.max_reconnect_backoff_ms': 500,
});

const call = (method, request) =>
  new Promise((resolve, reject) => {
    const deadline = Date.now() + TIMEOUT_MS;
    client[method](request, new grpc.Metadata(), { deadline }, (error, reply) => (error ? reject(error) : resolve(reply)));
  });

const pairs = new Array(WORKERS).fill(0);
let isStopped = false;

async function work(number) {
  while (!isStopped) {
    const lease = { scope: { namespace: ['restart'], key: `node${number}` }, lease_key: crypto.randomUUID() };
    try {
      await call('Acquire', { ...lease, duration: { seconds: 30 }, wait: { seconds: 20 } });
      await call('Heartbeat', { leases: [lease] });
      await call('Release', { items: [{ lease }] });
      pairs[number]++;
    } catch (error) {
      console.log('failed', error.message);
    }
  }
}

process.stdin.on('end', () => { isStopped = true; }).resume();
const teller = setInterval(() => console.log('pairs', ...pairs), 100);
Promise.all(pairs.map((_, number) => work(number))).then(() => {
  clearInterval(teller);
  client.close();
  console.log('ended', ...pairs);
});
