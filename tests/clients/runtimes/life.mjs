// As life.py: life.mjs TRANSPORT TARGET NAMESPACE plain | worker. leasehold-client is that of the current directory.
import process from 'node:process';
import { createRequire } from 'node:module';
import { Worker, isMainThread, threadId } from 'node:worker_threads';
import { setTimeout as sleep } from 'node:timers/promises';

const require = createRequire(process.cwd() + '/x.js');
const leasehold = require('leasehold-client');
const [on, target, namespace, mode] = process.argv.slice(2);

async function live() {
  const parse = (dsn) => Object.fromEntries(dsn.split(' ').map((each) => each.split('=')).map(([k, v]) => [k === 'dbname' ? 'database' : k, k === 'port' ? Number(v) : v]));
  const client = new leasehold.Client(on === 'grpc' ? { server: target } : { database: parse(target) });
  const key = `k-${process.pid}-${threadId}`;
  const begun = Date.now();
  let last = 0;
  const lease = await client.acquire(namespace, key, { durationMs: 6000, waitMs: 60000, onRenewed: () => { last = Date.now(); } });
  while (last - begun < 7000) await sleep(50);
  lease.check();
  console.log('held beyond its duration', key);
  while (lease.isHeld()) await sleep(50);
  console.log('lost', lease.lost.reason);
  const again = await client.acquire(namespace, key, { waitMs: 60000 });
  console.log('a larger token', again.token > lease.token);
  await again.release();
  await client.close();
  console.log('released');
}

if (mode === 'worker' && isMainThread) {
  for (let n = 0; n < 2; n++) new Worker(new URL(import.meta.url), { argv: process.argv.slice(2) });
} else {
  await live();
}
