'use strict';

const { UnavailableError } = require('./errors.js');
const { GivenUp } = require('./given_up.js');
const { Releaser } = require('./releaser.js');
const { combined } = require('./scopes.js');
const { apart } = require('./telemetry.js');
const { clock } = require('./time.js');

const MOST_IN_REQUEST = 10000; // leases
const RETRY_AFTER_MS = 100;

/** Renews all leases of a client, in one request at a time. Its timer does not keep the process alive. */
class Renewer {
  #leases = new Set();
  #timer = null;
  #wakeAt = Infinity;
  #isAsking = false;

  constructor(transport, patienceMs, warn, retries) {
    this.transport = transport;
    this.patienceMs = patienceMs;
    this.warn = warn;
    this.retries = retries;
    this.releaser = new Releaser(transport, patienceMs, warn);
    this.givenUp = new GivenUp(transport, patienceMs);
  }

  get leases() {
    return [...this.#leases];
  }

  add(lease) {
    this.#leases.add(lease);
    lease._request.story.granted(lease.token);
    if (!lease._isGranted) lease._request.onGranted?.(lease);
    lease._isGranted = true;
    this.#arm(Math.min(lease._next, clock() + lease.durationMs / 10));
    if (lease._tie) this.#follow(lease);
  }

  drop(lease) {
    this.#leases.delete(lease);
    if (this.#leases.size === 0) this.#disarm();
  }

  #disarm() {
    clearTimeout(this.#timer);
    this.#wakeAt = Infinity;
  }

  #arm(at) {
    if (at >= this.#wakeAt) return;
    clearTimeout(this.#timer);
    this.#wakeAt = at;
    this.#timer = setTimeout(() => apart(() => this.#wake()), Math.max(at - clock(), 0)).unref();
  }

  #wake() {
    this.notice();
    this.#disarm();
    this.#look();
  }

  /** Says so if the event loop kept this waiting for so long that renewals were late. */
  notice() {
    const late = clock() - this.#wakeAt;
    const leases = this.leases;
    if (late <= Math.min(...leases.map((lease) => lease.durationMs)) / 6) return;
    this.#wakeAt = clock();
    const words = `the event loop did not run for ${(late / 1000).toFixed(1)} s; leases could not be renewed meanwhile`;
    for (const lease of leases) lease._trouble = words;
    this.warn(words);
  }

  /** Tells holders whose time is over, sends a request if one is due, and sees to it that it looks again. */
  #look() {
    const now = clock();
    for (const lease of this.leases) lease._expire();
    if (!this.#isAsking && this.leases.some((lease) => lease._isRenewed && lease._next <= now)) this.#ask(now);
    for (const lease of this.leases) {
      // A part of the margin at the most: timers do not run while the machine is suspended.
      this.#arm(Math.min(now + lease.durationMs / 10, lease._stop));
      if (lease._isRenewed && !this.#isAsking) this.#arm(lease._next);
    }
  }

  /** Renews what is due, and what will be soon. */
  #ask(now) {
    const leases = this.leases
      .filter((lease) => lease._isRenewed && lease._next <= now + lease.durationMs / 6)
      .sort((a, b) => a._next - b._next);
    for (let size = 0, n = 0; n < leases.length; n++) {
      size += leases[n]._refs.length;
      if (size > MOST_IN_REQUEST) leases.length = n;
    }
    // An answer that got lost must not cost the lease.
    const patience = leases.map((lease) => Math.max(Math.min(lease.durationMs / 6, lease._stop - now), 10));
    this.#isAsking = true;
    let at = 0;
    const asked = this.transport.heartbeat(leases.flatMap((lease) => lease._refs), Math.min(this.patienceMs, ...patience)).then(
      (beats) => this.#answered(now, leases, leases.map((lease) => combined(beats.slice(at, (at += lease._refs.length))))),
      (error) => this.#answered(now, leases, null, error),
    );
    for (const lease of leases) lease._asked = asked;
  }

  #answered(sent, leases, beats, error) {
    this.#isAsking = false;
    leases.forEach((lease, n) => {
      lease._asked = null;
      if (!lease.isHeld()) return; // an answer that was read too late saves nothing
      if (beats?.[n].outcome === 'ok') {
        lease._deadline = sent + beats[n].remainingMs;
        lease._isFinal = beats[n].isFinal;
        lease._next = sent + lease.durationMs / 3;
        lease._trouble = '';
        lease._request.onRenewed?.(lease);
        lease._wasAsked(beats[n].asked);
        this.#tie(lease);
      } else if (beats?.[n].outcome === 'lost') {
        // Nobody else has its lease key: the daemon ended it because its stream broke.
        const isCut = ['released', 'failed'].includes(beats[n].reason) && lease._request.isHold && !lease._tie;
        if (lease._isRenewed) lease._lose(isCut ? 'unreachable' : beats[n].reason, beats[n].message); // else its release tells
      } else {
        // One renewal that failed is no loss; the deadline is.
        lease._trouble = error?.message ?? beats[n].message;
        lease._next = clock() + Math.min(RETRY_AFTER_MS, lease.durationMs / 20);
      }
    });
    this.#look();
  }

  /** A leader's stream is made again after it broke. */
  #tie(lease) {
    if (!lease._tie && lease._request.isHold && lease._isRenewed && this.transport.tie) {
      try {
        lease._tie = this.transport.tie(lease._request);
      } catch (error) {
        if (!(error instanceof UnavailableError)) throw error;
        return; // such as a token file that is being written; the next renewal tries again
      }
      this.#follow(lease);
    }
  }

  #follow(lease) {
    const tie = lease._tie;
    tie.isWorking = () => lease._isWorking;
    tie.onAsked = (request) => lease._wasAsked(request);
    tie.onEnd((reason) => {
      if (lease._tie === tie) lease._tie = null;
      if (!this.#leases.has(lease) || !lease._isRenewed) return;
      if (reason) return lease._lose(reason);
      lease._next = Math.min(lease._next, clock() + RETRY_AFTER_MS); // has it ended with the stream?
      this.#arm(lease._next);
    });
  }
}

module.exports = { Renewer };
