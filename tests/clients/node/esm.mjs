// A program of ES modules: every name of the package, and the same classes as for CommonJS.
import assert from 'node:assert/strict';
import { createRequire } from 'node:module';
import leasehold, {
  Client, ClosedError, DeniedError, HeldError, InvalidArgumentError, Lease, LeaseholdError, LeaseLostError, UnavailableError,
} from 'leasehold-client';
import * as all from 'leasehold-client';

const required = createRequire(import.meta.url)('leasehold-client');
for (const name of Object.keys(required)) assert.equal(all[name], required[name], name);
assert.equal(leasehold, required);
for (const each of [ClosedError, DeniedError, HeldError, LeaseLostError, UnavailableError]) assert.ok(each.prototype instanceof LeaseholdError);
assert.equal(typeof Lease, 'function');
assert.throws(() => new Client({ wait: 5 }), InvalidArgumentError);
