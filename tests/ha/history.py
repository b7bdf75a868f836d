"""The history of a campaign, and what is wrong with it.

Everything is seen from the clients' side, on one clock. A hold is (scope, token, begin, end): from the answer that granted it until its
holder stopped to believe in it: it sent the release, heard of the loss, or its deadline passed.
"""
import collections

Hold = collections.namedtuple("Hold", "scope token begin end")


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


def stale_writes(writes):
    """Of (scope, token) in the order in which they were accepted: how many came after one with a larger token."""
    largest, stale = {}, 0
    for scope, token in writes:
        stale += token < largest.get(scope, token)
        largest[scope] = max(token, largest.get(scope, token))
    return stale


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
