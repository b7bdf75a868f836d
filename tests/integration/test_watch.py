"""WatchLeases, with a stock Python client: every change once, in order for a scope, from wherever it comes."""
import random
import threading
import uuid

import grpc
import pytest

import harness
from harness import acquire_request, fails, pb, release_request, scope, wait_until
from streams import BOUND, Reading

ACQUIRED = pb.LeaseEvent.TYPE_ACQUIRED
RELEASED = pb.LeaseEvent.TYPE_RELEASED
EXPIRED = pb.LeaseEvent.TYPE_EXPIRED
FORCED = pb.LeaseEvent.TYPE_FORCED
INITIAL = pb.LeaseEvent.TYPE_INITIAL
SYNCED = pb.LeaseEvent.TYPE_SYNCED


class Watch(Reading):
    """A watch that is active when it is made; a thread reads it."""

    def __init__(self, client, namespace="", include_children=False, include_initial=False, reads=True, wait=True):
        segments = namespace.split(".") if namespace else []
        super().__init__(client.lease.WatchLeases(
            pb.WatchLeasesRequest(namespace=segments, include_children=include_children, include_initial=include_initial)))
        if wait:
            self.call.initial_metadata()
        if reads:
            self.read()


@pytest.fixture
def watch(service):
    opened = []

    def open_watch(*args, client=None, **more):
        opened.append(Watch(client or service.client, *args, **more))
        return opened[-1]

    yield open_watch
    for each in opened:
        each.close()


@pytest.fixture(scope="module")
def second(service, cluster):
    """Another daemon on the same database."""
    daemon = harness.Daemon(database=cluster.url(service.database))
    client = harness.Client(daemon.target)
    yield client
    client.close()
    assert daemon.stop() == 0, daemon.log()


def name(event):
    return ".".join(event.lease.scope.namespace), event.lease.scope.key


def names():
    return "w" + uuid.uuid4().hex[:8]


def facts(event):
    return event.type, event.lease.scope.key, event.lease.token


def settle(watch, service, namespace):
    """A last change of its own, and everything up to it."""
    last = service.client.lease.Acquire(acquire_request(namespace, "the-last")).lease
    watch.until(lambda event: event.type == ACQUIRED and event.lease.scope.key == "the-last" and event.lease.token == last.token)
    service.client.lease.Release(release_request(last))


class State:
    """What a client of a watch with include_initial knows; it complains of every event that does not follow."""

    def __init__(self):
        self.held = {}
        self.tokens = {}
        self.is_synced = False

    def take(self, event):
        if event.type == SYNCED:
            assert not self.is_synced
            self.is_synced = True
            return
        key, token = name(event), event.lease.token
        if event.type == INITIAL:
            assert not self.is_synced and key not in self.held, event
            self.held[key] = token
        elif event.type == ACQUIRED:
            assert self.is_synced
            assert key not in self.held, f"{key} is held with {self.held[key]}, and acquired with {token}"
            assert token > self.tokens.get(key, 0), f"{key} has had {self.tokens[key]}, and is acquired with {token}"
            self.held[key] = token
        else:
            assert self.is_synced
            assert self.held.get(key) == token, f"{key} is held with {self.held.get(key)}, and {token} ended"
            del self.held[key]
        self.tokens[key] = token


def listed(service, namespace, include_children=False):
    held, page_token = {}, ""
    while True:
        page = service.client.lease.ListLeases(pb.ListLeasesRequest(
            namespace=namespace.split("."), include_children=include_children, page_size=1000, page_token=page_token))
        for lease in page.leases:
            held[".".join(lease.scope.namespace), lease.scope.key] = lease.token
        page_token = page.next_page_token
        if not page_token:
            return held


# --- what is told ---


def test_a_watch_is_active_when_its_headers_come(service, watch):
    namespace = names()
    for number in range(20):
        client = service.client
        each = watch(f"{namespace}{number}")
        lease = client.lease.Acquire(acquire_request(f"{namespace}{number}", "k", owner="me", labels={"a": "b"})).lease
        event = each.next()
        assert (event.type, event.lease.token, event.lease.owner) == (ACQUIRED, lease.token, "me")
        assert dict(event.lease.labels) == {"a": "b"}
        assert event.lease.lease_key == ""
        each.close()


