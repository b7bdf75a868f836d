#!/usr/bin/python3
"""Judge a history of leases: was there ever a second holder, a token that did not grow, a waiter overtaken, a stall, a minimum hold cut short?
(Promise 1, promise 2, promise 5, promise 6.)

    check_history.py history.tsv [--stall 10]

A history is one line for each event, tab-separated, in the order in which the changes of each scope happened:

    number  at  kind  scope  lease  token  until  actor          (times in seconds; - for none)

    grant    the scope passed to `lease` with `token`, until the expiry `until`
    renew    its expiry is `until` now
    rest     after its grant: whenever it ends, the scope is granted to nobody before `until`
    end      its holder gave it back            reap     the reaper ended the hold with `token`
    queue    `lease` waits, until `until`, or (-) as long as its coordinator `actor` is alive; `token` is its ticket, where those
             who join at once may be in another order than their lines
    leave    it waits no longer; if it held the scope, it gave it back
    guard    a transaction relies on `token`; until its line `unguard` nothing may end or grant the scope
    gone     the client of `lease`, or (- -) the coordinator `actor`, died without a word; its place stays until its time
    alive    the coordinator `actor` gave a sign of life, good for 3.5 s
    stop     everybody was served: whoever still waits is forgotten
"""
import argparse
import collections
import sys

ALIVE_S = 3.5    # as live_coordinators() has it: the others look once a second, so the dead are passed over within 5 s
Event = collections.namedtuple('Event', 'number at kind scope lease token until actor')
Waiter = collections.namedtuple('Waiter', 'number ticket at until actor')


def parse(line):
    fields = line.rstrip('\n').split('\t')
    if len(fields) != 8:
        raise ValueError('eight fields wanted: %r' % line)
    number, at, kind, scope, lease, token, until, actor = [None if field == '-' else field for field in fields]
    return Event(int(number), float(at), kind, scope, lease, None if token is None else int(token),
                 None if until is None else float(until), actor)


class Scope:
    def __init__(self):
        self.holder = None        # the grant's event, with `until` kept up to date
        self.last_token = 0
        self.free_since = None
        self.rests_until = 0.0
        self.left_at = 0.0        # when a waiter gave up its place: the next one's turn may begin then
        self.waiters = {}
        self.guards = {}


