'use strict';

// PGlite has one session, which all connections share by turns: an open transaction keeps it until its end. Notifications come back in the answer
// to whatever statement sent them, so they are taken out of it and go to each connection that listens.

const { letterOf, split, query, notification, channelAndPayload, statementOf } = require('./protocol.js');

const LISTEN = /^\s*listen\s+(?:"((?:[^"]|"")+)"|(\w+))/i;
const UNLISTEN = /^\s*unlisten\s+(?:\*|"((?:[^"]|"")+)"|(\w+))/i;
const nameOf = ([, quoted, plain]) => quoted?.replaceAll('""', '"') ?? plain?.toLowerCase();

class Backend {
  #db;
  #jobs = []; // { by: a connection or null, run, resolve, reject }
  #isRunning = false;
  #inTransaction = null; // the connection that has a transaction open
  #connections = new Set();

  constructor(db, pid, settings) {
    this.#db = db;
    this.pid = pid;
    this.settings = settings;
    this.stopListening = db.onNotification((channel, payload) => this.#notify(channel, payload));
  }

  get connections() {
    return [...this.#connections];
  }

  join(connection) {
    this.#connections.add(connection);
  }

  /** What it has open is rolled back. */
  leave(connection) {
    this.#connections.delete(connection);
    if (this.#inTransaction !== connection) return;
    this.#jobs.unshift({ by: connection, run: () => this.#send([query('rollback')], connection), resolve() {}, reject() {} });
    this.#work();
  }

  /** Messages up to a Sync, or a Query; resolves to the answer. */
  ask(connection, messages) {
    return this.#turn(connection, () => this.#send(messages, connection));
  }

  /** A statement of the kit's own. */
  async query(statement, values) {
    return (await this.#turn(null, () => this.#db.query(statement, values))).rows;
  }

  #turn(by, run) {
    return new Promise((resolve, reject) => {
      this.#jobs.push({ by, run, resolve, reject });
      this.#work();
    });
  }

  async #work() {
    if (this.#isRunning) return;
    this.#isRunning = true;
    for (;;) {
      const next = this.#jobs.findIndex(({ by }) => !this.#inTransaction || by === this.#inTransaction);
      if (next < 0) break;
      const [{ run, resolve, reject }] = this.#jobs.splice(next, 1);
      await run().then(resolve, reject);
    }
    this.#isRunning = false;
  }

  async #send(messages, connection) {
    // The session goes on listening; who hears what is decided here.
    const statements = messages.map(statementOf);
    const unlisten = statements.map((each) => UNLISTEN.exec(each)).find(Boolean);
    const sent = unlisten && letterOf(messages[0]) === 'Q' ? [query('unlisten leasehold_test_none')] : messages;
    const [answers] = split(Buffer.from(await this.#db.execProtocolRaw(Buffer.concat(sent))));
    const isGood = !answers.some((each) => letterOf(each) === 'E');
    const listen = statements.map((each) => LISTEN.exec(each)).find(Boolean);
    if (isGood && listen) connection.channels.add(nameOf(listen));
    if (isGood && unlisten) nameOf(unlisten) === undefined ? connection.channels.clear() : connection.channels.delete(nameOf(unlisten));
    const ready = answers.filter((each) => letterOf(each) === 'Z').at(-1);
    if (ready) this.#inTransaction = ready[5] === 'I'.charCodeAt(0) ? null : connection;
    const news = answers.filter((each) => letterOf(each) === 'A').map(channelAndPayload);
    setImmediate(() => news.forEach(({ channel, payload }) => this.#notify(channel, payload)));
    return Buffer.concat(answers.filter((each) => letterOf(each) !== 'A'));
  }

  #notify(channel, payload) {
    for (const connection of this.#connections) {
      if (connection.channels.has(channel)) connection.deliver(notification(this.pid, channel, payload));
    }
  }
}

module.exports = { Backend };
