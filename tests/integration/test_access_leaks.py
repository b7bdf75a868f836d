"""What callers learn of scopes that they may not read: nothing of who holds them, by whichever way they ask."""
import grpc
import pytest

import harness
from access_site import Site, bearer
from access_table import BOUND, list_leases, tried
from harness import acquire_request, duration, fails, pb, scope, wait_until
from streams import keys

SECRETS = ("the-holder", "label-value")


@pytest.fixture(scope="module")
def site(cluster):
    site = Site(cluster)
    site.grant("anonymous", "taken", "lease")
    site.grant("token:reader", "taken", "read")
    site.grant("token:reader", "lists.mine", "read")
    site.grant("token:reader", "lists.other.mine", "read")
    site.grant("token:auditor", "", "read")
    site.grant("token:janitor", "reaps.mine", "admin")
    site.tokens = {name: bearer(site.token(name)[0]) for name in ("reader", "auditor", "janitor")}
    site.waits_for("OK", "taken")
    wait_until(lambda: tried(list_leases, site.client, "lists.mine", False, site.tokens["reader"])[1] is None, BOUND, "the tokens")
    yield site
    site.close()


@pytest.fixture
def held(site):
    """A scope of another's, and its token."""
    key = keys()
    token = site.psql(f"""select token from leasehold.acquire('taken', '{key}', '1 h', owner => 'the-holder',
                          labels => '{{"name": "label-value"}}')""")
    site.psql(f"select leasehold.join_queue('taken', '{key}', gen_random_uuid(), '1 h')")
    return key, token


def tells_nothing(message, contention, token):
    assert contention is not None and contention.waiters_ahead >= 1, contention
    assert {field.name for field, _ in contention.holder.ListFields()} <= {"scope"}, contention
    for secret in (*SECRETS, token):
        assert secret not in message and secret not in str(contention), message


def test_a_refusal_without_read_does_not_say_who_holds_it(site, held):
    key, token = held
    for wait in (None, 0.2):
        with fails() as failure:
            site.client.lease.Acquire(acquire_request("taken", key, 30, wait=wait), timeout=BOUND)
        assert failure.value.reason == ("WAIT_TIMEOUT" if wait else "LEASE_HELD"), failure.value.message
        tells_nothing(failure.value.message, failure.value.contention, token)
    queued = site.open("AcquireStream", unary=acquire_request("taken", key, 30, wait_forever=True))
    tells_nothing("", queued.next().queued, token)
    queued.close()
    hold = site.open("Hold", pb.HoldRequest(acquire=acquire_request("taken", key, 30, wait_forever=True)))
    tells_nothing("", hold.next().queued, token)
    hold.close()
    # with `read` it is said
    site.grant("token:reader", "taken", "lease")
    site.waits_for("OK", "taken", site.tokens["reader"])
    with fails() as failure:
        site.client.lease.Acquire(acquire_request("taken", key, 30), metadata=site.tokens["reader"], timeout=BOUND)
    assert "the-holder" in failure.value.message and failure.value.contention.holder.owner == "the-holder"


def test_several_scopes_of_which_some_are_forbidden_leave_nothing(site, held):
    """The denial names the first that is forbidden, in the order of the request, and no more: not who holds it, nor that it is held."""
    key, token = held
    other = keys()
    for names, first in ((["taken", "lists.mine", "reaps.mine"], "lists.mine"), (["reaps.mine", "lists.mine", "taken"], "reaps.mine")):
        items = [pb.AcquireItem(scope=scope(name, key if name == "taken" else other)) for name in names]
        for wait in ({}, {"wait_forever": True}):
            with fails() as failure:
                site.client.lease.AcquireAll(pb.AcquireAllRequest(items=items, duration=duration(30), **wait), timeout=BOUND)
            assert (failure.value.code, failure.value.reason) == (grpc.StatusCode.PERMISSION_DENIED, "ACCESS_DENIED")
            assert failure.value.metadata["namespace"] == first and failure.value.contention is None
            assert not [secret for secret in (*SECRETS, token) if secret in failure.value.message], failure.value.message
    assert site.psql(f"select count(*) from leasehold.scope where key = '{other}'") == "0"
    assert site.psql(f"select count(*) from leasehold.waiter where key = '{key}'") == "1", "the one that waits for `held` from the start"


