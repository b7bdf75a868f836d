'use strict';

// What callers pass, looked at before anything is sent: an error names the argument, the value, and what it must be.

const { inspect } = require('node:util');
const { InvalidArgumentError } = require('./errors.js');

const MOST_UNITS = 1000000;

const refused = (name, value, wanted) => new InvalidArgumentError(`${name} must be ${wanted}, not ${inspect(value, { breakLength: Infinity })}`, FIELDS[name] ?? name, wanted);

/** As the server calls them. */
const FIELDS = { durationMs: 'duration', waitMs: 'wait', atLeastMs: 'at_least' };

const isNumber = (value) => typeof value === 'number' && !Number.isNaN(value);
const isText = (value) => typeof value === 'string' && value !== '';
const isObject = (value) => typeof value === 'object' && value !== null;

/** What each argument must be, in words, and whether it is. An option that is undefined has its default. */
const RULES = {
  namespace: ['a string that is not empty', isText],
  key: ['a string that is not empty', isText],
  owner: ['a string', (value) => typeof value === 'string'],
  server: ['a string that is not empty', isText],
  tokenFile: ['a string that is not empty', isText],
  database: ['a connection URL, or what pg takes', (value) => isText(value) || isObject(value)],
  tls: ['an object', isObject],
  caFile: ['a string that is not empty', isText],
  certFile: ['a string that is not empty', isText],
  keyFile: ['a string that is not empty', isText],
  serverName: ['a string that is not empty', isText],
  durationMs: ['a number of milliseconds above 0', (value) => Number.isFinite(value) && value > 0],
  waitMs: ['a number of milliseconds from 0 on, or Infinity to wait for ever', (value) => isNumber(value) && value >= 0],
  atLeastMs: ['a number of milliseconds from 0 on', (value) => Number.isFinite(value) && value >= 0],
  patienceMs: ['a number of milliseconds above 0', (value) => Number.isFinite(value) && value > 0],
  pollMs: ['a number of milliseconds above 0', (value) => Number.isFinite(value) && value > 0],
  shared: ['true or false', (value) => typeof value === 'boolean'],
  units: [`1 to ${MOST_UNITS}`, (value) => Number.isInteger(value) && value >= 1 && value <= MOST_UNITS],
  labels: ['an object whose values are strings', (value) => isObject(value) && Object.values(value).every((each) => typeof each === 'string')],
  signal: ['an AbortSignal', (value) => isObject(value) && typeof value.addEventListener === 'function' && typeof value.aborted === 'boolean'],
  onQueued: ['a function', (value) => typeof value === 'function'],
  onLeader: ['a function', (value) => typeof value === 'function'],
  warn: ['a function', (value) => typeof value === 'function'],
  result: ['anything', () => true],
  failure: ['anything', () => true],
  work: ['a function', (value) => typeof value === 'function'],
};

function check(name, value) {
  const [wanted, isRight] = RULES[name];
  if (!isRight(value)) throw refused(name, value, wanted);
}

/** Options of `what`, which knows these names. */
function checkOptions(what, options, names) {
  if (!isObject(options)) throw refused('options', options, 'an object');
  for (const [name, value] of Object.entries(options)) {
    if (!names.includes(name)) throw new InvalidArgumentError(`${what} has no option ${name}; it has ${names.join(', ')}`, name, names.join(', '));
    if (value !== undefined) check(name, value);
  }
}

const ACQUIRE = ['durationMs', 'waitMs', 'owner', 'labels', 'shared', 'units', 'signal', 'atLeastMs', 'onQueued'];
const LEAD = ['durationMs', 'owner', 'signal', 'onLeader'];
const CLIENT = ['server', 'database', 'owner', 'tls', 'tokenFile', 'patienceMs', 'pollMs', 'warn'];
const RELEASE = ['result', 'failure'];
const TLS = ['caFile', 'certFile', 'keyFile', 'serverName'];

module.exports = { check, checkOptions, refused, ACQUIRE, LEAD, CLIENT, RELEASE, TLS };
