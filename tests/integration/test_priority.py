"""Priority of waiters over gRPC: with one daemon and with two, by unary calls and streams, and who may ask for it."""
import json
import subprocess
import uuid

import grpc
import pytest

import harness
from commandline import cli, environment
from access_site import Site, bearer
from harness import Client, acquire_request, pb, release_request, wait_until
from streams import BOUND, keys

PRIORITIES = [0, 3, 0, 7, 3, 1, 7, 0]
# The highest first, and of one priority who came first.
SERVED = [3, 6, 1, 4, 5, 0, 2, 7]


@pytest.fixture(scope="module")
def service(cluster):
    service = harness.Service(cluster, "--max-block", "0")
    service.psql("select leasehold.set_policy('jobs', max_priority => 10, ageing => '1 day')")
    yield service
    service.close()


@pytest.fixture(scope="module")
def second(service):
    daemon = harness.Daemon("--max-block", "0", database=service.cluster.url(service.database))
    client = Client(daemon.target)
    yield client
    client.close()
    daemon.kill()
    daemon.destroy()


def waiting(service, key):
    return int(service.psql(f"select count(*) from leasehold.queue where namespace = 'jobs' and key = '{key}'"))


def queue(service, clients, key, priorities):
    """One waiter for each priority, in their order: their calls."""
    calls = []
    for number, priority in enumerate(priorities):
        request = acquire_request("jobs", key, 600, wait_forever=True, owner=f"w{number}", priority=priority)
        calls.append(clients[number % len(clients)].lease.Acquire.future(request))
        wait_until(lambda: waiting(service, key) == number + 1, BOUND)
    return calls


def served(client, held, calls):
    """Who gets it, one after the other."""
    order = []
    while len(order) < len(calls):
        client.lease.Release(release_request(held))
        wait_until(lambda: sum(call.done() for call in calls) > len(order), BOUND)
        number = next(n for n, call in enumerate(calls) if call.done() and n not in order)
        held = calls[number].result(BOUND).lease
        order.append(number)
    client.lease.Release(release_request(held))
    return order


@pytest.mark.parametrize("count", [1, 2])
def test_waiters_of_one_daemon_and_of_two_are_served_by_priority(service, second, count):
    key = keys()
    held = service.client.lease.Acquire(acquire_request("jobs", key, 600)).lease
    calls = queue(service, [service.client, second][:count], key, PRIORITIES)
    assert served(service.client, held, calls) == SERVED


def test_shared_waiters_are_served_by_priority(service):
    """A large one is not overtaken by small ones behind it; those fit beside each other."""
    service.psql("select leasehold.set_policy('jobs.shared', capacity => 10)")
    key = keys()
    ask = service.client.lease.Acquire
    first = ask(acquire_request("jobs.shared", key, 600, mode=pb.MODE_SHARED, units=6)).lease
    calls = {}
    for name, units, priority in (("small", 2, 0), ("large", 9, 5), ("next", 4, 2)):
        request = acquire_request("jobs.shared", key, 600, wait_forever=True, mode=pb.MODE_SHARED, units=units, priority=priority, owner=name)
        if name == "small":
            calls[name] = ask(acquire_request("jobs.shared", key, 600, mode=pb.MODE_SHARED, units=units)).lease
        else:
            calls[name] = ask.future(request)
            wait_until(lambda: service.psql(f"select count(*) from leasehold.queue where key = '{key}' and owner = '{name}'") == "1", BOUND)
    with harness.fails() as failure:
        ask(acquire_request("jobs.shared", key, 600, mode=pb.MODE_SHARED, units=1))
    assert failure.value.contention.waiters_ahead == 2
    service.client.lease.Release(release_request(first))
    service.client.lease.Release(release_request(calls["small"]))
    large = calls["large"].result(BOUND).lease
    assert not calls["next"].done()
    service.client.lease.Release(release_request(large))
    assert calls["next"].result(BOUND).lease.units == 4


def test_a_crowd_of_all_priorities_is_served_to_the_last(service, second):
    """Nobody is forgotten: every waiter of either daemon gets it."""
    key = keys()
    held = service.client.lease.Acquire(acquire_request("jobs", key, 600)).lease
    priorities = [number * 7 % 11 for number in range(33)]
    calls = queue(service, [service.client, second], key, priorities)
    order = served(service.client, held, calls)
    assert [priorities[n] for n in order] == sorted(priorities, reverse=True)
    assert all(a < b for a, b in zip(order, order[1:]) if priorities[a] == priorities[b])


def test_a_place_that_nobody_here_knows_keeps_nobody_waiting(service):
    """A row of a batch that was committed after its connection had been given up, with the highest priority."""
    key = keys()
    held = service.client.lease.Acquire(acquire_request("jobs", key, 600)).lease
    call = queue(service, [service.client], key, [0])[0]
    service.psql("insert into leasehold.waiter (namespace, key, ticket, lease_key, coordinator, enqueued_at, duration, priority) "
                 f"select 'jobs', '{key}', nextval('leasehold.ticket'), '{uuid.uuid4()}', w.coordinator, w.enqueued_at - interval '20 s', w.duration, 9 "
                 f"from leasehold.waiter w where w.key = '{key}'")
    service.client.lease.Release(release_request(held))
    assert call.result(BOUND).lease.owner == "w0"


