"""The cases about retries."""
import contextlib
import logging
import threading

import leasehold
import pytest
from cases import LONG, NAMESPACE, TABLES, fresh, in_background
from harness import wait_until
from postgres_proxies import CutProxy


@contextlib.contextmanager
def retry_log(*others):
    """What the package tells of retries, before it tells the others."""
    steps = []
    logger = logging.getLogger("leasehold")
    level, before = logger.level, list(logger.handlers)
    for emit in (lambda record: steps.append(record.retry) if hasattr(record, "retry") else None, *others):
        handler = logging.Handler(logging.INFO)
        handler.emit = emit
        logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield steps
    finally:
        logger.setLevel(level)
        logger.handlers[:] = before


def sqlstates_are_told_alike(place):
    kinds = {"Lost": leasehold.LeaseLost, "InvalidArgument": leasehold.InvalidArgument, "Denied": leasehold.Denied, "Unavailable": leasehold.Unavailable}
    asked = []
    client = place.client(strategy=asked.append)  # None: it refuses
    for state, expected in TABLES["sqlstates"].items():
        kind, *reason = expected.split()
        asked.clear()
        with pytest.raises(kinds[kind]) as error:
            client.lease(NAMESPACE, f"sqlstate {state}").acquire()
        assert [error.value.reason][:len(reason)] == reason, state
        assert [retry.reason for retry in asked] == (reason if kind == "Unavailable" else []), state


def strategy_decides_about_retries(place):
    key, proxy = fresh(), place.proxy()
    client = place.client(proxy.target, strategy=leasehold.fail_fast)
    asked = []

    def patient(retry):
        asked.append(retry)
        if len(asked) == 3:
            proxy.is_refusing = False
        return 0.02

    proxy.is_refusing = True
    with pytest.raises(leasehold.Unavailable) as unavailable:
        client.lease(NAMESPACE, key, wait=60).acquire()
    assert unavailable.value.reason == "SOCKET_NOT_AVAILABLE"
    lease = client.lease(NAMESPACE, key, wait=60, strategy=patient).acquire()  # counts before the client's
    assert len(asked) >= 3
    for n, retry in enumerate(asked, 1):
        assert (retry.verb, retry.namespace, retry.key, retry.attempts, retry.failures) == ("Acquire", NAMESPACE, key, n, n), retry
        assert retry.reasons == (retry.reason,) == ("SOCKET_NOT_AVAILABLE",) and retry.remaining > 0, retry
    answers = ["cut"]
    proxy.decide = lambda: answers.pop() if answers else "pass"
    asked.clear()
    assert lease.release()  # by the strategy of its acquire
    assert [(each.verb, each.reason) for each in asked] == [("Release", "SOCKET_CLOSED_WHILE_IN_FLIGHT")]
    decides_about_held(place)


def strategy_decides_in_sql(place):
    key, proxy, asked = fresh(), CutProxy(place.socket), []
    client, session = place.client(place.behind(proxy), strategy=leasehold.fail_fast), place.session()
    proxy.cut()
    with pytest.raises(leasehold.Unavailable) as unavailable:
        client.lease(NAMESPACE, key, wait=60).acquire()
    assert unavailable.value.reason == "SOCKET_NOT_AVAILABLE"

    def patient(retry):
        asked.append(retry)
        if len(asked) == 3:
            end()
        return 0.02

    def told():
        for n, retry in enumerate(asked, 1):
            assert (retry.namespace, retry.key, retry.attempts, retry.failures) == (NAMESPACE, key, n, n) and retry.remaining > 0, retry
        found = [f"{each.verb} {each.reason}" for each in asked]
        asked.clear()
        return found

    end = proxy.restore
    lease = client.lease(NAMESPACE, key, wait=60, strategy=patient).acquire()  # counts before the client's
    assert told() == ["Acquire SOCKET_NOT_AVAILABLE"] * 3
    session.run(f"begin; select from leasehold.scope where namespace = '{NAMESPACE}' and key = '{key}' for update")
    end = lambda: session.run("rollback")  # noqa: E731
    lease.downgrade()
    assert told() == ["Downgrade SCOPE_BUSY"] * 3
    end = proxy.restore
    proxy.cut()
    assert lease.release()
    assert told() == ["Release SOCKET_CLOSED_WHILE_IN_FLIGHT"] + ["Release SOCKET_NOT_AVAILABLE"] * 2
    assert place.row(key, "state, last_outcome") == "free|ok"