def test_changes_by_two_daemons_and_by_sql_are_told_once_and_in_order(service, second, watch):
    namespace = names()
    here, there = watch(namespace), watch(namespace, client=second)
    expected = []
    for number in range(10):
        client = (service.client, second)[number % 2]
        lease = client.lease.Acquire(acquire_request(namespace, "k")).lease
        client.lease.Release(release_request(lease, success='{"n": %d}' % number))
        expected += [(ACQUIRED, "k", lease.token), (RELEASED, "k", lease.token)]
        token, key = service.psql(
            f"select token, lease_key from leasehold.acquire('{namespace}', 'k', interval '30 s', 'sql')").split("|")
        service.psql(f"select leasehold.release_fail('{namespace}', 'k', '{key}', 'it broke')")
        expected += [(ACQUIRED, "k", int(token)), (RELEASED, "k", int(token))]
    for each in (here, there):
        for _ in expected:
            each.next()
        settle(each, service, namespace)
        assert [facts(event) for event in each.seen[:-1] if event.lease.scope.key == "k"] == expected
        ends = [event for event in each.seen if event.type == RELEASED and event.lease.scope.key == "k"]
        assert {event.end_reason for event in ends[0::2]} == {pb.END_REASON_RELEASED}
        assert {event.end_reason for event in ends[1::2]} == {pb.END_REASON_FAILED}
        assert {event.error for event in ends[1::2]} == {"it broke"}
        assert ends[0].result.replace(" ", "") == '{"n":0}'


def test_expiry_takeover_and_force_are_told(service, second, watch):
    namespace = names()
    each = watch(namespace)
    expires = second.lease.Acquire(acquire_request(namespace, "expires", seconds=1)).lease
    forced = second.lease.Acquire(acquire_request(namespace, "forced")).lease
    second.admin.ForceRelease(pb.ForceReleaseRequest(scope=scope(namespace, "forced"), reason="maintenance"))
    event = each.until(lambda event: event.type == FORCED)
    assert (event.lease.token, event.reason, event.end_reason) == (forced.token, "maintenance", pb.END_REASON_FORCED)
    # Somebody waits for it: expired, then acquired, whoever of reaper and acquirer was first.
    again = service.client.lease.Acquire(acquire_request(namespace, "expires", wait=BOUND)).lease
    each.until(lambda event: facts(event) == (ACQUIRED, "expires", again.token))
    assert [facts(event) for event in each.seen if event.lease.scope.key == "expires"] == [
        (ACQUIRED, "expires", expires.token), (EXPIRED, "expires", expires.token), (ACQUIRED, "expires", again.token)]


def test_what_is_rolled_back_is_not_told(service, watch):
    namespace = names()
    each = watch(namespace)
    service.psql(f"begin; select * from leasehold.acquire('{namespace}', 'no', interval '30 s'); rollback;")
    settle(each, service, namespace)
    assert [event.lease.scope.key for event in each.seen] == ["the-last"]


def test_prefix_and_children(service, watch):
    root = names()
    alone, below, everything = watch(root), watch(root, include_children=True), watch("")
    for namespace in (root, f"{root}.child", f"{root}.child.deep", f"{root}x", f"a.{root}"):
        service.client.lease.Acquire(acquire_request(namespace, "k"))
    for each, wanted in (
        (alone, {root}),
        (below, {root, f"{root}.child", f"{root}.child.deep"}),
        (everything, {root, f"{root}.child", f"{root}.child.deep", f"{root}x", f"a.{root}"}),
    ):
        settle(each, service, root)
        assert {name(event)[0] for event in each.seen if root in name(event)[0]} == wanted
        assert len([event for event in each.seen if event.lease.scope.key == "k" and root in name(event)[0]]) == len(wanted)


def test_bad_namespaces_are_refused(service):
    for segments in (["a.b"], ["x" * 64], ["n"] * 17, [""], ["a\u0001"]):
        with fails() as failure:
            list(service.client.lease.WatchLeases(pb.WatchLeasesRequest(namespace=segments)))
        assert failure.value.code == grpc.StatusCode.INVALID_ARGUMENT
        assert failure.value.bad_request.field_violations[0].field.startswith("namespace")


# --- include_initial ---


def test_initial_then_synced_then_changes(service, watch):
    namespace = names()
    leases = {key: service.client.lease.Acquire(acquire_request(namespace, key)).lease for key in ("a", "b", "c")}
    service.client.lease.Release(release_request(leases.pop("b")))
    # Somebody else may still watch everything, and what is taken for him late is told here too.
    wait_until(lambda: service.psql("select count(*) from leasehold.event") == "0")
    each = watch(namespace, include_initial=True)
    assert {facts(each.next()) for _ in range(2)} == {(INITIAL, key, lease.token) for key, lease in leases.items()}
    assert each.next().type == SYNCED
    service.client.lease.Release(release_request(leases["a"]))
    assert facts(each.next()) == (RELEASED, "a", leases["a"].token)
    again = service.client.lease.Acquire(acquire_request(namespace, "b")).lease
    assert facts(each.next()) == (ACQUIRED, "b", again.token)


