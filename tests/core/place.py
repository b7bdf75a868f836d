"""Where the tests of leasehold_core run: a private cluster, a database where the functions in C stand in the place of those in SQL, and what must
be true of every row whatever wrote it.

In a swapped database leasehold_internal.acquire_items() is C and leasehold_sql.acquire_items() is SQL. LEASEHOLD_BUILD names another build.
"""
import json
import os
import re
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(HERE), 'lib'))
# These tests put the functions in their places themselves.
os.environ.pop('LEASEHOLD_CORE', None)
import pgtest  # noqa: E402

try:
    import psycopg2
    import psycopg2.extensions
except ImportError:
    sys.exit('psycopg2 is not installed: apt-get install python3-psycopg2')

SHOWN = 12
DEAD_LIMIT_S = 60
# The limit of a call, and the leases of `aside`, are this many times as long: a server under valgrind is slow.
SLOWNESS = int(os.environ.get('LEASEHOLD_SLOWNESS', '1'))


class Tally:
    """What passed, and what failed with its reason; the last line is what tests/run reads."""

    def __init__(self, name):
        self.name = name
        self.passed = self.failed = 0

    def check(self, is_good, name, more=''):
        if is_good:
            self.passed += 1
        else:
            self.failed += 1
            print('not ok %s%s' % (name, '\n    ' + str(more).replace('\n', '\n    ') if more != '' else ''), flush=True)
        return is_good

    def equal(self, have, want, name):
        return self.check(have == want, name, 'have %s\nwant %s' % (have, want))

    def end(self):
        print('%s: %d passed, %d failed' % (self.name, self.passed, self.failed), flush=True)
        return 1 if self.failed or not self.passed else 0


def statement_limit(seconds):
    return '%ds' % (seconds * SLOWNESS)


def lease_key(number):
    return '00000000-0000-4000-8000-%012d' % number


def connect(cluster, database, user='postgres', is_auto=True):
    connection = psycopg2.connect(host=cluster.socket, dbname=database, user=user)
    connection.autocommit = is_auto
    return connection


def connect_patiently(cluster, database):
    """After a crash the server comes back by itself."""
    limit = time.monotonic() + DEAD_LIMIT_S
    while True:
        try:
            return connect(cluster, database)
        except psycopg2.OperationalError:
            if time.monotonic() > limit:
                raise
            time.sleep(0.02)


def rows(connection, sql, arguments=None):
    with connection.cursor() as cursor:
        cursor.execute(sql, arguments)
        return cursor.fetchall() if cursor.description else []


def one(connection, sql, arguments=None):
    found = rows(connection, sql, arguments)
    return found[0][0] if found else None


def new_database(cluster, name, is_swapped, is_old=False):
    """With a life of the database that is noticed, so that the common path is open. `is_old`: with the columns of leasehold.scope in the order of
    databases that migration 0132 found in use."""
    database = cluster.clone(name, 'template0') if is_old else cluster.clone(name)
    if is_old:
        cluster.load_schema(database, without='0132_scope_order.sql')
        cluster.psql_file(database, pgtest.ROW_CHECKS)
    if is_swapped:
        cluster.swap_core(database)
    cluster.psql(database, 'select leasehold.reap()')
    return database


def create_extension(cluster, database):
    """What `create extension` does, without an installation."""
    script = pgtest.read_file(os.path.join(pgtest.ROOT, 'src', 'extension', 'leasehold_core--1.sql'))
    cluster.psql(database, 'create schema leasehold_core;\n' + script.replace('MODULE_PATHNAME', pgtest.core_module(cluster.bin)),
                 '--single-transaction')


# --- what must be true of every row ---

def constraint_faults(connection, table='leasehold.scope'):
    """The rows for which a CHECK or a NOT NULL is not true. `validate constraint` would not look again."""
    faults = []
    checks = rows(connection, """
        select conname, pg_get_expr(conbin, conrelid) from pg_constraint where conrelid = %s::regclass and contype = 'c'
         union all
        select attname || ' is not null', format('%%I is not null', attname)
          from pg_attribute where attrelid = %s::regclass and attnum > 0 and attnotnull and not attisdropped""", (table, table))
    for name, expression in checks:
        bad = rows(connection, 'select s::text from %s s where (%s) is false limit 3' % (table, expression.replace('%', '%%')))
        faults += ['%s: %s' % (name, row) for row, in bad]
    if not checks:
        faults.append('%s has no constraint to look at' % table)
    faults += ['its row and its holders differ: %s' % row for row, in rows(connection, SHARING + ' limit 3')]
    faults += ['looked at too late: %s' % row for row, in rows(
        connection, "select s::text from leasehold.scope s where state = 'held' and check_at > greatest(deadline + grace, clock_timestamp()) + interval '1 s'"
                    " and incarnation = (select max(id) from leasehold.incarnation)"
                    " and not exists (select from leasehold_internal.policies_of(array[s.namespace]) r where r.expiry = 'manual') limit 3")]
    return faults


