"""What drives what: each driver opens its servers, alone, and runs a workload with so many requests in flight.

`values` of a run always hold what was measured there (per_s, p50_ms, ...), `cpu` (CPU seconds of each process for a
million units) and, on PostgreSQL, `wal_bytes` for each unit. A run whose counts do not agree is a Failure.
"""
import contextlib
import glob
import json
import math
import os
import subprocess
import time

import servers
from servers import Failure

# What `pairs` does with one transaction an operation: a table of locks, as many have one. \\gset wants exactly one row: a
# lock that was not got, or was lost, ends the run.
SQL_TABLE = """create table locks (name text primary key, owner text not null, expires_at timestamptz not null)
  with (fillfactor = 70)"""
SQL_PAIR = """\\set n :client_id
insert into locks (name, owner, expires_at) values ('k' || :n, 'me', clock_timestamp() + interval '60 s')
  on conflict (name) do update set owner = excluded.owner, expires_at = excluded.expires_at
  where locks.expires_at < clock_timestamp()
  returning 1 as got \\gset
delete from locks where name = 'k' || :n and owner = 'me' returning 1 as gone \\gset
"""
SQL_HEARTBEAT = """\\set n random(1, :leases)
update locks set expires_at = clock_timestamp() + interval '60 s'
 where name = 'k' || :n and owner = 'me' and expires_at > clock_timestamp() returning 1 as got \\gset
"""
# A name that was never used before, each time.
SQL_FRESH = SQL_PAIR.replace('\\set n :client_id\n', '\\set n random(1, 9000000000000000000)\n')
SQL_HANDOFF = """begin;
select 1 as got from locks where name = 'hot' for update \\gset
commit;
"""
# The functions that the daemon calls, without the daemon: as many items as are in flight for each of its connections.
RAW_PAIR = """select k.keys as keys, 1 / (count(*) filter (where b.outcome = 'granted') = :batch)::integer as all_granted
  from (select array(select gen_random_uuid() from generate_series(1, :batch)) as keys) k,
       raw_batch r,
       leasehold_internal.acquire_items(null, null, r.namespaces, r.keys, k.keys, r.owners, r.labels, r.durations, r.queues, r.zeros,
                               r.zeros) b
 where r.id = :client_id
 group by k.keys \\gset
select 1 / (count(*) filter (where b.outcome = 'ok') = :batch)::integer as all_ok
  from raw_batch r,
       leasehold_internal.release_batch(null, r.namespaces, r.keys, :keys::uuid[], r.queues, r.texts) b
 where r.id = :client_id \\gset
"""
RAW_BATCHES = """drop table if exists raw_batch;
create table raw_batch as
select c as id, array_agg('bench'::text) as namespaces, array_agg('r' || c || '-' || i order by i) as keys,
       array_agg('raw'::text) as owners, array_agg('{{}}'::text) as labels, array_agg(60000000::bigint) as durations,
       array_agg(false) as queues, array_agg(0::bigint) as zeros, array_agg(null::text) as texts
  from generate_series(0, {clients} - 1) c, generate_series(1, {batch}) i
 group by c;
create unique index on raw_batch (id);
analyze raw_batch;
-- Two batches that create scopes at once may be in each other's way, and are answered busy.
insert into leasehold.scope (namespace, key, check_at)
select 'bench', unnest(keys), clock_timestamp() + interval '1 hour' from raw_batch on conflict do nothing;
"""
RAW_HEARTBEAT = """\\set n random(0, :batches / 2 - 1) * 2 + :client_id
select 1 / (count(*) filter (where b.outcome = 'ok') = r.size)::integer as all_ok
  from raw_lease r, leasehold_internal.heartbeat_batch(r.namespaces, r.keys, r.lease_keys) b
 where r.id = :n
 group by r.size \\gset
"""
RAW_LEASES = """create table raw_lease as
select (i / {batch})::integer as id, count(*)::integer as size, array_agg('bench'::text) as namespaces,
       array_agg('r' || i order by i) as keys, array_agg(gen_random_uuid()) as lease_keys
  from generate_series(0, {leases} - 1) i
 group by i / {batch};
create unique index on raw_lease (id);
analyze raw_lease;
"""
RAW_FILL = """select count(*) filter (where b.outcome = 'granted')
  from raw_lease r,
       leasehold_internal.acquire_items(null, null, r.namespaces, r.keys, r.lease_keys, array_fill('raw'::text, array[r.size]),
         array_fill('{{}}'::text, array[r.size]), array_fill(3600000000::bigint, array[r.size]), array_fill(false, array[r.size]),
         array_fill(0::bigint, array[r.size]), array_fill(0::bigint, array[r.size])) b
 where r.id = {id};
"""