def test_an_empty_namespace_is_synced_at_once(watch):
    each = watch(names(), include_initial=True)
    assert each.next().type == SYNCED


def churn(client, namespace, worker, stop, errors):
    """Acquire and release until told to stop; half of it stays held for a while."""
    rng, held = random.Random(worker), {}
    try:
        while not stop.is_set():
            key = f"k{worker}-{rng.randrange(40)}"
            if key in held:
                client.lease.Release(release_request(held.pop(key)))
            else:
                held[key] = client.lease.Acquire(acquire_request(f"{namespace}.{worker}", key, seconds=120)).lease
    except Exception as error:  # noqa: BLE001
        errors.append(error)


def test_no_gap_between_initial_and_events_under_load(service, second, watch):
    namespace = names()
    # More than two pages that stay.
    service.psql("\n".join(f"select 1 from leasehold.acquire('{namespace}.fixed', 'f{number}', interval '10 min');" for number in range(450)))
    stop, errors = threading.Event(), []
    threads = [threading.Thread(target=churn, args=((service.client, second)[n % 2], namespace, n, stop, errors))
               for n in range(6)]
    for thread in threads:
        thread.start()
    try:
        watches = []
        for number in range(12):
            watches.append(watch(namespace, include_children=True, include_initial=True,
                                 client=(service.client, second)[number % 2]))
            for each in watches[-1:]:
                for _ in range(30):
                    each.next()
        for _ in range(50):
            watches[0].next()
    finally:
        stop.set()
        for thread in threads:
            thread.join(BOUND)
    assert not errors, errors
    settled = service.client.lease.Acquire(acquire_request(f"{namespace}.end", "the-last")).lease
    held = listed(service, namespace, include_children=True)
    assert len(held) > 450
    for each in watches:
        each.until(lambda event: event.lease.token == settled.token)
        # One scope's events are in order, but those of others may come after that of the last.
        state = State()
        for event in each.seen:
            state.take(event)

        def agrees():
            while not each.events.empty():
                state.take(each.next())
            return state.held == held

        wait_until(agrees, BOUND, "the state that the list shows")
        assert state.is_synced and each.error is None


def test_a_transaction_that_was_open_before_the_watch_is_not_missed(service, watch):
    namespace = names()
    session = service.session()
    session.run(f"begin; select 1 from leasehold.acquire('{namespace}', 'open', interval '5 min')")
    each = watch(namespace, include_initial=True, wait=False)
    wait_until(lambda: service.psql(f"select 1 from leasehold.watch where namespace = '{namespace}'"), BOUND, "the watch added")
    # Calls of the control connection are answered in order: it would have listed by now.
    for _ in range(20):
        assert listed(service, namespace) == {}
    session.run("commit")
    session.close()
    assert facts(each.next())[:2] == (INITIAL, "open")
    assert each.next().type == SYNCED


def test_a_transaction_that_stays_open_holds_nobody_up_for_ever(service, watch):
    namespace = names()
    session = service.session()
    session.run(f"begin; select 1 from leasehold.acquire('{namespace}', 'open', interval '5 min')")
    each = watch(namespace, include_initial=True)
    assert each.next().type == SYNCED
    lease = service.client.lease.Acquire(acquire_request(namespace, "other")).lease
    assert facts(each.next()) == (ACQUIRED, "other", lease.token)
    session.run("commit")
    session.close()
    # What it did was written before the watch could be seen: the watcher is told to list again.
    failure = each.fails()
    assert (failure.code, failure.reason) == (grpc.StatusCode.ABORTED, "WATCH_LAGGED")
    again = watch(namespace, include_initial=True)
    assert {facts(again.next())[:2] for _ in range(2)} == {(INITIAL, "open"), (INITIAL, "other")}


# --- bounds and outages ---


