"""The cases about leases of several keys."""
import leasehold
import pytest
from cases import LONG, NAMESPACE, fresh, in_background
from harness import wait_until


def of(*keys):
    return [(NAMESPACE, key) for key in keys]


def states(place, keys, columns="state, last_outcome"):
    return [place.row(key, columns) for key in keys]


def all_or_none(place):
    keys, client = [fresh(), fresh(), fresh()], place.client()
    with client.lease_all(of(*keys), duration=LONG, owner="both") as both:
        assert list(both.tokens) == of(*keys) and both.token == both.tokens[NAMESPACE, keys[0]]
        assert states(place, keys, "state, token, owner, lease_key") == [f"held|{token}|both|{both.lease_key}" for token in both.tokens.values()]
        client.guard(both, place.application())
        for word, call in {"be downgraded": both.downgrade, "begin or end in a transaction": lambda: client.release_in(both, place.application(), None)}.items():
            with pytest.raises(ValueError, match=f"^a lease of several keys cannot {word}"):
                call()
    with client.lease(NAMESPACE, keys[1], owner="in the way"), pytest.raises(leasehold.Held) as held:
        client.lease_all(of(*keys)).acquire()
    assert held.value.holder == "in the way" and keys[1] in str(held.value)
    assert states(place, keys, "state") == ["free"] * 3
    shared = [leasehold.Scope(NAMESPACE, key, shared=True, units=2) for key in keys]
    with client.lease_all(shared), place.client().lease_all([*shared, (NAMESPACE, fresh())]):
        assert states(place, keys, "units") == ["4"] * 3
    for wrong, words in (([], "scopes must be 1 to 100, are 0"), (of(keys[0], keys[0]), "scopes must name each key once"),
                         (of("x" * 1025), "key must be 1 to 1024 bytes, has 1025"), (of(*map(str, range(101))), "scopes must be 1 to 100, are 101")):
        with pytest.raises(ValueError, match=f"^{words}$"):
            client.lease_all(wrong)
    if place.transport != "grpc":
        with pytest.raises(ValueError, match="^wait must be 0 for several keys in SQL"):
            client.lease_all(of(*keys), wait=3).acquire()


def all_wait_together(place):
    keys = [fresh(), fresh()]
    first = place.client().lease(NAMESPACE, keys[0], duration=LONG).acquire()
    one = in_background(place.client().lease_all(of(*keys), wait=60, duration=LONG).acquire)
    wait_until(lambda: place.waiting(keys[0]) == 1)
    two = in_background(place.client().lease_all(of(*reversed(keys)), wait=None, duration=LONG).acquire)
    wait_until(lambda: place.waiting(keys[0]) == 2 and place.waiting(keys[1]) == 2)
    assert place.row(keys[1], "state") in ("", "free")
    assert first.release()
    both = one()
    assert states(place, keys, "token") == [str(token) for token in both.tokens.values()]
    assert both.release()
    assert two().release()
    held = place.client().lease(NAMESPACE, keys[1], duration=LONG).acquire()
    client = place.client()
    client.give_up(client.lease_all(of(*keys), wait=LONG), lambda: place.waiting(keys[0]) == 1)
    wait_until(lambda: place.waiting(keys[0]) == place.waiting(keys[1]) == 0)
    assert held.release()


def what_is_left_of_several_is_given_back(place):
    keys, proxy = [fresh(), fresh()], place.proxy()
    proxy.decide = lambda: "drop"
    waiting = in_background(place.client(proxy.target).lease_all(of(*keys), wait=120, duration=LONG).acquire)
    wait_until(lambda: proxy.actions["drop"] and states(place, keys, "state") == ["held"] * 2)
    before = place.row(keys[1], "lease_key")
    place.force(keys[0])
    proxy.decide = lambda: "pass"
    proxy.cut_all()
    both = waiting()
    assert both.lease_key != before
    assert states(place, keys, "state, token, lease_key") == [f"held|{token}|{both.lease_key}" for token in both.tokens.values()]
    assert both.release()


def all_are_lost_as_one(place):
    keys, client, told, requests = [fresh(), fresh()], place.client(), [], []
    heartbeat = client._core.transport.heartbeat
    client._core.transport.heartbeat = lambda refs, until: requests.append(len(refs)) or heartbeat(refs, until)
    with pytest.raises(leasehold.LeaseLost) as lost:
        with client.lease_all(of(*keys), duration=6, on_lost=told.append) as both:
            wait_until(lambda: all(place.heartbeats(key) >= 2 for key in keys))
            assert set(requests) == {2}
            place.force(keys[1])
            wait_until(lambda: not both.is_held())
            assert place.row(keys[0], "state") == "held"
    assert (lost.value.reason, told) == ("forced", ["forced"])
    wait_until(lambda: place.row(keys[0], "state") == "free")


def all_are_released_with_one_result(place):
    keys, client = [fresh(), fresh(), fresh()], place.client()
    with client.lease_all(of(*keys)) as lease:
        lease.result = {"rows": 3}
    assert states(place, keys, "state, last_outcome, last_result ->> 'rows'") == ["free|ok|3"] * 3
    with pytest.raises(RuntimeError), client.lease_all(of(*keys)):
        raise RuntimeError("the disk is full")
    assert states(place, keys, "state, last_outcome, last_error") == ["free|failed|RuntimeError: the disk is full"] * 3
    assert client.lease_all(of(*keys)).acquire().try_release({"rows": 4})
    client.lease_all(of(*keys)).acquire().release({"rows": 5})
    assert states(place, keys, "state, last_outcome, last_result ->> 'rows'") == ["free|ok|5"] * 3
