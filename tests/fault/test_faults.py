"""What breaks: PostgreSQL stops, is killed, comes back; daemons die. Nobody loses a lease by it, nobody is forgotten."""
import concurrent.futures
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time
import uuid

import grpc

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "integration"))
import harness  # noqa: E402
from harness import acquire_request, fails, heartbeat, lease_ref, pb, release_request, wait_until  # noqa: E402


def queued(cluster, database, key):
    return int(cluster.psql(f"select count(*) from leasehold.waiter where key = '{key}'", database))


def wait_for_lease(client, owner):
    """As a client waits: handed back while the database is out of reach, or just was, it comes again with the same lease key."""
    request = acquire_request("jobs", "a", 60, wait_forever=True, owner=owner, lease_key=str(uuid.uuid4()))
    while True:
        try:
            return client.lease.Acquire(request)
        except grpc.RpcError as error:
            if harness.Failure(error).reason not in ("DATABASE_UNAVAILABLE", "BLOCKING_TIMEOUT"):
                raise


def test_waiters_and_leases_outlive_a_restart_of_the_database(cluster):
    database = cluster.create_database(migrated=True)
    daemon = harness.Daemon(database=cluster.url(database))
    client = harness.Client(daemon.target)
    held = client.lease.Acquire(acquire_request("jobs", "a", 5)).lease
    calls = []

    def is_renewed():
        return heartbeat(client, held).outcome == pb.OUTCOME_OK

    pool = concurrent.futures.ThreadPoolExecutor(3)
    for number in range(3):
        calls.append(pool.submit(wait_for_lease, client, f"w{number}"))
        wait_until(lambda n=number: is_renewed() and queued(cluster, database, "a") == n + 1)
    expiry = float(cluster.psql("select extract(epoch from deadline + grace) from leasehold.scope", database))
    cluster.psql("checkpoint", "postgres")  # a crash takes the places that are not on the disk, and who is sent away comes again when it likes
    cluster.stop("immediate")
    result = heartbeat(client, held)
    assert result.outcome == pb.OUTCOME_RETRY
    with fails() as failure:
        client.lease.Acquire(acquire_request("jobs", "b"))
    assert failure.value.code == grpc.StatusCode.UNAVAILABLE and failure.value.reason == "DATABASE_UNAVAILABLE"
    assert failure.value.retry is not None
    wait_until(lambda: time.time() > expiry, what="the lease's expiry, as nobody but us can know while it is away")
    cluster.start()
    wait_until(lambda: heartbeat(client, held).outcome != pb.OUTCOME_RETRY)
    assert heartbeat(client, held).outcome == pb.OUTCOME_OK, "a restart cost the holder its lease"

    def are_back():
        assert not any(call.done() for call in calls), [call.exception() for call in calls if call.done()]
        return is_renewed() and cluster.psql("select count(*) from leasehold.waiter where away_until is null", database) == "3"

    # After 5 s without the database they were sent away; until they are back in their places others go before them.
    wait_until(are_back, 60, "the return of the waiters")
    for number, call in enumerate(calls):
        client.lease.Release(release_request(held))
        granted = call.result(30).lease
        assert granted.owner == f"w{number}" and granted.token > held.token
        held = granted
    assert daemon.stop() == 0


def test_places_that_a_crash_took_are_asked_for_again_in_their_order(cluster):
    database = cluster.create_database(migrated=True)
    daemon = harness.Daemon(database=cluster.url(database))
    client = harness.Client(daemon.target)
    cluster.psql("alter system set wal_writer_delay = '10s'", "postgres")
    cluster.psql("select pg_reload_conf()", "postgres")
    pool = concurrent.futures.ThreadPoolExecutor(3)
    # A commit of anybody that waits for the disk, as that of a sign of life each second, takes the places of before along.
    for attempt in range(20):
        held = client.lease.Acquire(acquire_request("jobs", "a", 60)).lease
        calls = []
        for number in range(3):
            calls.append(pool.submit(wait_for_lease, client, f"w{number}"))
            wait_until(lambda n=number: queued(cluster, database, "a") == n + 1)
        daemon.process.send_signal(signal.SIGSTOP)
        cluster.stop("immediate")
        cluster.start()
        left = queued(cluster, database, "a")
        daemon.process.send_signal(signal.SIGCONT)
        wait_until(lambda: cluster.psql("select count(*) from leasehold.waiter where away_until is null", database) == "3", 60)
        for number, call in enumerate(calls):
            wait_until(lambda h=held: client.lease.Release(release_request(h)).results[0].outcome == pb.OUTCOME_OK)
            held = call.result(30).lease
            assert held.owner == f"w{number}"
        wait_until(lambda: client.lease.Release(release_request(held)).results[0].outcome == pb.OUTCOME_OK)
        if left < 3:
            break
    assert left < 3, "no crash took a place"
    assert daemon.stop() == 0


