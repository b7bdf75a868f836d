'use strict';

// Ends what holders left to expire, with something of the caller's own in each lease's transaction.

const { check, checkNoMore, checkOptions } = require('./arguments.js');
const { clock } = require('./time.js');
const { transact } = require('./transaction.js');

const MOST = 1000; // in a list
const LIST = `
select is_stale, until_us::text, check_at_us::text, namespace, key, owner, token::text, acquired_at_us::text, deadline_at_us::text, limit_us::text
  from leasehold_internal.reap_stale_list($1::text[], $2::boolean, ${MOST}, $3::bigint, $4::bigint, $5::text, $6::text, $7::bigint)`;
const END = 'select kind from leasehold_internal.reap_hooked(null, null, $1::text, $2::text, $3::bigint)';
const FAILED = 'select from leasehold_internal.reap_failed(null, $1::text, $2::text, $3::bigint, $4::text)';
const REAP = ['namespaces', 'children'];

const dateOf = (micros) => new Date(Number(micros) / 1000);
const unanswered = (error) => {
  throw error;
};

/** One transaction for each lease; see index.d.ts. */
async function reapStale(client, callback, options = {}, ...more) {
  checkNoMore('reapStale', more, 'client, callback, options');
  checkOptions('reapStale', options, REAP);
  check('work', callback);
  const { namespaces = [], children = false } = options;
  for (const namespace of namespaces) check('namespace', namespace);
  const counts = { ended: 0, failed: 0 };
  const visit = async (lease) => {
    let kind;
    try {
      kind = await transact(client, () => end(client, lease, callback, namespaces.length > 0), unanswered);
    } catch (error) {
      // Where the connection is broken this fails too.
      await transact(client, () => client.query(FAILED, [lease.namespace, lease.key, String(lease.token), wordsOf(error)]), unanswered).catch(() => {
        throw error;
      });
      kind = 'failed';
    }
    if (kind === 'reaped') counts.ended += 1;
    if (kind === 'failed') counts.failed += 1;
  };
  let until = null; // a sweep by name passes over what has failed since the first began
  for (let before = -1; counts.ended > before; ) {
    before = counts.ended;
    if (namespaces.length === 0) until = null;
    for (let rows = null, after = [null, null, null, null]; rows === null || rows.length === MOST; ) {
      rows = (await transact(client, () => client.query(LIST, [namespaces.length ? namespaces : null, children, until, ...after]), unanswered)).rows;
      for (const row of rows) {
        until = row.until_us;
        after = [row.check_at_us, row.namespace, row.key, row.token];
        if (row.is_stale) await visit(leaseOf(row));
      }
    }
  }
  return counts;
}

const leaseOf = ({ namespace, key, owner, token, acquired_at_us: acquired, deadline_at_us: deadline, limit_us: limit }) => ({
  namespace, key, owner, token: BigInt(token), acquiredAt: dateOf(acquired), deadline: dateOf(deadline), limitMs: Number(limit ?? 0) / 1000,
});

async function end(client, lease, callback, isNamed) {
  await client.query("select set_config('statement_timeout', $1::text, true)", [String(Math.ceil(lease.limitMs))]);
  const { rows } = await client.query(END, [lease.namespace, lease.key, String(lease.token)]);
  const kind = rows[0]?.kind ?? '';
  if (kind !== 'reaped') return kind;
  const begun = clock();
  await callback(lease);
  if (lease.limitMs && clock() - begun > lease.limitMs) throw new Error(`it ran over its limit of ${lease.limitMs} ms`);
  if (isNamed) await client.query('select leasehold_internal.audit_reaped(array[$1::text])', [lease.namespace]);
  return kind;
}

const wordsOf = (error) => String(error).replaceAll('\0', '').slice(0, 2000);

module.exports = { reapStale };
