"""The parts of the benchmark: each a list of levels, and how a driver runs one of them.

A part's `run(bench, session, level, times)` returns the values of one sample. `times` has warmup_s and measure_s.
"""
import contextlib
import json
import signal
import subprocess
import time

import drivers
import servers
from drivers import drive, pgbench
from servers import Failure

SEMAPHORE_UNITS = 1000
ALL = ('leasehold', 'leasehold-core', 'leasehold-batched', 'leasehold-library', 'sql', 'sql-relaxed', 'raw', 'etcd', 'etcd-kept', 'redis',
       'redis-everysec', 'zookeeper')
DURABLE = tuple(name for name in ALL if name not in ('sql-relaxed', 'redis-everysec'))  # the others renew alone


class Times:
    def __init__(self, warmup_s, measure_s):
        self.warmup_s = warmup_s
        self.measure_s = measure_s

    def drive_options(self):
        return {'warmup': int(self.warmup_s * 1000), 'measure': int(self.measure_s * 1000)}

    @property
    def limit_s(self):
        return self.warmup_s + self.measure_s + 180


def peer_of(session):
    return 'library' if session.name == 'leasehold-library' else session.name.split('-')[0]


def flags_of(session):
    return {'batched': 1} if session.name == 'leasehold-batched' else {'kept': 1} if session.name == 'etcd-kept' else {}


