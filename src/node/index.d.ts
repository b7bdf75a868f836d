/// <reference lib="esnext.disposable" />

/** What `pg`'s Client takes: host, port, database, user, password, ssl and so on. `pg` is optional, and so are its types. */
export type DatabaseConfig = Record<string, any>;

export interface TlsFiles {
  /** PEM files; they may be replaced at any time. Without caFile the system's authorities count. */
  caFile?: string;
  certFile?: string;
  keyFile?: string;
  /** The name that the server's certificate must be for; default: the address's host. */
  serverName?: string;
}

export interface ClientOptions {
  /** "HOST:PORT" or "unix:/path", with commas between; default: LEASEHOLD_SERVER, or 127.0.0.1:7420. */
  server?: string;
  /** For leases in SQL, without a daemon: a connection URL, or what `pg` takes. Not together with `server`. */
  database?: string | DatabaseConfig;
  /** Names the holder for people; default: host and pid. At most 255 bytes. */
  owner?: string;
  /** Default: LEASEHOLD_CA, LEASEHOLD_CERT, LEASEHOLD_KEY and LEASEHOLD_SERVER_NAME. */
  tls?: TlsFiles;
  /** A file with a bearer token, read for each call; default: LEASEHOLD_TOKEN_FILE. */
  tokenFile?: string;
  /** How long one server may stay silent before the next is tried, and how long an acquire goes on without any; default 5000. */
  patienceMs?: number;
  /** In SQL: how often a waiter looks although no notification has come; default 5000. */
  pollMs?: number;
  /** Gets the few sentences for the operator; default: process.emitWarning. */
  warn?: (words: string) => void;
  /** Decides about retries; default: bestEffort. A request's own counts before it. Renewals go on whatever it says. */
  strategy?: Strategy;
  /** Gets each retry and each refusal; default: NODE_DEBUG=leasehold shows them. */
  retryLog?: (step: RetryStep) => void;
}

/** Why an attempt failed, as in leasehold_retry.h. BLOCKING_TIMEOUT and SHUTTING_DOWN are repeated whatever the strategy says. */
export type RetryReason =
  | 'UNKNOWN' | 'SOCKET_NOT_AVAILABLE' | 'ENDPOINT_NOT_AVAILABLE' | 'SOCKET_CLOSED_WHILE_IN_FLIGHT' | 'CIRCUIT_BREAKER_OPEN' | 'BLOCKING_TIMEOUT'
  | 'SHUTTING_DOWN' | 'DATABASE_UNAVAILABLE' | 'OVERLOADED' | 'SCOPE_BUSY' | 'OUTCOME_RETRY' | 'LEASE_HELD' | 'RETRY_INFO';

/** A request whose attempt has failed. All requests are idempotent by their lease keys. */
export interface Retry {
  verb: 'Acquire' | 'AcquireAll' | 'ClaimTick' | 'Downgrade' | 'Release' | 'Explain' | 'AskHandOver' | 'RefuseHandOver';
  namespace: string;
  /** Of several the first. */
  key: string;
  reason: RetryReason;
  error: LeaseholdError;
  /** So far. */
  attempts: number;
  /** That the backoff counts, from 1 on: a wait that the server cut begins anew. */
  failures: number;
  /** So far, each once. */
  reasons: RetryReason[];
  /** Of the request's time; Infinity: no limit. */
  remainingMs: number;
  /** The server's RetryInfo; 0: none. */
  retryAfterMs: number;
}

/** Milliseconds until the next attempt; null: the request fails with the error, as it does when the delay is longer than remainingMs. */
export type Strategy = (retry: Retry) => number | null;

/** What was decided; delayMs null: no attempt follows. */
export interface RetryStep extends Retry {
  delayMs: number | null;
}

/** The default: repeats all but LEASE_HELD, after 1, 2, 4 ... 256, 500 ms. */
export const bestEffort: Strategy;
/** Repeats nothing. */
export const failFast: Strategy;
/** 1, 10, 50, 100, 500, then 1000 ms. */
export function controlledBackoff(failures: number): number;

export interface Contention {
  /** The owner of the lease that is waited for, the oldest of several; null: the scope is free, and others wait for it. */
  holder: string | null;
  holderCount: number;
  /** Of the capacity for shared leases; null: there is none. */
  unitsFree: number | null;
  /** Waiters ahead of this one. */
  ahead: number;
  /** Whether the holder renews; null: it is not held, or the server did not say, as with the next two. */
  isAlive?: boolean | null;
  /** Since the holder's last renewal. */
  silentMs?: number | null;
  /** Since it was acquired. */
  heldMs?: number | null;
}

