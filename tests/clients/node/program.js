'use strict';

// A holder in a process of its own: program.js JSON. It prints what happens to it.
//
//   work    acquire, work until the loss
//   lead    stand for election, work while leading
//   exit    acquire, and end with status 7 without closing anything
//   close   acquire, wait and be renewed, close, and say what is left
//   block   acquire, and keep the event loop busy for longer than the lease lives

const { setTimeout: sleep } = require('node:timers/promises');
const { Client } = require('leasehold-client');

const { mode, on, target, key, durationMs } = JSON.parse(process.argv[2]);
const say = (...words) => console.log(...words);
const client = new Client({ [on === 'grpc' ? 'server' : 'database']: target, warn: (words) => say('warned', words) });

async function work(lease) {
  say('token', String(lease.token));
  for (; lease.isHeld(); await sleep(20)) say('working');
  say('lost', lease.lost.reason, lease.signal.aborted);
  process.exit(4);
}

/** Resources that could keep the process alive, but its output. */
const resources = () => process.getActiveResourcesInfo().filter((each) => !/PipeWrap|TTYWrap|FSReqCallback|Immediate/.test(each));

const modes = {
  work: () => client.withLease('cases', key, { durationMs }, work),
  lead: () => client.lead('cases', key, { durationMs, owner: 'program' }, work),
  exit: async () => {
    const lease = await client.acquire('cases', key, { durationMs });
    say('token', String(lease.token));
    process.exitCode = 7;
  },
  close: async () => {
    const lease = await client.acquire('cases', key, { durationMs });
    const waiting = client.acquire('cases', key, { waitMs: Infinity });
    waiting.catch((error) => say('waiter', error.code));
    const next = lease._next;
    while (lease._next === next) await sleep(20);
    await client.close();
    say('lost', lease.lost.reason);
    say('left', ...resources());
  },
  block: async () => {
    const lease = await client.acquire('cases', key, { durationMs });
    let told = 0;
    lease.signal.addEventListener('abort', () => { told += 1; });
    say('token', String(lease.token));
    await sleep(durationMs / 2);
    for (const end = process.hrtime.bigint() + BigInt(durationMs * 2) * 1000000n; process.hrtime.bigint() < end; );
    say('held', lease.isHeld());
    await sleep(100);
    say('told', told, lease.lost.message);
  },
};
modes[mode]();