def run_pairs(bench, session, clients, times, is_fresh=False):
    if session.name == 'sql':
        session.postgres.psql('drop table if exists locks; ' + drivers.SQL_TABLE, session.database)
    if session.name == 'raw':
        raw_clients, batch = min(clients, 2), max(clients // 2, 1)
        session.postgres.psql(drivers.RAW_BATCHES.format(clients=raw_clients, batch=batch), session.database)
    writes = 0 if session.name == 'sql' else drivers.counted(session)
    before = session.usage()
    if session.name == 'sql':
        values = pgbench(bench, session, drivers.SQL_FRESH if is_fresh else drivers.SQL_PAIR, clients, times.warmup_s, times.measure_s)
    elif session.name == 'raw':
        values = pgbench(bench, session, drivers.RAW_PAIR, raw_clients, times.warmup_s, times.measure_s, batch=batch)
        values['per_s'] *= batch
        values['total'] *= batch
    else:
        values = drive('pairs', peer_of(session), session.target, times.limit_s, clients=clients, fresh=is_fresh,
                       **times.drive_options(), **flags_of(session))
    values.update(session.cost(before, values['total']))
    # ZooKeeper: the sessions that the driver opened, those of runs before that end meanwhile, and the first parent node.
    drivers.check_count(session, writes, values['total'], 100 if session.name == 'zookeeper' else 0)
    return values


def run_fresh(bench, session, clients, times):
    """Names that are new each time, as those of jobs are."""
    return run_pairs(bench, session, clients, times, is_fresh=True)


def run_handoff(bench, session, waiters, times):
    if session.name == 'sql':
        session.postgres.psql("drop table if exists locks; %s; insert into locks values ('hot', 'me', 'infinity')"
                              % drivers.SQL_TABLE, session.database)
        values = pgbench(bench, session, drivers.SQL_HANDOFF, waiters + 1, times.warmup_s, times.measure_s)
        # One transaction is a hand-off; the time from one's commit to the next one's lock is not seen from here.
        return {'per_s': values['per_s']}
    before = session.usage()
    tokens = drivers.tokens(session) if session.postgres else 0
    values = drive('handoff', peer_of(session), session.target, times.limit_s + 600, clients=waiters,
                   connections=waiters + 1 if session.name == 'redis' else min(waiters + 1, 16), duration=600, rounds=1000000,
                   **times.drive_options())
    values.update(session.cost(before, values['total']))
    if session.postgres and drivers.tokens(session) - tokens < values['total']:
        raise Failure('%s: %d hand-offs, but %d tokens' % (session.name, values['total'], drivers.tokens(session) - tokens))
    return values


def set_capacity(session, capacity):
    if session.postgres:
        session.postgres.psql("select leasehold.set_policy('bench', capacity => %d)" % capacity, session.database)


def run_semaphore(bench, session, clients, times):
    """One scope of 1,000 units: each request takes one and gives it back."""
    set_capacity(session, SEMAPHORE_UNITS)
    writes, before = drivers.counted(session), session.usage()
    values = drive('pairs', peer_of(session), session.target, times.limit_s, clients=clients, hot=1, units=1, capacity=SEMAPHORE_UNITS,
                   **times.drive_options(), **flags_of(session))
    values.update(session.cost(before, values['total']))
    drivers.check_count(session, writes, values['total'])
    return values


def run_readers(bench, session, level, times):
    """Holders of one scope that renew. A level is (holders, requests in flight, leases in a request)."""
    readers, clients, batch = level
    values = drive('heartbeats', peer_of(session), session.target, times.limit_s + 1800, leases=readers, clients=clients, batch=batch, hot=1,
                   units=1, connections=max(min(clients, 16), clients // 12), duration=600, stream=1, **times.drive_options())
    if session.postgres:
        held, scopes, beats = map(int, session.postgres.psql(
            "select count(*), count(distinct key), sum(heartbeats) from leasehold.share where state = 'held' and deadline > clock_timestamp()",
            session.database).split('|'))
        if (held, scopes) != (readers, 1) or beats < values['heartbeats']:
            raise Failure('%d readers hold %d scopes, %d heartbeats in the table; the driver says %d' % (held, scopes, beats, values['heartbeats']))
    return values


def run_turns(bench, session, level, times):
    """As handoff. A level is (waiters, capacity): 0 is exclusive; of a capacity one unit goes round, the others stay with their holders."""
    waiters, capacity = level
    set_capacity(session, max(capacity, 1))  # the exclusive ones read a policy, too
    tokens, before = drivers.tokens(session), session.usage()
    values = drive('handoff', peer_of(session), session.target, times.limit_s + 600, clients=waiters, connections=min(waiters + 1, 16),
                   duration=600, rounds=1000000, units=int(capacity > 0), capacity=capacity, holders=max(capacity - 1, 0), **times.drive_options())
    if drivers.tokens(session) - tokens < values['total']:
        raise Failure('%d hand-offs, but %d tokens' % (values['total'], drivers.tokens(session) - tokens))
    if capacity <= 1:  # else most of it is of the holders who come first
        values.update(session.cost(before, values['total']))
    return values


def fill_raw(session, leases, batch):
    session.postgres.psql(drivers.RAW_LEASES.format(leases=leases, batch=batch), session.database)
    batches = (leases + batch - 1) // batch
    granted = session.postgres.psql(''.join(drivers.RAW_FILL.format(id=i) for i in range(batches)), session.database)
    if sum(map(int, granted.split())) != leases:
        raise Failure('raw: not all leases were granted')
    return batches


def run_heartbeats(bench, session, level, times):
    """A level is (leases, requests in flight, leases in a request)."""
    leases, clients, batch = level
    if session.name.startswith('sql'):
        session.postgres.psql("drop table if exists locks; %s; insert into locks select 'k' || i, 'me', now() + interval '1 d' "
                              "from generate_series(1, %d) i; vacuum analyze locks" % (drivers.SQL_TABLE, leases), session.database)
    batches = fill_raw(session, leases, batch) if session.name == 'raw' else 0
    before = session.usage()
    if session.name.startswith('sql'):
        values = pgbench(bench, session, drivers.SQL_HEARTBEAT, clients, times.warmup_s, times.measure_s, leases=leases)
    elif session.name == 'raw':
        values = pgbench(bench, session, drivers.RAW_HEARTBEAT, 2, times.warmup_s, times.measure_s, batches=batches)
        values['per_s'] *= batch
        values['total'] *= batch
    else:
        values = drive('heartbeats', peer_of(session), session.target, times.limit_s + 1800, leases=leases, clients=clients,
                       connections=max(min(clients, 16), clients // 12), batch=batch, duration=600, stream=1,
                       **times.drive_options())
    if session.name in ('sql', 'sql-relaxed', 'raw'):  # with the driver, the leases were acquired meanwhile: it is no measure then
        values.update(session.cost(before, values['total']))
    elif session.postgres:
        held = int(session.postgres.psql("select count(*) from leasehold.scope where state = 'held'", session.database))
        beats = int(session.postgres.psql('select sum(heartbeats) from leasehold.scope', session.database))
        if held != leases or beats < values['heartbeats']:
            raise Failure('%d leases are held, %d heartbeats in the table; the driver says %d' % (held, beats, values['heartbeats']))
    return values


@contextlib.contextmanager
def driver_process(*command):
    process = subprocess.Popen([str(servers.DRIVE), *map(str, command)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdin.close()
        process.stdout.close()


def await_line(process, wanted):
    line = process.stdout.readline().strip()
    if line != wanted:
        raise Failure('the driver ended where %s was due' % wanted)


def backends_kib(session):
    """Memory of PostgreSQL's processes that is not shared."""
    total = 0
    found = servers.processes()
    for pid, (parent, _, _) in found.items():
        if parent == session.postgres.process.pid:
            with contextlib.suppress(OSError):
                total += sum(int(line.split()[1]) for line in open('/proc/%d/smaps_rollup' % pid, encoding='ascii')
                             if line.startswith('Private_'))
    return total


def rows_of_waiters(session):
    return int(session.postgres.psql('select count(*) from leasehold.waiter', session.database))


def run_idle(bench, session, level, times):
    """A level is ('waiters' or 'connections', how many, connections)."""
    what, count, connections = level
    daemon = session.daemon.process.pid
    with driver_process(what, 'leasehold', session.target, '--clients', count, '--connections', connections, '--duration', 600) as driver:
        await_line(driver, 'READY')
        before = servers.resident_kib(daemon)
        driver.stdin.write('\n')
        driver.stdin.flush()
        await_line(driver, 'READY')
        if what == 'waiters':  # the daemon knows them all; their rows follow
            servers.wait_until(lambda: rows_of_waiters(session) >= count, 120, 'the rows of all waiters', 0.2)
        time.sleep(0.5 if bench.quick else 3)
        after = servers.resident_kib(daemon)
        values = {'bytes_each': round((after - before) * 1024 / count, 1), 'resident_mib': round(after / 1024, 1)}
        if what == 'waiters':
            there = rows_of_waiters(session)
            if there != count:
                raise Failure('%d waiters are in the table, not %d' % (there, count))
            values['table_bytes_each'] = round(int(session.postgres.psql(
                "select pg_total_relation_size('leasehold.waiter')", session.database)) / count, 1)
            values['backends_mib'] = round(backends_kib(session) / 1024, 1)
            seconds = 1 if bench.quick else 10
            begun = session.usage()
            time.sleep(seconds)
            spent = session.usage()
            # What somebody else sees who asks for another name.
            values['pair_p50_ms'] = drive('pairs', 'leasehold', session.target, 120, clients=1, **times.drive_options())['p50_ms']
            values['idle_cpu'] = {name: round((spent[0][name] - begun[0][name]) / seconds, 4) for name in spent[0]}
        driver.stdin.write('\n')
        driver.stdin.flush()
        if driver.wait(120) != 0:
            raise Failure('the driver failed')
    return values


def run_reaping(bench, session, leases, times):
    duration = 5 if leases <= 20000 else 60
    daemon = session.daemon
    filled = drive('fill', 'leasehold', session.target, 600, leases=leases, batch=10000, duration=duration, connections=16)
    if filled['fill_s'] + filled['renew_s'] > duration - 1:
        raise Failure('the leases took %.1f s to acquire, longer than they live' % filled['fill_s'])
    first = wait = None
    end = time.monotonic() + duration + 120
    before = session.usage()
    while True:
        reaped = daemon.metric('leasehold_reaps_total')
        now = time.monotonic()
        if first is None and reaped > 0:
            first, wait = now, reaped
        if reaped >= leases:
            break
        if now > end:
            raise Failure('%d of %d leases were reaped in time' % (reaped, leases))
        time.sleep(0.02)
    held = int(session.postgres.psql("select count(*) from leasehold.scope where state = 'held'", session.database))
    if held:
        raise Failure('%d leases are still held' % held)
    values = {'per_s': (leases - wait) / max(now - first, 0.001) if leases > wait else leases / 0.01, 'seconds': round(now - first, 3)}
    values.update(session.cost(before, leases))
    return values


def run_expiry(bench, session, rounds, times):
    return drive('expiry', 'leasehold', session.target, rounds * 10 + 120, rounds=rounds, duration=1, connections=16)


def run_start(bench, level, times):
    """From the start of the server's process to when the first lease has reached a client that tries all the while."""
    kind = servers.PEERS.get(level)
    with contextlib.ExitStack() as stack:
        if kind:
            server = kind(bench.work)
        elif level == 'leasehold':
            postgres = stack.enter_context(bench.server(servers.Postgres))
            server = servers.Daemon(bench.work, postgres, postgres.create_database())
        else:
            server = servers.Daemon(bench.work, None, None)
            if level == 'leasehold-embedded-again':
                with server:
                    pass
        stack.callback(server.stop)
        begun = time.clock_gettime(time.CLOCK_BOOTTIME)
        server.start()
        found = drive('first', level.split('-')[0], server.target, 120)
    return {'ms': round(found['at_us'] / 1000 - begun * 1000, 1)}


def run_cost(bench, session, level, times):
    """Leases renewed every so often, and nothing faster: what that costs, and what an acquire waits meanwhile."""
    leases, every_s, batch = level
    if not bench.quick:
        session.postgres.break_in()
    with driver_process('steady', 'leasehold', session.target, '--leases', leases, '--every', every_s, '--batch', batch, '--connections', 8,
                        '--duration', 600, '--warmup', int(times.warmup_s * 1000), '--measure', int(times.measure_s * 1000)) as driver:
        daemon = session.daemon
        servers.wait_until(lambda: driver.poll() is not None or daemon.metric('leasehold_lease_grants_total') >= leases, 1800,
                           'the leases', 0.2)
        time.sleep(min(times.warmup_s, 5))
        before, begun, beats = session.usage(), time.monotonic(), daemon.metric('leasehold_heartbeats_total')
        time.sleep(max(times.measure_s - 2, 1))
        after, seconds = session.usage(), time.monotonic() - begun
        beats = max(daemon.metric('leasehold_heartbeats_total') - beats, 1)
        memory = {'leaseholdd': round(servers.resident_kib(daemon.process.pid) / 1024, 1),
                  'postgres': round(backends_kib(session) / 1024, 1)}
        output = driver.stdout.read()
        if driver.wait(180) != 0:
            raise Failure('the driver failed')
    found = json.loads(output.splitlines()[-1])
    cpu_s = {name: after[0][name] - before[0][name] for name in after[0]}
    size = int(session.postgres.psql("select pg_total_relation_size('leasehold.scope')", session.database))
    return {**{name: found[name] for name in ('per_s', 'p50_ms', 'p99_ms', 'acquire_p50_ms', 'acquire_p99_ms', 'owed')},
            'wanted_per_s': round(leases / every_s, 1),
            'cores': {name: round(value / seconds, 4) for name, value in cpu_s.items()},
            'cpu_ms_per_1000': {name: round(value * 1e6 / beats, 2) for name, value in cpu_s.items()},
            'wal_bytes': round((after[1] - before[1]) / beats, 1), 'table_bytes_each': round(size / leases, 1), 'memory_mib': memory}


class Part:
    def __init__(self, name, run, who, quick, full, rounds=None, seconds=1.0, quick_seconds=1.0,
                 levels_are_drivers=False, by_name=False):
        self.name, self.run, self.who = name, run, who
        self.levels = {True: quick, False: full}
        self.rounds = rounds  # None: as many as were asked for
        self.seconds = {True: quick_seconds, False: seconds}  # a factor
        self.levels_are_drivers = levels_are_drivers
        self.by_name = by_name  # it runs where it is asked for alone

    def levels_of(self, driver, quick, number):
        """A million leases take a minute to acquire: they come in the first round alone."""
        return [level for level in self.levels[quick] if self.fits(driver, level)
                and (number == 0 or self.name != 'heartbeats' or level[0] < 1000000)]

    def fits(self, driver, level):
        if self.name == 'handoff':
            return level <= (1 << 30 if driver.startswith('leasehold') else 256)
        if self.name == 'heartbeats':
            # Several renewals of one lease at a time would be answered together. etcd and Redis are not asked for what would only
            # fill them up: their renewals do not depend on the number.
            return (level[2] > 1 if driver == 'raw' else level[2] == 1 if driver.split('-')[0] in ('sql', 'etcd') else True) and \
                level[1] * level[2] <= level[0] and level[0] <= {'etcd': 10000, 'redis': 100000, 'sql': 100000}.get(driver.split('-')[0], 1 << 30)
        return True


PARTS = {part.name: part for part in (
    Part('pairs', run_pairs, DURABLE, (1, 16, 256), (1, 2, 4, 8, 16, 64, 256, 1024)),
    Part('fresh', run_fresh, tuple(name for name in DURABLE if name not in ('leasehold-batched', 'leasehold-library', 'raw', 'etcd')), (16,),
         (1, 2, 4, 8, 16, 256)),
    Part('handoff', run_handoff, ('leasehold', 'leasehold-core', 'sql', 'etcd', 'redis', 'zookeeper'), (16, 256), (2, 4, 8, 16, 256, 4096)),
    Part('heartbeats', run_heartbeats, ('leasehold', 'leasehold-core', 'sql', 'sql-relaxed', 'raw', 'etcd', 'redis', 'redis-everysec'), ((1000, 256, 1), (10000, 16, 500)),
         tuple((leases, *shape) for leases in (1000, 10000, 100000, 1000000) for shape in ((256, 1), (16, 500)))),
    Part('idle', run_idle, ('leasehold',), (('waiters', 5000, 100), ('connections', 1000, 1000)),
         (('waiters', 100000, 1000), ('connections', 10000, 10000)), rounds=1),
    Part('reaping', run_reaping, ('leasehold',), (5000,), (100000,), rounds=1),
    Part('expiry', run_expiry, ('leasehold',), (1,), (10,), rounds=1),
    Part('start', run_start, ('leasehold', 'leasehold-embedded', 'leasehold-embedded-again', 'etcd', 'redis', 'zookeeper'),
         ('first',), ('first',), levels_are_drivers=True),
    Part('semaphore', run_semaphore, ('leasehold', 'leasehold-core', 'leasehold-batched', 'redis'), (256,), (1, 16, 256), by_name=True),
    Part('readers', run_readers, ('leasehold', 'leasehold-core', 'redis'), ((1000, 16, 100),), ((10000, 256, 1), (10000, 16, 500)), by_name=True),
    Part('turns', run_turns, ('leasehold',), ((16, 0), (16, 1)), ((16, 0), (16, 1), (16, 1000), (256, 0), (256, 1)), by_name=True),
    Part('cost', run_cost, ('leasehold',), ((5000, 5, 500),), ((1000000, 15, 1000),), rounds=1, seconds=50.0, quick_seconds=4.0),
)}