def drive(workload, peer, target, limit_s, **options):
    """One run of the driver: what it printed."""
    command = [str(servers.DRIVE), workload, peer, target]
    for name, value in options.items():
        command += ['--' + name, str(int(value))]
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=limit_s)
    except subprocess.TimeoutExpired as late:
        raise Failure('%s took longer than %d s' % (' '.join(command[1:]), limit_s)) from late
    if done.returncode != 0:
        raise Failure('%s: %s' % (' '.join(command[1:]), done.stderr.strip()))
    return json.loads(done.stdout.splitlines()[-1])


class Session:
    """A driver's servers while they run. `processes`: {name: server} whose CPU counts."""

    def __init__(self, name, target=None, processes=None, postgres=None, database=None, writes=None):
        self.name = name
        self.target = target
        self.processes = processes or {}
        self.postgres = postgres
        self.database = database
        self.writes = writes

    def usage(self):
        return ({name: server.cpu_s() for name, server in self.processes.items()},
                self.postgres.wal_bytes() if self.postgres else 0)

    def cost(self, before, units):
        cpu, wal = self.usage()
        values = {'cpu': {name: round((cpu[name] - before[0][name]) * 1e6 / max(units, 1), 2) for name in cpu}}
        if self.postgres:
            values['wal_bytes'] = round((wal - before[1]) / max(units, 1), 1)
        return values


class Bench:
    """The servers of one run of the benchmark, made when first needed."""

    def __init__(self, work, quick):
        self.work = work
        self.quick = quick
        self.made = {}

    def server(self, kind):
        if kind not in self.made:
            self.made[kind] = kind(self.work)
        return self.made[kind]

    @contextlib.contextmanager
    def open(self, driver, *daemon_options):
        """The driver's servers, started alone; PostgreSQL with a database of its own each time."""
        kind = {'redis-everysec': servers.RedisEverySecond}.get(driver) or servers.PEERS.get(driver.split('-')[0])
        if kind:
            with self.server(kind) as server:
                session = Session(driver, server.target, {kind.name: server}, writes=server.writes)
                if kind is servers.ZooKeeper:  # its bytecode is compiled while it runs
                    drive('pairs', 'zookeeper', server.target, 60, clients=64, measure=2000 if self.quick else 8000)
                yield session
            return
        with self.server(servers.Postgres) as postgres:
            database = postgres.create_database(schema=not driver.startswith('sql'))
            try:
                if driver == 'sql-relaxed':
                    postgres.psql('alter database %s set synchronous_commit = off' % database)
                # The first grant in a new database makes the tokens jump; they are counted later.
                if not driver.startswith('sql'):
                    postgres.psql("with a as materialized (select * from leasehold.acquire('bench', 'first', '1 min')) "
                                  "select leasehold.release_ok('bench', 'first', a.lease_key) from a", database)
                if driver == 'leasehold-core':
                    postgres.add_core(database)
                if driver == 'raw':  # as cron does, or a daemon when it starts: until then nothing takes the short way
                    postgres.psql('select * from leasehold.reap()', database)
                if driver in ('sql', 'sql-relaxed', 'raw'):
                    yield Session(driver, None, {'postgres': postgres}, postgres, database)
                else:
                    with servers.Daemon(self.work, postgres, database, *daemon_options) as daemon:
                        session = Session(driver, daemon.target, {'postgres': postgres, 'leaseholdd': daemon}, postgres, database)
                        session.daemon = daemon
                        yield session
            finally:
                postgres.drop_database(database)


