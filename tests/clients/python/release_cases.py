"""The cases about try_release."""
import contextlib
import logging

import leasehold
import pytest
from cases import LONG, NAMESPACE, fresh
from harness import wait_until

FREE = "free|ok"


@contextlib.contextmanager
def warnings():
    """What the package logs."""
    lines = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())
    logger = logging.getLogger("leasehold")
    logger.addHandler(handler)
    try:
        yield lines
    finally:
        logger.removeHandler(handler)


def hold_up_releases(client):
    """Nothing is released before `go` is called; how many were in each request."""
    transport, requests = client._core.transport, []
    release, gate = transport.release, []

    def gated(items, until):
        if not gate:
            raise leasehold.Unavailable("held up")
        requests.append(len(items))
        return release(items, until)

    transport.release = gated
    return lambda: gate.append(1), requests


def try_release_waits_for_nothing(place):
    key, client = fresh(), place.client()
    lease = client.lease(NAMESPACE, key, duration=LONG).acquire()
    go, _ = hold_up_releases(client)
    assert lease.try_release({"rows": 3})
    assert not lease.is_held() and lease.lost is None and lease.remaining() == 0
    assert not lease.try_release() and not lease.release()
    assert place.row(key, "state") == "held"
    go()
    wait_until(lambda: place.row(key, "state, last_outcome, last_result ->> 'rows'") == "free|ok|3")
    assert client.lease(NAMESPACE, key).acquire().try_release(failure="no such payee")
    wait_until(lambda: place.row(key, "state, last_outcome, last_error") == "free|failed|no such payee")


def try_releases_go_together(place):
    key, client = fresh(), place.client()
    leases = [client.lease(NAMESPACE, f"{key}-{n}", duration=LONG).acquire() for n in range(100)]
    go, requests = hold_up_releases(client)
    for lease in leases:
        lease.result = {"n": "it's \"quoted\" \\ "}
        lease.try_release()
    go()
    wait_until(lambda: place.psql(f"select count(*) from leasehold.scope where key like '{key}-%' and state = 'free' "
                                  "and last_outcome = 'ok' and last_result ->> 'n' like 'it%quoted%'") == "100")
    assert sum(requests) == 100 and len(requests) <= 10, requests


def acquire_follows_its_own_try_release(place):
    key, client = fresh(), place.client()
    for _ in range(20):
        lease = client.lease(NAMESPACE, key, duration=LONG).acquire()
        assert lease.try_release()
    client.acquire_in(client.lease(NAMESPACE, key, duration=LONG), place.application(), lambda run: None)
    assert place.row(key, "state") == "held"
    with pytest.raises(leasehold.Held):
        place.client().lease(NAMESPACE, key).acquire()


def close_sends_what_try_release_left(place):
    key, client = fresh(), place.client()
    for n in range(20):
        client.lease(NAMESPACE, f"{key}-{n}", duration=LONG).acquire().try_release()
    client.close()
    assert place.psql(f"select count(*) from leasehold.scope where key like '{key}-%' and state = 'free' and last_outcome = 'ok'") == "20"


def undelivered_release_is_logged(place):
    key, proxy = fresh(), place.proxy()
    client = place.client(proxy.target)
    lease = client.lease(NAMESPACE, key, duration=LONG).acquire()
    proxy.is_frozen = True
    with warnings() as lines:
        assert lease.try_release()
        client.close()
    assert any(key in line and "left to expire" in line for line in lines), lines
    assert place.row(key, "state") == "held"
