#!/usr/bin/python3
"""Judge a history of leases: did two hold what they may not hold together, was a slot given twice, did a token not grow, was a waiter overtaken,
a minimum hold cut short, a lease granted for some of its scopes alone, was there a stall?
(Promise 1, promise 2, promise 5, promise 6.)

    check_history.py history.tsv [--stall 10]

A history is one line for each event, tab-separated, in the order in which the changes of each scope happened:

    number  at  kind  scope  lease  token  until  actor  units  slots  priority         (times in seconds; - for none; the last may be absent)

    ageing   `until` seconds are what one step of a priority is worth; without such a line 0
    capacity the scope has `token` units for shared leases; without such a line any number
    grant    the scope passed to `lease` with `token`, until the expiry `until`: exclusively, or (units) shared, with these slots, 1,2,3
    down     the lease that holds the scope exclusively is shared now, with `token`, until `until`; or a shared one gave units back
    renew    its expiry is `until` now
    rest     after its grant: whenever it ends, the scope is granted to nobody before `until`
    end      its holder gave it back            reap     the reaper ended the hold with `token`
    lost     its holder was told that it has lost it, so no new life of the database makes it longer
    queue    `lease` waits, until `until`, or (-) as long as its coordinator `actor` is alive; `token` is its ticket, where those
             who join at once may be in another order than their lines; `at` is when it came, for those of other priorities
    ask      the holder with `token` is asked to hand over
    hear     the holder `lease` looked, and was asked (its `token`) or (-) not; no line is between the look and the requests before it
    refuse   the holder `lease` refused what it was asked
    all      `lease` is for this scope and others, one line for each, all or none: all are queued for with one ticket, and granted at once,
             before any other line about it
    leave    it waits no longer; if it held the scope, it gave it back
    guard    a transaction relies on `token`; until its line `unguard` nothing may end that lease, or grant the scope to somebody else
             where the lease is exclusive, exclusively where it is shared
    gone     the client of `lease`, or (- -) the coordinator `actor`, died without a word; its place stays until its time
    alive    the coordinator `actor` gave a sign of life, good for 3.5 s
    crash    the database is up again, and nobody has written down its new life: until then an expired lease may be renewed
    life     it is written down: whoever was granted a scope before, or renewed, holds it as long again from then on
    stop     everybody was served: whoever still waits is forgotten
"""
import argparse
import collections
import sys

SAME_S = 2e-6     # what a difference of two times in floating point may be wrong by
ALIVE_S = 3.5    # as live_coordinators() has it: the others look once a second, so the dead are passed over within 5 s
Event = collections.namedtuple('Event', 'number at kind scope lease token until actor units slots priority')
Waiter = collections.namedtuple('Waiter', 'number ticket at until actor priority')


class Together:
    """The scopes of a lease that was acquired for several, and what became of it in each."""
    def __init__(self):
        self.scopes = set()
        self.queued = {}          # scope: its ticket there
        self.granted = {}         # scope: when
        self.ready_at = 0.0       # since when nothing was in its way, of the scopes that are granted so far
        self.has_waited = False

    def fault(self, kind):
        """What is wrong with it before an event of that kind."""
        for words, seen, own in (('queued', self.queued, 'queue'), ('granted', self.granted, 'grant')):
            if seen and kind not in (own, 'rest') and set(seen) != self.scopes:
                return 'part: %s for %s of %s alone' % (words, sorted(seen), sorted(self.scopes))
            if len(set(seen.values())) > 1:
                return 'part: %s with different tickets, or at different times: %s' % (words, sorted(seen.items()))
        return None


def parse(line):
    fields = line.rstrip('\n').split('\t')
    if len(fields) == len(Event._fields) - 1:
        fields.append('-')
    if len(fields) != len(Event._fields):
        raise ValueError('%d fields wanted: %r' % (len(Event._fields), line))
    number, at, kind, scope, lease, token, until, actor, units, slots, priority = [None if field == '-' else field for field in fields]
    return Event(int(number), float(at), kind, scope, lease, None if token is None else int(token),
                 None if until is None else float(until), actor, None if units is None else int(units),
                 None if slots is None else [int(slot) for slot in slots.split(',')], int(priority or 0))


class Scope:
    def __init__(self):
        self.capacity = None
        self.holders = {}         # lease: the grant's event, with `until`, units and slots kept up to date
        self.expired = {}         # those that somebody else may have replaced since: whether they were ended shows only later
        self.last_token = 0
        self.changed_at = None    # the last change that may have made room
        self.rests_until = 0.0
        self.left_at = 0.0        # when a waiter gave up its place: the next one's turn may begin then
        self.waiters = {}
        self.guards = {}
        self.asked = set()        # tokens with an open request
        self.passed_over = {}     # lease: a fault of a grant before, unless both were granted by one decision


