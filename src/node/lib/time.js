'use strict';

const os = require('node:os');

/** Milliseconds on a clock that runs while the machine is suspended, as the lease does. On Linux, /proc/uptime: steps of 10 ms. */
const clock = process.platform === 'linux' ? () => os.uptime() * 1000 : () => Number(process.hrtime.bigint() / 1000n) / 1000;

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