def test_a_slow_reader_is_ended_and_the_others_go_on(service, watch, start):
    namespace = names()
    fast = watch(namespace)
    # A daemon resets the call of a client that reads nothing for stall_timeout, 30 s: on a busy machine, before this one reads why it ended.
    slow_client = harness.Client(start("--stall-timeout", "1h", database=service.cluster.url(service.database)).target)
    slow = watch(namespace, client=slow_client, reads=False)
    service.psql(f"""
      create or replace function public.churn(n integer) returns void language plpgsql as $$
      declare v_key uuid;
      begin
        for i in 1..n loop
          v_key := gen_random_uuid();
          perform leasehold.acquire('{namespace}', 'k' || i, interval '5 min', 'sql', v_key);
          perform leasehold.release_ok('{namespace}', 'k' || i, v_key, to_jsonb(repeat('x', 8000)));
        end loop;
      end $$""")
    for _ in range(20):
        service.psql("select public.churn(100)")
        lease = service.client.lease.Acquire(acquire_request(namespace, "beat")).lease
        fast.until(lambda event: facts(event) == (ACQUIRED, "beat", lease.token))
        service.client.lease.Release(release_request(lease))
    tokens = [event.lease.token for event in fast.seen if event.type == RELEASED and event.lease.scope.key != "beat"]
    assert len(tokens) == len(set(tokens)) == 2000
    slow.read()
    failure = slow.fails()
    assert (failure.code, failure.reason) == (grpc.StatusCode.ABORTED, "WATCH_LAGGED")
    assert len(slow.seen) < 4000
    slow_client.close()


def test_a_restart_of_the_database_ends_watchers_and_they_begin_again(tmp_path):
    cluster = harness.Cluster(migrated=True)
    database = cluster.create_database(migrated=True)
    daemon = harness.Daemon(database=cluster.url(database))
    client = harness.Client(daemon.target)
    try:
        lease = client.lease.Acquire(acquire_request("restart", "k", seconds=300)).lease
        for mode in ("fast", "immediate"):
            each = Watch(client, "restart", include_initial=True)
            assert facts(each.next()) == (INITIAL, "k", lease.token)
            assert each.next().type == SYNCED
            cluster.stop(mode)
            cluster.start()
            failure = each.fails()
            assert (failure.code, failure.reason) == (grpc.StatusCode.ABORTED, "WATCH_LAGGED")

            def begins():
                again = Watch(client, "restart", include_initial=True, wait=False)
                if again.next() is None:
                    assert harness.Failure(again.error).reason == "DATABASE_UNAVAILABLE"
                    return None
                return again

            again = wait_until(begins, BOUND, "a watch after the restart")
            assert facts(again.seen[0]) == (INITIAL, "k", lease.token)
            again.until(lambda event: event.type == SYNCED)

            def acquires():
                try:
                    return client.lease.Acquire(acquire_request("restart", f"after-{mode}")).lease
                except grpc.RpcError:
                    return None

            after = wait_until(acquires, BOUND, "a grant after the restart")
            again.until(lambda event: facts(event) == (ACQUIRED, f"after-{mode}", after.token))
            again.close()
            client.lease.Release(release_request(after))
    finally:
        client.close()
        daemon.stop()
        daemon.destroy()
        cluster.destroy()


def test_a_coordinator_whose_events_were_lost_ends_its_watchers(service, watch):
    each = watch(names())
    service.psql("truncate leasehold.watch, leasehold.event")
    failure = each.fails()
    assert (failure.code, failure.reason) == (grpc.StatusCode.ABORTED, "WATCH_LAGGED")


def test_watches_are_shared_and_go_with_the_last_watcher(service, watch):
    namespace = names()
    rows = lambda: int(service.psql(f"select count(*) from leasehold.watch where namespace = '{namespace}'"))  # noqa: E731
    first, other = watch(namespace), watch(namespace)
    assert rows() == 1
    first.close()
    lease = service.client.lease.Acquire(acquire_request(namespace, "k")).lease
    assert facts(other.next()) == (ACQUIRED, "k", lease.token)
    other.close()
    wait_until(lambda: rows() == 0, BOUND, "the row gone")


def test_too_many_watchers_are_refused(cluster, database):
    daemon = harness.Daemon("--max-watchers", "2", database=cluster.url(database))
    client = harness.Client(daemon.target)
    opened = [Watch(client, names()) for _ in range(2)]
    with fails() as failure:
        list(client.lease.WatchLeases(pb.WatchLeasesRequest()))
    assert (failure.value.code, failure.value.reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "OVERLOADED")
    assert failure.value.metadata["limit"] == "2"
    opened.pop().close()

    def watches():
        each = Watch(client, names(), include_initial=True, wait=False)
        return each if each.next() is not None else None

    opened.append(wait_until(watches, BOUND, "a place again"))
    for each in opened:
        each.close()
    client.close()
    assert daemon.stop() == 0, daemon.log()
    daemon.destroy()


def test_a_shutdown_ends_watchers(cluster):
    database = cluster.create_database()
    daemon = harness.Daemon(database=cluster.url(database))
    client = harness.Client(daemon.target)
    each = Watch(client, "shut")
    assert daemon.stop() == 0, daemon.log()
    failure = each.fails()
    assert (failure.code, failure.reason) == (grpc.StatusCode.UNAVAILABLE, "SHUTTING_DOWN")
    client.close()
    daemon.destroy()
