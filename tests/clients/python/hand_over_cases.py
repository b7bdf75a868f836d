"""The cases about requests to hand a lease over."""
import logging

import leasehold
import pytest
from cases import LONG, NAMESPACE, fresh, in_background
from harness import wait_until
from postgres_proxies import CutProxy


def holder_is_asked(place):
    key, client, told = fresh(), place.client(), []
    with client.lease(NAMESPACE, key, duration=12, owner="worker-1", on_asked=told.append) as lease:
        assert lease.refuse_hand_over("too early") is False
        asked = client.ask_hand_over(NAMESPACE, key, "its host is drained")
        assert [(each.owner, each.reason, each.refusal) for each in asked] == [("worker-1", "its host is drained", "")] and 0 < asked[0].answer_in <= 30
        wait_until(lambda: told)
        assert (told[0].reason, told[0].asked_by, told[0].asked_at) == ("its host is drained", asked[0].asked_by, asked[0].asked_at)
        beats = place.heartbeats(key)
        wait_until(lambda: place.heartbeats(key) >= beats + 2)
        assert len(told) == 1
        assert lease.refuse_hand_over("in a minute") and lease.refuse_hand_over("and again")
        again = client.ask_hand_over(NAMESPACE, key, "well?")
        assert [(each.refusal, each.asked_at) for each in again] == [("in a minute", asked[0].asked_at)]
        # The time to answer has passed: it may be asked again.
        place.psql(f"update leasehold.hand_over set answer_by = now() - interval '1 s' where namespace = '{NAMESPACE}' and key = '{key}'")
        assert client.ask_hand_over(NAMESPACE, key, "and now?")[0].refusal == ""
        wait_until(lambda: len(told) == 2)
        assert told[1].reason == "and now?" and lease.is_held()
    assert client.ask_hand_over(NAMESPACE, key, "nobody") == []


def waiter_asks_the_holder(place):
    key, client, told = fresh(), place.client(), []
    holder = client.lease(NAMESPACE, key, duration=12, on_asked=told.append).acquire()
    waiting = in_background(place.client().lease(NAMESPACE, key, owner="worker-2", duration=LONG, wait=LONG, ask_hand_over=True).acquire)
    wait_until(lambda: told)
    assert told[0].refusal == "" and (told[0].asked_by == "worker-2" if place.transport == "grpc" else told[0].asked_by)
    holder.release()
    assert waiting().release()


def leader_is_asked_on_its_stream(place):
    key, told = fresh(), []
    terms = place.client().lead(NAMESPACE, key, duration=LONG, on_asked=told.append)
    leadership = next(terms)
    place.client().ask_hand_over(NAMESPACE, key, "a better one is there")
    wait_until(lambda: told)  # long before its next renewal
    assert told[0].reason == "a better one is there" and leadership.is_held()
    terms.close()


def refusal_of_an_ended_lease_is_false(place):
    key, client = fresh(), place.client()
    lease = client.lease(NAMESPACE, key, duration=LONG).acquire()  # no renewal tells of the end
    assert len(client.ask_hand_over(NAMESPACE, key)) == 1
    place.psql(f"select from leasehold.force_release('{NAMESPACE}', '{key}', 'a test')")
    assert lease.refuse_hand_over("not now") is False


def nothing_is_told_after_the_release(place):
    key, told, asker = fresh(), [], place.client()
    proxy = place.proxy() if place.transport == "grpc" else CutProxy(place.socket)
    client = place.client(proxy.target if place.transport == "grpc" else place.behind(proxy))
    tell = {name: lambda news, name=name: told.append(name) for name in ("on_granted", "on_renewed", "on_released", "on_asked")}
    lease = client.lease(NAMESPACE, key, duration=12, **tell).acquire()
    wait_until(lambda: len(told) == 2)
    if place.transport == "grpc":
        answers = [("delay", 1)]
        proxy.decide = lambda: answers.pop() if answers else "pass"
    else:
        proxy.goes.clear()
    assert asker.ask_hand_over(NAMESPACE, key, "")
    wait_until(lambda: place.heartbeats(key) >= 2)
    assert lease.try_release()
    if place.transport != "grpc":
        proxy.goes.set()
    wait_until(lambda: place.row(key, "state") == "free")
    client.close()
    assert told == ["on_granted", "on_renewed", "on_released"]


def unreadable_requests_cost_no_lease(place):
    key, told, said = fresh(), [], []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: said.append(record.getMessage())

    def request(answer_by):
        place.psql(f"select from leasehold.ask_hand_over('{NAMESPACE}', '{key}', reason => 'well?');"
                   f"update leasehold.hand_over set answer_by = {answer_by} where namespace = '{NAMESPACE}' and key = '{key}'")

    with place.client().lease(NAMESPACE, key, duration=6, on_asked=told.append) as lease:
        logging.getLogger("leasehold").addHandler(handler)
        try:
            request("'infinity'")  # from which asked() cannot subtract
            wait_until(lambda: place.psql(f"select heartbeat_at > acquired_at + interval '8 s' from leasehold.scope where namespace = '{NAMESPACE}' and key = '{key}'") == "t")
        finally:
            logging.getLogger("leasehold").removeHandler(handler)
        assert lease.is_held() and not told
        assert len([each for each in said if "requests to hand over are not heard" in each]) == 1
        request("now() + interval '30 s'")
        wait_until(lambda: told)
        assert told[0].reason == "well?"


def wrong_words_are_named(place):
    key, client = fresh(), place.client()
    with pytest.raises(ValueError, match="^reason must be at most 1024 bytes, has 1025$"):
        client.ask_hand_over(NAMESPACE, key, "x" * 1025)
    with pytest.raises(ValueError, match="^ask_hand_over must be False without a wait"):
        client.lease(NAMESPACE, key, ask_hand_over=True)
    with pytest.raises(ValueError, match="^key must be 1 to 1024 bytes"):
        client.ask_hand_over(NAMESPACE, "", "x")
    with client.lease(NAMESPACE, key) as lease:
        with pytest.raises(ValueError, match="^reason must be 1 to 1024 bytes, has 0$"):
            lease.refuse_hand_over("")
    with pytest.raises(leasehold.LeaseLost):
        lease.refuse_hand_over("too late")
