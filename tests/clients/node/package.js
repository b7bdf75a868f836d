'use strict';

// What is this package's own: import, TLS and tokens, the event loop that is blocked, await using.

const assert = require('node:assert/strict');
const { execFileSync } = require('node:child_process');
const fs = require('node:fs');
const path = require('node:path');
const { test } = require('node:test');
const grpc = require('@grpc/grpc-js');
const { Client, InvalidArgumentError, UnavailableError, DeniedError, Lease } = require('leasehold-client');
const { Site } = require('./site.js');

const scratch = fs.mkdtempSync(path.join(__dirname, 'files-'));
const at = (name) => path.join(scratch, name);

function say(name, body) {
  return test(name, async (t) => {
    let isGood = false;
    try {
      await body(t);
      isGood = true;
    } finally {
      console.log(`test ${name.replaceAll(' ', '_')} ${isGood ? 'passed' : 'failed'}`);
    }
  });
}

/** A server that refuses every call, and remembers the token that came with it. */
async function recorder(credentials = grpc.ServerCredentials.createInsecure(), refusal = { code: grpc.status.PERMISSION_DENIED, details: 'no' }) {
  const { LeaseService } = grpc.loadPackageDefinition(require('@grpc/proto-loader').fromJSON(require('leasehold-client/lib/leasehold.json'))).leasehold.v1;
  const tokens = [];
  const server = new grpc.Server();
  server.addService(LeaseService.service, {
    AcquireStream(call) {
      tokens.push(call.metadata.get('authorization')[0]);
      call.emit('error', refusal);
    },
  });
  const port = await new Promise((resolve, reject) => {
    server.bindAsync('127.0.0.1:0', credentials, (error, bound) => (error ? reject(error) : resolve(bound)));
  });
  return { tokens, port, close: () => server.forceShutdown() };
}

say('the example of the page works', async () => {
  const site = await Site.make('grpc', 'page');
  const page = fs.readFileSync(path.join(process.env.LEASEHOLD_NODE_PACKAGE, 'README.md'), 'utf8');
  const example = /```js\n([^]*?)```/.exec(page)[1].replace('127.0.0.1:7420', site.target);
  const paid = [];
  const AsyncFunction = (async () => {}).constructor;
  await new AsyncFunction('require', 'pay', `${example}; await client.close();`)(require, async (token, { signal }) => paid.push(token, signal.aborted));
  assert.deepEqual([typeof paid[0], paid[1]], ['bigint', false]);
});

say('a token is sent and read again', async () => {
  const server = await recorder();
  await using_(new Client({ server: `127.0.0.1:${server.port}`, tokenFile: at('token') }), async (client) => {
    for (const token of ['first', 'second']) {
      fs.writeFileSync(at('token'), `${token}\n`);
      await assert.rejects(client.acquire('a', 'k'), DeniedError);
    }
  });
  assert.deepEqual(server.tokens, ['Bearer first', 'Bearer second']);
  server.close();
});

say('a socket that breaks below grpc-js sends the request to the next address', async () => {
  const details = 'Received RST_STREAM with code 2 triggered by internal client error: write EPIPE';
  const broken = await recorder(undefined, { code: grpc.status.INTERNAL, details });
  const next = await recorder();
  await using_(new Client({ server: `127.0.0.1:${broken.port},127.0.0.1:${next.port}` }), async (client) => {
    await assert.rejects(client.acquire('a', 'k', { waitMs: 60000 }), DeniedError);
  });
  assert.deepEqual([broken.tokens.length, next.tokens.length], [1, 1]);
  broken.close();
  next.close();
});

say('what is in doubt keeps no process alive', () => {
  const program = `
    const { GivenUp } = require('leasehold-client/lib/given_up.js');
    const transport = { releaseAll: async (items) => items.map(() => ({ outcome: 'lost', reason: 'unknown' })) };
    new GivenUp(transport, 1000).add([{}], 3600000).then(() => console.log('answered'));`;
  assert.equal(execFileSync(process.execPath, ['-e', program], { cwd: __dirname, encoding: 'utf8', timeout: 60000 }), 'answered\n');
});

say('a database that pg does not take is named', async () => {
  const urls = ['postgresql://u:secret@a:5432,b:5432/app', 'postgresql://u:secret@a,b/app?sslmode=require', { host: 'a,b', password: 'secret' }, 'postgresql://u:secret@a:b/app'];
  for (const database of urls) {
    const acquire = async () => {
      await using_(new Client({ database }), (client) => client.acquire('a', 'k'));
    };
    await assert.rejects(acquire(), (error) => {
      assert.ok(error instanceof InvalidArgumentError && error.field === 'database', error);
      assert.match(error.message, /^database must (name one host|be what pg takes)/);
      assert.doesNotMatch(error.message, /secret/);
      return true;
    });
  }
});

