// Compiled with strict and every library checked, without the types of pg.
import { Client, HeldError, LeaseLostError, UnavailableError, type ClientOptions, type Lease } from 'leasehold-client';

const options: ClientOptions = { database: { host: '/run/postgresql', application_name: 'app', ssl: { rejectUnauthorized: true } } };

export async function main(client = new Client(options)): Promise<string> {
  try {
    return await client.withLease('payments', 'inv-42', { waitMs: 5_000 }, (lease: Lease) => String(lease.token));
  } catch (error) {
    if (error instanceof HeldError) return error.holder ?? 'nobody';
    if (error instanceof LeaseLostError || error instanceof UnavailableError) return error.code;
    throw error;
  }
}
