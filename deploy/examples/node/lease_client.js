#!/usr/bin/env node
'use strict';
// A lease from Node that looks after itself, with nothing but stock gRPC. Copy it, or run it to see it work:
//
//   npm install @grpc/grpc-js @grpc/proto-loader
//   LEASEHOLD_PROTO=../../../proto ./lease_client.js 127.0.0.1:7420 payments invoice-42 10 60
//
//   const stub = newStub('ipv4:10.0.0.1:7420,10.0.0.2:7420', 'proto', 10);
//   const lease = await Lease.acquire(stub, 'payments', 'invoice-42', { duration: 10, wait: 60 });
//   lease.signal.addEventListener('abort', () => stop(lease.lostBecause));     // before its deadline, whatever happened
//   while (lease.isHeld()) await step(lease.token, { deadline: lease.callDeadline(), signal: lease.signal });
//   await lease.release('{"rows": 3}');

const crypto = require('node:crypto');
const os = require('node:os');
const { setTimeout: sleep } = require('node:timers/promises');
const grpc = require('@grpc/grpc-js');
const loader = require('@grpc/proto-loader');

// Seconds on a clock that runs while the machine is suspended, as the lease does; in steps of 10 ms, rounded down.
const clock = () => os.uptime();
const STEP = 0.01;

const durationOf = (seconds) => ({ seconds: Math.floor(seconds), nanos: Math.round((seconds % 1) * 1e9) });
const secondsOf = (duration) => (duration ? Number(duration.seconds) + duration.nanos / 1e9 : 0);
const inSeconds = (seconds) => ({ deadline: Date.now() + seconds * 1000 }); // how grpc-js wants its timeouts

const call = (stub, method, request, options) =>
  new Promise((resolve, reject) => {
    stub[method](request, new grpc.Metadata(), options, (error, reply) => (error ? reject(error) : resolve(reply)));
  });

const grantOf = (stub, request, options) =>
  new Promise((resolve, reject) => {
    const stream = stub.AcquireStream(request, new grpc.Metadata(), options);
    stream.on('data', (event) => event.granted && resolve(event));
    stream.on('error', reject);
    stream.on('end', () => reject(new Error('the stream ended without a grant')));
  });

// The lease key belongs to a lease that has ended: ErrorInfo's reason, read without google.rpc's generated code.
const isEnded = (error) =>
  error.code === grpc.status.FAILED_PRECONDITION &&
  error.metadata.get('grpc-status-details-bin').some((details) => details.includes('LEASE_ENDED'));

class Lease {
  // Rejects with a ServiceError when it is held by another (ABORTED) or the wait has passed (DEADLINE_EXCEEDED). Then
  // renewed at a third of its duration until released or lost; `signal` aborts once, a margin before the deadline at the
  // latest.
  static async acquire(stub, namespace, key, { duration = 30, wait = 0, owner = '' } = {}) {
    const lease = new Lease();
    const ref = { scope: { namespace: namespace.split('.'), key }, lease_key: crypto.randomUUID() };
    const waitUntil = clock() + wait;
    Object.assign(lease, { stub, ref, duration, margin: duration / 5, lostBecause: null, isReleased: false });
    lease.aborter = new AbortController();
    lease.signal = lease.aborter.signal;
    for (let isRepeated = false; ; ) {
      const sent = clock();
      const left = Math.max(waitUntil - sent, 0);
      const request = { ...ref, owner, duration: durationOf(duration), wait: durationOf(left) };
      try {
        const event = await grantOf(stub, request, inSeconds(left + 10));
        lease.token = event.granted.token;
        lease.deadline = sent + secondsOf(event.waited) + secondsOf(event.granted.remaining);
        break;
      } catch (error) {
        // The same lease key makes the repetition the same acquisition, with its old place in the queue.
        if (error.code === grpc.status.UNAVAILABLE && clock() < waitUntil + 5) {
          isRepeated = true;
          await sleep(200);
          continue;
        }
        // The daemon granted it, saw the connection break and took the lease back: acquire anew, with a new key.
        if (isRepeated && isEnded(error)) {
          isRepeated = false;
          ref.lease_key = crypto.randomUUID();
          continue;
        }
        const isInDoubt = [grpc.status.UNAVAILABLE, grpc.status.DEADLINE_EXCEEDED].includes(error.code);
        if (isInDoubt) await lease.#sendRelease(clock() + 1, { lease: ref }); // it may have been granted unheard
        throw error;
      }
    }
    lease.renewing = lease.#renew();
    return lease;
  }

  // Until the work must have stopped.
  remaining() {
    return Math.max(this.deadline - this.margin - clock() - STEP, 0);
  }

  isHeld() {
    return !this.signal.aborted && !this.isReleased && this.remaining() > 0;
  }

