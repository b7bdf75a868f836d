'use strict';

const VERBS = {
  acquire: /leasehold\.acquire\w*\(/,
  renewal: /leasehold\.heartbeat\w*\(/,
  release: /leasehold\.release_\w+\(/,
};

/** What happens to the answers of one world. */
class Faults {
  silence = Promise.resolve();
  #next = [];
  #speak = () => {};

  /** Once, for the next statement of this kind. */
  add(verb, fault) {
    if (!VERBS[verb]) throw new RangeError(`verb must be ${Object.keys(VERBS).join(', ')}, not ${verb}`);
    this.#next.push({ verb, ...fault });
  }

  setSilence(isSilent) {
    this.#speak();
    this.silence = isSilent ? new Promise((resolve) => { this.#speak = resolve; }) : Promise.resolve();
  }

  of(statement) {
    const at = this.#next.findIndex(({ verb }) => VERBS[verb].test(statement));
    return at < 0 ? null : this.#next.splice(at, 1)[0];
  }

  clear() {
    this.#next = [];
    this.setSilence(false);
  }
}

module.exports = { Faults };
