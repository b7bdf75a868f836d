'use strict';

// The servers of tests/clients/control.py, for one case on one transport.

const assert = require('node:assert/strict');
const childProcess = require('node:child_process');
const net = require('node:net');
const path = require('node:path');
const readline = require('node:readline');
const { setTimeout: sleep } = require('node:timers/promises');
const { Client } = require('leasehold-client');

const LONG_MS = 300000;
const BOUND_MS = 60000; // not a measurement

async function ask(what, body = {}) {
  const answer = await fetch(`${process.env.LEASEHOLD_CONTROL}/${what}`, { method: 'POST', body: JSON.stringify(body), headers: { connection: 'close' } });
  const text = await answer.text();
  assert.equal(answer.status, 200, `${what} ${JSON.stringify(body)}: ${text}`);
  return JSON.parse(text);
}

async function wait(what, condition) {
  for (const end = Date.now() + BOUND_MS; ; await sleep(20)) {
    const value = await condition();
    if (value) return value;
    assert.ok(Date.now() < end, `${what} did not come true within ${BOUND_MS / 1000} s`);
  }
}

class Site {
  #cleanup = [];

  static async make(on, name) {
    const site = new Site();
    const all = await ask('site');
    const dsn = { grpc: all.grpc_sql, sql: all.sql, pooler: all.pooler }[on];
    const { host, port, dbname: database, user } = Object.fromEntries(dsn.split(' ').map((each) => each.split('=')));
    const config = { host, port: Number(port), database, user, application_name: `node-${process.pid}-${name}-${on}`.slice(0, 60) };
    return Object.assign(site, { on, key: `node-${process.pid}-${name}`, target: on === 'grpc' ? all.grpc : config, config, port: all.port });
  }

  later(clean) {
    this.#cleanup.push(clean);
  }

