'use strict';

const fs = require('node:fs');
const os = require('node:os');

/** Of Bun and Deno os.uptime() has whole seconds: a lease would end up to one too late. */
const isCoarse = Boolean(process.versions.bun || process.versions.deno);
const uptime = isCoarse ? () => parseFloat(fs.readFileSync('/proc/uptime', 'latin1')) : os.uptime;

/** Milliseconds on a clock that runs while the machine is suspended, as the lease does. On Linux, /proc/uptime: steps of 10 ms. */
const clock = process.platform === 'linux' ? () => uptime() * 1000 : () => Number(process.hrtime.bigint() / 1000n) / 1000;

/** Resolves after so long, or when the signal aborts. Without `isIdle` it keeps the process alive. */
const sleep = (ms, signal, isIdle = false) =>
  new Promise((resolve) => {
    const end = () => {
      clearTimeout(timer);
      signal?.removeEventListener('abort', end);
      resolve();
    };
    const timer = setTimeout(end, Math.min(Math.max(ms, 0), 2 ** 31 - 1));
    if (isIdle) timer.unref();
    signal?.addEventListener('abort', end);
    if (signal?.aborted) end();
  });

module.exports = { clock, sleep };