  // For calls made under the lease.
  callDeadline() {
    return inSeconds(this.remaining()).deadline;
  }

  async #renew() {
    let nextBeat = clock() + this.duration / 3;
    for (;;) {
      // Short: a suspend stops this wait.
      await sleep(Math.min(Math.max(nextBeat - clock(), 0), this.margin / 2) * 1000, null, { ref: false });
      if (this.isReleased) return;
      if (this.remaining() <= 0) return this.#lose('unreachable');
      if (clock() < nextBeat) continue;
      const sent = clock();
      nextBeat = sent + this.duration / 3;
      try {
        // An answer that got lost must not cost the lease: hence the short patience.
        const patience = Math.min(this.remaining(), this.duration / 6);
        const beat = (await call(this.stub, 'Heartbeat', { leases: [this.ref] }, inSeconds(patience))).results[0];
        if (this.isReleased) return;
        if (beat.outcome === 'OUTCOME_LOST') return this.#lose(beat.end_reason.slice('END_REASON_'.length).toLowerCase());
        if (beat.outcome !== 'OUTCOME_OK') nextBeat = clock() + 0.1;
        // An answer that was read too late saves nothing.
        else if (this.remaining() > 0) this.deadline = sent + secondsOf(beat.remaining);
      } catch {
        nextBeat = clock() + 0.1; // one failed renewal is no loss; the deadline is
      }
    }
  }

  #lose(reason) {
    this.lostBecause = reason;
    this.aborter.abort(reason);
  }

  // True: given back. False: it had been lost before. Renewals end first.
  async release(result = '', failure = null) {
    if (this.signal.aborted || this.isReleased) return false;
    this.isReleased = true;
    return this.#sendRelease(this.deadline, { lease: this.ref, ...(failure === null ? { success: result } : { failure }) });
  }

  async #sendRelease(until, item) {
    for (let isRepeated = false; clock() < until; await sleep(100)) {
      try {
        const { results } = await call(this.stub, 'Release', { items: [item] }, inSeconds(until - clock()));
        const { outcome, end_reason: endReason } = results[0];
        // A repeated release whose first answer was lost gets LOST with the reason RELEASED: done.
        const isEndedByUs = ['END_REASON_RELEASED', 'END_REASON_FAILED'].includes(endReason);
        if (outcome !== 'OUTCOME_RETRY') return outcome === 'OUTCOME_OK' || (isRepeated && isEndedByUs);
      } catch {
        isRepeated = true;
      }
    }
    return false; // it ends by its deadline
  }
}

// A stub that leaves a server that hangs, in time for a lease of `duration` seconds: without HTTP/2 keepalive a connection
// to such a server looks healthy for minutes. With several addresses the next one is then used. A tenth: the server may stop just
// before a renewal, a third after the last one; then pass the time to the next ping, that for its answer, and the attempt to
// connect to the same address again.
const newStub = (server, protoDir, duration = 30) => {
  const patience = Math.max(Math.floor((duration * 1000) / 10), 50);
  const options = { includeDirs: [protoDir, '/usr/include'], keepCase: true, longs: String, enums: String, defaults: true, oneofs: true };
  const { leasehold } = grpc.loadPackageDefinition(loader.loadSync('leasehold/v1/leasehold.proto', options));
  return new leasehold.v1.LeaseService(server, grpc.credentials.createInsecure(), {
    'grpc.keepalive_time_ms': patience,
    'grpc.keepalive_timeout_ms': patience,
    'grpc.keepalive_permit_without_calls': 1,
    'grpc.max_reconnect_backoff_ms': 1000,
  });
};

// Hold a lease until SIGTERM; exit status 0 released, 3 held by another, 4 lost.
async function main([server, namespace, key, duration = '30', wait = '0']) {
  const stub = newStub(server, process.env.LEASEHOLD_PROTO, Number(duration));
  let lease;
  try {
    lease = await Lease.acquire(stub, namespace, key, { duration: Number(duration), wait: Number(wait), owner: 'lease_client.js' });
  } catch (error) {
    console.log('refused', grpc.status[error.code], error.details);
    return 3;
  }
  let isStopping = false;
  process.on('SIGTERM', () => { isStopping = true; });
  console.log('acquired', lease.token);
  while (lease.isHeld() && !isStopping) {
    console.log('working');
    await sleep(50);
  }
  if (isStopping && (await lease.release('{"by": "node"}'))) {
    console.log('released');
    return 0;
  }
  await Promise.race([lease.renewing, sleep(lease.margin * 1000)]); // the renewing one says why
  console.log('lost', lease.lostBecause ?? 'deadline', clock() < lease.deadline ? 'in time' : 'late');
  return 4;
}

if (require.main === module) main(process.argv.slice(2)).then((status) => process.exit(status));
module.exports = { Lease, newStub };