class Judge:
    def __init__(self, stall_s=10.0):
        self.stall_s = stall_s
        self.scopes = collections.defaultdict(Scope)
        self.seen = {}            # coordinator: its last sign of life
        self.granted = set()
        self.gone = set()         # lease keys and coordinators
        self.last_number = 0
        self.faults = []
        self.counts = collections.Counter()
        self.longest_s = 0.0

    def fault(self, event, words):
        self.faults.append('%s: event %d, scope %s, lease %s: %s' % (
            words.split(':')[0], event.number, event.scope, event.lease, words))

    def live_until(self, waiter):
        if waiter.until is not None:
            return waiter.until
        return self.seen.get(waiter.actor, waiter.at) + ALIVE_S

    def judge(self, event):
        if event.number <= self.last_number:
            self.fault(event, 'order: the numbers do not grow')
        self.last_number = event.number
        self.counts[event.kind] += 1
        handler = getattr(self, 'on_' + event.kind, None)
        if handler is None:
            self.fault(event, 'unknown: no such event as %s' % event.kind)
        else:
            handler(event, self.scopes[event.scope] if event.scope else None)

    def on_grant(self, event, scope):
        holder = scope.holder
        if holder is not None and event.at < holder.until:
            self.fault(event, 'double holder: %s holds it for another %.3f s' % (holder.lease, holder.until - event.at))
        elif holder is not None:
            self.counts['takeover'] += 1
            scope.free_since = holder.until
        if event.token is None or event.token <= scope.last_token:
            self.fault(event, 'token: %s after %s' % (event.token, scope.last_token))
        if event.lease in self.granted:
            self.fault(event, 'granted twice: a lease key names one acquisition')
        for guard in scope.guards.values():
            self.fault(event, 'guard: granted while %s guards it' % guard.actor)
        if event.at < scope.rests_until:
            self.fault(event, 'rest: granted %.3f s before its end' % (scope.rests_until - event.at))
        self.check_line(event, scope)
        scope.rests_until = 0.0
        self.granted.add(event.lease)
        scope.last_token = max(scope.last_token, event.token or 0)
        scope.holder = event

    def check_line(self, event, scope):
        """Nobody who queued earlier and was live is passed over; nobody waits for a free scope."""
        own = scope.waiters.pop(event.lease, None)
        if own is not None and self.live_until(own) < event.at:
            own = None    # too late for its old place: a newcomer
        turn_at = scope.left_at
        for lease, waiter in scope.waiters.items():
            if own is None:
                is_earlier = waiter.number < event.number
            elif own.ticket is None or waiter.ticket is None:
                is_earlier = waiter.number < own.number
            else:
                is_earlier = waiter.ticket < own.ticket
            if is_earlier and self.live_until(waiter) > event.at:
                self.fault(event, 'overtaking: %s queued earlier, at %d' % (lease, waiter.number))
            elif is_earlier:
                turn_at = max(turn_at, self.live_until(waiter))    # the dead keep their place for their time
        if own is not None:
            self.counts['waited'] += 1
            if scope.free_since is not None:
                idle_s = event.at - max(scope.free_since, scope.rests_until, own.at, turn_at)
                self.longest_s = max(self.longest_s, idle_s)
                if idle_s > self.stall_s:
                    self.fault(event, 'stall: it waited %.1f s for a free scope' % idle_s)

    def on_rest(self, event, scope):
        if scope.holder is None or scope.holder.lease != event.lease:
            self.fault(event, 'rest: it does not hold the scope')
        scope.rests_until = event.until

    def on_renew(self, event, scope):
        holder = scope.holder
        if holder is None or holder.lease != event.lease:
            self.fault(event, 'renewal: it does not hold the scope')
        elif event.at > holder.until:
            self.fault(event, 'renewal: %.3f s after its expiry' % (event.at - holder.until))
        elif event.token != holder.token:
            self.fault(event, 'token: a renewal changed it')
        else:
            scope.holder = holder._replace(until=event.until)

    def finish_hold(self, event, scope):
        for guard in scope.guards.values():
            self.fault(event, 'guard: ended while %s guards it' % guard.actor)
        scope.holder = None
        scope.free_since = event.at

    def on_end(self, event, scope):
        if scope.holder is None or scope.holder.lease != event.lease:
            self.fault(event, 'release: it does not hold the scope')
            return
        self.finish_hold(event, scope)

    def on_reap(self, event, scope):
        if scope.holder is None or scope.holder.token != event.token:
            self.fault(event, 'reap: nobody holds it with token %s' % event.token)
            return
        if event.at < scope.holder.until:
            self.fault(event, 'reap: %.3f s before the expiry' % (scope.holder.until - event.at))
        self.finish_hold(event, scope)

    def on_queue(self, event, scope):
        scope.waiters.setdefault(event.lease, Waiter(event.number, event.token, event.at, event.until, event.actor))

    def on_leave(self, event, scope):
        scope.left_at = event.at
        scope.waiters.pop(event.lease, None)
        if scope.holder is not None and scope.holder.lease == event.lease:
            self.finish_hold(event, scope)

    def on_guard(self, event, scope):
        if scope.holder is None or scope.holder.token != event.token:
            self.fault(event, 'guard: a stale token passed')
        scope.guards[event.lease] = event

    def on_unguard(self, event, scope):
        scope.guards.pop(event.lease, None)

    def on_gone(self, event, unused_scope):
        self.gone.add(event.lease or event.actor)

    def on_alive(self, event, unused_scope):
        self.seen[event.actor] = max(event.at, self.seen.get(event.actor, 0.0))

    def on_stop(self, event, unused_scope):
        for name, scope in self.scopes.items():
            for lease, waiter in scope.waiters.items():
                if self.live_until(waiter) > event.at and not {lease, waiter.actor} & self.gone:
                    self.fault(event._replace(scope=name, lease=lease), 'stall: it waits still, and nobody will serve it')


def check(lines, stall_s=10.0):
    judge = Judge(stall_s)
    for line in lines:
        judge.judge(parse(line))
    return judge


def main():
    parser = argparse.ArgumentParser(description='Judge a history of leases.')
    parser.add_argument('history')
    parser.add_argument('--stall', type=float, default=10.0, help='seconds that a free scope may keep a live waiter')
    arguments = parser.parse_args()
    with open(arguments.history, encoding='utf-8') as file:
        judge = check(file, arguments.stall)
    for fault in judge.faults[:50]:
        print(fault)
    print('%d faults; %s; longest wait for a free scope %.2f s' % (
        len(judge.faults), ', '.join('%d %s' % (count, kind) for kind, count in sorted(judge.counts.items())), judge.longest_s))
    return 1 if judge.faults or not judge.counts['grant'] else 0


if __name__ == '__main__':
    sys.exit(main())