def test_a_stream_tells_the_place_by_priority(service):
    key = keys()
    held = service.client.lease.Acquire(acquire_request("jobs", key, 600)).lease
    calls = queue(service, [service.client], key, [0, 2])
    stream = service.client.lease.AcquireStream(acquire_request("jobs", key, 600, wait_forever=True, priority=1))
    assert next(stream).queued.waiters_ahead == 1
    stream.cancel()
    wait_until(lambda: waiting(service, key) == 2, BOUND)
    service.client.lease.Release(release_request(held))
    service.client.lease.Release(release_request(calls[1].result(BOUND).lease))
    service.client.lease.Release(release_request(calls[0].result(BOUND).lease))


def test_the_command_line_and_sql_users_stand_in_the_same_order(service):
    key = keys()
    held = service.client.lease.Acquire(acquire_request("jobs", key, 600)).lease
    call = queue(service, [service.client], key, [1])[0]
    assert service.psql(f"select position from leasehold.join_queue('jobs', '{key}', gen_random_uuid(), priority => 2)") == "1"
    for priority, ahead in ((0, 2), (2, 1), (3, 0)):
        refused = cli("--server", service.daemon.target, "acquire", "jobs", key, "--priority", priority)
        assert refused.returncode == 3 and f" {ahead} ahead" in refused.stderr, refused.stderr
    wrong = cli("--server", service.daemon.target, "acquire", "jobs", key, "--priority", "high")
    assert "invalid priority 'high'; use a number, 0 to 1000" in wrong.stderr
    wrong = cli("--server", service.daemon.target, "run", "jobs", key, "--priority", "1001", "--", "true")
    assert "priority must be 0 to 1000, is 1001" in wrong.stderr
    wrong = cli("--server", service.daemon.target, "run", "jobs", key, "--also", "jobs:other", "--priority", "1", "--", "true")
    assert "--also and --priority cannot be combined" in wrong.stderr
    service.psql(f"delete from leasehold.waiter where key = '{key}' and coordinator is null")
    service.client.lease.Release(release_request(held))
    service.client.lease.Release(release_request(call.result(BOUND).lease))


def test_a_waiter_of_the_library_is_served_by_its_priority(service):
    """The command line acquires with libleasehold: it comes last and is served first."""
    key = keys()
    held = service.client.lease.Acquire(acquire_request("jobs", key, 600)).lease
    call = queue(service, [service.client], key, [1])[0]
    command = [harness.CLI, "--server", service.daemon.target, "acquire", "jobs", key, "--wait", "60s", "--priority", "2", "-o", "json"]
    with subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, text=True) as waiter:
        wait_until(lambda: waiting(service, key) == 2, BOUND)
        service.client.lease.Release(release_request(held))
        lease = json.loads(waiter.communicate(timeout=BOUND)[0])
    assert waiter.returncode == 0 and not call.done()
    released = cli("--server", service.daemon.target, "release", "jobs", key, lease["lease_key"])
    assert released.returncode == 0, released.stderr
    service.client.lease.Release(release_request(call.result(BOUND).lease))


@pytest.mark.parametrize("priority", [-1, 1001])
def test_a_priority_out_of_bounds_is_refused(service, priority):
    with harness.fails() as failure:
        service.client.lease.Acquire(acquire_request("jobs", keys(), 600, priority=priority))
    assert failure.value.code is grpc.StatusCode.INVALID_ARGUMENT
    violation = failure.value.bad_request.field_violations[0]
    assert (violation.field, violation.description) == ("priority", f"must be 0 to 1000, is {priority}")


def test_max_priority_binds_the_right_lease_and_not_the_right_admin(cluster):
    site = Site(cluster)
    try:
        site.psql("select leasehold.set_policy('jobs', max_priority => 5)")
        site.grant("token:worker", "jobs", "lease")
        site.grant("token:chief", "jobs", "lease", "admin")
        worker, chief = (bearer(site.token(name)[0]) for name in ("worker", "chief"))
        site.waits_for("OK", "jobs", worker)
        site.waits_for("OK", "jobs", chief)

        def ask(metadata, priority):
            return site.client.lease.Acquire(acquire_request("jobs", keys(), 600, priority=priority), metadata=metadata, timeout=BOUND)
        ask(worker, 5)
        ask(chief, 1000)
        hold, unused = site.hold("jobs", keys(), 600, metadata=chief)
        hold.close()
        with harness.fails() as failure:
            ask(worker, 6)
        assert failure.value.code is grpc.StatusCode.PERMISSION_DENIED and failure.value.reason == "ACCESS_DENIED"
        assert failure.value.message == "priority must be at most 5, the max_priority of the namespace, without the right admin, is 6"
        assert failure.value.metadata["field"] == "priority" and failure.value.metadata["right"] == "admin"
        assert failure.value.metadata["principal"] == "token:worker"
        refused = site.open("Hold", pb.HoldRequest(acquire=acquire_request("jobs", keys(), 600, priority=6)), metadata=worker)
        assert refused.next() is None and refused.error.code() is grpc.StatusCode.PERMISSION_DENIED
        wait_until(lambda: site.psql("select count(*) from leasehold.audit where action = 'denied' and principal = 'token:worker'") != "0", BOUND)
        assert site.client.admin.GetPolicy(pb.GetPolicyRequest(namespace=pb.Namespace(segments=["jobs"])),
                                           metadata=chief).effective.max_priority.value == 5
    finally:
        site.close()
