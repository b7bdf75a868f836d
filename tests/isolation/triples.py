#!/usr/bin/python3
"""50 clients lock random triples of 50 names, in any order, until there were so many requests: no deadlock, no loss, nobody overtakes.

The clients and what must not be are in triples.sql. It ends after so many requests, however long that takes.

    tests/isolation/triples.py --requests 10000     the whole; without it, a short run
"""
import argparse
import os
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(HERE), 'lib'))
import pgtest  # noqa: E402

CLIENTS = 50


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--requests', type=int, default=200)
    requests = parser.parse_args().requests
    passed = failed = 0
    calls = ['call app.client(%d, %d)' % (client, -(-requests // CLIENTS)) for client in range(1, CLIENTS + 1)]
    with pgtest.Cluster() as cluster:
        database = cluster.clone('triples')
        cluster.psql_file(database, os.path.join(HERE, 'triples.sql'))
        begin = time.monotonic()
        sessions = [subprocess.Popen(cluster.psql_command('-c', call), env=cluster.environment(database), stdin=subprocess.DEVNULL,
                                     stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True) for call in calls]
        outputs = [session.communicate(timeout=7200)[0].strip() for session in sessions]
        seconds = time.monotonic() - begin
        cluster.psql(database, 'create index on app.happened (key, number); analyze app.happened')
        broken = cluster.psql(database, 'select what, count(*), min(key) from app.broken group by what')
        counts = dict(line.split('|') for line in cluster.psql(
            database, 'select what, count(distinct request) from app.happened group by what').splitlines())
        deadlocks = cluster.psql(database, 'select deadlocks from pg_stat_database where datname = current_database()')
    checks = [('no session failed', not any(outputs), [output for output in outputs if output][:2]),
              ('no deadlock', deadlocks == '0', deadlocks),
              ('nothing is broken', broken == '', broken),
              ('every request was granted or given up',
               int(counts.get('granted', 0)) + int(counts.get('left', 0)) == -(-requests // CLIENTS) * CLIENTS, counts),
              ('many had to wait', int(counts.get('queued', 0)) * 10 > requests, counts)]
    for name, is_good, more in checks:
        passed += bool(is_good)
        failed += not is_good
        if not is_good:
            print('FAILED: %s: %s' % (name, more))
    print('%s in %.0f s' % (', '.join('%s %s' % (count, what) for what, count in sorted(counts.items())), seconds))
    print('triples: %d passed, %d failed' % (passed, failed))
    return 1 if failed else 0


pgtest.main_guard(main)
