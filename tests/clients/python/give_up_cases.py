"""The cases about callers that give up."""
import itertools

from cases import LONG, NAMESPACE, fresh, grants_that_wait, in_background, is_blocked
from harness import wait_until
from postgres_proxies import StatementProxy


def cancelled_wait_leaves_the_queue(place):
    key = fresh()
    with place.client().lease(NAMESPACE, key, duration=LONG):
        client = place.client()
        client.give_up(client.lease(NAMESPACE, key, wait=LONG), lambda: place.waiting(key) == 1)
        wait_until(lambda: place.waiting(key) == 0)
    with place.client().lease(NAMESPACE, key, wait=60):
        pass


def grant_after_giving_up_is_released(place):
    key = fresh()
    if place.transport == "grpc":
        proxy = place.proxy()
        actions = itertools.chain([("delay", LONG)], itertools.repeat("pass"))
        proxy.decide = lambda: next(actions)
        client = place.client(proxy.target)
        client.give_up(client.lease(NAMESPACE, key, duration=LONG), lambda: place.row(key, "state") == "held")
    else:
        with grants_that_wait(place) as let_go:
            client = place.client()
            client.give_up(client.lease(place.namespace, key, duration=LONG), lambda: is_blocked(place))
            let_go()
            wait_until(lambda: place.row(key, "state"))
    wait_until(lambda: place.row(key, "state") == "free")


def late_request_is_given_back(place):
    key, proxy = fresh(), place.proxy()
    client = place.client(proxy.target)
    first = client.lease(NAMESPACE, key).acquire()  # connects
    token = first.token
    first.release()
    actions, replies = itertools.chain(["hold"], itertools.repeat("pass")), proxy.replies
    proxy.decide_request = lambda: next(actions)
    client.give_up(client.lease(NAMESPACE, key, duration=LONG), lambda: proxy.held)
    wait_until(lambda: proxy.replies > replies, 60, "the answer to the release of what is not granted yet")
    proxy.let_requests_go()
    wait_until(lambda: int(place.row(key, "token")) > token, 60, "the late grant")
    wait_until(lambda: place.row(key, "state") == "free")


def late_statement_is_given_back(place):
    key, proxy = fresh(), StatementProxy(place.socket)
    client = place.client(place.behind(proxy))
    first = client.lease(NAMESPACE, key).acquire()
    token = first.token
    first.release()
    releases, proxy.hold = proxy.releases, b"from leasehold.acquire_one("
    client.give_up(client.lease(NAMESPACE, key, duration=LONG), lambda: proxy.held)
    wait_until(lambda: proxy.releases > releases, 60, "the answer to the release of what is not granted yet")
    proxy.let_go()
    wait_until(lambda: int(place.row(key, "token")) > token, 60, "the late grant")
    wait_until(lambda: place.row(key, "state") == "free")


def grant_taken_back_is_acquired_anew(place):
    key, proxy = fresh(), place.proxy()
    proxy.decide = lambda: "drop"
    waiting = in_background(lambda: place.client(proxy.target, timeout=60).lease(NAMESPACE, key, wait=60).acquire())
    wait_until(lambda: place.row(key, "state") == "held")
    first = place.row(key, "lease_key, token").split("|")
    proxy.is_refusing = True
    proxy.cut_all()
    wait_until(lambda: not proxy.connections)
    if place.row(key, "state") == "held":  # the daemon wrote its answer before the connection broke
        place.psql(f"select leasehold.release_ok('{NAMESPACE}', '{key}', '{first[0]}')")
    proxy.decide = lambda: "pass"
    proxy.is_refusing = False
    lease = waiting()
    assert lease.token > int(first[1]) and lease.lease_key != first[0]
    assert lease.release()