/** Each is called each time; what it throws is a warning. */
export interface Listeners {
  onGranted?: (lease: Lease) => void;
  onRenewed?: (lease: Lease) => void;
  onReleased?: (lease: Lease) => void;
  onLost?: (error: LeaseLostError) => void;
}

/** A request to hand a lease over. It ends with the holder's lease; nothing ends the lease for it. */
export interface HandOver {
  askedAt: Date;
  /** The asker, in its own words. */
  askedBy: string;
  /** The asker, as proved. */
  principal: string;
  /** In the asker's words, at most 1024 bytes. */
  reason: string;
  /** As the policy says, 30 s after askedAt by default. */
  answerBy: Date;
  /** What was left when the server answered; 0: the holder has not answered in time. */
  answerInMs: number;
  /** The holder's words; empty: it has not refused. */
  refusal: string;
  /** Of the lease, as askHandOver tells; so is the next. */
  owner: string;
  /** Null: this caller may not see it. */
  token: bigint | null;
}

export interface AcquireOptions extends Listeners {
  /** While it waits, it asks each holder before it to hand the lease over, once. */
  askHandOver?: boolean;
  /** Called once for each request to hand the lease over: release it, call refuseHandOver, or let answerInMs pass. What it throws is a warning. */
  onAsked?: (request: HandOver) => void;
  /** How long the lease lives without a renewal; default 30000. It is renewed at a third of it. */
  durationMs?: number;
  /** How long to queue for a lease that is held; default 0, do not wait. Infinity: for ever. */
  waitMs?: number;
  /** Wait as long as the holder is alive; then `waitMs` begins to count. */
  whileAlive?: boolean;
  owner?: string;
  /** Shown with the lease; at most 16. */
  labels?: Record<string, string>;
  /** Leaves room for other shared leases. */
  shared?: boolean;
  /** What a shared lease takes of the capacity that the namespace's policy sets, 1 to 1,000,000; default 1. */
  units?: number;
  /**
   * Of a waiter, 0 to 1000, at most the policy's max_priority (DeniedError above it): a higher one overtakes those who came up to the policy's
   * ageing, 10 s by default, before it for each step. Default 0.
   */
  priority?: number;
  /** Ends the wait. The acquire rejects with the signal's reason, and holds nothing. */
  signal?: AbortSignal;
  /** Nobody else gets the lease before so long after its grant, though it is released or lost earlier; absent: the policy's. At most a day. */
  atLeastMs?: number;
  /** Called while it waits. What it throws is a warning. */
  onQueued?: (contention: Contention) => void;
  /** Decides about the retries of the acquire, and of what is done with its lease, in place of the client's. */
  strategy?: Strategy;
}

export interface WorkOptions extends AcquireOptions {
  /** Ends the wait, and aborts the lease's signal while the work runs. */
  signal?: AbortSignal;
}

export type TickOptions = Pick<WorkOptions, 'onAsked' | 'durationMs' | 'owner' | 'labels' | 'signal' | 'strategy' | keyof Listeners>;

/** An instant of a schedule, and the lease of its work. */
export class Tick {
  private constructor();
  /** What the work is for, whenever it runs. */
  readonly at: Date;
  /** 1 for the first; a tick whose work failed comes again, as the schedule says. */
  readonly attempt: number;
  /** Is renewed while the work runs. Its key is the instant, as in 2026-11-28T03:00:00Z; its result is kept with the tick. */
  readonly lease: Lease;
  /**
   * Runs the work under the lease. Its end makes the tick done. An error in it, or the loss of the lease, makes the tick failed, with the error's
   * words, and is a warning: then this resolves with undefined, and the loop goes on.
   */
  run<T>(work: (lease: Lease) => T | Promise<T>): Promise<T | undefined>;
}

/** One of the keys that are acquired in one step. */
export interface Scope {
  namespace: string;
  key: string;
  shared?: boolean;
  units?: number;
}

export type AllOptions = Pick<WorkOptions, 'durationMs' | 'waitMs' | 'owner' | 'labels' | 'signal' | 'strategy' | keyof Listeners>;

export interface LeadOptions extends Listeners {
  /** As a candidate asks the leader to hand over. */
  askHandOver?: boolean;
  onAsked?: (request: HandOver) => void;
  /** How long a leader that is stopped or cut off is waited for; default 15000. */
  durationMs?: number;
  /** Names the candidate. */
  owner?: string;
  labels?: Record<string, string>;
  atLeastMs?: number;
  priority?: number;
  /** Ends the candidacy, or the leadership: the work's signal aborts. */
  signal?: AbortSignal;
  strategy?: Strategy;
  /** Is told the owner who leads, whenever that changes, this candidate included. What it throws is a warning. */
  onLeader?: (owner: string) => void;
}

