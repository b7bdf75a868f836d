"""What judges the campaign of tests/ha finds what is wrong with a history: for each rule a good history, and broken ones."""
import math
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "src/python/leasehold/verify"))
from history import (Event, Grant, Hold, Loss, Promotion, Register, Session, Waiter, double_holders, early_losses, first_token,  # noqa: E402
                     missed_events, overtaken, seconds_until_served, slow_promotions, stale_writes, tokens_that_went_back, wrong_events)

GOOD = [Hold("a", 1, 0.0, 5.0, 0.0), Hold("a", 2, 5.0, 6.0, 1.0), Hold("b", 1, 2.0, 9.0, 2.0), Hold("a", 7, 8.0, 9.0, 8.0)]


def test_a_good_history_is_good():
    assert not double_holders(GOOD) and not tokens_that_went_back(GOOD)


def test_two_holders_at_once_are_found():
    other = Hold("b", 3, 8.9, 9.5, 8.0)
    assert double_holders([*GOOD, other]) == [(GOOD[2], other)]
    inside = Hold("b", 3, 3.0, 4.0, 3.0)
    late = Hold("b", 4, 8.0, 9.5, 3.0)
    assert double_holders([*GOOD, inside, late]) == [(GOOD[2], inside), (GOOD[2], late)], "a short one in between hides nothing"


def test_a_token_that_went_back_is_found():
    back = Hold("a", 2, 10.0, 11.0, 9.0)
    assert tokens_that_went_back([*GOOD, back]) == [(GOOD[3], back)]
    assert tokens_that_went_back([*GOOD, Hold("a", 7, 10.0, 11.0, 9.0)]), "nor may it stay"


def test_stale_writes_are_counted_and_fencing_refuses_them():
    register = Register()
    for token in (1, 2, 1, 2, 1, 3):
        register.write("a", token)
    assert stale_writes(register.unfenced) == 2 and stale_writes(register.fenced) == 0 and register.refused == 2


def test_a_lease_that_is_lost_before_its_deadline_is_found():
    late = Loss("a", 1, 10.0, 9.9, "EXPIRED")
    early = Loss("a", 1, 9.8, 9.9, "EXPIRED")
    assert early_losses([late, early]) == [early]


FIRST = Waiter("a", "d1", asked=1.0, queued=1.1, ended=5.0, token=10)
SECOND = Waiter("a", "d1", asked=1.2, queued=1.3, ended=6.0, token=11)
ALIVE = {"d1": [at / 2 for at in range(-10, 40)]}


@pytest.mark.parametrize("waiters", [
    [FIRST, SECOND],
    [FIRST, SECOND._replace(scope="b", token=9)],
    [FIRST, SECOND._replace(asked=1.05, token=9)],                                   # nobody knows whose request came first
    [FIRST._replace(token=None, ended=2.0), SECOND],                                 # it went away before
    [FIRST._replace(queued=None), SECOND._replace(token=9)],                         # it never was in the queue
], ids=["in order", "another scope", "at once", "went away", "not queued"])
def test_waiters_in_their_order_are_good(waiters):
    assert not overtaken(waiters, ALIVE)


@pytest.mark.parametrize("first, second", [
    (FIRST, SECOND._replace(token=9, ended=4.0)),
    (FIRST._replace(token=None, ended=30.0), SECOND),
    (FIRST, SECOND._replace(token=9, ended=4.0, queued=None)),                       # granted at once, while another one waited
    (FIRST, SECOND._replace(token=9, ended=4.0, daemon="d2")),
], ids=["granted before", "left behind", "at once", "at the other daemon"])
def test_a_waiter_that_is_overtaken_is_found(first, second):
    assert overtaken([second, first], ALIVE) == [(first, second)]


def test_a_waiter_of_a_silent_daemon_may_be_passed_over():
    for answers in ({}, {"d1": []}, {"d1": [0.0, 1.0, 4.5]}, {"d1": [at for at in ALIVE["d1"] if not -4 < at < 0]}):
        for daemon in ("d1", "d2"):
            assert not overtaken([FIRST, SECOND._replace(token=9, ended=4.0, daemon=daemon)], answers)


BEGIN_2025 = 1735689600
PROMOTED = [Promotion(2, 100.0, 1000), Promotion(3, 200.0, 2000)]
SERVED = [Grant(90.0, 999), Grant(103.0, 1001), Grant(199.0, 1500), Grant(214.0, 2000)]


def test_a_primary_that_serves_in_time_is_good():
    assert seconds_until_served(PROMOTED, SERVED) == {PROMOTED[0]: 3.0, PROMOTED[1]: 14.0} and not slow_promotions(PROMOTED, SERVED)
    assert first_token(BEGIN_2025) == 0 and first_token(BEGIN_2025 + 90) == 3 * 2 ** 35, "as migrations/functions/epoch.sql begins a timeline"


@pytest.mark.parametrize("promotions, grants, slow", [
    (PROMOTED, [*SERVED[:3], Grant(216.0, 2000)], (PROMOTED[1], 16.0)),
    (PROMOTED, [*SERVED[:3], Grant(201.0, 1999), Grant(216.0, 2000)], (PROMOTED[1], 16.0)),
    (PROMOTED[:1], SERVED[:1], (PROMOTED[0], math.inf)),
    (PROMOTED, SERVED[3:], (PROMOTED[0], 100.0)),
], ids=["late", "the old primary went on beside it", "never", "replaced before"])
def test_a_primary_that_serves_late_is_found(promotions, grants, slow):
    assert slow_promotions(promotions, grants) == [slow]


def test_a_primary_that_is_replaced_at_once_need_not_serve():
    assert not slow_promotions([*PROMOTED[:1], Promotion(3, 102.0, 1500)], [Grant(104.0, 1500)])


def watch(*events, synced=0.0):
    return Session("d1", synced, [Event("a", kind, token) for kind, token in events])


def test_events_in_order_are_good():
    assert not wrong_events([watch(("initial", 1), ("ended", 1), ("acquired", 2), ("ended", 2)), watch(("acquired", 2), ("ended", 2))])


@pytest.mark.parametrize("events", [
    [("acquired", 1), ("acquired", 1)], [("acquired", 1), ("ended", 1), ("ended", 1)], [("acquired", 1), ("acquired", 2)], [("ended", 1)],
    [("acquired", 2), ("ended", 1)], [("acquired", 2), ("ended", 2), ("acquired", 1)], [("acquired", 2), ("ended", 2), ("acquired", 2)],
], ids=["a grant twice", "an end twice", "no end", "no grant", "another one's end", "a token back", "a hold twice"])
def test_an_event_twice_or_out_of_order_is_found(events):
    assert wrong_events([watch(*events)])


def test_a_grant_that_a_watcher_missed_is_found():
    holds = [Hold("a", token, token, token + 0.5, token - 0.5) for token in (1, 2, 3, 4)]
    told = watch(("acquired", 1), ("ended", 1), ("acquired", 3), ("ended", 3))
    assert missed_events([told], holds) == [("d1", holds[1])], "the last one may still be on its way"
    assert not missed_events([told._replace(synced=1.8)], holds), "it was asked for before the watch began"
