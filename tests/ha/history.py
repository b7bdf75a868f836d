"""The history of a campaign, and what is wrong with it.

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
import bisect
import collections
import datetime
import itertools
import math

Hold = collections.namedtuple("Hold", "scope token begin end asked")
Waiter = collections.namedtuple("Waiter", "scope daemon asked queued ended token")
Loss = collections.namedtuple("Loss", "scope token at deadline reason")
Session = collections.namedtuple("Session", "daemon synced events")
Event = collections.namedtuple("Event", "scope kind token")
Grant = collections.namedtuple("Grant", "at token")
Promotion = collections.namedtuple("Promotion", "timeline at first_token")

# A new primary serves within this time.
SERVES_S = 15

# A daemon that was in touch with the database more often than this is alive: others pass over it only after 3.5 s. One that was silent and is back
# counts as alive from its next sign of life on, which comes each second.
ALIVE_S = 2.5
BACK_S = 5


def by_scope(things):
    found = collections.defaultdict(list)
    for thing in things:
        found[thing[0]].append(thing)
    return found


def double_holders(holds):
    """Pairs that believed in the same scope at the same time."""
    bad = []
    for scope in by_scope(holds).values():
        scope.sort(key=lambda hold: hold.begin)
        latest = None
        for hold in scope:
            if latest is not None and hold.begin < latest.end and hold.token != latest.token:
                bad.append((latest, hold))
            if latest is None or hold.end > latest.end:
                latest = hold
    return bad


def tokens_that_went_back(holds):
    """Pairs in which the later grant has no larger token."""
    bad = []
    for scope in by_scope(holds).values():
        scope.sort(key=lambda hold: hold.begin)
        bad += [(before, after) for before, after in zip(scope, scope[1:]) if after.token <= before.token]
    return bad


def early_losses(losses):
    """Holders that lost a lease which the last answer had promised them for longer. One that renews in time never hears LOST."""
    return [loss for loss in losses if loss.at < loss.deadline]


def was_alive(answers, begin, end):
    """Whether a daemon answered from the database often enough from `begin` to `end`; `answers` are its times, ascending."""
    begin, end = begin - BACK_S, end + ALIVE_S
    inside = answers[bisect.bisect_left(answers, begin):bisect.bisect_right(answers, end)]
    times = [begin, *inside, end]
    return bool(inside) and all(after - before <= ALIVE_S for before, after in zip(times, times[1:]))


def overtaken(waiters, answers):
    """Pairs (first, second): first was in the queue before second asked, still waited when second was granted, and got no smaller token.

    Only where the first one's daemon was alive meanwhile: the waiters of a silent one are passed over.
    """
    bad = []
    for scope in by_scope(waiter for waiter in waiters if waiter.queued is not None or waiter.token is not None).values():
        granted = [waiter for waiter in scope if waiter.token is not None]
        for first in (waiter for waiter in scope if waiter.queued is not None):
            for second in granted:
                if first.queued < second.asked and (first.ended >= second.ended if first.token is None else first.token > second.token) and (
                        was_alive(answers.get(first.daemon, []), first.queued, second.ended)):
                    bad.append((first, second))
    return bad


def wrong_events(sessions):
    """Events that come twice, out of order, or without the one before: for each scope an end follows its own grant, a grant the end before."""
    bad = []
    for session in sessions:
        held, last = {}, {}
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


def missed_events(sessions, holds):
    """Grants that a watcher was not told of, although it heard of a later one of their scope."""
    bad = []
    scopes = by_scope(holds)
    for session in sessions:
        told = collections.defaultdict(set)
        for event in session.events:
            told[event.scope].add(event.token)
        for scope, tokens in told.items():
            bad += [(session.daemon, hold) for hold in scopes.get(scope, ())
                    if hold.asked > session.synced and hold.token < max(tokens) and hold.token not in tokens]
    return bad


def stale_writes(writes):
    """Of (scope, token) in the order in which they were accepted: how many came after one with a larger token."""
    largest, stale = {}, 0
    for scope, token in writes:
        stale += token < largest.get(scope, token)
        largest[scope] = max(token, largest.get(scope, token))
    return stale


def first_token(wall_s):
    """The least token of a primary that is promoted at this time of the wall clock: see migrations/functions/epoch.sql."""
    since_2025 = wall_s - datetime.datetime(2025, 1, 1, tzinfo=datetime.timezone.utc).timestamp()
    return int(since_2025 / 60 * 2 ** 36)


def seconds_until_served(promotions, grants):
    """{promotion: seconds}: from each promotion to the first grant on its timeline, or to the next promotion where that came first.

    A grant of an old primary that goes on beside the new one does not count. math.inf: neither came.
    """
    found = {}
    for promotion, after in itertools.zip_longest(promotions, promotions[1:]):
        end = after.first_token if after else math.inf
        times = [grant.at for grant in grants if promotion.first_token <= grant.token < end]
        found[promotion] = min([*times, after.at if after else math.inf]) - promotion.at
    return found


def slow_promotions(promotions, grants):
    """Primaries that did not serve within SERVES_S after their promotion, and the seconds that they took."""
    return [(promotion, seconds) for promotion, seconds in seconds_until_served(promotions, grants).items() if seconds > SERVES_S]


class Register:
    """What a resource that checks fencing tokens does, and what one without does, with the same writes."""

    def __init__(self):
        self.largest = {}
        self.fenced, self.unfenced, self.refused = [], [], 0

    def write(self, scope, token):
        self.unfenced.append((scope, token))
        if token < self.largest.get(scope, token):
            self.refused += 1
            return
        self.largest[scope] = token
        self.fenced.append((scope, token))