def test_a_crash_recovery_while_leases_pass_their_deadlines_costs_nobody_a_lease(cluster):
    database = cluster.create_database(migrated=True)
    daemon = harness.Daemon(database=cluster.url(database))
    client = harness.Client(daemon.target)
    calls = [client.lease.Acquire.future(acquire_request("crash", f"k{n}", 2.8)) for n in range(50)]
    leases = [call.result(30).lease for call in calls]
    renew = lambda: {result.outcome for result in client.lease.Heartbeat(  # noqa: E731
        pb.HeartbeatRequest(leases=[lease_ref(lease) for lease in leases])).results}
    postmaster = int((cluster.data / "postmaster.pid").read_text().split()[0])
    # Stopped, the postmaster sees the end of its children, and lets a daemon connect, only when it goes on.
    os.kill(postmaster, signal.SIGSTOP)
    try:
        children = subprocess.run(["pgrep", "-P", str(postmaster)], stdout=subprocess.PIPE, text=True, check=True).stdout.split()
        assert renew() == {pb.OUTCOME_OK}
        for pid in children:
            os.kill(int(pid), signal.SIGKILL)
        expiry = time.time() + 3.9  # the duration and the grace; sooner than daemons are taken for dead, which would delay the end of leases too
        wait_until(lambda: time.time() > expiry, what="the expiry of every lease")
    finally:
        os.kill(postmaster, signal.SIGCONT)
    wait_until(lambda: heartbeat(client, leases[0]).outcome != pb.OUTCOME_RETRY, 60)
    assert renew() == {pb.OUTCOME_OK}
    # And those that do not renew now do expire in the end.
    wait_until(lambda: cluster.psql("select count(*) from leasehold.lease where namespace = 'crash'", database) == "0")
    assert daemon.stop() == 0


def test_grants_go_on_under_load_while_the_database_stops_and_starts(cluster):
    database = cluster.create_database(migrated=True)
    daemon = harness.Daemon(database=cluster.url(database))
    stop, failures, tokens, lock = threading.Event(), [], {}, threading.Lock()

    def work(number):
        client = harness.Client(daemon.target)
        try:
            while not stop.is_set():
                key, lease_key = f"k{number % 4}", str(uuid.uuid4())
                try:
                    lease = client.lease.Acquire(acquire_request("load", key, 5, wait=20, lease_key=lease_key)).lease
                except grpc.RpcError as error:
                    if harness.Failure(error).reason not in ("DATABASE_UNAVAILABLE", "WAIT_TIMEOUT", "BLOCKING_TIMEOUT"):
                        raise
                    continue
                with lock:
                    tokens.setdefault(key, []).append(lease.token)
                while True:
                    result = client.lease.Release(release_request(lease)).results[0]
                    if result.outcome != pb.OUTCOME_RETRY:
                        assert result.outcome == pb.OUTCOME_OK or result.end_reason == pb.END_REASON_RELEASED, result
                        break
        except Exception as error:  # noqa: BLE001
            failures.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(16)]
    for thread in threads:
        thread.start()
    for mode in ("fast", "immediate"):
        have = sum(map(len, tokens.values()))
        wait_until(lambda: sum(map(len, tokens.values())) > have + 200 or failures)
        cluster.stop(mode)
        cluster.start()
    have = sum(map(len, tokens.values()))
    wait_until(lambda: sum(map(len, tokens.values())) > have + 200 or failures, 60, "grants after the restarts")
    stop.set()
    for thread in threads:
        thread.join(60)
    assert not failures, failures[0]
    for key, drawn in tokens.items():
        assert drawn == sorted(set(drawn)), f"tokens of {key} went back"
    assert daemon.stop() == 0


def test_two_daemons_are_fair_and_one_killed_delays_the_others_waiters_for_seconds_only(cluster):
    database = cluster.create_database(migrated=True)
    first, second = (harness.Daemon(database=cluster.url(database)) for _ in range(2))
    clients = [harness.Client(first.target), harness.Client(second.target)]
    held = clients[0].lease.Acquire(acquire_request("jobs", "k", 60)).lease
    calls = []
    for number in range(8):
        calls.append(clients[number % 2].lease.Acquire.future(
            acquire_request("jobs", "k", 60, wait_forever=True, owner=f"w{number}")))
        wait_until(lambda n=number: queued(cluster, database, "k") == n + 1)
    for number in range(4):
        clients[number % 2].lease.Release(release_request(held))
        held = calls[number].result(30).lease
        assert held.owner == f"w{number}", "somebody overtook"
    # w4 and w6 wait at the first daemon: it dies, they are skipped.
    first.kill()
    assert clients[1].lease.Release(release_request(held)).results[0].outcome == pb.OUTCOME_OK
    held = calls[5].result(30).lease
    assert held.owner == "w5"
    clients[1].lease.Release(release_request(held))
    held = calls[7].result(30).lease
    assert held.owner == "w7"
    wait_until(lambda: queued(cluster, database, "k") == 0, 60, "the dead daemon's waiters to be removed")
    assert second.stop() == 0


