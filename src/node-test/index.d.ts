import type { ClientConfig } from 'pg';

/** Whose answer: of an acquire, of a renewal, of a release. */
export type Verb = 'acquire' | 'renewal' | 'release';

/** A PGlite. Its own types need those of the DOM and of Emscripten. */
export interface Database {
  query<Row = any>(statement: string, values?: any[]): Promise<{ rows: Row[] }>;
  exec(script: string): Promise<unknown>;
  close(): Promise<void>;
}

/** One PGlite with Leasehold's schema, in this process. Makes it, or takes the one that it is given. */
export function start(options?: { db?: Database; sql?: string }): Promise<Kit>;

export class Kit {
  private constructor();
  readonly db: Database;
  /** For one test. Without a name, a namespace that no other test has. */
  world(namespace?: string): World;
  /** Every connection breaks, and PostgreSQL goes on with a new timeline. */
  failOver(): Promise<void>;
  /** Closes the PGlite that start() made. */
  close(): Promise<void>;
}

export class World {
  private constructor();
  readonly namespace: string;
  /** For `new Client({ database })` of leasehold-client and `new Client(database)` of pg. */
  readonly database: ClientConfig;
  /** An administrator ends the lease of this key. False: nobody has it. */
  lose(key: string): Promise<boolean>;
  /** The leases of this namespace, and of those below it, are so much older. Those whose time is over end. */
  pass(ms: number): Promise<void>;
  /** Ends what has expired, as cron does where there is no daemon. */
  reap(): Promise<void>;
  /** The answer of the next one comes that much later. */
  delay(verb: Verb, ms: number): void;
  /** The next one is done, its answer gets lost, and its connection is cut. */
  drop(verb: Verb): void;
  /** No answer arrives any more, until silence(false). */
  silence(isSilent?: boolean): void;
  close(): void;
}
