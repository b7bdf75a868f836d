"""What the renewal loop releases: when again, and what an acquire of the same key waits for."""
import asyncio
import itertools
import unittest.mock

import leasehold
import pytest
from apis import APIS
from conftest import Place
from leasehold.runtime import run
from leasehold.transport import Answer, Ref, Release


@pytest.fixture(params=[(transport, api) for transport in ("grpc", "sql") for api in APIS], ids="-".join)
def place(site, request):
    transport, api = request.param
    place = Place(site, transport, APIS[api])
    yield place
    place.close()


def pauses(client, most, seconds):
    """Between the releases of what the server does not know, and keeps for `seconds`, as the loop would pause. It is not under way."""
    times, orphans = [0.0], client._core.orphans
    with unittest.mock.patch("leasehold.orphans.clock", lambda: times[-1]):
        orphans.give_up([Release(Ref("cases", "never-granted", "11111111-2222-4333-8444-555555555555"))], seconds)
        while orphans and len(times) <= most:
            step = orphans.release(leasehold.runtime.clock() + 30)
            client.run(step) if hasattr(client, "loop") else run(step)
            times += orphans.next_tries()
    return [later - earlier for earlier, later in itertools.pairwise(times)]


def test_what_the_server_does_not_know_is_released_after_twice_as_long_until_it_would_have_ended(place):
    assert pauses(place.client(), 20, 100) == [1, 2, 4, 8, 16, 32]


def test_a_release_that_no_server_answers_is_repeated_by_the_default_backoff(place):
    nowhere = "127.0.0.1:1" if place.transport == "grpc" else "host=127.0.0.1 port=1"
    expected = [0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.5, 0.5]
    assert pauses(place.client(nowhere), len(expected), 1000) == pytest.approx(expected)


def test_a_release_that_is_told_retry_and_was_done_is_no_loss(place):
    client = place.client()
    lease = client.lease("cases", f"told-retry-{place.transport}-{place.api.name}")
    lease.acquire()
    release, asked = client._core.transport.release, []

    async def loses_its_databases_answer(items, until):
        asked.append(await release(items, until))
        return asked[-1] if len(asked) > 1 else [Answer("retry")]

    client._core.transport.release = loses_its_databases_answer
    assert lease.release(), "it was told as lost"
    assert [answer.outcome for answers in asked for answer in answers] == ["ok", "lost"]


def test_an_answer_ends_the_backoff_and_a_failure_ends_no_doubt():
    orphan = leasehold.orphans.Orphan(Release(Ref("a", "k", "l")), 0.0)
    unknown, retry = Answer("lost"), Answer("retry")
    assert [orphan.pause(each, True) for each in (retry, retry, unknown, retry, unknown)] == [0.001, 0.002, 1, 0.001, 2]
    assert [orphan.pause(each, True) for each in (Answer("ok"), Answer("denied"), Answer("lost", "expired"))] == [None] * 3
    assert orphan.pause(unknown, False) is None  # there are too many


class Idle:
    """A lease that is held, without a client."""

    _story = leasehold.telemetry.SILENT
    lost, _is_held, _tie, _asked, _deadline = None, True, None, unittest.mock.Mock(scopes=(), listeners={"on_asked": None}), float("inf")

    def __init__(self, key):
        self.namespace, self.key, self.lease_key, self.duration = "a", key, key, 30

    def _scopes(self):
        return [("a", self.key)]

    def _is_forked(self):
        return False

    _look = _name = _is_forked


class Counted(dict):
    """How many entries are looked through."""

    looked = 0

    def items(self):
        for each in super().items():
            self.looked += 1
            yield each


def test_an_acquire_behind_its_own_release_looks_at_its_keys_alone():
    core = leasehold.core.Core(None, unittest.mock.Mock(), None, 5)
    for n in range(2000):
        core.try_release(Idle(str(n)), None, None)
    core.orphans.all = Counted(core.orphans.all)
    for n in range(2000, 2100):
        asyncio.run(core.orphans.follow(Idle(str(n)), leasehold.runtime.clock() + 60))
    assert core.orphans.all.looked == 0
    waited = []

    async def sleep(pause):
        waited.append(pause)
        core.orphans.remove(core._ref(Idle("7")))
    core.runtime.sleep = sleep
    asyncio.run(core.orphans.follow(Idle("7"), leasehold.runtime.clock() + 60))
    assert len(waited) == 1


def test_a_release_that_replaces_another_leaves_nothing_behind():
    core = leasehold.core.Core(None, unittest.mock.Mock(), None, 5)
    lease = Idle("k")
    core.try_release(lease, None, None)
    core.orphans.give_up(core._items(lease, None, None), 5)
    assert not core.orphans.followed  # nobody waits for what is given up
    lease._is_held = True
    core.try_release(lease, None, None)
    core.orphans.add(core._items(lease, None, None), 5, lease)
    core.orphans.remove(core._ref(lease))
    assert not core.orphans.followed and not core.orphans
