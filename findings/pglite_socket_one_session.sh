#!/bin/sh
# PGlite's server with several connections: all are one session of PostgreSQL. So an advisory lock that one connection holds is granted to
# another one, too, and a setting of one is seen by the other.
set -eu

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
npm install --silent --no-audit --no-fund @electric-sql/pglite@0.5.14 @electric-sql/pglite-socket@0.2.17 pg@8.16.3 >/dev/null
cat > try.mjs <<'JS'
import { PGlite } from '@electric-sql/pglite'
import { PGLiteSocketServer } from '@electric-sql/pglite-socket'
import pg from 'pg'

const db = await PGlite.create()
const server = new PGLiteSocketServer({ db, port: 0, host: '127.0.0.1', maxConnections: 10 })
await server.start()
const port = Number(server.getServerConn().split(':').pop())
const connect = async () => {
  const client = new pg.Client({ host: '127.0.0.1', port, user: 'postgres', database: 'postgres' })
  await client.connect()
  return client
}
const one = await connect()
const two = await connect()
const value = async (client, sql) => Object.values((await client.query(sql)).rows[0])[0]
const locks = [await value(one, 'select pg_try_advisory_lock(7)'), await value(two, 'select pg_try_advisory_lock(7)')]
await one.query("set application_name = 'one'")
const name = await value(two, "select current_setting('application_name')")
console.log(`${locks.join(' ')} ${name}`)
process.exit(0)
JS
node --version
seen=$(timeout 120 node try.mjs)
echo "the lock of one and of the other, the other's application_name: $seen"
[ "$seen" = "true true one" ]
