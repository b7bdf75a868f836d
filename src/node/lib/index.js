'use strict';

const { Client } = require('./client.js');
const { Declared } = require('./declared.js');
const { deadline } = require('./nested.js');
const { reapStale } = require('./reaping.js');
const { Lease } = require('./lease.js');
const { bestEffort, controlledBackoff, failFast } = require('./retry.js');
const {
  LeaseholdError, HeldError, LeaseLostError, DeniedError, UnavailableError, ClosedError, InvalidArgumentError,
} = require('./errors.js');

// Names alone: Node reads them here without running it, for import { HeldError }.
module.exports = {
  Client, Declared, Lease, deadline, reapStale, LeaseholdError, HeldError, LeaseLostError, DeniedError, UnavailableError, ClosedError, InvalidArgumentError,
  bestEffort, controlledBackoff, failFast,
};