def test_several_scopes_tell_of_each_what_may_be_read_there(site, held):
    """What is in the way is hidden where it may not be read, whatever may be read beside it."""
    key, token = held
    reader = site.tokens["reader"]
    site.grant("token:reader", "hidden", "lease")
    site.grant("token:reader", "taken", "lease")
    site.waits_for("OK", "hidden", reader)
    site.waits_for("OK", "taken", reader)
    site.psql(f"select from leasehold.acquire('hidden', '{key}', '1 h', owner => 'the-holder')")
    site.psql(f"select leasehold.join_queue('hidden', '{key}', gen_random_uuid(), '1 h')")
    for names, is_hidden in ((["hidden", "taken"], True), (["taken", "hidden"], False)):
        items = [pb.AcquireItem(scope=scope(name, key)) for name in names]
        with fails() as failure:
            site.client.lease.AcquireAll(pb.AcquireAllRequest(items=items, duration=duration(30)), metadata=reader, timeout=BOUND)
        assert failure.value.reason == "LEASE_HELD"
        if is_hidden:
            tells_nothing(failure.value.message, failure.value.contention, token)
        else:
            assert failure.value.contention.holder.owner == "the-holder"


def test_a_held_and_an_ended_key_tell_nothing_to_a_stranger(site, held):
    """The words of an item that is denied are the same for a live lease key, an ended one and one that never was."""
    key, _ = held
    live = site.psql("select lease_key from leasehold.scope where namespace = 'taken' and key = " + f"'{key}'")
    other = site.psql("select gen_random_uuid()")
    stranger = bearer(site.token("stranger")[0])
    site.waits_for("ACCESS_DENIED", "taken", stranger)
    for make, method in ((lambda ref: pb.HeartbeatRequest(leases=[ref]), "Heartbeat"),
                         (lambda ref: pb.ReleaseRequest(items=[pb.ReleaseItem(lease=ref, success="")]), "Release")):
        answers = set()
        for lease_key in (live, other):
            ref = pb.LeaseRef(scope=harness.scope("taken", key), lease_key=lease_key)
            result = getattr(site.client.lease, method)(make(ref), metadata=stranger, timeout=BOUND).results[0]
            assert result.outcome == pb.OUTCOME_DENIED
            result.lease_key = ""
            answers.add(str(result))
        assert len(answers) == 1, answers
    assert site.scope("taken", key) == "held"


def test_a_page_token_of_somebody_else_opens_nothing(site):
    """Pages go on at a name: the rights are those of who asks."""
    names = ["lists", "lists.mine", "lists.mine-not", "lists.minf", "lists.mine.sub", "lists.other", "lists.other.mine", "lists.z"]
    site.psql("select count(*) from unnest(array{}) n, generate_series(1, 3) k, lateral leasehold.acquire(n, 'k' || k, '1 h')".format(names))
    mine = {(name, f"k{k}") for name in ("lists.mine", "lists.mine.sub", "lists.other.mine") for k in (1, 2, 3)}
    tokens, page = [], ""
    while True:
        answer = site.client.lease.ListLeases(pb.ListLeasesRequest(namespace=["lists"], include_children=True, page_size=2, page_token=page),
                                              metadata=site.tokens["auditor"], timeout=BOUND)
        page = answer.next_page_token
        if not page:
            break
        tokens.append(page)
    assert len(tokens) >= 10
    for token in ["", *tokens]:
        shown, page = [], token
        for _ in range(100):
            request = pb.ListLeasesRequest(namespace=["lists"], include_children=True, page_size=2, page_token=page)
            answer = site.client.lease.ListLeases(request, metadata=site.tokens["reader"], timeout=BOUND)
            shown += [(".".join(lease.scope.namespace), lease.scope.key) for lease in answer.leases]
            page = answer.next_page_token
            if not page:
                break
        assert not page, "the pages end"
        assert set(shown) <= mine and len(set(shown)) == len(shown), set(shown) - mine
        assert token or set(shown) == mine, mine - set(shown)


