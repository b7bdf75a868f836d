'use strict';
// Leaders of the Node package, as in lead.py: node lead.js PACKAGE TARGET [KEY:SECONDS]...

const { setTimeout: sleep } = require('node:timers/promises');

const [packageDir, target, ...keys] = process.argv.slice(2);
const { Client } = require(packageDir);
const { clock } = require(`${packageDir}/lib/time.js`);
const now = () => Math.round(clock() * 1e6);
const client = new Client({ server: target });

for (const each of keys) {
  const [key, seconds] = each.split(':');
  (async () => {
    for (;;) {
      await client.lead('proxied', key, { durationMs: seconds * 1000, owner: 'node' }, async (lease) => {
        let step = null;
        for (; lease.isHeld(); await sleep(20)) {
          if (step === null) console.log('leading', key, String(lease.token), now());
          step = now();
        }
        if (step !== null) console.log('over', key, lease.lost.reason, step); // else its grant was read too late
      });
    }
  })();
}
process.stdin.on('end', () => process.exit()).resume();
