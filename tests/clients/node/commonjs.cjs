// A program of CommonJS.
const assert = require('node:assert/strict');
const { Client, HeldError, InvalidArgumentError, LeaseholdError } = require('leasehold-client');

assert.ok(HeldError.prototype instanceof LeaseholdError);
assert.throws(() => new Client({ wait: 5 }), InvalidArgumentError);