def test_a_reap_ends_what_its_caller_administers_alone(site):
    names = ["reaps", "reaps.mine", "reaps.mine.sub", "reaps.mines", "reaps.other"]
    site.psql("select leasehold.set_policy('reaps', reaper => 'external', min_duration => '100 ms', grace => '0 s')")
    site.psql("select count(*) from unnest(array{}) n, lateral leasehold.acquire(n, 'k', '100 ms')".format(names))

    def expired():
        return site.psql("select count(*) from leasehold.lease where namespace like 'reaps%' and liveness = 'expired'") == str(len(names))

    def states():
        return site.psql("select string_agg(namespace, ' ' order by namespace) from leasehold.scope"
                         " where namespace like 'reaps%' and state = 'held'").split()

    wait_until(expired, BOUND, "five leases to expire")
    def reap(*namespaces):
        return site.client.admin.Reap(pb.ReapRequest(namespaces=namespaces, include_children=True), metadata=site.tokens["janitor"],
                                      timeout=BOUND).reaped

    assert reap() == 0 and states() == names, "who names no namespace leaves what only an external reaper ends, whatever its rights"
    assert reap(pb.Namespace(segments=["reaps"])) == 2
    assert states() == ["reaps", "reaps.mines", "reaps.other"]
    with fails() as failure:
        site.client.admin.Reap(pb.ReapRequest(namespaces=[pb.Namespace(segments=["reaps", "mines"])], include_children=True),
                               metadata=site.tokens["janitor"], timeout=BOUND)
    assert failure.value.reason == "ACCESS_DENIED"
    assert states() == ["reaps", "reaps.mines", "reaps.other"]


def test_a_watch_shows_what_may_be_read_alone(site, request):
    """Each end and each grant of others is left out, also of namespaces whose names begin alike."""
    names = ["watched.mine", "watched.mines", "watched", "watched.mine.sub", "watched.other"]
    site.grant("token:watcher", "watched.mine", "read")
    token = bearer(site.token("watcher")[0])
    wait_until(lambda: tried(list_leases, site.client, "watched.mine", False, token)[1] is None, BOUND, "the rule")
    watches = [site.open("WatchLeases", unary=pb.WatchLeasesRequest(namespace=namespace, include_children=True, include_initial=True),
                         metadata=token) for namespace in ([], ["watched"], ["watched", "mine"])]
    for watch in watches:
        request.addfinalizer(watch.close)
        watch.until(lambda event: event.type == pb.LeaseEvent.TYPE_SYNCED)
    for n in range(3):
        site.psql("select count(*) from unnest(array{}) n, lateral leasehold.acquire(n, 'k{}', '1 h', owner => 'the-holder')".format(names, n))
        site.psql("select count(*) from unnest(array{}) n, lateral leasehold.force_release(n, 'k{}', 'a test')".format(names, n))
    site.psql("select leasehold.acquire('watched.mine', 'last', '1 h')")
    for watch in watches:
        watch.until(lambda event: event.lease.scope.key == "last", "the last lease")
        seen = {".".join(event.lease.scope.namespace) for event in watch.seen if event.type != pb.LeaseEvent.TYPE_SYNCED}
        assert seen == {"watched.mine", "watched.mine.sub"}
        assert sum(event.type == pb.LeaseEvent.TYPE_FORCED for event in watch.seen) == 6
