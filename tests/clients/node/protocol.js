'use strict';

// Every message and field that the package knows is in the protocol, with its number and type; the protocol may have newer ones.

const assert = require('node:assert/strict');
const fs = require('node:fs');
const path = require('node:path');
const { Root } = require('protobufjs');

const ours = require(path.join(path.dirname(require.resolve('leasehold-client')), 'leasehold.json'));
const root = new Root();
root.resolvePath = (origin, target) => (fs.existsSync(target) ? target : path.join(target.startsWith('google/') ? '/usr/include' : process.argv[2], target));
const theirs = root.loadSync(['leasehold', 'console', 'schedule'].map((name) => `leasehold/v1/${name}.proto`), { keepCase: true }).toJSON();

function within(small, large, where) {
  if (typeof small !== 'object') return assert.equal(large, small, where);
  assert.ok(large, `${where} is not in the protocol: run src/node/generate`);
  // The two files name different packages for Go, and one of them is left.
  for (const name of Object.keys(small)) if (name !== 'go_package') within(small[name], large[name], `${where}.${name}`);
}
assert.ok(ours.nested.leasehold.nested.v1.nested.LeaseService);
within(ours, theirs, 'leasehold.json');