export interface Explanation {
  state: 'free' | 'held' | 'shared' | 'resting';
  /** In words. */
  advice: string;
  waiters: number;
  firstWaiter: string | null;
  holders: number;
  /** The owner that the holder named, the oldest of several. */
  holder: string | null;
  /** The holder's, as proved. */
  principal: string | null;
  token: bigint | null;
  liveness: 'alive' | 'suspected_dead' | 'overdue' | 'expired' | null;
  /** The grant; of a free key, the end of the last lease. */
  since: Date | null;
  heartbeats: number | null;
  lastHeartbeatAt: Date | null;
  expiresAt: Date | null;
  mode: 'exclusive' | 'shared' | null;
  /** Taken by all shared holders. */
  units: number | null;
  restsUntil: Date | null;
  /** In force, its settings by name. */
  policy: Record<string, unknown>;
}

export interface WatchOptions {
  key?: string;
  /** And below the namespace. */
  children?: boolean;
  signal?: AbortSignal;
}

export interface LeaseEvent {
  /** `held`: when the watch began; `synced`: that was all. */
  kind: 'held' | 'synced' | 'acquired' | 'downgraded' | 'released' | 'failed' | 'expired' | 'max_hold' | 'forced' | 'unknown';
  namespace: string;
  key: string;
  token: bigint;
  owner: string;
  principal: string;
  mode: 'exclusive' | 'shared';
  units: number;
  /** The administrator's words, of a forced end. */
  reason: string;
  /** JSON, or empty. */
  result: string;
  error: string;
}

export type LostReason = 'expired' | 'forced' | 'released' | 'failed' | 'max_hold' | 'unreachable' | 'closed' | 'unknown';

/** A client of `pg`, with no transaction open; or anything with the same query(text, values). */
export interface Transactional {
  query(text: string, values?: unknown[]): Promise<{ rows: any[] }>;
}

export class Client implements AsyncDisposable {
  /** The addresses of daemons, or options. Nothing connects before the first call. */
  constructor(target?: string | ClientOptions);
  readonly owner: string;

  /** The leases of a namespace, with these options: declare them once, and use them everywhere. Throws InvalidArgumentError. */
  declare(namespace: string, options?: AcquireOptions): Declared;

  /**
   * Leases namespace/key. Rejects with HeldError when another holds it and the wait has passed, UnavailableError, DeniedError,
   * InvalidArgumentError, ClosedError, or the signal's reason.
   */
  acquire(namespace: string, key: string, options?: AcquireOptions): Promise<Lease>;

  /**
   * Runs work under a lease, and releases it with the work's outcome. Rejects as acquire does, with the work's own error, or, as soon as
   * the work has ended, with LeaseLostError if the lease was lost.
   */
  withLease<T>(namespace: string, key: string, options: WorkOptions, work: (lease: Lease) => T | Promise<T>): Promise<T>;
  withLease<T>(namespace: string, key: string, work: (lease: Lease) => T | Promise<T>): Promise<T>;

  /**
   * One lease of several keys, 1 to 100: all are acquired in one step, or none. It is lost as soon as one of them is, and its release releases all.
   * While it waits it holds none of them. In SQL it does not wait.
   */
  acquireAll(scopes: readonly Scope[], options?: AllOptions): Promise<Lease>;
  withAll<T>(scopes: readonly Scope[], options: AllOptions, work: (lease: Lease) => T | Promise<T>): Promise<T>;
  withAll<T>(scopes: readonly Scope[], work: (lease: Lease) => T | Promise<T>): Promise<T>;

  /**
   * In a transaction on a client of `pg`, which this begins, and commits when the work has ended: the lease is held, and renewed, from the
   * commit on. An error of the work's rolls back, and nobody holds it. It does not wait. When the connection breaks at COMMIT it looks the
   * outcome up; UnavailableError with the reason UNKNOWN_OUTCOME: it could not, and gives back what it may have acquired.
   */
  acquireIn(client: Transactional, namespace: string, key: string, options: AcquireOptions, work: (lease: Lease) => unknown): Promise<Lease>;
  acquireIn(client: Transactional, namespace: string, key: string, work: (lease: Lease) => unknown): Promise<Lease>;

  /**
   * Stands for election until it is elected, runs the work, and stands again when leadership was lost meanwhile. The work must end when
   * lease.signal aborts. Resolves with what the work returned when that gave leadership up.
   */
  lead<T>(namespace: string, key: string, options: LeadOptions, work: (lease: Lease) => T | Promise<T>): Promise<T>;
  lead<T>(namespace: string, key: string, work: (lease: Lease) => T | Promise<T>): Promise<T>;

