#!/usr/bin/python3
"""New lives of a database, on clusters of their own: a failover to a new timeline, a dump restored elsewhere, a crash.

Forty sessions write first on the new timeline, all at once, in transactions that stay open: nobody is blocked, tokens jump
once. A dump restored into another cluster goes on with larger tokens. After a crash nothing that was held is taken over
before its holder had a whole duration and grace to renew.
"""
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(HERE), 'lib'))
import pgtest  # noqa: E402

WRITERS = 40
JUMP = 2 ** 24


class Tally:
    def __init__(self):
        self.passed = self.failed = 0

    def check(self, is_good, name, more=''):
        if is_good:
            self.passed += 1
        else:
            self.failed += 1
            print('FAILED: %s %s' % (name, more))


def numbers(text):
    return [int(line) for line in text.split()]


def acquire(cluster, database, key, number=1):
    return "select token from leasehold.acquire('life', '%s', '30 s', lease_key => '00000000-0000-4000-8000-%012d')" % (key, number)


def wait_until(cluster, database, sql, wanted):
    """Wait for a condition, for up to a minute."""
    return cluster.psql(database, """do $$
      begin
        for i in 1..6000 loop
          exit when (%s) = %s;
          perform pg_sleep(0.01);
          perform pg_stat_clear_snapshot();
        end loop;
      end $$; %s""" % (sql, wanted, sql))


def apart(cluster, database):
    """Numbers of keys with different slots: a transaction that creates one scope makes the others of its slot busy, of 65,536."""
    return numbers(cluster.psql(database, """
      select min(n) from generate_series(1, %d) n, leasehold.turn t where t.name = 'creation'
       group by leasehold_internal.creation_slot('life', 'k' || n, t.seed) order by 1 limit %d""" % (2 * WRITERS, WRITERS)))


def first_writers(cluster, database, tally):
    old = numbers(cluster.psql(database, acquire(cluster, database, 'old') + ';' + acquire(cluster, database, 'older')))
    cluster.psql(database, "update leasehold.scope set deadline = deadline - interval '1 hour', heartbeat_at = heartbeat_at - interval '1 hour', "
                           "acquired_at = acquired_at - interval '1 hour', check_at = check_at - interval '1 hour' where key = 'old'")
    cluster.promote_to_new_timeline()
    # The gate is the row under whose lock the sequences jump: all forty have found that they must before the first of them may.
    gate = cluster.session(database)
    gate.stdin.write("begin; select name from leasehold.turn where name = 'epoch' for update;\n")
    gate.stdin.flush()
    gate.stdout.readline()
    writers = [cluster.session(database) for unused in range(WRITERS)]
    for number, writer in zip(apart(cluster, database), writers):
        writer.stdin.write("""
            begin; set local lock_timeout = '60 s';
            select token from leasehold.acquire('life', 'k%d', '30 s'); \\echo acquired
            """ % number)
        writer.stdin.flush()
    waiting = "select count(*) from pg_locks where locktype in ('transactionid', 'tuple') and not granted"
    tally.check(wait_until(cluster, database, waiting, WRITERS) == str(WRITERS), 'forty writers come to the gate')
    gate.stdin.close()
    gate.wait()
    tokens = []
    for writer in writers:
        lines = []
        while not lines or lines[-1] not in ('acquired', ''):
            lines.append(writer.stdout.readline().strip())
        tokens += [int(line) for line in lines if line.isdigit()]
        tally.check(lines[-1] == 'acquired', 'a first writer is not refused', str(lines))
    # Every one of them has its lease, and none has committed yet.
    open_now = "select count(*) from pg_stat_activity where state = 'idle in transaction' and datname = current_database()"
    tally.check(wait_until(cluster, database, open_now, WRITERS) == str(WRITERS), 'all had their lease with every transaction open: nobody blocked another')
    for writer in writers:
        writer.stdin.write('commit;\n')
        writer.stdin.close()
        tally.check(writer.wait() == 0, 'a first writer commits', writer.stdout.read())
    tally.check(len(set(tokens)) == WRITERS, 'forty different tokens', '%d, of which %d differ' % (len(tokens), len(set(tokens))))
    tally.check(min(tokens) > max(old), 'tokens grow over a failover')
    tally.check(min(tokens) >= max(old) + JUMP, 'by more than anybody draws unseen', '%s after %s' % (min(tokens), max(old)))
    tally.check(max(tokens) - min(tokens) < 1000, 'one jump for all of them', str(sorted(tokens)[:3] + sorted(tokens)[-3:]))
    after = numbers(cluster.psql(database, acquire(cluster, database, 'after')))
    tally.check(len(after) == 1 and after[0] - max(tokens) < 1000, 'and no second jump later', str(after))

    # Promise 9: what had expired before the failover has a whole duration again.
    tally.check(cluster.psql(database, acquire(cluster, database, 'old', 2)) == '', 'nothing is taken over at once after a failover')
    tally.check(cluster.psql(database, 'select count(*) from leasehold.reap()') == '0', 'nor reaped by the call that notices')
    tally.check(cluster.psql(database, 'select count(*) from leasehold.reap()') == '0', 'nor by the next')
    renewed = cluster.psql(database, "select leasehold.heartbeat('life', 'old', '00000000-0000-4000-8000-%012d') is not null" % 1)
    tally.check(renewed == 't', 'its holder may renew')


