'use strict';

const { apart } = require('./telemetry.js');
const { clock, sleep } = require('./time.js');

const MOST_IN_REQUEST = 10000; // releases
const MOST_DOUBTS = 100000;
const UNANSWERED_AGAIN_MS = 200;
const DOUBT_FIRST_MS = 1000;
const OUTCOME = Object.freeze({ isFailed: true, value: 'the caller gave up before it heard of the grant' });

/**
 * What may have been granted to callers that have given up. It is released until it is answered. A lease that the server does not know
 * may still be granted, because its request may come after its release: it is released again after 1, 2, 4 ... s, until it would have
 * ended by itself. No timer of this keeps the process alive.
 */
class GivenUp {
  #items = new Set();
  #running = null;
  #isClosed = false;
  #wake = () => {};

  constructor(transport, patienceMs) {
    this.transport = transport;
    this.patienceMs = patienceMs;
  }

  /** Resolves when each is answered for the first time, or its time has passed. */
  add(refs, durationMs) {
    const until = clock() + durationMs;
    const answers = refs.map((ref) => new Promise((onAnswer) => this.#items.add({ ref, until, due: 0, doubtMs: DOUBT_FIRST_MS, isAnswered: false, onAnswer })));
    this.#running ??= apart(() => this.#run());
    this.#wake();
    return Promise.all(answers);
  }

  async #run() {
    await null; // what is given up in the same turn goes together
    while (this.#items.size > 0) {
      const now = clock();
      const due = [...this.#items].filter((item) => item.due <= now).slice(0, MOST_IN_REQUEST);
      if (due.length > 0) await this.#release(due);
      else await this.#rest(now);
    }
    this.#running = null;
  }

  /** Looks at all of them at most five times a second. */
  #rest(now) {
    let next = Infinity;
    for (const { due } of this.#items) next = Math.min(next, due);
    const enough = new AbortController();
    this.#wake = () => enough.abort();
    return sleep(Math.max(next - now, UNANSWERED_AGAIN_MS), enough.signal, true);
  }

  async #release(items) {
    const refs = items.map(({ ref }) => ref);
    const until = clock() + this.patienceMs;
    let answers = refs.map(() => ({ outcome: 'retry' }));
    try {
      await this.transport.leaveQueue?.(refs, this.patienceMs);
      answers = await this.transport.releaseAll(refs.map((ref) => ({ ref, ...OUTCOME })), Math.max(until - clock(), 1));
    } catch {} // not answered
    items.forEach((item, n) => this.#answered(item, answers[n]));
  }

  #answered(item, { outcome, reason }) {
    const isDoubted = outcome === 'lost' && reason === 'unknown' && this.#items.size <= MOST_DOUBTS;
    item.isAnswered ||= outcome !== 'retry';
    if (item.isAnswered) item.onAnswer();
    item.due = clock() + (isDoubted ? item.doubtMs : UNANSWERED_AGAIN_MS);
    if (isDoubted) item.doubtMs *= 2;
    if (this.#isClosed || !(isDoubted || outcome === 'retry') || item.due >= item.until) this.#delete(item);
  }

  #delete(item) {
    this.#items.delete(item);
    item.onAnswer();
  }

  /** What was not answered is tried once more; resolves after that. */
  close() {
    this.#isClosed = true;
    for (const item of this.#items) {
      item.due = 0;
      if (item.isAnswered) this.#delete(item);
    }
    this.#wake();
    return this.#running;
  }
}

module.exports = { GivenUp };