def strategy_may_wait_for_a_holder(place):
    with retry_log() as steps:
        decides_about_held(place)
    assert {each.reason for each in steps} == {"LEASE_HELD"}
    assert steps[0].delay == 0.001 and steps[-1].delay is None


def decides_about_held(place):
    key, asked = fresh(), []
    client = place.client(strategy=leasehold.fail_fast)
    first = client.lease(NAMESPACE, key).acquire()

    def until_released(retry):
        asked.append(retry.reason)
        if len(asked) == 2:
            place.force(key)
        return 0.001

    client.lease(NAMESPACE, key, strategy=until_released).acquire().release()
    assert set(asked) == {"LEASE_HELD"} and len(asked) >= 2 and not first.release()
    client.lease(NAMESPACE, key).acquire()
    for strategy in (leasehold.best_effort, lambda retry: 3600):  # longer than the request's time
        with pytest.raises(leasehold.Held):
            client.lease(NAMESPACE, key, strategy=strategy).acquire()
    with pytest.raises(ZeroDivisionError):
        client.lease(NAMESPACE, key, strategy=lambda retry: 1 / 0).acquire()
    with pytest.raises(ValueError, match="^strategy must be a function"):
        client.lease(NAMESPACE, key, strategy=7)


def dead_address_is_spared(place):
    proxy, asked = place.proxy(), []
    proxy.is_refusing = True

    def soon(retry):
        asked.append(retry)
        return 0.001

    acquired = in_background(place.client(proxy.target, strategy=soon).lease(NAMESPACE, fresh(), wait=120).acquire)
    wait_until(lambda: len(asked) >= 300)
    assert proxy.accepted < 100
    proxy.is_refusing = False
    assert acquired().release()


def busy_scope_is_unavailable(place):
    key, asked = fresh(), []
    proxies = [place.proxy(), place.proxy()] if place.transport == "grpc" else []
    target = ",".join(proxy.target for proxy in proxies) or None
    client = place.client(target, timeout=60, strategy=lambda retry: asked.append(retry.reason))  # None: it refuses
    lease = client.lease(NAMESPACE, key, duration=LONG).acquire()
    calls = [lease.downgrade] + ([client.lease(NAMESPACE, key).acquire] if place.transport == "grpc" else [])  # in SQL an acquire never waits for the row
    session = place.session()
    for call in calls:
        session.run(f"begin; select from leasehold.scope where namespace = '{NAMESPACE}' and key = '{key}' for update")
        with pytest.raises(leasehold.Unavailable) as busy:
            call()
        assert busy.value.reason == "SCOPE_BUSY"
        session.run("rollback")
        lease.release()  # again: nothing
    assert asked == ["SCOPE_BUSY"] * len(calls)
    assert not any(proxy.requests for proxy in proxies[1:])


def retries_are_logged(place):
    proxy = place.proxy()
    are_logged(place.client(proxy.target, timeout=5), lambda on: setattr(proxy, "is_refusing", on))


def retries_are_logged_in_sql(place):
    proxy = CutProxy(place.socket)
    are_logged(place.client(place.behind(proxy), timeout=5), lambda on: proxy.cut() if on else proxy.restore(), throw)


def throw(record):
    raise ZeroDivisionError


def are_logged(client, refuse, *others):
    key = fresh()
    refuse(True)
    with retry_log(*others) as steps:
        waiting = threading.Thread(target=client.lease(NAMESPACE, key, wait=60).acquire)
        waiting.start()
        wait_until(lambda: len(steps) >= 2)
        refuse(False)
        waiting.join()
        assert {(each.verb, each.reason) for each in steps} == {("Acquire", "SOCKET_NOT_AVAILABLE")}
        assert [each.delay for each in steps[:2]] == [0.001, 0.002]
        before = len(steps)
        with pytest.raises(leasehold.Held):
            client.lease(NAMESPACE, key).acquire()
        assert [(each.reason, each.delay) for each in steps[before:]] == [("LEASE_HELD", None)]