class Judge:
    def __init__(self, stall_s=10.0):
        self.stall_s = stall_s
        self.scopes = collections.defaultdict(Scope)
        self.seen = {}            # coordinator: its last sign of life
        self.granted = set()      # (lease, scope)
        self.together = {}        # by lease
        self.gone = set()         # lease keys and coordinators
        self.ageing_s = 0.0
        self.life_at = 0.0
        self.is_settled = True
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
            self.judge_together(event)

    def judge_together(self, event):
        together = self.together.get(event.lease)
        if together is None or event.kind in ('all', 'gone'):
            return
        if event.kind == 'queue':
            together.queued[event.scope] = event.token
        elif event.kind == 'grant':
            together.granted.setdefault(event.scope, event.at)
        words = together.fault(event.kind)
        if words is not None:
            self.fault(event, words)

    def on_all(self, event, unused_scope):
        self.together.setdefault(event.lease, Together()).scopes.add(event.scope)

    def on_ageing(self, event, unused_scope):
        self.ageing_s = event.until

    def on_capacity(self, event, scope):
        scope.capacity = event.token

    def on_grant(self, event, scope):
        if any((before.at, before.actor) != (event.at, event.actor) for before, _ in scope.passed_over.values()):
            self.tell_passed_over(scope)
        scope.passed_over.pop(event.lease, None)
        room_at = self.make_room(event, scope)
        self.check_token(event, scope)
        if (event.lease, event.scope) in self.granted:
            self.fault(event, 'granted twice: a lease key names one acquisition')
        for guard in scope.guards.values():
            if event.units is None or guard.units is None:
                self.fault(event, 'guard: granted while %s guards it' % guard.actor)
        if event.at < scope.rests_until:
            self.fault(event, 'rest: granted %.3f s before its end' % (scope.rests_until - event.at))
        if self.fits(event, scope):
            self.check_slots(event, scope)
        self.check_line(event, scope, room_at)
        scope.rests_until = 0.0
        self.granted.add((event.lease, event.scope))
        scope.holders[event.lease] = self.in_this_life(event)
        scope.changed_at = event.at
        self.counts['shared grant'] += event.units is not None

    def make_room(self, event, scope):
        """Only an expired holder may be in the way of a grant, and goes. When that began to be so."""
        room_at = scope.changed_at
        for lease, holder in list(scope.holders.items()):
            if self.fits(event, scope):
                break
            if event.at >= holder.until:
                self.counts['takeover'] += 1
                for guard in scope.guards.values():
                    if guard.token == holder.token:
                        self.fault(event, 'guard: taken over while %s guards it' % guard.actor)
                scope.expired[lease] = scope.holders.pop(lease)
                room_at = max(room_at, holder.until)
        if not self.fits(event, scope):
            words = ', '.join('%s holds it for another %.3f s' % (lease, holder.until - event.at) for lease, holder in scope.holders.items())
            is_shared = event.units is not None and all(holder.units is not None for holder in scope.holders.values())
            self.fault(event, ('capacity: %d more units of %d; ' % (event.units, scope.capacity) if is_shared else 'double holder: ') + words)
        if event.units is None:
            scope.expired.clear()
        return room_at

    @staticmethod
    def fits(event, scope):
        """Whether it may hold the scope beside those that do. Slots that are taken say that an expired holder has gone."""
        holders = scope.holders.values()
        if not holders:
            return scope.capacity is None or (event.units or 0) <= scope.capacity
        if event.units is None or any(holder.units is None for holder in holders):
            return False
        is_taken = any(set(event.slots or ()) & set(holder.slots or ()) for holder in holders if holder.until <= event.at)
        return scope.capacity is None or (event.units + sum(holder.units for holder in holders) <= scope.capacity and not is_taken)

    def check_token(self, event, scope):
        if event.token is None or event.token <= scope.last_token:
            self.fault(event, 'token: %s after %s' % (event.token, scope.last_token))
        scope.last_token = max(scope.last_token, event.token or 0)

    def check_slots(self, event, scope):
        """With a capacity a shared lease has the lowest free numbers."""
        if event.units is None or scope.capacity is None:
            if event.slots is not None:
                self.fault(event, 'slots: %s without a capacity' % event.slots)
            return
        slots = event.slots or []
        taken = {slot for lease, holder in scope.holders.items() if lease != event.lease for slot in holder.slots or ()}
        free = [slot for slot in range(1, scope.capacity + 1) if slot not in taken]
        if set(slots) & taken:
            self.fault(event, 'slots: %s, of which others have %s' % (slots, sorted(set(slots) & taken)))
        elif len(set(slots)) != event.units or not set(slots) <= set(free):
            self.fault(event, 'slots: %s for %d units of %d' % (slots, event.units, scope.capacity))
        elif slots != free[:event.units] and all(holder.until > event.at for holder in scope.holders.values()):
            self.fault(event, 'slots: %s, though %s are the lowest that are free' % (slots, free[:event.units]))

    def on_down(self, event, scope):
        holder = scope.holders.get(event.lease)
        if holder is None or event.units is None:
            self.fault(event, 'downgrade: it does not hold the scope')
            return
        if event.at > holder.until:
            self.fault(event, 'downgrade: %.3f s after its expiry' % (event.at - holder.until))
        if holder.units is not None:
            if event.units > holder.units or event.slots != (holder.slots and holder.slots[:event.units]):
                self.fault(event, 'downgrade: from %s units, slots %s, to %s, %s' % (holder.units, holder.slots, event.units, event.slots))
        else:
            self.check_slots(event, scope)
            for guard in scope.guards.values():
                self.fault(event, 'guard: downgraded while %s guards it' % guard.actor)
        if holder.units is None or event.token != holder.token:
            self.check_token(event, scope)
        scope.holders[event.lease] = self.in_this_life(event)
        scope.changed_at = event.at

    def check_line(self, event, scope, room_at):
        """Nobody who queued earlier and was live is passed over, whoever wants less; nobody waits for what fits."""
        own = scope.waiters.pop(event.lease, None)
        if own is not None and self.live_until(own) < event.at:
            own = None    # too late for its old place: a newcomer
        if own is None:
            own_at, priority = event.at, event.priority
        else:
            own_at, priority = own.at, own.priority
        own_at -= priority * self.ageing_s
        turn_at = scope.left_at
        for lease, waiter in scope.waiters.items():
            if waiter.priority != priority:
                # Of each priority its first live one counts; whoever is behind it comes after it, whatever the clock said when it came.
                first = self.first_live(scope, waiter.priority, event.at)
                is_earlier = (waiter is first or self.live_until(waiter) <= event.at) and self.is_before(waiter, own_at, priority)
            elif own is None:
                is_earlier = waiter.number < event.number
            elif own.ticket is None or waiter.ticket is None:
                is_earlier = waiter.number < own.number
            else:
                is_earlier = waiter.ticket < own.ticket
            if is_earlier and self.live_until(waiter) > event.at:
                scope.passed_over[lease] = (event, 'overtaking: %s queued earlier, at %d' % (lease, waiter.number))
            elif is_earlier:
                turn_at = max(turn_at, self.live_until(waiter))    # the dead keep their place for their time
        if own is not None:
            self.counts['waited'] += 1
            self.check_idle(event, max(room_at or 0.0, scope.rests_until, own.at, turn_at), room_at is not None)

    def tell_passed_over(self, scope):
        for event, words in scope.passed_over.values():
            self.fault(event, words)
        scope.passed_over.clear()

    def first_live(self, scope, priority, at):
        live = [waiter for waiter in scope.waiters.values() if waiter.priority == priority and self.live_until(waiter) > at]
        return min(live, key=lambda waiter: waiter.ticket or waiter.number, default=None)

    def is_before(self, waiter, own_at, priority):
        """Is it before one with another priority and `own_at`, the time when that came less its priority's worth?"""
        waiter_at = waiter.at - waiter.priority * self.ageing_s
        return waiter_at < own_at - SAME_S or (waiter_at <= own_at and waiter.priority > priority)

    def check_idle(self, event, ready_at, was_held):
        """Since `ready_at` nothing was in its way in this scope. Who waits for several was not slow where the last of them was not ready."""
        together = self.together.get(event.lease)
        if together is not None:
            together.ready_at = ready_at = max(together.ready_at, ready_at)
            together.has_waited = was_held = together.has_waited or was_held
            if len(together.granted) + 1 < len(together.scopes):
                return
        if was_held:
            idle_s = event.at - ready_at
            self.longest_s = max(self.longest_s, idle_s)
            if idle_s > self.stall_s:
                self.fault(event, 'stall: it waited %.1f s for what was free' % idle_s)

    def on_rest(self, event, scope):
        if event.lease not in scope.holders:
            self.fault(event, 'rest: it does not hold the scope')
        scope.rests_until = event.until

    def on_renew(self, event, scope):
        holder = scope.holders.get(event.lease)
        if holder is None:
            self.fault(event, 'renewal: it does not hold the scope')
        elif event.at > holder.until and self.is_settled:
            self.fault(event, 'renewal: %.3f s after its expiry' % (event.at - holder.until))
        elif event.token != holder.token:
            self.fault(event, 'token: a renewal changed it')
        else:
            scope.holders[event.lease] = self.in_this_life(holder._replace(at=event.at, until=event.until))

    def finish_hold(self, event, scope, lease):
        holder = scope.holders.pop(lease, None) or scope.expired.pop(lease)
        for guard in scope.guards.values():
            if guard.token == holder.token:
                self.fault(event, 'guard: ended while %s guards it' % guard.actor)
        scope.changed_at = event.at

    def on_end(self, event, scope):
        if event.lease not in scope.holders and event.lease not in scope.expired:
            self.fault(event, 'release: it does not hold the scope')
            return
        self.finish_hold(event, scope, event.lease)

    def on_lost(self, event, scope):
        holder = scope.holders.get(event.lease)
        if holder is not None:
            if event.at < holder.until:
                self.fault(event, 'lost: %.3f s before its expiry' % (holder.until - event.at))
            scope.holders[event.lease] = holder._replace(at=event.at, until=event.at)

    def on_reap(self, event, scope):
        leases = [lease for lease, holder in [*scope.holders.items(), *scope.expired.items()] if holder.token == event.token]
        if not leases:
            self.fault(event, 'reap: nobody holds it with token %s' % event.token)
            return
        holder = scope.holders.get(leases[0])
        if holder is not None and event.at < holder.until:
            self.fault(event, 'reap: %.3f s before the expiry' % (holder.until - event.at))
        self.finish_hold(event, scope, leases[0])

    def on_queue(self, event, scope):
        scope.waiters.setdefault(event.lease, Waiter(event.number, event.token, event.at, event.until, event.actor, event.priority))

    def on_leave(self, event, scope):
        scope.left_at = event.at
        scope.waiters.pop(event.lease, None)
        if event.lease in scope.holders:
            self.finish_hold(event, scope, event.lease)

    def on_ask(self, event, scope):
        scope.asked.add(event.token)

    def on_hear(self, event, scope):
        holder = scope.holders.get(event.lease)
        if holder is None or event.at >= holder.until:
            return
        if event.token is None and holder.token in scope.asked:
            self.fault(event, 'request: the holder does not hear of it')
        elif event.token is not None and (event.token != holder.token or event.token not in scope.asked):
            self.fault(event, 'request: nobody asked token %s' % event.token)

    def on_refuse(self, event, scope):
        holder = scope.holders.get(event.lease)
        if holder is not None:
            scope.asked.discard(holder.token)

    def on_guard(self, event, scope):
        holders = [holder for holder in scope.holders.values() if holder.token == event.token]
        if not holders:
            self.fault(event, 'guard: a stale token passed')
        scope.guards[event.lease] = event._replace(units=holders[0].units if holders else None)

    def on_unguard(self, event, scope):
        scope.guards.pop(event.lease, None)

    def on_gone(self, event, unused_scope):
        self.gone.add(event.lease or event.actor)

    def in_this_life(self, holder):
        at = max(holder.at, self.life_at)
        return holder._replace(at=at, until=at + (holder.until - holder.at))

    def on_crash(self, unused_event, unused_scope):
        self.is_settled = False

    def on_life(self, event, unused_scope):
        self.life_at = event.at
        self.is_settled = True
        for scope in self.scopes.values():
            scope.holders = {lease: self.in_this_life(holder) for lease, holder in scope.holders.items()}

    def on_alive(self, event, unused_scope):
        self.seen[event.actor] = max(event.at, self.seen.get(event.actor, 0.0))

    def finish(self):
        """After the last line."""
        for scope in self.scopes.values():
            self.tell_passed_over(scope)
        for lease, together in self.together.items():
            words = together.fault('stop')
            if words is not None:
                self.faults.append('%s, lease %s' % (words, lease))
        self.counts['granted together'] = sum(bool(together.granted) for together in self.together.values())

    def on_stop(self, event, unused_scope):
        for name, scope in self.scopes.items():
            for lease, waiter in scope.waiters.items():
                if self.live_until(waiter) > event.at and not {lease, waiter.actor} & self.gone:
                    self.fault(event._replace(scope=name, lease=lease), 'stall: it waits still, and nobody will serve it')


def check(lines, stall_s=10.0):
    judge = Judge(stall_s)
    for line in lines:
        judge.judge(parse(line))
    judge.finish()
    return judge


def main():
    parser = argparse.ArgumentParser(description='Judge a history of leases.')
    parser.add_argument('history')
    parser.add_argument('--stall', type=float, default=10.0, help='seconds that a live waiter may wait for what is free')
    arguments = parser.parse_args()
    with open(arguments.history, encoding='utf-8') as file:
        judge = check(file, arguments.stall)
    for fault in judge.faults[:50]:
        print(fault)
    print('%d faults; %s; longest wait for what was free %.2f s' % (
        len(judge.faults), ', '.join('%d %s' % (count, kind) for kind, count in sorted(judge.counts.items())), judge.longest_s))
    return 1 if judge.faults or not judge.counts['grant'] else 0


if __name__ == '__main__':
    sys.exit(main())