  async close() {
    while (this.#cleanup.length) await this.#cleanup.pop()();
  }

  /** Where nothing is in its way, it has the time that a busy machine takes. */
  client(target = this.target, options = {}) {
    const patience = target === this.target ? { patienceMs: 20000 } : {};
    const client = new Client({ [this.on === 'grpc' ? 'server' : 'database']: target, ...patience, ...options });
    this.later(() => client.close());
    return client;
  }

  acquire(client, options) {
    return client.acquire('cases', this.key, options);
  }

  /** The promise of an acquire that waits, in an array, once it has the nth place. */
  async queue(client, n, options) {
    const waiting = this.acquire(client, { waitMs: 5 * BOUND_MS, ...options });
    waiting.catch(() => {});
    await wait('a place in the queue', async () => (await this.waiters()) === String(n));
    return [waiting];
  }

  psql(sql) {
    return ask('psql', { on: this.on, sql });
  }

  row(columns) {
    return this.psql(`select ${columns} from leasehold.scope where namespace = 'cases' and key = '${this.key}'`);
  }

  waiters() {
    return this.psql(`select count(*) from leasehold.queue where namespace = 'cases' and key = '${this.key}'`);
  }

  async beats() {
    return Number((await this.row('heartbeats')) || 0);
  }

  /** Token and units of each holder. */
  shares() {
    return this.psql(`select token, units from leasehold.lease where namespace = 'cases' and key = '${this.key}' order by token`);
  }

  async beatsOf(lease) {
    return Number(await this.psql(`select heartbeats from leasehold.lease where token = ${lease.token}`));
  }

  force() {
    return this.psql(`select from leasehold.force_release('cases', '${this.key}', 'a test')`);
  }

  async lost(lease) {
    await wait('the loss', () => lease.signal.aborted);
    assert.equal(lease.signal.reason, lease.lost);
    return lease.lost.reason;
  }

  /** Does somebody wait, idle, for what LISTEN brings? */
  async isListening() {
    return (await this.psql('select count(*) from pg_stat_activity where '
      + `application_name = '${this.config.application_name}' and state = 'idle' and query like '%leasehold.acquire_one(%'`)) !== '0';
  }

  async pg(config = this.config) {
    const { Client: Pg } = require('pg');
    const client = new Pg(config);
    client.on('error', () => {});
    await client.connect();
    this.later(() => client.end());
    return client;
  }

  /** Before a daemon, tests/lib/flaky_proxy.py; before PostgreSQL, a pipe. */
  async proxy(daemon = 0) {
    if (this.on !== 'grpc') return this.#pipe();
    const { id, target } = await ask('proxy', { id: daemon });
    return {
      target,
      decide: (...actions) => ask('proxy/set', { id, decide: actions }),
      decideRequest: (...actions) => ask('proxy/set', { id, decide_request: actions }),
      letRequestsGo: () => ask('proxy/let_requests_go', { id }),
      freeze: (frozen) => ask('proxy/set', { id, frozen }),
      actAsHttp: () => ask('proxy/set', { id, http: true }),
      refuse: (refusing) => ask('proxy/set', { id, refusing }),
      cut: () => ask('proxy/cut', { id }),
      state: () => ask('proxy/state', { id }),
    };
  }

  /** tests/clients/lying_server.py */
  async liar() {
    const { id, target } = await ask('liar');
    return { target, lie: (lies) => ask('liar/set', { id, lies }), state: () => ask('liar/state', { id }) };
  }

  /** An application's, whose connection breaks at COMMIT. */
  async commitProxy(mode) {
    return this.pg({ ...this.config, host: '127.0.0.1', port: (await ask('commit_proxy', { mode })).port });
  }

  /** The facts of a daemon with TLS and access rules: tests/clients/secure.py. */
  secure() {
    return ask('secure');
  }

  /** A row of the application's, with the key of the case. */
  async call(state) {
    await this.psql("do $$ begin create table if not exists call (id text primary key, state text not null); exception when unique_violation then null; end $$");
    await this.psql(`insert into call values ('${this.key}', '${state}')`);
  }

  callState() {
    return this.psql(`select state from call where id = '${this.key}'`);
  }

  /** As if the holder had neither renewed nor acquired since. */
  silence(seconds) {
    return this.psql(`update leasehold.scope set acquired_at = acquired_at - interval '${seconds} s', heartbeat_at = heartbeat_at - interval '${seconds} s' where namespace = 'cases' and key = '${this.key}'`);
  }

  async renewed() {
    const beats = await this.beats();
    await wait('two renewals', async () => (await this.beats()) >= beats + 2);
  }

  /** While it is frozen, answers of the database do not pass; while it refuses, there are no connections. hold(): a statement waits for letGo(), though its connection ends; the others pass. */
  async #pipe() {
    const sockets = new Set();
    const held = new Set();
    let isFrozen = false;
    let isRefusing = false;
    let late = null; // { statement, database, data, answered: what was said and answered on other connections }
    const server = net.createServer((client) => {
      if (isRefusing) return client.destroy();
      const database = net.connect(this.port, '127.0.0.1');
      const said = [];
      for (const [from, to] of [[client, database], [database, client]]) {
        sockets.add(from);
        from.on('error', () => {});
        from.on('close', () => { sockets.delete(from); held.delete(from); if (late?.database !== to) to.destroy(); });
      }
      client.on('data', (data) => {
        said.push(data);
        if (late && !late.database && late.statement.test(data)) late.database = database;
        if (late?.database === database) late.data.push(data);
        else database.write(data);
      });
      database.on('data', (data) => {
        const answered = said.splice(0);
        if (late && late.database !== database) late.answered.push(...answered);
        client.write(data);
      });
      held.add(database);
      if (isFrozen) database.pause();
    });
    await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
    this.later(() => {
      for (const socket of sockets) socket.destroy();
      return new Promise((resolve) => server.close(resolve));
    });
    const freeze = async (frozen) => {
      isFrozen = frozen;
      for (const socket of held) frozen ? socket.pause() : socket.resume();
    };
    const refuse = async (refusing) => {
      isRefusing = refusing;
      if (refusing) for (const socket of sockets) socket.destroy();
    };
    const hold = (statement) => {
      late = { statement, database: null, data: [], answered: [] };
      return { hasAnswered: (words) => late.answered.some((data) => data.includes(words)), letGo: () => late.database.end(Buffer.concat(late.data)) };
    };
    return { target: { ...this.config, host: '127.0.0.1', port: server.address().port }, freeze, refuse, hold };
  }

  async daemon() {
    const { id, target } = await ask('daemon');
    const signal = (name) => ask('daemon/signal', { id, signal: name });
    this.later(() => signal('SIGCONT'));
    return { target, signal, kill: () => ask('daemon/kill', { id }), start: () => ask('daemon/start', { id }) };
  }

  /** program.js, running, and what it prints. */
  program(mode, durationMs, target = this.target) {
    const words = JSON.stringify({ mode, on: this.on, target, key: this.key, durationMs });
    const child = childProcess.spawn(process.execPath, [path.join(__dirname, 'program.js'), words], { stdio: ['ignore', 'pipe', 'inherit'] });
    const lines = [];
    readline.createInterface({ input: child.stdout }).on('line', (line) => lines.push(line));
    const ended = new Promise((resolve) => child.on('close', resolve));
    this.later(() => {
      child.kill('SIGKILL');
      return ended;
    });
    const find = (word) => lines.find((line) => line.split(' ')[0] === word);
    return {
      child,
      ended,
      lines,
      line: (word) => wait(`a line of ${word}, not only ${lines.slice(-3)},`, () => find(word)),
      count: (word) => lines.filter((line) => line === word).length,
    };
  }

  /** What cron does where there is no daemon. */
  reap() {
    if (this.on === 'grpc') return;
    let isOver = false;
    const reaping = (async () => {
      for (; !isOver; await sleep(200)) await this.psql('select count(*) from leasehold.reap()');
    })();
    this.later(() => {
      isOver = true;
      return reaping;
    });
  }
}

module.exports = { LONG_MS, Site, wait, sleep };
