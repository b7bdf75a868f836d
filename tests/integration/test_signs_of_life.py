"""A snapshot that somebody holds open keeps every version of a daemon's row, one a second: what asks who is live does not read them all."""
import json

import harness
from harness import acquire_request

COORDINATOR = "00000000-0000-4000-8000-00000000000a"
TICKS = 3000
PAGES = 60  # they fill several times as many


def test_asking_who_is_live_costs_the_same_after_hours_under_an_open_snapshot():
    cluster = harness.Cluster(migrated=True)
    try:
        database = cluster.create_database(migrated=True)
        daemon = harness.Daemon(database=cluster.url(database))
        client = harness.Client(daemon.target)
        client.lease.Acquire(acquire_request("n", "k", 600))
        assert daemon.stop() == 0
        psql = lambda sql: cluster.psql(sql, database)  # noqa: E731
        psql(f"select leasehold_internal.coordinator_register('{COORDINATOR}', 'host', 1, '1')")
        old = cluster.session(database)
        old.run("begin isolation level repeatable read; select count(*) from leasehold.coordinator")
        psql(f"do $$ begin for i in 1 .. {TICKS} loop "
             f"perform leasehold_internal.coordinator_tick('{COORDINATOR}', clock_timestamp()); commit; end loop; end $$")
        # So that the plans know how large the table is, and the tick is of now.
        psql(f"vacuum analyze leasehold.coordinator; select leasehold_internal.coordinator_tick('{COORDINATOR}', clock_timestamp())")
        wait = (f"select outcome from leasehold_internal.acquire_items('{COORDINATOR}', clock_timestamp(), array['n'], array['k'], array[gen_random_uuid()], "
                "array['o'], array['{}'], array[30000000], array[true], array[null::bigint], array[0])")
        for name, sql in (("is it settled", "select leasehold_internal.life(null)"), ("who is live", "select leasehold_internal.live_coordinators(clock_timestamp())"),
                          ("a wait", wait)):
            # The second time, when the catalog has been read.
            plan = psql(f"do $$ begin perform count(*) from ({sql}) q; end $$; {sql}; explain (analyze, buffers, format json) {sql}")
            pages = json.loads(plan[plan.index("[\n"):])[0]["Plan"]
            assert pages["Shared Hit Blocks"] + pages["Shared Read Blocks"] < PAGES * (5 if name == "a wait" else 1), name
        assert psql("select count(*) from leasehold.coordinator") == "1"
    finally:
        cluster.destroy()
