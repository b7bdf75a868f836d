'use strict';

// A lease that begins or ends in a transaction on the caller's own client of `pg`: its row commits with the caller's, or neither does.
//
// The package begins the transaction and commits it, so it knows the outcome: a lease is renewed from the commit that acquires it, and until
// the commit that releases it. When the connection breaks at COMMIT, a heartbeat tells whether the lease is still held: the transaction has
// its row locked, so no answer comes before the transaction's end.

const { InvalidArgumentError, LeaseLostError, UnavailableError, scopeName } = require('./errors.js');
const sql = require('./sql.js');
const { clock, sleep } = require('./time.js');

/** PostgreSQL says that the transaction was rolled back. A server that shuts down says nothing of it. */
const isAnswered = (error) => typeof error?.severity === 'string' && !/^(08|57P)/.test(error.code);

/** Runs work between BEGIN and COMMIT. After a COMMIT that nobody answered, `lookUp` returns what is to be returned, or throws. */
async function transact(client, work, lookUp) {
  await begin(client);
  let value;
  try {
    value = await work();
  } catch (error) {
    await client.query('rollback').catch(() => {}); // the connection is broken: then nothing was committed
    throw String(error?.code).startsWith('LH') ? sql.errorOf(error) : error;
  }
  try {
    await client.query('commit');
    return value;
  } catch (error) {
    if (isAnswered(error)) throw error;
    return lookUp(error, value);
  }
}

/** Refuses one that is open: its COMMIT would be somebody else's, and the client would not know when. A clock may show one time for some statements. */
async function begin(client) {
  const { rows } = await client.query('select now() <> statement_timestamp() or pg_current_xact_id_if_assigned() is not null as open');
  if (rows[0].open) {
    throw new InvalidArgumentError('client must have no transaction open: this begins one, and commits it', 'client', 'without a transaction');
  }
  await client.query('begin');
}

/** How the lease has ended, after a COMMIT without an answer; null: it is held, until `deadline`. */
async function settle(transport, ref, patienceMs) {
  for (const until = clock() + patienceMs; clock() < until; await sleep(50)) {
    const sent = clock();
    const [beat] = await transport.heartbeat([ref], Math.min(until - sent, 1000)).catch((error) => [{ outcome: 'retry', message: error.message }]);
    if (beat.outcome === 'ok') return { reason: null, deadline: sent + beat.remainingMs, isFinal: beat.isFinal };
    if (beat.outcome === 'lost') return { reason: beat.reason };
  }
  return { reason: 'unknown' };
}

function unknownOutcome(scope, error, consequence) {
  const words = `the outcome of the transaction is unknown, for COMMIT was not answered (${error.message}); the lease ${scopeName(scope)} ${consequence}`;
  return new UnavailableError(words, { cause: error, reason: 'UNKNOWN_OUTCOME' });
}

/** Work, then the release, then COMMIT. */
async function releaseIn(client, lease, renewer, outcome, work) {
  lease._checkSingle('end in a transaction');
  if (lease._request.isHold) throw new InvalidArgumentError("a leader's lease does not end in a transaction", 'mode', 'a lease that is not of lead');
  const { valueOf } = require('./lease.js'); // which needs this file
  const kind = outcome.failure === undefined ? 'released' : 'failed';
  const { namespace, key, leaseKey } = lease._ref;
  let hasLeft = false;
  const leave = async () => {
    const done = await work(lease);
    const value = valueOf({ result: lease.result, ...outcome });
    await lease._leave();
    hasLeft = true;
    const { rows } = await client.query(sql.RELEASE[kind], [namespace, key, leaseKey, value]);
    if (rows[0].done !== 'true') throw new LeaseLostError(`the lease ${scopeName(lease)} was lost before its transaction could release it`, 'unknown');
    return done;
  };
  const lookUp = async (error, value) => {
    const found = await settle(renewer.transport, lease._ref, renewer.patienceMs);
    if (found.reason === kind) return value;
    if (found.reason === null) Object.assign(lease, { _deadline: found.deadline, _isFinal: found.isFinal, _next: clock() });
    else lease._lose(found.reason === 'unknown' ? 'unreachable' : found.reason);
    if (found.reason !== 'unknown') throw error;
    renewer.givenUp.add([lease._ref], lease.durationMs);
    throw unknownOutcome(lease, error, 'counts as lost');
  };
  try {
    const value = await transact(client, leave, lookUp);
    lease._left(true);
    lease._told();
    return value;
  } catch (error) {
    if (hasLeft) lease._left(false);
    if (hasLeft && error instanceof LeaseLostError) {
      lease._lose((await settle(renewer.transport, lease._ref, renewer.patienceMs)).reason ?? 'unknown');
      throw lease.lost;
    }
    throw error;
  }
}

/** The acquire, then work, then COMMIT: from then on it is held. */
async function acquireIn(client, request, renewer, work, giveUp) {
  const { Lease } = require('./lease.js');
  let lease = null;
  const take = async () => {
    const sent = clock();
    const { rows } = await client.query(sql.ACQUIRE, sql.acquireValues(request));
    if (rows.length === 0) throw sql.heldOf([request], sql.contentionOf((await client.query(sql.CONTENTION, sql.contentionValues([request]))).rows));
    lease = new Lease(renewer, request, { ...sql.grantOf(rows[0], sent), tie: null });
    lease._isOpen = true;
    await work(lease);
    lease._expire();
    if (lease.lost) throw lease.lost; // the transaction took longer than the lease lasts
  };
  const lookUp = async (error) => {
    const found = await settle(renewer.transport, lease._ref, renewer.patienceMs);
    if (found.reason === null) return Object.assign(lease, { _deadline: found.deadline, _isFinal: found.isFinal });
    giveUp();
    throw unknownOutcome(lease, error, 'is given back if it was acquired');
  };
  try {
    await transact(client, take, lookUp);
  } catch (error) {
    lease?._lose('released', 'the transaction that acquired it was rolled back');
    throw error;
  }
  lease._isOpen = false;
  renewer.add(lease);
  return lease;
}

module.exports = { acquireIn, releaseIn, transact };