  /**
   * A worker of the schedule: a loop that waits for each next tick, for ever; no other worker gets the same one meanwhile. The end of the loop's
   * body makes the tick done, unless `tick.run(work)` has ended it; leaving the loop before makes it failed. `durationMs` (30000) is the
   * lease's: so long after a worker died another gets its tick. Rejects with InvalidArgumentError where no schedule has the name,
   * DeniedError, ClosedError, or the signal's reason; it waits while no server answers.
   */
  ticks(name: string, options?: TickOptions): AsyncGenerator<Tick, void, void>;

  /**
   * As an administrator, asks the holders of a key to give their leases back, with a reason of up to 1024 bytes. The request of each, with its
   * refusal where there is one: ask again to see it. Nobody holds the key: none.
   */
  askHandOver(namespace: string, key: string, reason?: string): Promise<HandOver[]>;

  /** Who holds the key, whether it is alive, who waits, and what to do. */
  explain(namespace: string, key: string): Promise<Explanation>;

  /**
   * First what is held in the namespace (none: everywhere), then `synced`, then each grant and end. After a connection broke it begins anew, with
   * what is held. Ends when the client is closed; rejects with the signal's reason. Through a server only.
   */
  watch(namespace?: string, options?: WatchOptions): AsyncGenerator<LeaseEvent, void, void>;

  /** Ends all connections. Leases that are still held are lost with the reason `closed`, and end by their deadline. */
  close(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
}

/** As the methods of Client. An option given with a key counts before the declaration's. */
export class Declared {
  private constructor();
  readonly namespace: string;
  acquire(key: string, options?: AcquireOptions): Promise<Lease>;
  withLease<T>(key: string, options: WorkOptions, work: (lease: Lease) => T | Promise<T>): Promise<T>;
  withLease<T>(key: string, work: (lease: Lease) => T | Promise<T>): Promise<T>;
  acquireIn(client: Transactional, key: string, options: AcquireOptions, work: (lease: Lease) => unknown): Promise<Lease>;
  acquireIn(client: Transactional, key: string, work: (lease: Lease) => unknown): Promise<Lease>;
  lead<T>(key: string, options: LeadOptions, work: (lease: Lease) => T | Promise<T>): Promise<T>;
  lead<T>(key: string, work: (lease: Lease) => T | Promise<T>): Promise<T>;
}

export class Lease implements AsyncDisposable {
  private constructor();
  readonly namespace: string;
  readonly key: string;
  readonly owner: string;
  readonly durationMs: number;
  /** The fencing token: it grows with each grant. `downgrade` changes it. */
  readonly token: bigint;
  /** Of a lease of several keys, one for each in their order; else `token` alone. */
  readonly tokens: readonly bigint[];
  readonly mode: 'exclusive' | 'shared';
  /** Of the capacity, of a shared lease; 0: an exclusive one has all of it. */
  readonly units: number;
  /** Of a shared lease where there is a capacity: `units` numbers from 1 to the capacity that no other holder has, ascending. */
  readonly slots: readonly number[];
  /** What the end of the work releases the lease with, as JSON; at most 8 KiB. */
  result: unknown;
  /** Aborts once, when the lease is lost, a fifth of its duration before its deadline at the latest. The reason is the LeaseLostError. */
  readonly signal: AbortSignal;
  /** Null while it is held, and after it was released. */
  readonly lost: LeaseLostError | null;

