'use strict';

// What callers pass, looked at before anything is sent: an error names the argument, the value, and what it must be.

const { inspect, types } = require('node:util');
const { InvalidArgumentError } = require('./errors.js');

const MOST_UNITS = 1000000;

const refused = (name, value, wanted) => new InvalidArgumentError(`${name} must be ${wanted}, not ${inspect(value, { breakLength: Infinity })}`, FIELDS[name] ?? name, wanted);

/** As the server calls them. */
const FIELDS = { durationMs: 'duration', waitMs: 'wait', atLeastMs: 'at_least' };

const isNumber = (value) => typeof value === 'number' && !Number.isNaN(value);
/** That arrives as it is: a lone surrogate would become another character, and two keys one. */
const isUnicode = (value) => typeof value === 'string' && !value.includes('\0') && !/\p{Surrogate}/u.test(value);
const isText = (value) => isUnicode(value) && value !== '';
const TEXT = 'a string of Unicode that is not empty, without NUL';
const isFrom0To = (value, most) => isNumber(value) && value >= 0 && value <= most;
const [DAY_MS, YEAR_MS] = [86400000, 365 * 86400000];
const isObject = (value) => typeof value === 'object' && value !== null;

/** The daemon's bounds, which are those of C and SQL too. */
const BYTES = { segment: [1, 63], key: [1, 1024], owner: [0, 255], label_name: [1, 63], label_value: [0, 255], reason: [0, 1024] };
const [MOST_SEGMENTS, MOST_NAMESPACE_BYTES, MOST_LABELS, MOST_SCOPES] = [16, 255, 16, 100];

const outOfBounds = (field, words, name = field) => new InvalidArgumentError(`${name} ${words}`, field, words);

/** Text within its bounds; else the daemon's own words. */
function bounded(kind, value, field = kind, name = field) {
  const [least, most] = BYTES[kind];
  const size = Buffer.byteLength(value);
  if (size < least || size > most) throw outOfBounds(field, `must be ${least ? `${least} to` : 'at most'} ${most} bytes, has ${size}`, name);
  if (['segment', 'key'].includes(kind) && /\p{Cc}/u.test(value)) throw outOfBounds(field, 'must not contain control characters', name);
}

const BOUNDS = {
  namespace(value) {
    const segments = value === '' ? [] : value.split('.');
    const size = Buffer.byteLength(value);
    if (segments.length < 1 || segments.length > MOST_SEGMENTS) throw outOfBounds('namespace', `must have 1 to ${MOST_SEGMENTS} segments, has ${segments.length}`);
    if (size > MOST_NAMESPACE_BYTES) throw outOfBounds('namespace', `must be at most ${MOST_NAMESPACE_BYTES} bytes with the dots between segments, has ${size}`);
    segments.forEach((segment, n) => bounded('segment', segment, 'namespace', `segment ${n + 1} of namespace`));
  },
  key: (value) => bounded('key', value),
  owner: (value) => bounded('owner', value),
  reason: (value) => bounded('reason', value),
  labels(value) {
    const pairs = Object.entries(value);
    if (pairs.length > MOST_LABELS) throw outOfBounds('labels', `must be at most ${MOST_LABELS}, are ${pairs.length}`);
    for (const [name, text] of pairs) {
      bounded('label_name', name);
      bounded('label_value', text);
    }
  },
};

const isWork = (value) => typeof value === 'function' && !types.isGeneratorFunction(value);

/** What each argument must be, in words, and whether it is. An option that is undefined has its default. */
const RULES = {
  namespace: ['a string of Unicode without NUL', isUnicode],
  key: ['a string of Unicode without NUL', isUnicode],
  owner: ['a string of Unicode without NUL', isUnicode],
  server: [TEXT, isText],
  tokenFile: [TEXT, isText],
  database: ['a connection URL, or what pg takes', (value) => isText(value) || isObject(value)],
  tls: ['an object', isObject],
  caFile: [TEXT, isText],
  certFile: [TEXT, isText],
  keyFile: [TEXT, isText],
  serverName: [TEXT, isText],
  durationMs: [`a number of milliseconds above 0, at most ${YEAR_MS} (365 days)`, (value) => value !== 0 && isFrom0To(value, YEAR_MS)],
  waitMs: [`a number of milliseconds from 0 to ${100 * YEAR_MS} (100 years), or Infinity to wait for ever`, (value) => value === Infinity || isFrom0To(value, 100 * YEAR_MS)],
  atLeastMs: [`a number of milliseconds from 0 to ${DAY_MS} (a day)`, (value) => isFrom0To(value, DAY_MS)],
  patienceMs: ['a number of milliseconds above 0', (value) => Number.isFinite(value) && value > 0],
  pollMs: ['a number of milliseconds above 0', (value) => Number.isFinite(value) && value > 0],
  shared: ['true or false', (value) => typeof value === 'boolean'],
  priority: ['0 to 1000', (value) => Number.isInteger(value) && value >= 0 && value <= 1000],
  units: [`1 to ${MOST_UNITS}`, (value) => Number.isInteger(value) && value >= 1 && value <= MOST_UNITS],
  namespaces: ['an array of namespaces', Array.isArray],
  onGranted: ['a function', (value) => typeof value === 'function'],
  onRenewed: ['a function', (value) => typeof value === 'function'],
  onReleased: ['a function', (value) => typeof value === 'function'],
  onLost: ['a function', (value) => typeof value === 'function'],
  onAsked: ['a function', (value) => typeof value === 'function'],
  children: ['true or false', (value) => typeof value === 'boolean'],
  whileAlive: ['true or false', (value) => typeof value === 'boolean'],
  askHandOver: ['true or false', (value) => typeof value === 'boolean'],
  reason: ['a string of Unicode without NUL', isUnicode],
  labels: ['an object of strings, of Unicode without NUL', (value) => isObject(value) && Object.entries(value).flat().every(isUnicode)],
  signal: ['an AbortSignal', (value) => isObject(value) && typeof value.addEventListener === 'function' && typeof value.aborted === 'boolean'],
  onQueued: ['a function', (value) => typeof value === 'function'],
  onLeader: ['a function', (value) => typeof value === 'function'],
  warn: ['a function', (value) => typeof value === 'function'],
  strategy: ['a function', (value) => typeof value === 'function'],
  retryLog: ['a function', (value) => typeof value === 'function'],
  result: ['anything', () => true],
  failure: ['anything', () => true],
  work: ['a function, and no generator, whose work would begin after its lease', isWork],
};

