'use strict';

const { check, checkOptions, optionsAndWork, RELEASE } = require('./arguments.js');
const { errorOfRelease, InvalidArgumentError, LeaseLostError, scopeName, UnavailableError } = require('./errors.js');
const { refsOf } = require('./scopes.js');
const { clock, sleep } = require('./time.js');
const { releaseIn } = require('./transaction.js');

const MOST_WORDS = 8192; // bytes

/** What `await using` calls; a Node that has no such symbol has no `await using` either. */
const asyncDispose = Symbol.asyncDispose ?? Symbol.for('Symbol.asyncDispose');

/** Held until it is released or lost. What begins with _ is for this package. */
class Lease {
  #renewer;
  #controller = new AbortController();
  #lost = null;
  #releasing = null;
  #isReleased = false;
  #askedAt = null; // the last request to hand it over

  constructor(renewer, request, grant) {
    this.#renewer = renewer;
    this.namespace = request.namespace;
    this.key = request.key;
    this.owner = request.owner;
    this.durationMs = request.durationMs;
    this._take(grant);
    this.result = undefined;
    this._request = request;
    this._trouble = ''; // why the last renewal failed
    this._asked = null; // its renewal, in flight
    this._tie = grant.tie;
    this._isGranted = false; // and onGranted was called
    this._isOpen = false; // a transaction that is to acquire or release it is not committed yet
  }

  _take({ token, tokens = [token], units, slots, deadline, isFinal }) {
    this.token = token;
    this.tokens = tokens;
    this.mode = units > 0 ? 'shared' : 'exclusive';
    this.units = units;
    this.slots = slots;
    this._deadline = deadline; // on clock()
    this._isFinal = isFinal; // the policy ends it then
    // One that is final may be for much less than its duration.
    const leftMs = isFinal ? Math.max(deadline - clock(), 0) : this.durationMs;
    this._marginMs = Math.min(leftMs, this.durationMs) / 5;
    this._next = isFinal ? clock() + leftMs / 3 : deadline - (this.durationMs * 2) / 3; // renewal
  }

  /** Aborts once when the lease is lost, before its deadline; the reason is the LeaseLostError. */
  get signal() {
    this._expire();
    return this.#controller.signal;
  }

  get lost() {
    this._expire();
    return this.#lost;
  }

  /** Until the work must have stopped. */
  remainingMs() {
    return this.isHeld() ? this._stop - clock() : 0;
  }

  isHeld() {
    this._expire();
    return this.#lost === null && !this.#isReleased && !this._isOpen;
  }

