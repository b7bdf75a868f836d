'use strict';

// What a client of pg takes for its socket (`stream` in its configuration). It speaks PostgreSQL's protocol with the client, so the client is pg's own.

const { Duplex } = require('node:stream');
const { setTimeout: sleep } = require('node:timers/promises');
const { STARTUP, SSL_REQUEST, split, letterOf, statementOf, welcome } = require('./protocol.js');

class Connection extends Duplex {
  channels = new Set();
  #backend;
  #faults;
  #received = Buffer.alloc(0);
  #isStarted = false;
  #batch = [];
  #delivered = Promise.resolve();

  constructor(backend, faults) {
    super();
    this.#backend = backend;
    this.#faults = faults;
  }

  connect() {
    this.#backend.join(this);
    setImmediate(() => this.emit('connect'));
    return this;
  }

  // A socket has these. Nothing here keeps the process alive.
  setNoDelay() { return this; }
  setKeepAlive() { return this; }
  ref() { return this; }
  unref() { return this; }

  _read() {}

  _write(bytes, encoding, done) {
    this.#received = Buffer.concat([this.#received, bytes]);
    if (this.#isStarted || this.#start()) this.#take();
    done();
  }

  _final(done) {
    this.push(null);
    done();
  }

  _destroy(error, done) {
    this.#backend.leave(this);
    done(error);
  }

  /** As a network that breaks. */
  cut() {
    this.destroy(Object.assign(new Error('the connection was cut by the test'), { code: 'ECONNRESET' }));
  }

  /** In order, once it may: see Faults. */
  deliver(bytes, delayMs = 0) {
    this.#delivered = this.#delivered.then(async () => {
      if (delayMs > 0) await sleep(delayMs);
      await this.#faults.silence;
      if (!this.destroyed && !this.readableEnded && !this.writableEnded) this.push(bytes);
    });
  }

  #start() {
    if (this.#received.length < 8 || this.#received.length < this.#received.readInt32BE(0)) return false;
    const what = this.#received.readInt32BE(4);
    this.#received = this.#received.subarray(this.#received.readInt32BE(0));
    if (what === SSL_REQUEST) this.deliver(Buffer.from('N'));
    else if (what === STARTUP) this.deliver(welcome(this.#backend.pid, this.#backend.settings));
    else this.cut();
    this.#isStarted = what === STARTUP;
    return this.#isStarted;
  }

  #take() {
    const [messages, rest] = split(this.#received);
    this.#received = rest;
    for (const each of messages) {
      this.#batch.push(each);
      if ('QS'.includes(letterOf(each))) this.#ask(this.#batch.splice(0));
    }
  }

  async #ask(messages) {
    const fault = this.#faults.of(messages.map(statementOf).join('\n'));
    try {
      const answer = await this.#backend.ask(this, messages);
      if (fault?.action === 'drop') this.cut();
      else this.deliver(answer, fault?.ms);
    } catch (error) {
      this.destroy(error); // PGlite itself is broken, or closed
    }
  }
}

module.exports = { Connection };
