'use strict';

// A holder in a process of its own: program.js JSON. It prints what happens to it.
//
//   work    acquire, work until the loss
//   lead    stand for election, work while leading
//   exit    acquire, and end with status 7 without closing anything
//   close   acquire, wait and be renewed, close, and say what is left
//   block   keep the event loop busy for longer than the lease lives, and end well
//   wait    wait for the loss, and for nothing else

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
    let [told, held] = [0, null];
    const over = client.withLease('cases', key, { durationMs }, async (lease) => {
      held = lease;
      lease.signal.addEventListener('abort', () => { told += 1; });
      say('token', String(lease.token));
      await sleep(durationMs / 2);
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, durationMs * 1.2);
      say('held', lease.isHeld());
    });
    await over.catch((error) => say('ended', error.code, 'told', told, held.lost.message));
  },
  wait: async () => {
    await client.withLease('cases', key, { durationMs }, (lease) => new Promise((resolve) => {
      say('token', String(lease.token));
      lease.signal.addEventListener('abort', resolve);
    })).catch((error) => say('lost', error.reason));
  },
};
modes[mode]();
