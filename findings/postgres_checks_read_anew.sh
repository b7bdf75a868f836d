#!/bin/sh
# PostgreSQL reads the stored text of each CHECK of a table anew, and plans it, in every statement that changes a row, prepared or not: the plan has
# none of them. For updates of one row by a prepared statement, short CHECKs cost many times what the update does; in one statement over many rows,
# where they are read once, their evaluation costs little.
set -eu

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
npm install --silent --no-audit --no-fund @electric-sql/pglite@0.5.14 >/dev/null
cat > try.mjs <<'JS'
import { PGlite } from '@electric-sql/pglite'

const ROWS = 2000
const db = await PGlite.create()
const version = (await db.query('show server_version')).rows[0].server_version
const checks = Array.from({ length: 30 }, (_, n) => `, check (n is null or n >= -${n + 1} or note = 'of no account')`).join('')
for (const [name, more] of [['plain', ''], ['checked', checks]]) {
  await db.exec(`create table ${name} (id integer primary key, n integer, note text${more}) with (fillfactor = 20);
    insert into ${name} select i, 0, 'x' from generate_series(1, ${ROWS}) i; analyze ${name}`)
}

async function least(sql) {
  let least = Infinity
  for (let round = 0; round < 5; round++) {
    const begin = performance.now()
    await db.exec(sql)
    least = Math.min(least, performance.now() - begin)
  }
  return least
}

const each = (name) => least(`do $$ begin for i in 1..${ROWS} loop update ${name} set n = n + 1 where id = i; end loop; end $$`)
const all = (name) => least(`update ${name} set n = n + 1`)
const row = { plain: await each('plain'), checked: await each('checked') }
const table = { plain: await all('plain'), checked: await all('checked') }
const costs = (of) => (of.checked - of.plain) / ROWS * 1000
console.log(`PostgreSQL ${version}, 30 CHECKs, microseconds for a row: ${costs(row).toFixed(1)} where each has a statement, whose plan is kept (${(row.plain / ROWS * 1000).toFixed(1)} without them), `
  + `${costs(table).toFixed(1)} where one statement changes all`)
process.exit(costs(row) > 10 * Math.max(costs(table), 1) && row.checked > 3 * row.plain ? 0 : 1)
JS
timeout 300 node try.mjs
