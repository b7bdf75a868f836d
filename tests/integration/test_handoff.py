"""What a release costs that hands the lease to the first of many waiters: counted in the database, not timed."""
import json

import pytest

import harness
from harness import acquire_request, pb, release_request, wait_until

BOUND = 120  # seconds until a test gives up; never a measurement
ROUNDS = 45
STREAMS = 900  # of one connection

# Releases, acquires, and both in one; and leaves, of which there must be none.
COUNTED = """
select json_build_object('calls', sum(s.calls), 'rows', sum(s.rows), 'blocks', sum(s.shared_blks_hit + s.shared_blks_read),
                         'dirtied', sum(s.shared_blks_dirtied), 'wal', sum(s.wal_records))
  from pg_stat_statements s
 where s.toplevel and s.query ~ 'leasehold_internal\\.(release_batch|acquire_items|hand_over_batch|leave_batch)\\('
   and s.dbid = (select oid from pg_database where datname = current_database())
"""


@pytest.fixture(scope="module")
def cluster():
    cluster = harness.Cluster(["shared_preload_libraries = 'pg_stat_statements'", "autovacuum = off"])
    yield cluster
    cluster.destroy()


class Crowd:
    """So many waiters on one scope, each a call of a stock client, and who holds it."""

    def __init__(self, cluster, database, daemon, key, count):
        self.clients = [harness.Client(daemon.target) for _ in range(1 + count // STREAMS)]
        self.first = self.clients[0].lease.Acquire(acquire_request("jobs", key, 600, owner="first")).lease
        self.calls = []
        for number in range(count):
            client = self.clients[number % len(self.clients)]
            self.calls.append(client.lease.Acquire.future(acquire_request("jobs", key, 600, wait_forever=True, owner=f"w{number}")))
        wait_until(lambda: cluster.psql(f"select count(*) from leasehold.waiter where key = '{key}'", database) == str(count), BOUND)
        self.order = cluster.psql(f"select owner from leasehold.waiter where key = '{key}' order by ticket limit {ROUNDS}",
                                  database).splitlines()

    def hand_on(self, rounds):
        held = self.first
        for owner in self.order[:rounds]:
            assert self.clients[0].lease.Release(release_request(held)).results[0].outcome == pb.OUTCOME_OK
            held = self.calls[int(owner[1:])].result(BOUND).lease
            assert held.owner == owner

    def close(self):
        for client in self.clients:
            client.close()


def counted(cluster, count, scopes, rounds):
    """What `scopes` times `rounds` hand-offs among `count` waiters cost."""
    database = cluster.create_database()
    cluster.psql("create extension pg_stat_statements", database)
    daemon = harness.Daemon("--max-block", "1h", "--lanes", "1", database=cluster.url(database))
    crowds = []
    try:
        crowds += [Crowd(cluster, database, daemon, f"k{number}", count) for number in range(scopes)]
        # What a session does for the first time reads the catalogs.
        lone = crowds[0].clients[0].lease
        assert lone.Release(release_request(lone.Acquire(acquire_request("jobs", "lone", 600)).lease)).results[0].outcome == pb.OUTCOME_OK
        cluster.psql("vacuum analyze leasehold.scope, leasehold.waiter", database)
        cluster.psql("select pg_stat_statements_reset()", database)
        for crowd in crowds:
            crowd.hand_on(rounds)
        return json.loads(cluster.psql(COUNTED, database))
    finally:
        for crowd in crowds:
            crowd.close()
        daemon.kill()
        daemon.destroy()


def test_a_hand_off_costs_the_database_the_same_among_ten_and_ten_thousand(cluster):
    few = counted(cluster, 10, ROUNDS // 9, 9)
    many = counted(cluster, 10000, 1, ROUNDS)
    # One lease is released, one waiter is asked for, in one statement or two; nobody else: no herd.
    for found in (few, many):
        assert 2 * ROUNDS <= found["rows"] <= 2 * ROUNDS + 5 and found["calls"] <= 2 * ROUNDS + 5, found
    for what in ("blocks", "dirtied", "wal"):
        assert many[what] <= 1.5 * few[what] + ROUNDS, (what, few, many)
