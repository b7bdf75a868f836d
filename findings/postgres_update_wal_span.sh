#!/bin/sh
# The WAL record of an UPDATE has one run of bytes of the new row: from the first byte that differs to the last, on the same page. So unchanged columns
# that stand between two changed ones are written each time, and the order of columns decides how much WAL the same UPDATE makes. Changing only one of
# the two writes none of them, nor does an order in which the two are neighbours.
set -eu

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
npm install --silent --no-audit --no-fund @electric-sql/pglite@0.5.14 >/dev/null
cat > try.mjs <<'JS'
import { PGlite } from '@electric-sql/pglite'

const ROWS = 500
const SIZE = 600
const db = await PGlite.create()
const version = (await db.query('show server_version')).rows[0].server_version
const orders = { between: 'id integer, state integer, note text, seen integer', aside: 'id integer, state integer, seen integer, note text' }
for (const [name, columns] of Object.entries(orders)) {
  await db.exec(`create table ${name} (${columns}, primary key (id)) with (fillfactor = 20);
    insert into ${name} (id, state, seen, note) select i, 0, 0, repeat('x', ${SIZE}) from generate_series(1, ${ROWS}) i`)
}
const lsn = async () => Number((await db.query("select pg_current_wal_insert_lsn() - '0/0' as at")).rows[0].at)

/** WAL bytes for a row; the first update of a page after a checkpoint writes all of it, and is not counted. */
async function bytes(name, changes) {
  await db.exec(`checkpoint; update ${name} set ${changes}`)
  const before = await lsn()
  await db.exec(`update ${name} set ${changes}`)
  return (await lsn() - before) / ROWS
}

const both = { between: await bytes('between', 'state = state + 1, seen = seen + 1'), aside: await bytes('aside', 'state = state + 1, seen = seen + 1') }
const one = await bytes('between', 'state = state + 1')
console.log(`PostgreSQL ${version}, a row of two integers and ${SIZE} bytes of text that stays: WAL for an update of both integers, in bytes: `
  + `${both.between.toFixed(0)} with the text between them, ${both.aside.toFixed(0)} with it behind them; for an update of the first alone ${one.toFixed(0)}`)
process.exit(both.between > both.aside + 0.9 * SIZE && one < both.aside + 60 ? 0 : 1)
JS
timeout 300 node try.mjs
