'use strict';

const { check } = require('./arguments.js');
const { scopeName } = require('./errors.js');

const LEFT = 'the loop was left before the end of its body; tick.run(work) ends the tick by itself';

/** An instant of a schedule, and the lease of its work. */
class Tick {
  #work;
  #warn;
  #isRun = false;

  /** work(function): runs it under the lease, and releases that with its outcome. */
  constructor(lease, { at, attempt }, work, warn) {
    this.lease = lease;
    this.at = at;
    this.attempt = attempt;
    this.#work = work;
    this.#warn = warn;
  }

  /** The loop goes on, whatever the work throws. */
  async run(work) {
    check('work', work);
    this.lease.check();
    this.#isRun = true;
    return this.#told(() => this.#work(work));
  }

  /** Of a loop's body that ran no work by `run`. */
  async _end(isLeft) {
    if (!this.#isRun) await this.#told(() => this.lease.release(isLeft ? { failure: LEFT } : {}));
  }

  async #told(end) {
    try {
      return await end();
    } catch (error) {
      this.#warn(`the tick ${scopeName(this.lease)}, attempt ${this.attempt}, has failed: ${error?.stack ?? error}`);
      return undefined;
    }
  }
}

module.exports = { Tick };
