#!/usr/bin/python3
"""Holders that come too late, reapers, and acquirers that take over, all through hooks, thousands of times; then one truth.

The schema, the sessions and what must not be are in hook_storm.sql. It ends after so many events, however long that takes.
"""
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(HERE), 'lib'))
import pgtest  # noqa: E402

EVENTS = 1500
HOLDERS = 12


def main():
    passed = failed = 0
    calls = ['call app.hold(%d)' % EVENTS] * HOLDERS + ['call app.run_cron(%d)' % EVENTS]
    calls += ["call app.run_daemon('00000000-0000-4000-8000-00000000000%d', %d)" % (number, EVENTS) for number in (1, 2)]
    with pgtest.Cluster() as cluster:
        database = cluster.clone('storm')
        cluster.psql_file(database, os.path.join(HERE, 'hook_storm.sql'))
        sessions = [subprocess.Popen(cluster.psql_command('-c', call), env=cluster.environment(database), stdin=subprocess.DEVNULL,
                                     stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True) for call in calls]
        outputs = [session.communicate(timeout=180)[0].strip() for session in sessions]
        broken = cluster.psql(database, 'select what, count(*), min(token) from app.broken group by what')
        counts = dict(line.split('|') for line in cluster.psql(
            database, 'select event, count(*) from app.happened group by event').splitlines())
        checks = [('no session failed', not any(outputs), [output for output in outputs if output][:2]),
                  ('one truth', broken == '', broken)]
        checks += [('enough of %s' % event, int(counts.get(event, 0)) >= least, counts)
                   for event, least in (('acquire', 200), ('heartbeat', 100), ('reap', 100), ('release_ok', 10), ('release_fail', 10))]
    for name, is_good, more in checks:
        passed += bool(is_good)
        failed += not is_good
        if not is_good:
            print('FAILED: %s: %s' % (name, more))
    print('hook storm: %d passed, %d failed' % (passed, failed))
    return 1 if failed else 0


pgtest.main_guard(main)
