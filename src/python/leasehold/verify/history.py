"""The history of a load, and what is wrong with it.

Everything but a promotion is seen from the clients' side. All times are of one clock that runs during suspend, in seconds. One rule depends on how
long something took: slow_promotions().

Hold     from the answer that granted it until its holder stopped to believe in it: it sent the release, heard of the loss, or its deadline passed.
         `asked` is when its first request was sent.
Waiter   one call that waited: asked (the first request of this lease key was sent), queued (this call was told that it is in the queue; None: never),
         ended (by a grant, or cut off), token (None: it was not granted), and the daemon that it waited at.
Loss     a holder heard LOST at `at`; the last answer before had promised it the lease until `deadline`.
Session  one watch without a break: from `synced` on, and its events in order: (scope, kind, token), kind one of initial, acquired, ended.
Grant    when a client got this token.
Promotion  a standby became the primary of `timeline` at `at`. The tokens of its timeline are `first_token` or more, those of timelines before are less.
"""
from __future__ import annotations

import bisect
import collections
import datetime
import itertools
import math
from typing import Any, Iterable, Mapping, NamedTuple, Sequence, TypeVar


class Hold(NamedTuple):
    scope: str
    token: int
    begin: float
    end: float
    asked: float


class Waiter(NamedTuple):
    scope: str
    daemon: str
    asked: float
    queued: float | None
    ended: float
    token: int | None


class Loss(NamedTuple):
    scope: str
    token: int
    at: float
    deadline: float
    reason: str


class Event(NamedTuple):
    scope: str
    kind: str
    token: int


class Session(NamedTuple):
    daemon: str
    synced: float
    events: list[Event]


class Grant(NamedTuple):
    at: float
    token: int


class Promotion(NamedTuple):
    timeline: int
    at: float
    first_token: int


Thing = TypeVar("Thing", Hold, Waiter)

# A new primary serves within this time.
SERVES_S = 15

# A daemon that was in touch with the database more often than this is alive: others pass over it only after 3.5 s. One that was silent and is back
# counts as alive from its next sign of life on, which comes each second.
ALIVE_S = 2.5
BACK_S = 5


def by_scope(things: Iterable[Thing]) -> dict[str, list[Thing]]:
    found: dict[str, list[Thing]] = collections.defaultdict(list)
    for thing in things:
        found[thing.scope].append(thing)
    return found


def double_holders(holds: Sequence[Hold]) -> list[tuple[Hold, Hold]]:
    """Pairs that believed in the same scope at the same time."""
    bad = []
    for scope in by_scope(holds).values():
        scope.sort(key=lambda hold: hold.begin)
        latest: Hold | None = None
        for hold in scope:
            if latest is not None and hold.begin < latest.end and hold.token != latest.token:
                bad.append((latest, hold))
            if latest is None or hold.end > latest.end:
                latest = hold
    return bad


def tokens_that_went_back(holds: Sequence[Hold]) -> list[tuple[Hold, Hold]]:
    """Pairs in which the later grant has no larger token."""
    bad = []
    for scope in by_scope(holds).values():
        scope.sort(key=lambda hold: hold.begin)
        bad += [(before, after) for before, after in zip(scope, scope[1:]) if after.token <= before.token]
    return bad


def early_losses(losses: Sequence[Loss]) -> list[Loss]:
    """Holders that lost a lease which the last answer had promised them for longer. One that renews in time never hears LOST."""
    return [loss for loss in losses if loss.at < loss.deadline]


def was_alive(answers: Sequence[float], begin: float, end: float) -> bool:
    """Whether a daemon answered from the database often enough from `begin` to `end`; `answers` are its times, ascending."""
    begin, end = begin - BACK_S, end + ALIVE_S
    inside = answers[bisect.bisect_left(answers, begin):bisect.bisect_right(answers, end)]
    times = [begin, *inside, end]
    return bool(inside) and all(after - before <= ALIVE_S for before, after in zip(times, times[1:]))


def overtaken(waiters: Sequence[Waiter], answers: Mapping[str, Sequence[float]]) -> list[tuple[Waiter, Waiter]]:
    """Pairs (first, second): first was in the queue before second asked, still waited when second was granted, and got no smaller token.

    Only where the first one's daemon was alive meanwhile: the waiters of a silent one are passed over.
    """
    bad = []
    for scope in by_scope(waiters).values():
        granted = [(waiter, waiter.token) for waiter in scope if waiter.token is not None]
        for first, queued in ((waiter, waiter.queued) for waiter in scope if waiter.queued is not None):
            for second, token in granted:
                if queued < second.asked and (first.ended >= second.ended if first.token is None else first.token > token) and (
                        was_alive(answers.get(first.daemon, []), queued, second.ended)):
                    bad.append((first, second))
    return bad