  /** Until the work must have stopped, if the lease is not renewed again; 0 when it is not held. */
  remainingMs(): number;
  isHeld(): boolean;
  /** Throws LeaseLostError once the lease is lost or released. */
  check(): void;
  /**
   * In a transaction of yours: until it ends, nobody else gets the lease. Rejects with LeaseLostError when it is not held.
   * Takes a client of `pg`, or anything with the same query(text, values).
   */
  guard(client: { query(text: string, values: unknown[]): Promise<unknown> }): Promise<void>;
  /**
   * Makes an exclusive lease shared in one step: shared requests that wait behind it are let in, and no exclusive one comes between. A shared
   * lease gives units back. The lease goes on under another token. Rejects with LeaseLostError when it is lost, and with UnavailableError
   * when nothing was answered within `patienceMs`: then it may have been done, and may be called again.
   */
  downgrade(units?: number): Promise<void>;
  /**
   * Answers a request to hand the lease over; the asker reads the words, 1 to 1024 bytes. The first ones stay. False: nobody has asked.
   */
  refuseHandOver(words: string): Promise<boolean>;
  /** Gives the lease back, with a result or as failed. Rejects with LeaseLostError if it was lost before. */
  release(outcome?: { result?: unknown; failure?: unknown }): Promise<void>;
  /**
   * As release, without waiting: from now on the lease is not held, and the client releases it in the background, all of its kind in one
   * request, until its deadline; `close` sends what is left for a second. What is not delivered is a warning, and ends by its deadline.
   * False: it was not held any more.
   */
  tryRelease(outcome?: { result?: unknown; failure?: unknown }): boolean;
  /**
   * Releases in a transaction on a client of `pg`, which this begins, and commits when the work has ended; resolves with what that returned.
   * An error rolls back: then the lease goes on, and is renewed. When the connection breaks at COMMIT it looks the outcome up;
   * UnavailableError with the reason UNKNOWN_OUTCOME: it could not, and the lease counts as lost.
   */
  releaseIn<T>(client: Transactional, outcome: { result?: unknown; failure?: unknown }, work: (lease: Lease) => T | Promise<T>): Promise<T>;
  releaseIn<T>(client: Transactional, work: (lease: Lease) => T | Promise<T>): Promise<T>;
  /** Releases. A loss is an error here too. */
  [Symbol.asyncDispose](): Promise<void>;
}

/**
 * In the work of withLease, withAll or lead: the present deadline of the lease, and of those around it, for one call to another service, as in
 * `stub.pay(request, { deadline: deadline() })`: gRPC sends it as grpc-timeout. A later renewal does not move it. Elsewhere: Infinity. An acquire in
 * such work rejects when one of these leases is lost.
 */
export function deadline(): Date | number;

export interface StaleLease {
  namespace: string;
  key: string;
  owner: string | null;
  token: bigint;
  /** By the database's clock, as the deadline. */
  acquiredAt: Date;
  deadline: Date;
  /** For the callback: hook_timeout of the policy; 0: none. */
  limitMs: number;
}

/**
 * Ends each expired lease of these namespaces (none: of all but those with reaper = external; children: and below them) in a transaction of its own on
 * a client of `pg`, in which the callback is called, after the hooks in SQL. What the callback does on that client commits with the end. What it throws
 * rolls both back and is written down in leasehold.reap_failure; other leases go on. What was not committed may be called again. The role is a member
 * of leasehold_admin or leasehold_coordinator.
 */
export function reapStale(
  client: Transactional, callback: (lease: StaleLease) => unknown, options?: { namespaces?: readonly string[]; children?: boolean },
): Promise<{ ended: number; failed: number }>;

export class LeaseholdError extends Error {
  readonly code: string;
}
/** Another holds the lease, or waits for it, and the wait has passed. */
export class HeldError extends LeaseholdError implements Contention {
  readonly code: 'LEASEHOLD_HELD';
  readonly holder: string | null;
  readonly ahead: number;
  readonly holderCount: number;
  readonly unitsFree: number | null;
  readonly isAlive: boolean | null;
  readonly silentMs: number | null;
  readonly heldMs: number | null;
  readonly reason: 'LEASE_HELD' | 'WAIT_TIMEOUT' | 'SCOPE_BUSY';
}
/** The lease ended before it was released. */
export class LeaseLostError extends LeaseholdError {
  readonly code: 'LEASEHOLD_LOST';
  readonly reason: LostReason;
}
/** The coordinator refuses. */
export class DeniedError extends LeaseholdError {
  readonly code: 'LEASEHOLD_DENIED';
  /** NAMESPACE_FROZEN, QUOTA_EXCEEDED, HOOK_REJECTED, ACCESS_DENIED, UNAUTHENTICATED, LEASE_ENDED, a code of gRPC, or an SQLSTATE. */
  readonly reason: string;
}
/** No server answered in time. Nothing is known to be lost. */
export class UnavailableError extends LeaseholdError {
  readonly code: 'LEASEHOLD_UNAVAILABLE';
  /** UNKNOWN_OUTCOME: of a transaction whose COMMIT was not answered, and could not be looked up. */
  readonly reason: RetryReason | 'UNKNOWN_OUTCOME';
  /** As the server says; 0: it does not. */
  readonly retryAfterMs: number;
}
export class ClosedError extends LeaseholdError {
  readonly code: 'LEASEHOLD_CLOSED';
}
/** An argument is out of bounds. */
export class InvalidArgumentError extends RangeError {
  readonly code: 'LEASEHOLD_INVALID_ARGUMENT';
  readonly field: string;
  readonly bound: string;
}