say('many acquires that wait are no leak', async () => {
  const warnings = [];
  const hear = (warning) => warnings.push(warning.name);
  process.on('warning', hear);
  const client = new Client({ server: '127.0.0.1:1', patienceMs: 60000 });
  const waiting = Promise.allSettled(Array.from({ length: 30 }, (_, n) => client.acquire('many', `k${n}`, { waitMs: Infinity })));
  await new Promise(setImmediate);
  await client.close();
  assert.ok((await waiting).every(({ reason }) => reason.code === 'LEASEHOLD_CLOSED'));
  process.off('warning', hear);
  assert.deepEqual(warnings.filter((name) => name === 'MaxListenersExceededWarning'), []);
});

say('TLS with certificates that are replaced', async () => {
  for (const name of ['good', 'other']) {
    execFileSync('openssl', ['req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes', '-days', '2', '-subj', `/CN=${name}`,
      '-addext', 'subjectAltName=DNS:leasehold.test', '-keyout', at(`${name}.key`), '-out', at(`${name}.pem`)], { stdio: 'pipe' });
  }
  const pair = { cert_chain: fs.readFileSync(at('good.pem')), private_key: fs.readFileSync(at('good.key')) };
  const server = await recorder(grpc.ServerCredentials.createSsl(null, [pair]));
  fs.copyFileSync(at('other.pem'), at('used.pem'));
  const tls = { caFile: at('used.pem'), serverName: 'leasehold.test' };
  await using_(new Client({ server: `127.0.0.1:${server.port}`, tls, patienceMs: 1000 }), async (client) => {
    await assert.rejects(client.acquire('a', 'k'), UnavailableError);
    fs.rmSync(at('used.pem'));
    await assert.rejects(client.acquire('a', 'k'), /credentials: .*used\.pem/);
    assert.equal(server.tokens.length, 0);
    fs.copyFileSync(at('good.pem'), at('used.pem'));
    await assert.rejects(client.acquire('a', 'k', { waitMs: 60000 }), DeniedError);
  });
  assert.ok(server.tokens.length > 0);
  server.close();
});

for (const on of ['grpc', 'sql']) {
  say(`a namespace with a slash stands in quotes on ${on}`, async () => {
    const site = await Site.make(on, 'slash');
    const name = `"cases/slash"/${site.key} `;
    const lease = await site.client().acquire('cases/slash', site.key, { durationMs: 9000 });
    await assert.rejects(site.client().acquire('cases/slash', site.key), ({ message }) => message.includes(name));
    await site.psql(`select from leasehold.force_release('cases/slash', '${site.key}', 'a test')`);
    assert.equal(await site.lost(lease), 'forced');
    assert.throws(() => lease.check(), ({ message }) => message.includes(name));
    await site.close();
  });

  say(`await using releases on ${on}`, async () => {
    const site = await Site.make(on, 'using');
    const lease = await site.acquire(site.client());
    const dispose = Object.getOwnPropertySymbols(Lease.prototype).find((each) => /asyncDispose/.test(String(each)));
    lease.result = { rows: 3 };
    await lease[dispose]();
    assert.equal(await site.row("state, last_result ->> 'rows'"), 'free|3');
    const other = await site.acquire(site.client());
    await site.force();
    await assert.rejects(other[dispose](), { code: 'LEASEHOLD_LOST', reason: 'forced' });
    await site.close();
  });

  say(`a result that is no JSON releases the lease as failed on ${on}`, async () => {
    const site = await Site.make(on, 'json');
    const client = site.client();
    await assert.rejects((await site.acquire(client)).release({ result: { n: 1n } }), TypeError);
    assert.equal(await site.row('state, last_outcome'), 'free|failed');
    await assert.rejects((await site.acquire(client)).release({ result: 'x'.repeat(9000) }), InvalidArgumentError);
    assert.equal(await site.row('state, last_outcome'), 'free|failed');
    await site.close();
  });
}

async function using_(client, use) {
  try {
    await use(client);
  } finally {
    await client.close();
  }
}

process.on('exit', () => fs.rmSync(scratch, { recursive: true }));

say('an acquire behind its own release looks at its keys alone', async () => {
  const { Releaser } = require('leasehold-client/lib/releaser.js');
  let looked = 0;
  let answer;
  const releaser = new Releaser({ releaseAll: (items) => new Promise((resolve) => { answer = () => resolve(items.map(() => ({ outcome: 'ok' }))); }) }, 60000);
  const refOf = (key) => ({ get namespace() { looked += 1; return 'a'; }, key });
  for (let n = 0; n < 2000; n++) releaser.add([refOf(`k${n}`), refOf(`k${n}`)], { _request: {}, _told() {} }, {});
  looked = 0;
  for (let n = 0; n < 100; n++) await releaser.follow([{ namespace: 'a', key: `other${n}` }]);
  assert.equal(looked, 0);
  const followed = releaser.follow([{ namespace: 'a', key: 'k7' }]);
  while (!answer) await new Promise(setImmediate);
  answer();
  await followed;
});
