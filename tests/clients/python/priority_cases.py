"""The cases about the priority of waiters."""
import uuid

import leasehold
import pytest
from cases import LONG, fresh, in_background
from harness import wait_until


def priority_is_served_first(place):
    key, client, namespace = fresh(), place.client(), f"urgent{uuid.uuid4().hex[:8]}"
    place.psql(f"select leasehold.set_policy('{namespace}', max_priority => 9, ageing => '1 day')")
    order, waiting = [], []

    def wait(owner, priority):
        own = place.client()
        if place.transport != "grpc":
            own._core.transport.poll_s = 0.5
        with own.lease(namespace, key, owner=owner, duration=LONG, wait=LONG, priority=priority):
            order.append(owner)

    with client.lease(namespace, key, duration=LONG):
        for number, (owner, priority) in enumerate((("first", 0), ("low", 2), ("high", 9), ("late", 9))):
            waiting.append(in_background(lambda owner=owner, priority=priority: wait(owner, priority)))
            wait_until(lambda number=number: place.psql(f"select count(*) from leasehold.queue where namespace = '{namespace}'") == str(number + 1))
        if place.transport != "grpc":  # each has joined again since
            seen = place.psql(f"select max(wait_until) from leasehold.waiter where namespace = '{namespace}'")
            wait_until(lambda: place.psql(f"select min(wait_until) > '{seen}' from leasehold.waiter where namespace = '{namespace}'") == "t")
        assert place.psql(f"select string_agg(priority::text, ' ' order by position) from leasehold.queue where namespace = '{namespace}'") == "9 9 2 0"
    for each in waiting:
        each()
    assert order == ["high", "late", "low", "first"]


def priority_above_the_policy_is_denied(place):
    """Of who has the right lease alone."""
    key, role = fresh(), f"worker_{uuid.uuid4().hex[:8]}"
    if place.transport == "grpc":
        client = place.secure_client(token="worker")
    else:
        place.psql(f"create role {role} login in role leasehold_client")
        place.psql(f"select leasehold.access_grant('role:{role}', 'secure', 'lease')")
        client = place.client(place.site.cluster.url(place.database, role))
    place.psql("select leasehold.set_policy('secure', max_priority => 9)")
    with client.lease("secure", key, priority=9):
        for wait in (0, LONG):
            with pytest.raises(leasehold.Denied, match="priority must be at most 9.* is 10") as denied:
                client.lease("secure", key, priority=10, wait=wait).acquire()
            assert denied.value.reason == "ACCESS_DENIED"


def wrong_priority_is_named(place):
    client = place.client()
    for value in (-1, 1001, 1.5, "7", True, None):
        with pytest.raises(leasehold.InvalidArgument) as wrong:
            client.lease("cases", fresh(), priority=value)
        assert str(wrong.value) == f"priority must be 0 to 1000, not {value!r}"
    with client.lease("cases", fresh(), priority=1000) as lease:  # an administrator's
        assert lease.is_held()