  /** Throws LeaseLostError once the lease is lost or released. */
  check() {
    this._expire();
    if (this.#lost) throw this.#lost;
    if (this.#isReleased) throw this.#released();
  }

  #released() {
    return new LeaseLostError(`the lease ${scopeName(this)} with token ${this.token} is not held: it was released`, 'released');
  }

  /** In a transaction of the caller's: until it ends, nobody else gets the lease. */
  async guard(client) {
    this.check();
    try {
      for (const [n, { namespace, key }] of this._refs.entries()) {
        await client.query('select leasehold.guard($1, $2, $3)', [namespace, key, String(this.tokens[n])]);
      }
    } catch (error) {
      if (error.code !== 'LH001') throw error;
      throw new LeaseLostError(error.message, 'unknown', { cause: error });
    }
  }

  /** Makes an exclusive lease shared, or gives units of a shared one back. Repeated until it is answered, for as long as patienceMs says. */
  async downgrade(units = 1) {
    check('units', units);
    this._checkSingle('be downgraded');
    if (this._request.isHold) throw new InvalidArgumentError("a leader's lease stays exclusive", 'mode', 'a lease that is not of lead');
    const { retries, transport, patienceMs } = this.#renewer;
    try {
      const grant = await retries.of('Downgrade', this._request).repeat(clock() + patienceMs, null, () => {
        this.check();
        if (this.#releasing) throw this.#released();
        return transport.downgrade(this._ref, units, this.#patienceMs);
      });
      this.check();
      this._take(grant);
      this._request.story.downgraded(grant.token);
    } catch (error) {
      if (error instanceof LeaseLostError && !this.#releasing) this._lose(error.reason); // else the release tells
      throw error;
    }
  }

  /** Answers a request to hand the lease over. False: nobody has asked. */
  async refuseHandOver(words) {
    check('reason', words);
    if (words === '') throw new InvalidArgumentError('reason must be 1 to 1024 bytes, has 0', 'reason', '1 to 1024 bytes');
    this._checkSingle('refuse');
    this.check();
    const { retries, transport, patienceMs } = this.#renewer;
    const until = clock() + patienceMs;
    return retries.of('RefuseHandOver', this._request).repeat(until, null, () => transport.refuseHandOver(this._ref, words, Math.max(until - clock(), 1)));
  }

  /** Tells of each request once, though renewals and the stream of a leader have it again and again. */
  _wasAsked(request) {
    if (!request || request.askedAt.getTime() === this.#askedAt || !this.isHeld()) return;
    this.#askedAt = request.askedAt.getTime();
    this._request.onAsked?.(request);
  }

  /** Gives the lease back. Repeated until it is answered, or the deadline has passed. */
  async release(outcome = {}) {
    checkOptions('release', outcome, RELEASE);
    const { result = this.result, failure } = outcome;
    if (this.lost && this._request.scopes && !this.#releasing) {
      this.#releasing = Promise.reject(this.lost);
      const words = { isFailed: true, value: wordsOf(this.lost) };
      this.#renewer.releaser.add(this._refs, this, words, true); // the others of several
    }
    this.#releasing ??= this.#releaseTraced(result, failure);
    return this.#releasing;
  }

  /** From now on it is not held: the client releases it in the background. False: it was not held any more. */
  tryRelease(outcome = {}) {
    checkOptions('tryRelease', outcome, RELEASE);
    if (this.#releasing || !this.isHeld()) return false;
    const { result = this.result, failure } = outcome;
    const value = valueOf({ result, failure });
    this._request.story.releasing();
    this.#renewer.releaser.add(this._refs, this, { isFailed: failure !== undefined, value });
    this._left(true);
    return true;
  }

  /** The same, in a transaction on a client of `pg` that this begins, and commits when the work has ended. */
  async releaseIn(client, ...given) {
    const [outcome, work] = optionsAndWork('releaseIn', given, RELEASE, 'client');
    this.check();
    if (this.#releasing) throw this.#released();
    return releaseIn(client, this, this.#renewer, outcome, work);
  }

  /** No renewal comes after the release, which is the next statement of a transaction. */
  async _leave() {
    this.check();
    if (this.#releasing) throw this.#released();
    this.#releasing = new Promise(() => {}); // another release would wait for this one
    await this._asked;
    this._request.story.releasing();
    this._isOpen = true;
  }

  /** It was released: or else it goes on. */
  _left(isReleased) {
    this._isOpen = false;
    this.#isReleased = isReleased;
    this.#releasing = isReleased ? Promise.resolve() : null;
    if (isReleased) this.#renewer.drop(this);
    else this._request.story.stayed('rolled back');
    if (!isReleased && this.isHeld()) this.#renewer.add(this);
  }

  /** Of its release. */
  _told() {
    this._request.story.ended();
    this._request.onReleased?.(this);
  }

  async [asyncDispose]() {
    await this.release();
  }

  async #releaseTraced(result, failure) {
    const { story } = this._request;
    this.check();
    story.releasing();
    try {
      return await story.during('release', () => this.#release(result, failure));
    } catch (error) {
      story.stayed(String(error?.message ?? error));
      throw error;
    }
  }

  async #release(result, failure) {
    let problem = null;
    let value = '';
    try {
      value = valueOf({ result, failure });
    } catch (error) {
      [problem, failure, value] = [error, error, wordsOf(error)];
    }
    await this._asked; // no renewal comes after a release: see _isRenewed
    this.check();
    const retrying = this.#renewer.retries.of('Release', this._request);
    for (let isRepeated = false; ; isRepeated = true) {
      try {
        await this.#releaseAll({ isFailed: failure !== undefined, value }, this.#patienceMs);
        break;
      } catch (error) {
        const delayMs = retrying.delayMs(error, this.remainingMs());
        if (delayMs !== null) {
          await sleep(delayMs);
          continue;
        }
        // A repeated release whose first answer was lost is told that the lease has been released.
        if (isRepeated && ['released', 'failed'].includes(error.reason)) break;
        if (error instanceof InvalidArgumentError && !problem) {
          [problem, failure, value] = [error, error, wordsOf(error)]; // a result that is too long
          continue;
        }
        if (error instanceof LeaseLostError) this._lose(error.reason);
        this._trouble = error.message; // it is not renewed any more
        throw error instanceof LeaseLostError ? this.#lost : error;
      }
    }
    this.#isReleased = true;
    this.#renewer.drop(this);
    this._tie?.close();
    this._told();
    if (problem) throw problem;
  }

  async #releaseAll(item, patienceMs) {
    const { transport } = this.#renewer;
    const refs = this._refs;
    if (refs.length === 1) return transport.release(refs[0], item, patienceMs);
    const answers = await transport.releaseAll(refs.map((ref) => ({ ref, ...item })), patienceMs);
    // What a try before has released comes last.
    const errors = answers.map((answer, n) => errorOfRelease(refs[n], answer)).filter(Boolean);
    const first = errors.find((error) => error instanceof UnavailableError) ?? errors.find(({ reason }) => !['released', 'failed'].includes(reason)) ?? errors[0];
    if (first) throw first;
  }

  /** For one try: there is time for some repetitions. */
  get #patienceMs() {
    return Math.min(this.#renewer.patienceMs, Math.max(this.durationMs / 6, 500));
  }

  get _ref() {
    return { namespace: this.namespace, key: this.key, leaseKey: this._request.leaseKey, durationMs: this.durationMs };
  }

  /** Of one key or several. */
  get _refs() {
    return refsOf(this._request);
  }

  _checkSingle(what) {
    if (this._request.scopes) throw new InvalidArgumentError(`a lease of several keys cannot ${what}`, 'scopes', 'one key');
  }

  get _stop() {
    return this._deadline - this._marginMs;
  }

  /** Held, as far as is known; tells nobody. */
  get _isWorking() {
    return this.#lost === null && !this.#isReleased && clock() < this._stop;
  }

  get _isRenewed() {
    return this.#releasing === null && this._asked === null;
  }

  /** The clock decides: the renewals may have slept with the machine, or waited behind other work. */
  _expire() {
    if (this.#lost !== null || this.#isReleased || clock() < this._stop) return;
    this.#renewer.notice();
    if (this._isFinal) this._lose('max_hold', `the policy of ${this.namespace} ends a lease after max_hold`);
    else this._lose('unreachable', this._trouble);
  }

  _lose(reason, message = '') {
    if (this.#lost || this.#isReleased) return;
    const words = `the lease ${scopeName(this)} with token ${this.token} is lost: ${reason}`;
    this.#lost = new LeaseLostError(message ? `${words}: ${message}` : words, reason);
    this.#renewer.drop(this);
    this.#controller.abort(this.#lost);
    this._request.story.ended(reason);
    if (this._isGranted) this._request.onLost?.(this.#lost);
  }

  /** The caller wants the work to stop, and the lease is not lost. */
  _abort(reason) {
    this.#controller.abort(reason);
  }
}

/** What the server keeps: a result as JSON, or the words of what failed. */
function valueOf({ result, failure }) {
  return failure === undefined ? (JSON.stringify(result) ?? '') : wordsOf(failure);
}

function wordsOf(error) {
  const words = Buffer.from(String(error).replaceAll('\0', ''));
  return words.subarray(0, MOST_WORDS).toString().replace(/\ufffd+$/, '');
}

module.exports = { Lease, asyncDispose, valueOf };
