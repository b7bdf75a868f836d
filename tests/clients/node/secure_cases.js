'use strict';

// The cases about TLS and tokens, against the daemon of tests/clients/secure.py.

const assert = require('node:assert/strict');
const leasehold = require('leasehold-client');
const { wait } = require('./site.js');

/** `token` and what is in `tls` are names of its facts. */
async function clientOf(site, { token, ...tls } = {}) {
  const facts = await site.secure();
  const named = Object.fromEntries(Object.entries({ caFile: 'ca', ...tls }).map(([name, value]) => [name, facts[value] ?? value]));
  return site.client(facts.target, { patienceMs: 10000, tls: named, ...(token && { tokenFile: facts[token] }) });
}

async function holdsAs(site, client, principal) {
  const row = (columns) => site.psql(`select ${columns} from leasehold.scope where namespace = 'secure' and key = '${site.key}'`);
  await client.withLease('secure', site.key, { durationMs: 12000 }, async (lease) => {
    assert.equal(await row('principal, token'), `${principal}|${lease.token}`);
    await wait('two renewals', async () => Number(await row('heartbeats')) >= 2);
    lease.check();
  });
  assert.equal(await row('state, last_outcome'), 'free|ok');
}

async function refusal(site, client, kind) {
  const error = await client.acquire('secure', site.key).then(() => assert.fail('it is acquired'), (found) => found);
  assert.ok(error instanceof kind, error);
  return error;
}

/** On a slow machine the first handshake may pass its time before it fails. */
async function isUnavailable(site, word, tls) {
  const client = await clientOf(site, { token: 'worker', ...tls });
  await wait(word, async () => (await refusal(site, client, leasehold.UnavailableError)).message.includes(word));
}

module.exports = {
  async certificate_is_the_principal(site) {
    await holdsAs(site, await clientOf(site, { certFile: 'cert', keyFile: 'key' }), 'dns:worker');
  },
  async token_is_the_principal(site) {
    await holdsAs(site, await clientOf(site, { token: 'worker' }), 'token:worker');
  },
  async wrong_authority_is_named(site) {
    await isUnavailable(site, 'certificate', { caFile: 'other_ca' });
  },
  async wrong_server_name_is_named(site) {
    await isUnavailable(site, 'leases.example', { serverName: 'leases.example' });
  },
  async revoked_token_is_denied(site) {
    assert.equal((await refusal(site, await clientOf(site, { token: 'revoked' }), leasehold.DeniedError)).reason, 'UNAUTHENTICATED');
  },
  async missing_right_is_denied(site) {
    const error = await refusal(site, await clientOf(site, { token: 'stranger' }), leasehold.DeniedError);
    assert.equal(error.reason, 'ACCESS_DENIED');
    assert.ok(error.message.includes('token:stranger') && error.message.includes('right lease'), error.message);
  },
};