def restored_elsewhere(cluster, database, tally):
    before = max(numbers(cluster.psql(database, 'select token from leasehold.scope')))
    dump = subprocess.run([os.path.join(cluster.bin, 'pg_dump'), '--no-owner'], env=cluster.environment(database),
                          stdout=subprocess.PIPE, universal_newlines=True, check=True).stdout
    with pgtest.Cluster(schema=False) as other:
        for role in ('owner', 'client', 'reader', 'coordinator', 'admin'):
            other.psql('postgres', 'create role leasehold_%s' % role)
        other.create_database('restored')
        other.psql('restored', dump)
        held = other.psql('restored', acquire(other, 'restored', 'old', 7))
        tally.check(held == '', 'a restored lease is held still')
        token = numbers(other.psql('restored', acquire(other, 'restored', 'fresh')))
        tally.check(len(token) == 1 and token[0] >= before + JUMP, 'a restored dump goes on with larger tokens', '%s after %s' % (token, before))
        tally.check(other.psql('restored', 'select count(*) from leasehold.reap()') == '0', 'nothing is reaped at once after a restore')


def after_a_crash(cluster, database, tally):
    cluster.psql(database, 'select leasehold.reap()')
    held = numbers(cluster.psql(database, acquire(cluster, database, 'crash')))
    cluster.psql(database, "update leasehold.scope set deadline = deadline - interval '1 hour', heartbeat_at = heartbeat_at - interval '1 hour', "
                           "acquired_at = acquired_at - interval '1 hour', check_at = check_at - interval '1 hour' where key = 'crash'")
    # Promise 9, of shared leases: two readers, of whom one has renewed lately.
    readers = ["select count(*) from leasehold.acquire('life', 'readers', '30 s', lease_key => '00000000-0000-4000-8000-%012d', mode => 'shared')" % number
               for number in (1, 2)]
    tally.check([cluster.psql(database, reader) for reader in readers] == ['1', '1'], 'two readers')
    cluster.psql(database, "update leasehold.share set deadline = deadline - interval '1 hour', heartbeat_at = heartbeat_at - interval '1 hour', "
                           "acquired_at = acquired_at - interval '1 hour', check_at = check_at - interval '1 hour' "
                           "where key = 'readers' and lease_key = '00000000-0000-4000-8000-%012d'" % 1)
    # One backend dies badly: the others are restarted and the postmaster stays, so its start time says nothing.
    pid = cluster.psql(database, 'select pg_backend_pid()')
    session = cluster.session(database)
    session.stdin.write('select pg_backend_pid();\n')
    session.stdin.flush()
    pid = int(session.stdout.readline())
    started = cluster.psql(database, 'select pg_postmaster_start_time()')
    os.kill(pid, 9)
    session.stdin.close()
    session.wait()
    ready = [os.path.join(cluster.bin, 'psql'), '-X', '-q', '-c', 'select 1']
    for unused in range(3000):
        if subprocess.run(ready, env=cluster.environment(database), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode == 0 \
                and 'all server processes terminated; reinitializing' in cluster.log_text():
            break
        subprocess.run(['sleep', '0.02'], check=False)
    tally.check(cluster.psql(database, 'select pg_postmaster_start_time()') == started, 'the postmaster survived')
    tally.check(cluster.psql(database, acquire(cluster, database, 'crash', 2)) == '', 'nothing is taken over at once after a crash')
    tally.check(cluster.psql(database, 'select count(*) from leasehold.reap()') == '0', 'nor reaped by the call that notices')
    tally.check(cluster.psql(database, 'select count(*) from leasehold.reap()') == '0', 'nor by the next')
    tally.check(cluster.psql(database, acquire(cluster, database, 'crash', 2)) == '', 'nor taken over then')
    renewed = cluster.psql(database, "select leasehold.heartbeat('life', 'crash', '00000000-0000-4000-8000-%012d') is not null" % 1)
    tally.check(renewed == 't', 'its holder may renew')
    tally.check(cluster.psql(database, acquire(cluster, database, 'readers', 3)) == '', 'no writer takes over from readers')
    for number in (1, 2):
        renewed = cluster.psql(database, "select leasehold.heartbeat('life', 'readers', '00000000-0000-4000-8000-%012d') is not null" % number)
        tally.check(renewed == 't', 'each reader may renew, reader %d too' % number)
    token = numbers(cluster.psql(database, acquire(cluster, database, 'crash2')))
    tally.check(token and 0 < token[0] - held[0] < JUMP, 'a crash is no new timeline: tokens go on without a jump', '%s after %s' % (token, held))


def main():
    tally = Tally()
    with pgtest.Cluster() as cluster:
        database = cluster.clone('lives')
        first_writers(cluster, database, tally)
        restored_elsewhere(cluster, database, tally)
        after_a_crash(cluster, database, tally)
    print('new lives: %d passed, %d failed' % (tally.passed, tally.failed))
    return 1 if tally.failed else 0


if __name__ == '__main__':
    pgtest.main_guard(main)