WRITTEN = ('leasehold.scope', 'leasehold.share', 'leasehold.waiter', 'leasehold.creation')
# The scopes whose row counts other holders or units than leasehold.share has, or whose holders have a number twice.
SHARING = """
select format('%s/%s: %s, %s holders of %s units; there are %s of %s, with the numbers %s', namespace, key, s.state, s.holders, s.units, count, sum, numbers)
  from leasehold.scope s
  full join (select h.namespace, h.key, count(*), sum(h.units),
                    array(select k from leasehold.share x cross join unnest(x.slots) k
                           where x.namespace = h.namespace and x.key = h.key and x.state = 'held' order by k) as numbers
               from leasehold.share h where h.state = 'held' group by 1, 2) d using (namespace, key)
 where (s.state = 'shared') is distinct from (d.count is not null) or coalesce(s.holders, 0) <> coalesce(d.count, 0)
    or coalesce(s.units, 0) <> coalesce(d.sum, 0) or cardinality(numbers) <> (select count(distinct k) from unnest(numbers) k)"""


def amcheck_faults(connection):
    """What amcheck finds in these tables and their indexes: a HOT chain that is broken, a row without its entry."""
    faults = []
    rows(connection, 'create extension if not exists amcheck')
    for index, in rows(connection, "select indexrelid::regclass::text from pg_index where indrelid = any ('{%s}'::regclass[])" % ','.join(WRITTEN)):
        try:
            rows(connection, 'select bt_index_parent_check(%s::regclass, true, true)', (index,))
        except psycopg2.Error as error:
            faults.append('%s: %s' % (index, error))
    # PostgreSQL 13 has no verify_heapam().
    for table in WRITTEN if connection.server_version >= 140000 else ():
        faults += ['%s: %s' % (table, row) for row in rows(connection, "select * from verify_heapam(%s::regclass, check_toast => true)", (table,))]
    return faults


HOT_CHAINS = """
with recursive item as (
  select b as block, i.lp, i.lp_flags, i.t_ctid, i.t_infomask, i.t_infomask2, i.lp_off
    from generate_series(0, pg_relation_size('leasehold.scope') / current_setting('block_size')::integer - 1) b,
         heap_page_items(get_raw_page('leasehold.scope', b::integer)) i),
-- A root is what an index points to: a redirect, or a tuple that is not heap-only.
chain as (
  select block, lp as root, lp, lp_flags, t_ctid, t_infomask, t_infomask2, lp_off from item
   where lp_flags = 2 or lp_flags = 1 and t_infomask2 & 32768 = 0
  union
  select i.block, c.root, i.lp, i.lp_flags, i.t_ctid, i.t_infomask, i.t_infomask2, i.lp_off
    from chain c join item i on i.block = c.block and i.lp_flags = 1
     and i.lp = case when c.lp_flags = 2 then c.lp_off when c.t_infomask2 & 16384 <> 0 then (c.t_ctid::text::point)[1]::integer end)
select format('(%s,%s) is heap-only, and in no chain', i.block, i.lp)
  from item i
 where i.lp_flags = 1 and i.t_infomask2 & 32768 <> 0 and i.t_infomask & 512 = 0
   and not exists (select from chain c where c.block = i.block and c.lp = i.lp)
"""


def hot_faults(connection):
    """Heap-only versions that no chain leads to, but for those whose transaction was rolled back (HEAP_XMIN_INVALID). Nobody writes meanwhile."""
    rows(connection, 'create extension if not exists pageinspect')
    # A version of a transaction that was rolled back says so once somebody has looked at it.
    rows(connection, 'select count(*) from leasehold.scope')
    return [words for words, in rows(connection, HOT_CHAINS)]


def check_rows(tally, cluster, database, when):
    connection = connect(cluster, database)
    tally.equal(constraint_faults(connection), [], '%s, every constraint of leasehold.scope is true' % when)
    tally.equal(amcheck_faults(connection), [], '%s, amcheck finds nothing' % when)
    tally.equal(hot_faults(connection), [], '%s, every heap-only version is in a chain' % when)
    # The rows that the index finds are those that are there.
    both = []
    for way in ('enable_seqscan', 'enable_indexscan'):
        both.append(rows(connection, """set enable_bitmapscan = off; set enable_indexonlyscan = off; set %s = off;
            select s::text from leasehold.scope s where namespace > '' order by namespace, key""" % way))
        rows(connection, 'reset %s' % way)
    tally.equal(both[0][:SHOWN], both[1][:SHOWN], '%s, the index finds the rows that are there' % when)
    tally.check(both[0] == both[1], '%s, the index finds all of them' % when)
    connection.close()


def crashes(cluster):
    """Lines of the server's log that no test may leave."""
    return re.findall(r'.*(?:PANIC|TRAP:|terminated by signal|deadlock detected|leasehold_core: (?!meanwhile)).*', cluster.log_text())


def as_json(value):
    return json.loads(value) if isinstance(value, str) else value