def test_a_killed_daemon_leaves_its_holders_their_leases(cluster):
    database = cluster.create_database(migrated=True)
    daemon = harness.Daemon(database=cluster.url(database))
    client = harness.Client(daemon.target)
    held = client.lease.Acquire(acquire_request("jobs", "k", 12)).lease
    daemon.kill()
    wait_until(lambda: cluster.psql("select clock_timestamp() > deadline + grace and clock_timestamp() > seen_at + interval '5 s' "
                                    "from leasehold.scope, leasehold.coordinator", database) == "t",
               what="its expiry, and the end of the daemon's last sign of life: nobody could renew")
    daemon.start()
    wait_until(lambda: daemon.process.poll() is None)
    client = harness.Client(daemon.target)
    assert heartbeat(client, held).outcome == pb.OUTCOME_OK
    assert client.lease.Release(release_request(held)).results[0].outcome == pb.OUTCOME_OK
    assert daemon.stop() == 0


def test_a_stopped_daemon_loses_its_place_in_line_but_nothing_is_granted_twice(cluster):
    database = cluster.create_database(migrated=True)
    first, second = (harness.Daemon(database=cluster.url(database)) for _ in range(2))
    one, two = harness.Client(first.target), harness.Client(second.target)
    held = two.lease.Acquire(acquire_request("jobs", "k", 60)).lease
    stopped = one.lease.Acquire.future(acquire_request("jobs", "k", 60, wait_forever=True, owner="stopped"))
    wait_until(lambda: queued(cluster, database, "k") == 1)
    behind = two.lease.Acquire.future(acquire_request("jobs", "k", 60, wait_forever=True, owner="behind"))
    wait_until(lambda: queued(cluster, database, "k") == 2)
    first.signal(signal.SIGSTOP)
    two.lease.Release(release_request(held))
    held = behind.result(30).lease
    first.signal(signal.SIGCONT)
    assert not stopped.done()
    two.lease.Release(release_request(held))
    after = stopped.result(30).lease
    assert after.token > held.token and after.owner == "stopped"
    assert first.stop() == 0 and second.stop() == 0


def test_a_clean_stop_answers_waiters_and_unregisters(cluster):
    database = cluster.create_database(migrated=True)
    daemon = harness.Daemon(database=cluster.url(database))
    client = harness.Client(daemon.target)
    client.lease.Acquire(acquire_request("jobs", "k"))
    call = client.lease.Acquire.future(acquire_request("jobs", "k", wait_forever=True))
    wait_until(lambda: queued(cluster, database, "k") == 1)
    assert daemon.stop() == 0
    with fails() as failure:
        call.result(30)
    assert failure.value.code == grpc.StatusCode.UNAVAILABLE and failure.value.reason == "SHUTTING_DOWN"
    assert cluster.psql("select count(*) from leasehold.coordinator", database) == "0"


def test_the_listener_backend_may_be_killed(cluster):
    database = cluster.create_database(migrated=True)
    daemon = harness.Daemon(database=cluster.url(database))
    client = harness.Client(daemon.target)
    lease_key = str(uuid.uuid4())
    cluster.psql(f"select token from leasehold.acquire('jobs', 'k', '1 hour', lease_key => '{lease_key}')", database)
    call = client.lease.Acquire.future(acquire_request("jobs", "k", wait_forever=True))
    wait_until(lambda: queued(cluster, database, "k") == 1)
    cluster.psql("select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()", database)
    cluster.psql(f"select leasehold.release_ok('jobs', 'k', '{lease_key}')", database)
    assert call.result(30).lease.token > 0
    assert daemon.stop() == 0


def test_the_embedded_database_starts_stops_and_comes_back(tmp_path_factory):
    directory = pathlib.Path("/tmp") / f"lh-embedded-{uuid.uuid4().hex[:8]}"
    daemon = harness.Daemon(embedded=directory)
    try:
        client = harness.Client(daemon.target)
        first = client.lease.Acquire(acquire_request("jobs", "k", 60)).lease
        assert daemon.stop(60) == 0
        daemon.start()
        client = harness.Client(daemon.target)
        assert heartbeat(client, first).outcome == pb.OUTCOME_OK
        client.lease.Release(release_request(first))
        second = client.lease.Acquire(acquire_request("jobs", "k", 60)).lease
        assert second.token > first.token
        daemon.kill()
        daemon.start()
        client = harness.Client(daemon.target)
        assert heartbeat(client, second).outcome == pb.OUTCOME_OK
        assert daemon.stop(60) == 0
    finally:
        daemon.destroy()
        import shutil

        shutil.rmtree(directory, ignore_errors=True)
