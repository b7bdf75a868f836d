'use strict';

const { Client } = require('./client.js');
const { Lease } = require('./lease.js');
const errors = require('./errors.js');

// Named one by one: import { Client } finds names that stand here.
module.exports = {
  Client,
  Lease,
  LeaseholdError: errors.LeaseholdError,
  HeldError: errors.HeldError,
  LeaseLostError: errors.LeaseLostError,
  DeniedError: errors.DeniedError,
  UnavailableError: errors.UnavailableError,
  ClosedError: errors.ClosedError,
  InvalidArgumentError: errors.InvalidArgumentError,
};
