'use strict';

const { UnavailableError, scopeName } = require('./errors.js');
const { apart } = require('./telemetry.js');
const { clock, sleep } = require('./time.js');

const MOST_IN_REQUEST = 10000; // releases
const MOST_WAITING = 2097152;
const RETRY_AFTER_MS = 500;

const nameOf = ({ namespace, key }) => `${namespace}\0${key}`; // neither has a NUL

/** What tryRelease has left: one request at a time, each release until its lease's deadline. Nothing of it keeps the process alive. */
class Releaser {
  #waiting = new Set();
  #counts = new Map(); // of these by scope
  #sending = null;
  #isClosed = false;

  constructor(transport, patienceMs, warn) {
    this.transport = transport;
    this.patienceMs = patienceMs;
    this.warn = warn;
  }

  /** Nothing is said of what is quiet. */
  add(refs, lease, outcome, isQuiet = false) {
    if (this.#waiting.size >= MOST_WAITING) {
      throw new UnavailableError(`${MOST_WAITING} releases wait already: the lease ${scopeName(lease)} ends by its deadline`);
    }
    for (const ref of refs) {
      this.#waiting.add({ ref, lease, outcome, isQuiet, isLast: ref === refs.at(-1) && !isQuiet });
      this.#counts.set(nameOf(ref), (this.#counts.get(nameOf(ref)) ?? 0) + 1);
    }
    this.#sending ??= apart(() => this.#send());
  }

  #delete(item) {
    const name = nameOf(item.ref);
    const left = this.#counts.get(name) - 1;
    this.#waiting.delete(item);
    if (left > 0) this.#counts.set(name, left);
    else this.#counts.delete(name);
  }

  /** Resolves when nothing of these keys waits any more: an acquire behind its release would find the key held. */
  async follow(refs, signal) {
    const isWaiting = (ref) => this.#counts.has(nameOf(ref));
    for (const until = clock() + this.patienceMs; clock() < until && !signal?.aborted && refs.some(isWaiting); ) {
      await Promise.race([this.#sending, sleep(RETRY_AFTER_MS, signal)]);
    }
  }

  async #send() {
    await null; // what is released in the same turn goes together
    while (this.#waiting.size > 0 && !this.#isClosed) {
      const items = [...this.#waiting].slice(0, MOST_IN_REQUEST);
      await Promise.allSettled(items.map(({ lease }) => lease._asked)); // no renewal comes after a release
      const answers = await this.transport
        .releaseAll(items.map(({ ref, outcome }) => ({ ref, ...outcome })), this.patienceMs)
        .catch((error) => items.map(() => ({ outcome: 'retry', message: error.message })));
      items.forEach((item, n) => {
        const { outcome, message } = answers[n];
        if (outcome === 'retry' && clock() < item.lease._deadline) return;
        this.#delete(item);
        item.lease._tie?.close();
        if (outcome !== 'ok') this.#tell(item, message);
        else if (item.isLast) item.lease._told();
      });
      if (answers.some(({ outcome }) => outcome === 'retry')) await sleep(RETRY_AFTER_MS, null, true);
    }
    this.#sending = null;
  }

  #tell({ ref, lease, isQuiet }, message) {
    lease._request.story.ended('unanswered');
    if (!isQuiet) this.warn(`the release of ${scopeName(ref)} with token ${lease.token} was not done: ${message}; it is left to expire`);
  }

  /** At the end of the client: sends what is left, for so long. */
  async close(ms) {
    const enough = new AbortController();
    await Promise.race([this.#sending, sleep(ms, enough.signal)]);
    enough.abort();
    this.#isClosed = true;
    for (const item of this.#waiting) this.#tell(item, 'the client is closed');
    this.#waiting.clear();
    this.#counts.clear();
  }
}

module.exports = { Releaser };