def wrong_events(sessions: Sequence[Session]) -> list[tuple[str, int | None, Event]]:
    """Events that come twice, out of order, or without the one before: for each scope an end follows its own grant, a grant the end before."""
    bad = []
    for session in sessions:
        held: dict[str, int | None] = {}
        last: dict[str, int] = {}
        for event in session.events:
            before = held.get(event.scope)
            if event.kind == "ended":
                is_good = before == event.token
                held[event.scope] = None
            else:
                is_good = before is None and event.token > last.get(event.scope, 0)
                held[event.scope] = last[event.scope] = event.token
            if not is_good:
                bad.append((session.daemon, before, event))
    return bad


def missed_events(sessions: Sequence[Session], holds: Sequence[Hold]) -> list[tuple[str, Hold]]:
    """Grants that a watcher was not told of, although it heard of a later one of their scope."""
    bad = []
    scopes = by_scope(holds)
    for session in sessions:
        told: dict[str, set[int]] = collections.defaultdict(set)
        for event in session.events:
            told[event.scope].add(event.token)
        for scope, tokens in told.items():
            bad += [(session.daemon, hold) for hold in scopes.get(scope, ())
                    if hold.asked > session.synced and hold.token < max(tokens) and hold.token not in tokens]
    return bad


def stale_writes(writes: Iterable[tuple[str, int]]) -> int:
    """Of (scope, token) in the order in which they were accepted: how many came after one with a larger token."""
    largest: dict[str, int] = {}
    stale = 0
    for scope, token in writes:
        stale += token < largest.get(scope, token)
        largest[scope] = max(token, largest.get(scope, token))
    return stale


def first_token(wall_s: float) -> int:
    """The least token of a primary that is promoted at this time of the wall clock: see migrations/functions/epoch.sql."""
    since_2025 = wall_s - datetime.datetime(2025, 1, 1, tzinfo=datetime.timezone.utc).timestamp()
    return int(since_2025 / 60 * 2 ** 36)


def seconds_until_served(promotions: Sequence[Promotion], grants: Sequence[Grant]) -> dict[Promotion, float]:
    """{promotion: seconds}: from each promotion to the first grant on its timeline, or to the next promotion where that came first.

    A grant of an old primary that goes on beside the new one does not count. math.inf: neither came.
    """
    found = {}
    for promotion, after in itertools.zip_longest(promotions, promotions[1:]):
        end = after.first_token if after else math.inf
        times = [grant.at for grant in grants if promotion.first_token <= grant.token < end]
        found[promotion] = min([*times, after.at if after else math.inf]) - promotion.at
    return found


def slow_promotions(promotions: Sequence[Promotion], grants: Sequence[Grant]) -> list[tuple[Promotion, float]]:
    """Primaries that did not serve within SERVES_S after their promotion, and the seconds that they took."""
    return [(promotion, seconds) for promotion, seconds in seconds_until_served(promotions, grants).items() if seconds > SERVES_S]


class Register:
    """What a resource that checks fencing tokens does, and what one without does, with the same writes."""

    def __init__(self) -> None:
        self.largest: dict[str, int] = {}
        self.fenced: list[tuple[str, int]] = []
        self.unfenced: list[tuple[str, int]] = []
        self.refused = 0

    def write(self, scope: str, token: int) -> None:
        self.unfenced.append((scope, token))
        if token < self.largest.get(scope, token):
            self.refused += 1
            return
        self.largest[scope] = token
        self.fenced.append((scope, token))


def longest_silence(grants: Sequence[Grant], begin: float, end: float) -> float:
    """Without a grant, in seconds."""
    times = [begin, *sorted(grant.at for grant in grants if begin < grant.at < end), end]
    return max(after - before for before, after in zip(times, times[1:]))


def judge(seen: Any, forgotten: Sequence[Any]) -> dict[str, Sequence[Any]]:
    """What is wrong with what a Load has seen, by the words of each rule. `forgotten`: the lease keys that nobody served, each with its Waiter."""
    return {
        "two holders at once": double_holders(seen.holds),
        "tokens that went back": tokens_that_went_back(seen.holds),
        "leases lost before their deadline": early_losses(seen.losses),
        "waiters that were overtaken": overtaken(seen.waiters, seen.answers),
        "waiters that were forgotten": forgotten,
        "events twice, or out of order": wrong_events(seen.sessions),
        "events that a watcher missed": missed_events(seen.sessions, seen.holds),
        "clients that failed": seen.failed,
    }
