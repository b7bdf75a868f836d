// Compiled only. What a user writes, and what the types must refuse.
import { Client as Pg } from 'pg';
import { bestEffort, Client, controlledBackoff, deadline, reapStale, type Declared, HeldError, LeaseLostError, type Lease, type Strategy } from 'leasehold-client';
import { start, type Verb } from 'leasehold-test';

export async function main(): Promise<number> {
  await using client = new Client('127.0.0.1:7420');
  await using lease: Lease = await client.acquire('payments', 'inv-42', { durationMs: 30_000, waitMs: 5_000, signal: AbortSignal.timeout(9) });
  lease.result = { rows: 3 };
  const token: bigint = lease.token;
  const readers = await client.acquire('reports', 'sales', { shared: true, units: 2 });
  await readers.downgrade();
  const slots: readonly number[] = readers.mode === 'shared' ? readers.slots : [readers.units];
  const pg = new Pg();
  await lease.guard(pg);
  const begun: Lease = await client.acquireIn(pg, 'calls', '42', { durationMs: 9_000 }, ({ token }) => pg.query('update call set token = $1', [token]));
  const done: number = await begun.releaseIn(pg, { result: 3 }, async () => 3);
  void done;
  const deploy: Declared = client.declare('deploy', { durationMs: 9_000 });
  const released: number = await deploy.withLease('web', { waitMs: 5 }, () => 3);
  void released;
  const both: Lease = await client.acquireAll([{ namespace: 'a', key: 'b' }, { namespace: 'a', key: 'c', shared: true, units: 2 }], { waitMs: 5 });
  const tokens: readonly bigint[] = await client.withAll([{ namespace: 'a', key: 'b' }], ({ tokens }) => tokens);
  void [both.tryRelease({ result: 3 }) satisfies boolean, tokens];
  for await (const { kind, token, key } of client.watch('payments', { children: true })) if (kind === 'forced') console.log(key, token + 1n);
  for await (const tick of client.ticks('reports.nightly', { durationMs: 60_000 })) {
    const rows: number | undefined = await tick.run(async (lease) => tick.at.getTime() + tick.attempt + Number(lease.token));
    if (rows) break;
  }
  const { state, expiresAt, advice } = await client.explain('payments', 'inv-42');
  void [state === 'held', expiresAt?.getTime(), advice.length];
  const { ended }: { ended: number } = await reapStale(pg, ({ key, token }) => pg.query('select $1, $2', [key, token]), { namespaces: ['calls'] });
  await client.acquire('payments', 'inv-43', { onRenewed: ({ token }) => console.log(token), onLost: ({ reason }) => console.log(reason, ended) });
  const patient: Strategy = (retry) => (retry.reason === 'OVERLOADED' ? controlledBackoff(retry.failures) : bestEffort(retry));
  await new Client({ strategy: patient, retryLog: ({ delayMs }) => console.log(delayMs ?? 0) }).acquire('payments', 'inv-44', { strategy: patient });
  const until: Date | number = deadline();
  void until;
  const over = new Client({ database: { host: '/run/postgresql' }, warn: console.error });
  try {
    await over.lead('api', 'scheduler', { onLeader: (owner: string) => console.log(owner) }, async (leadership) => leadership.check());
  } catch (error) {
    if (error instanceof HeldError) console.log(error.holder?.length, error.ahead + error.holderCount, error.unitsFree ?? 'no capacity');
    if (error instanceof LeaseLostError && error.reason === 'forced') console.log(error.code === 'LEASEHOLD_LOST');
  }
  // @ts-expect-error a number of seconds has another name here
  await client.acquire('payments', 'inv-42', { duration: 30 });
  // @ts-expect-error there is no third mode
  void (readers.mode === 'upgraded');
  // @ts-expect-error only the package makes leases
  void (() => new Lease());
  // @ts-expect-error no such reason
  const never = (error: LeaseLostError): boolean => error.reason === 'stolen';
  void [token, never, slots];
  return client.withLease('payments', 'inv-42', () => 3);
}

export async function testing(): Promise<void> {
  const kit = await start();
  const world = kit.world();
  await using client = new Client({ database: world.database });
  const pg = new Pg(world.database);
  const verb: Verb = 'renewal';
  world.delay(verb, 500);
  // @ts-expect-error the verbs are acquire, renewal and release
  world.drop('heartbeat');
  const wasHeld: boolean = await world.lose('inv-42');
  void [client, pg, wasHeld];
}
