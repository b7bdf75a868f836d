'use strict';

// What OpenTelemetry's real SDK hears of leases that end in each way; and where the API is not installed, that nothing of it is loaded.

const assert = require('node:assert/strict');
const { test } = require('node:test');
const { Client, HeldError, UnavailableError } = require('leasehold-client');
const { Site, wait } = require('./site.js');

const [, , on, libraries] = process.argv;

async function scenario(site, client, nowhere) {
  const { namespace } = site;
  let renewed = false;
  await client.withLease(namespace, 'plain', { durationMs: 9000, onRenewed: () => (renewed = true) }, async () => {
    await assert.rejects(client.acquire(namespace, 'plain'), HeldError);
    await wait('a renewal', () => renewed);
  });
  const forced = await client.acquire(namespace, 'forced', { durationMs: 9000 });
  await site.psql(`select leasehold.force_release('${namespace}', 'forced', 'a test')`);
  await wait('the loss', () => forced.lost);
  await assert.rejects(nowhere.acquire(namespace, 'nowhere'), UnavailableError);
  const downgraded = await client.acquire(namespace, 'downgraded');
  await downgraded.downgrade();
  downgraded.tryRelease();
  await client.acquire(namespace, 'left');
}

/** Notes what each call to the daemon carries. */
function looked(client, sent) {
  const { _transport: transport } = client;
  for (const name of ['acquire', 'heartbeat', 'releaseAll']) {
    const original = transport[name].bind(transport);
    transport[name] = (...given) => {
      (sent[name] ??= []).push(require('leasehold-client/lib/telemetry.js').traceparent());
      return original(...given);
    };
  }
}

async function run(around) {
  const site = await Site.make(on, 'telemetry');
  site.namespace = `telemetry-${process.pid}`;
  const nowhere = new Client(on === 'grpc' ? { server: '127.0.0.1:1', patienceMs: 300 } : { database: 'postgres://127.0.0.1:1/none', patienceMs: 300 });
  const client = site.client();
  const sent = {};
  looked(client, sent);
  try {
    await around(() => scenario(site, client, nowhere));
  } finally {
    await nowhere.close();
    await site.close();
  }
  return { sent, namespace: site.namespace };
}

function told(name, body) {
  test(name, async () => {
    let isGood = false;
    try {
      await body();
      isGood = true;
    } finally {
      console.log(`test ${name.replaceAll(' ', '_')}_${on}_${libraries} ${isGood ? 'passed' : 'failed'}`);
    }
  });
}

async function nothing() {
  const { sent } = await run((work) => work());
  assert.deepEqual(Object.keys(require.cache).filter((path) => path.includes('opentelemetry')), []);
  assert.ok(sent.heartbeat.length > 0 && Object.values(sent).flat().every((trace) => trace === null));
}

async function everything() {
  const api = require('@opentelemetry/api');
  const { AsyncLocalStorageContextManager } = require('@opentelemetry/context-async-hooks');
  const trace = require('@opentelemetry/sdk-trace-base');
  const metrics = require('@opentelemetry/sdk-metrics');
  const spans = new trace.InMemorySpanExporter();
  const processor = new trace.SimpleSpanProcessor(spans);
  const provider = new trace.BasicTracerProvider({ spanProcessors: [processor] });
  provider.addSpanProcessor?.(processor); // until 2.0
  api.context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable());
  api.trace.setGlobalTracerProvider(provider);
  const exporter = new metrics.InMemoryMetricExporter(metrics.AggregationTemporality.CUMULATIVE);
  const reader = new metrics.PeriodicExportingMetricReader({ exporter, exportIntervalMillis: 2 ** 31 - 1 });
  const meters = new metrics.MeterProvider({ readers: [reader] });
  meters.addMetricReader?.(reader);
  api.metrics.setGlobalMeterProvider(meters);

  const caller = api.trace.getTracer('program').startSpan('caller');
  const { sent, namespace } = await run((work) => api.context.with(api.trace.setSpan(api.context.active(), caller), work));
  const { traceId, spanId } = caller.spanContext();
  const found = {};
  for (const each of spans.getFinishedSpans()) {
    assert.deepEqual([each.spanContext().traceId, each.parentSpanContext?.spanId ?? each.parentSpanId], [traceId, spanId]);
    assert.equal(each.attributes['leasehold.namespace'], namespace);
    (found[`${each.name} ${each.attributes['leasehold.key']}`] ??= []).push(each);
  }
  const [granted, refused] = found['leasehold.acquire plain'];
  assert.ok(granted.attributes['leasehold.waited'] > 0 && BigInt(granted.attributes['leasehold.token']) > 0n);
  const { OK, ERROR, UNSET } = api.SpanStatusCode;
  assert.notEqual(OK, UNSET);
  assert.deepEqual([granted.status.code, refused.attributes['error.type'], refused.status.code], [UNSET, 'held', UNSET]); // an outcome
  const [nowhere] = found['leasehold.acquire nowhere'];
  assert.deepEqual([nowhere.attributes['error.type'], nowhere.status.code], ['unavailable', ERROR]);
  const ends = Object.entries(found).filter(([name]) => name.startsWith('leasehold.hold'));
  assert.deepEqual(Object.fromEntries(ends.map(([name, [{ status, attributes }]]) => [name.split(' ')[1], [status.message ?? null, attributes['leasehold.mode']]])), {
    plain: [null, 'exclusive'], forced: ['lost: forced', 'exclusive'], downgraded: [null, 'shared'], left: ['lost: closed', 'exclusive'],
  });
  assert.deepEqual(Object.keys(found).filter((name) => name.startsWith('leasehold.release')), ['leasehold.release plain', 'leasehold.release downgraded']);
  assert.equal(spans.getFinishedSpans().length, 6 + 4 + 2);

  const points = {};
  const { resourceMetrics } = await reader.collect();
  for (const { descriptor, dataPoints } of resourceMetrics.scopeMetrics.flatMap((scope) => scope.metrics)) {
    for (const { attributes, value } of dataPoints) {
      const { 'leasehold.namespace': where, 'leasehold.mode': mode, ...rest } = attributes;
      assert.equal(where, namespace);
      const key = [descriptor.name, mode, ...Object.entries(rest).flat()].join(' ');
      points[key] = typeof value === 'object' ? `${value.count} in ${descriptor.unit}` : value;
    }
  }
  assert.deepEqual(points, {
    'leasehold.waiting exclusive': 0, 'leasehold.held exclusive': 0, 'leasehold.held shared': 0,
    'leasehold.acquire.failures exclusive error.type held': 1, 'leasehold.acquire.failures exclusive error.type unavailable': 1,
    'leasehold.acquire.duration exclusive': '4 in s', 'leasehold.acquire.duration exclusive error.type held': '1 in s',
    'leasehold.acquire.duration exclusive error.type unavailable': '1 in s',
  });
  const carried = (name) => Object.entries(found).filter(([key]) => key.startsWith(name)).flatMap(([, many]) => many.map((each) => `00-${traceId}-${each.spanContext().spanId}`));
  assert.equal(new Set(sent.acquire).size, 5); // a slow answer makes the client ask again
  assert.ok(sent.acquire.every((each) => carried('leasehold.acquire').includes(each.slice(0, 52))), JSON.stringify(sent));
  assert.ok(sent.heartbeat.every((each) => each === null)); // of all leases: of nobody's span
}

if (libraries === 'none') told('without OpenTelemetry nothing is loaded', nothing);
else told('spans and metrics tell of each lease', everything);