def tokens(session):
    return int(session.postgres.psql('select last_value from leasehold.token', session.database))


def transactions(session):
    time.sleep(1.1)  # statistics of backends that have ended come at once, others within a second
    return int(session.postgres.psql("select coalesce(sum(n_tup_ins + n_tup_del), 0) from pg_stat_user_tables where relname = 'locks'",
                                     session.database))


def counted(session):
    """Writes that the server itself has counted."""
    if session.writes:
        return session.writes()
    return transactions(session) if session.name == 'sql' else tokens(session)


# How many writes of those that are counted a pair makes; others (sessions of ZooKeeper) may come on top.
WRITES_OF_A_PAIR = {'leasehold': 1, 'leasehold-core': 1, 'leasehold-batched': 1, 'leasehold-library': 1, 'raw': 1, 'sql': 2, 'etcd': 2, 'etcd-kept': 2, 'redis': 2,
                    'zookeeper': 2}


def check_count(session, before, pairs, extra=0):
    if session.name == 'leasehold-core':  # draws a token before it knows whether the row is still the newest: the reaper may have moved it
        extra += pairs // 1000 + 10
    after = counted(session)
    wanted = pairs * WRITES_OF_A_PAIR[session.name]
    if not wanted <= after - before <= wanted + extra:
        raise Failure('%s: %d pairs should be %d writes, the server counted %d' % (session.name, pairs, wanted, after - before))


def pgbench(bench, session, script, clients, warmup_s, measure_s, threads=2, **variables):
    """Runs a script; {per_s, p50_ms, ...} of its runs from the end of the warm-up on, and the `total`."""
    directory = bench.work / 'pgbench'
    directory.mkdir(exist_ok=True)
    path = directory / 'script.sql'
    path.write_text(script)
    for old in glob.glob(str(directory / 'log.*')):
        os.remove(old)
    # Its time runs while it connects.
    seconds = math.ceil(warmup_s + measure_s) + (1 + clients // 100 if clients > 100 else 0)
    command = [session.postgres.bin + '/pgbench', '-n', '-M', 'prepared', '-c', str(clients), '-j', str(min(threads, clients)),
               '-T', str(seconds), '-f', str(path), '-l', '--log-prefix', str(directory / 'log')]
    for name, value in variables.items():
        command += ['-D', '%s=%s' % (name, value)]
    try:
        done = subprocess.run([*command, session.postgres.url(session.database)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, timeout=seconds + 120)
    except subprocess.TimeoutExpired as late:
        raise Failure('pgbench took longer than %d s' % (seconds + 120)) from late
    if done.returncode != 0 or 'aborted' in done.stdout:
        raise Failure('pgbench: %s' % done.stdout[-1500:])
    rows = []
    for name in glob.glob(str(directory / 'log.*')):
        with open(name, encoding='ascii') as log:
            for line in log:
                fields = line.split()
                rows.append((int(fields[4]) * 1000000 + int(fields[5]), int(fields[2])))
        os.remove(name)
    if not rows:
        raise Failure('pgbench with %d connections finished nothing within %d s' % (clients, seconds))
    first = min(row[0] - row[1] for row in rows)
    begin, end = first + warmup_s * 1000000, first + (warmup_s + measure_s) * 1000000
    latencies = sorted(row[1] for row in rows if begin <= row[0] < end)
    if not latencies:  # so many connections that the first answers took longer than that: what came in the time it took
        begin, end = first, max(row[0] for row in rows)
        latencies = sorted(row[1] for row in rows)

    def quantile(q):
        return latencies[int((len(latencies) - 1) * q)] / 1000
    return {'total': len(rows), 'per_s': len(latencies) * 1e6 / (end - begin), 'p50_ms': quantile(0.5), 'p99_ms': quantile(0.99),
            'p999_ms': quantile(0.999)}