function check(name, value) {
  const [wanted, isRight] = RULES[name];
  if (!isRight(value)) throw refused(name, value, wanted);
  BOUNDS[name]?.(value);
}

/** Options of `what`, which knows these names. */
function checkOptions(what, options, names) {
  if (!isObject(options)) throw refused('options', options, 'an object');
  for (const [name, value] of Object.entries(options)) {
    if (!names.includes(name)) throw new InvalidArgumentError(`${what} has no option ${name}; it has ${names.join(', ')}`, name, names.join(', '));
    if (value !== undefined) check(name, value);
  }
}

/** What stands behind the last argument would be dropped without a word. Its values are not told: there may be a password among them. */
function checkNoMore(what, more, wanted) {
  const extra = more.find((value) => value !== undefined);
  if (extra === undefined) return;
  const named = isObject(extra) ? `{ ${Object.keys(extra).join(', ')} }` : `a ${typeof extra}`;
  throw new InvalidArgumentError(`${what} has no place for ${named}; it takes ${wanted}`, 'arguments', wanted);
}

/** Of the arguments behind the key: options, which may be left out, and the work. */
function optionsAndWork(what, given, names, before = 'namespace, key') {
  const [options, work, ...more] = typeof given[0] === 'function' ? [{}, ...given] : given;
  checkOptions(what, options, names);
  check('work', work);
  checkNoMore(what, more, `${before}, options, work`);
  return [options, work];
}

/** Of an acquire of several keys in one step. */
function requestOfAll(scopes, options) {
  if (!Array.isArray(scopes) || !scopes.every(isObject)) throw refused('scopes', scopes, 'an array of { namespace, key, shared, units }');
  if (scopes.length < 1 || scopes.length > MOST_SCOPES) throw outOfBounds('scopes', `must be 1 to ${MOST_SCOPES}, are ${scopes.length}`);
  for (const scope of scopes) checkOptions('a scope', scope, SCOPE);
  const items = scopes.map(({ namespace, key, ...share }) => requestOf(namespace, key, share));
  if (new Set(items.map(({ namespace, key }) => JSON.stringify([namespace, key]))).size < items.length) throw outOfBounds('scopes', 'must name each key once');
  return { ...requestOf(items[0].namespace, items[0].key, options), scopes: items };
}

/** What is asked for, with the defaults. */
function requestOf(namespace, key, options) {
  check('namespace', namespace);
  check('key', key);
  const given = Object.fromEntries(Object.entries(options).filter(([name, value]) => value !== undefined && name !== 'signal'));
  const request = { durationMs: 30000, waitMs: 0, labels: {}, shared: false, units: 1, priority: 0, isHold: false, ...given, namespace, key };
  if (request.whileAlive && request.waitMs === Infinity) throw refused('waitMs', request.waitMs, 'a number of milliseconds with whileAlive');
  if (request.askHandOver && request.waitMs === 0 && !request.whileAlive) throw refused('askHandOver', true, 'false without a wait');
  if (!request.shared && request.units !== 1) throw refused('units', request.units, '1 without shared');
  return request;
}

const LISTENERS = ['onGranted', 'onRenewed', 'onReleased', 'onLost'];
const ACQUIRE = ['priority', 'askHandOver', 'onAsked', 'durationMs', 'waitMs', 'owner', 'labels', 'shared', 'units', 'signal', 'atLeastMs', 'onQueued', 'whileAlive', 'strategy', ...LISTENERS];
const ALL = ['durationMs', 'waitMs', 'owner', 'labels', 'signal', 'strategy', ...LISTENERS];
const WATCH = ['key', 'children', 'signal'];
const SCOPE = ['namespace', 'key', 'shared', 'units'];
const LEAD = ['priority', 'askHandOver', 'onAsked', 'durationMs', 'owner', 'labels', 'atLeastMs', 'signal', 'onLeader', 'strategy', ...LISTENERS];
const TICKS = ['onAsked', 'durationMs', 'owner', 'labels', 'signal', 'strategy', ...LISTENERS];
const CLIENT = ['server', 'database', 'owner', 'tls', 'tokenFile', 'patienceMs', 'pollMs', 'warn', 'strategy', 'retryLog'];
const RELEASE = ['result', 'failure'];
const TLS = ['caFile', 'certFile', 'keyFile', 'serverName'];

module.exports = { check, checkNoMore, checkOptions, optionsAndWork, refused, requestOf, requestOfAll, ACQUIRE, ALL, LEAD, LISTENERS, CLIENT, RELEASE, TICKS, TLS, WATCH };
