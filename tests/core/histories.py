"""Histories at random: what coordinators ask, and what others do to the same scopes in between. A step is made once, from a seed and from what
the database in SQL holds, and done to two databases alike. Times are set back by whole minutes, and no length of time that is used here ends at a
whole minute, nor near another: so nothing depends on the moment between the two.
"""
import random

NAMESPACES = ('a', 'a.b', 'c', 'd.e')
KEYS = ('k1', 'k2', 'k3', 'clé')
COORDINATORS = (901, 901, 901, 901, 902, 903, None)       # 903 is dead
LONG_NAMESPACE = '.'.join(['n' * 60] * 4)
BAD_NAMESPACES = ('', 'a..b', '.a', 'a.', 'b\x01', 'ab\x7f', 'a\x85', 'x' * 64, '.'.join('s' * 17), LONG_NAMESPACE + '.' + 'n' * 20, None)
ODD_NAMESPACES = (LONG_NAMESPACE, 'x' * 63, '.'.join('s' * 16), 'ns\u00a0', 'a/b')
BAD_KEYS = ('', 'k' * 1025, 'k\x01', 'k\x7f', 'k\x80', 'k\x9f', 'k\n', None, 'é' * 513)
ODD_KEYS = ('k' * 1024, 'é' * 512, 'k\u00a0', ' ', 'k\u2028', '\u0100', 'Â', 'k"\\{},')
OWNERS = ('w1', 'w2', None, '', 'o' * 255, 'é' * 127)
BAD_OWNERS = ('o' * 256, 'é' * 128)
SIXTEEN = '{%s}' % ', '.join('"l%d": "v"' % i for i in range(16))
LABELS = ('{}', '{}', '{"a": "b"}', SIXTEEN, '{"%s": "%s"}' % ('é' * 31, 'é' * 127), '{"%s": "%s"}' % ('n' * 63, 'v' * 255), '{"a": "", "a": "z"}', ' {} ',
          '{"\\u0061": "\\ud83d\\ude00"}')
BAD_LABELS = (None, '{"a": 1}', '{"a": null}', '{"a": {}}', '{"a": ["b"]}', '[]', '[1]', '"x"', '1', 'null', '{"": "x"}', '{"%s": "x"}' % ('n' * 64),
              '{"x": "%s"}' % ('v' * 256), '{"%s": "x"}' % ('é' * 32), '{"x": "%s"}' % ('é' * 128), SIXTEEN[:-1] + ', "m": "v"}')
NO_JSON = ('{', '{"a": "\\u0000"}', '', 'nul', '{"a": "\\ud83d"}')
DURATIONS = (3630000000, 7230000001, 1830000007)
BAD_DURATIONS = (99999, 100000, 0, -1, 86400000001, 999999, 9223372036854775807, -9223372036854775808, 4503599627370497, None)
RESULTS = ('{"n": 1}', None, '[]', '"x"', 'null', ' 12.50 ', '{"big": "%s"}' % ('x' * 3000), '%s' % list(range(900)))
ERRORS = ('disk full', '', None, '{', 'e' * 3000)
POLICIES = ("frozen => true", "frozen => true", "max_leases => 2", "max_leases => 2", "max_leases => 0", "max_waiters => 1", "min_duration => '61 min'", "max_duration => '59 min'",
            "grace => '20 min 15 s'", "grace => '0 s'", "capacity => 2", "capacity => 3", "expiry => 'manual'", "expiry => 'reap'", "history => true", "history => true",
            "at_least => '22 min 10 s'", "dead_after => '5 min 20 s'", "max_hold => '9 min 25 s'", "free_retention => '0 s'", "history => false",
            "max_hold => '49 min 25 s', end_at_max_hold => true", "max_hold => '49 min 25 s', end_at_max_hold => true", "end_at_max_hold => false",
            "min_duration => '1 s', max_duration => '30 days', grace => '1 day'")
EVENTS = ('acquire', 'heartbeat', 'release_ok', 'release_fail', 'reap')
# What rows may be like that were written long ago, or by nobody in particular.
TAMPERINGS = ("incarnation = -1", "check_at = 'infinity'", "check_at = 'infinity'", "check_at = 'infinity'", "reap_failures = 3, reap_error = 'no', next_try_at = deadline + interval '5 min 50 s'",
              "heartbeats = 5", "queued = true", "lapsed = state = 'held'", "granted_by = null", "reap_failures = 20")
LOCKS = ('for update', 'for no key update', 'for share', 'for key share')

SCOPE = ' where (namespace, key) = (%s, %s)'
SET_BACK = (
    """update leasehold.scope set acquired_at = acquired_at - %(by)s::interval, heartbeat_at = heartbeat_at - %(by)s::interval,
         deadline = deadline - %(by)s::interval, ended_at = ended_at - %(by)s::interval, check_at = check_at - %(by)s::interval,
         reap_failed_at = reap_failed_at - %(by)s::interval, next_try_at = next_try_at - %(by)s::interval""",
    """update leasehold.share set acquired_at = acquired_at - %(by)s::interval, heartbeat_at = heartbeat_at - %(by)s::interval,
         deadline = deadline - %(by)s::interval, ended_at = ended_at - %(by)s::interval, check_at = check_at - %(by)s::interval""",
    """update leasehold.waiter set enqueued_at = enqueued_at - %(by)s::interval, wait_until = wait_until - %(by)s::interval,
         away_until = away_until - %(by)s::interval""",
    """update leasehold.hand_over set asked_at = asked_at - %(by)s::interval, answer_by = answer_by - %(by)s::interval,
         refused_at = refused_at - %(by)s::interval""")
# Whatever granted the lease, ended it or passed it on: its holder is asked until then, and no longer.
REQUESTS = 'select state, namespace, key, owner, reason, refusal from leasehold.hand_over_request order by 2, 3, token'
ASKED = 'select namespace, key, lease_key, reason from leasehold.asked(array(select note.key(n) from generate_series(1, 9000) n)) order by 1, 2, 3'


class Step:
    """`calls` of the coordinators in one transaction, which ends so (`end`), with `before` done to its session first; or SQL by somebody else
    (`others`). `keeps`: SQL of a session that keeps its locks while the step runs."""

    def __init__(self, calls=(), others=(), end='commit', before=(), keeps=None):
        self.calls, self.others, self.end, self.before, self.keeps = calls, others, end, before, keeps

    def __str__(self):
        lines = ['kept meanwhile: %s %s' % self.keeps] if self.keeps else []
        lines += ['before: %s %s' % pair for pair in self.before] + ['%s %s' % pair for pair in self.others]
        for name, arguments in self.calls:
            lines.append(name)
            lines += ['    %s = %s' % (key, shorten(value)) for key, value in arguments.items()]
        return '\n'.join(lines + ([self.end] if self.calls else []))


def shorten(value, limit=400):
    text = repr(value)
    return text if len(text) < limit else text[:limit] + '...'


class Generator:
    """`look` returns what is held now, as (namespace, key, lease key), who waits, and which scopes have a row.

    Two things are not asked for, about which C and SQL differ, as SQL alone and in batches does: a lease key twice for one scope without a row (SQL
    alone takes it for one acquisition with the values of the first, C for an acquisition and its renewal, as both do where there is a row), and a
    heartbeat for the third time in one batch (SQL counts it and the second as one, C as two).
    """

    def __init__(self, seed, look):
        self.random = random.Random(seed)
        self.other_random = random.Random(-seed)              # for priorities, requests to hand over and spread namespaces
        self.has_priorities = self.other_random.random() < 0.4
        self.has_requests = self.other_random.random() < 0.6
        self.has_spread = self.other_random.random() < 0.5
        self.has_sharers = self.other_random.random() < 0.4
        self.look = look
        self.fresh = 1000
        self.asked_by = {}
        self.held, self.waiting, self.known = [], [], set()
        self.strictness = self.random.choice((0.0, 0.02, 0.02, 0.15))        # how often an item is bad

    def is_so(self, chance):
        return self.random.random() < chance

    def one_of(self, good, bad):
        return self.random.choice(bad if bad and self.is_so(self.strictness) else good)

    def lease_key(self):
        if self.is_so(0.5):
            self.fresh += 1
            return self.fresh
        return None if self.is_so(self.strictness) else self.random.randrange(1, 13)

    def scope(self):
        if self.is_so(self.strictness):
            return (self.random.choice(NAMESPACES + BAD_NAMESPACES + ODD_NAMESPACES), self.random.choice(KEYS + BAD_KEYS + ODD_KEYS))
        return self.random.choice(NAMESPACES), self.random.choice(KEYS)

    def count(self):
        return self.random.choice((1, 1, 2, 3, 5, 9))

    # --- calls ---

    def refs(self, count):
        """Leases, most of which are held."""
        refs = []
        for unused in range(count):
            one = self.scope() + (self.lease_key(),)
            if refs and self.is_so(0.1):
                one = self.random.choice(refs)
            elif self.held and not self.is_so(0.2):
                one = self.random.choice(self.held)
            if refs.count(one) >= 2:
                self.fresh += 1
                one = one[:2] + (self.fresh,)
            refs.append(one)
        return refs

    def acquire_items(self, count):
        may_share, may_rest, has_tickets = self.is_so(0.15), self.is_so(0.05), self.is_so(0.1)
        # Many join one queue at once, now and then with one among them who does something else.
        crowd = self.other_random.choice(self.held)[:2] if count > 1 and self.held and self.other_random.random() < 0.25 else None
        sharers = self.has_sharers and self.other_random.random() < 0.6
        if crowd or sharers:
            may_share = has_tickets = may_rest = False
        items = {name: [] for name in ('ns', 'key', 'lk', 'owner', 'labels', 'duration', 'queue', 'wait', 'ticket', 'principal', 'at_least', 'units',
                                     'priority')}
        for unused in range(count):
            ns, key = self.scope()
            lk = self.lease_key()
            if self.waiting and self.is_so(0.15):
                ns, key, lk = self.random.choice(self.waiting)
            elif self.held and self.is_so(0.05):
                ns, key, lk = self.random.choice(self.held)
            is_waiter = self.held and self.is_so(0.12)
            if is_waiter:
                ns, key, lk = self.random.choice(self.held)[:2] + (self.fresh + 1,)
                self.fresh += 1
            if crowd and self.other_random.random() < 0.95:
                self.fresh += 1
                ns, key, lk, is_waiter = *crowd, self.fresh, True
            elif items['ns'] and self.is_so(0.6 if sharers else 0.15):
                ns, key = items['ns'][-1], items['key'][-1]
                lk = self.random.choice((lk, items['lk'][-1]))
            if (ns, key, lk) in zip(items['ns'], items['key'], items['lk']) and (ns, key) not in self.known:
                lk = self.fresh = self.fresh + 1
            values = (ns, key, lk, self.one_of(OWNERS, BAD_OWNERS), self.one_of(LABELS, BAD_LABELS), self.one_of(DURATIONS, BAD_DURATIONS),
                      True if is_waiter else self.random.choice((True, True, False, None)) if self.is_so(0.6) else False,
                      self.random.choice((None, None, 610000000, 610000000, 0)) if not self.is_so(self.strictness) else -1,
                      self.random.choice((0, 0, 7, None)) if has_tickets else 0, self.random.choice((None, 'token:w')),
                      self.random.choice((None, 0, 1810000000, -1)) if may_rest and self.is_so(0.5) else None,
                      self.random.choice((1, 1, 2, 0)) if may_share and self.is_so(0.5)
                      else self.other_random.choice((1, 1, 1, 2, 3)) if sharers and self.other_random.random() < 0.95 else None,
                      self.other_random.choice((-1, -8, -4, 1, 4, 8, 8, 9, 1001, -1001)) if self.has_priorities and self.other_random.random() < 0.2
                      else self.other_random.choice((None, 0)))
            for name, value in zip(items, values):
                items[name].append(value)
        if self.is_so(0.03 * (self.strictness > 0)):
            items['labels'][self.random.randrange(count)] = self.random.choice(NO_JSON)
        for name in ('principal', 'at_least', 'units'):
            if all(value is None for value in items[name]) and self.is_so(0.5):
                items[name] = None
        if all(value is None for value in items['priority']):
            items['priority'] = None
        return items

    def acquire(self):
        items, coordinator = self.acquire_items(self.count()), self.random.choice(COORDINATORS)
        for scope in zip(items['ns'], items['key'], items['lk']):
            self.asked_by[scope] = coordinator
        return 'acquire', dict(items, coordinator=coordinator, clock=self.random.choice((None, None, '-10 min', '10 min')))

    def heartbeat(self):
        refs = self.refs(self.count())
        return 'heartbeat', {'ns': [r[0] for r in refs], 'key': [r[1] for r in refs], 'lk': [r[2] for r in refs], 'relax': self.random.choice((True, False, None))}

    def release_items(self, count):
        refs = self.refs(count)
        failed = [self.random.choice((False, False, True, None)) for unused in refs]
        values = [self.random.choice(ERRORS if is_failed else RESULTS) for is_failed in failed]
        if self.is_so(0.05 * (self.strictness > 0)):
            values[self.random.randrange(count)] = self.random.choice(NO_JSON)
        return {'ns': [r[0] for r in refs], 'key': [r[1] for r in refs], 'lk': [r[2] for r in refs], 'failed': failed, 'value': values}

    def release(self):
        return 'release', dict(self.release_items(self.count()), coordinator=self.random.choice(COORDINATORS))

    def hand_over(self):
        arguments = dict(self.release_items(1 if self.is_so(0.6) else self.count()), coordinator=self.random.choice(COORDINATORS[:6]), clock=None)
        # Somebody waits for it, most of the time.
        wanted = [held for held in self.held if any(held[:2] == waiting[:2] for waiting in self.waiting)]
        if wanted and self.is_so(0.8):
            arguments['ns'][0], arguments['key'][0], arguments['lk'][0] = self.random.choice(wanted)
        nexts = self.acquire_items(self.random.choice((1, 1, 1, 3)))
        fitting = [w for w in self.waiting if w[:2] == (arguments['ns'][0], arguments['key'][0])]
        if fitting and not self.is_so(0.2):
            chosen = self.random.choice(fitting[:1] * 4 + fitting[:2])
            nexts['ns'][0], nexts['key'][0], nexts['lk'][0] = chosen
            if chosen in self.asked_by and self.is_so(0.9):
                arguments['coordinator'] = self.asked_by[chosen]
            if self.is_so(0.7):
                nexts.update(at_least=None, units=None, priority=None)
        return 'hand_over', dict(arguments, **{'next_' + name: values for name, values in nexts.items()})

    def call(self):
        return self.random.choices((self.acquire, self.heartbeat, self.release, self.hand_over), (40, 18, 30, 14))[0]()

    # --- steps ---

    def steps(self):
        """One batch, and what comes before it."""
        self.held, self.waiting, self.known = self.look()
        if self.is_so(0.25):
            yield self.by_others()
            self.held, self.waiting, self.known = self.look()
        if self.waiting and self.has_priorities and self.other_random.random() < 0.2:
            # The last who waits may be first now.
            yield Step(others=[('update leasehold.waiter set priority = %s' + SCOPE + ' and lease_key = note.key(%s)',
                                (self.other_random.choice((0, 1, 4, 8)), *self.other_random.choice(self.waiting))),
                               ("select leasehold.set_policy(%s, max_priority => 8, ageing => '3 min 7 s')", (self.other_random.choice(NAMESPACES),))])
        if self.has_requests and self.other_random.random() < 0.4:
            yield self.requests()
        if self.has_spread and self.other_random.random() < 0.2:
            yield self.spread()
        calls = [self.call()]
        while self.is_so(0.08) and len(calls) < 4:
            calls.append(self.call())
        before = []
        if self.is_so(0.04):
            before.append(("set local synchronous_commit = %s", (self.random.choice(('off', 'local', 'on')),)))
        if self.is_so(0.04):
            # A change of its own transaction, which may be rolled back with it.
            before.append(self.policy())
        if self.is_so(0.02):
            before.append(('set transaction isolation level repeatable read', ()))
            before.reverse()
        keeps = None
        if self.is_so(0.08):
            keeps = ('select 1 from leasehold.scope' + SCOPE + ' ' + self.random.choice(LOCKS), (self.random.choice(NAMESPACES), self.random.choice(KEYS)))
        elif self.is_so(0.01):
            keeps = ('select count(*) from (select 1 from leasehold.creation for update) c', ())
        yield Step(calls, end='rollback' if self.is_so(0.06 + 0.4 * bool(before)) else 'commit', before=before, keeps=keeps)

    def requests(self):
        """Somebody asks, or a holder refuses; what holders hear and people see is compared each time."""
        chosen = self.other_random
        scope = chosen.choice(self.held)[:2] if self.held else (chosen.choice(NAMESPACES), chosen.choice(KEYS))
        other_scope = (chosen.choice(NAMESPACES), chosen.choice(KEYS))
        step, = chosen.choices((
            ('select state, owner from leasehold.ask_hand_over(%s, %s, reason => %s) order by token', (*chosen.choice((scope, scope, other_scope)), chosen.choice(('', 'a drain')))),
            ('select state, owner from leasehold.ask_hand_over(%s, %s, note.key(%s)) order by token', chosen.choice(self.waiting) if self.waiting else (*scope, 1)),
            ('select leasehold.refuse_hand_over(%s, %s, note.key(%s), %s)', (*(chosen.choice(self.held) if self.held else (*scope, 1)), 'not now')),
            ("select leasehold.set_policy(%s, hand_over_grace => '3 min 13 s')", (chosen.choice(NAMESPACES),)),
        ), (5, 3, 4, 1))
        return Step(others=[step, (ASKED, ()), (REQUESTS, ())])

    def spread(self):
        """A namespace becomes spread, or is no more; or a slot comes or goes."""
        chosen = self.other_random
        ns = chosen.choice(NAMESPACES)
        step, = chosen.choices((
            ("select section from leasehold_internal.spread_claim(%s, %s, array['a', 'b'])", (ns, chosen.choice('ab'))),
            ('update leasehold.spread set slots = set_bit(slots, leasehold_internal.slot_of(%s), %s)', (chosen.choice(KEYS), chosen.choice((0, 1)))),
            ('delete from leasehold.spread where namespace = %s', (ns,)),
        ), (3, 6, 2))
        return Step(others=[step])

    def policy(self):
        return 'select leasehold.set_policy(%s, ' + self.random.choice(POLICIES) + ')', (self.random.choice(NAMESPACES),)

    def by_others(self):
        ns, key = self.random.choice(NAMESPACES), self.random.choice(KEYS)
        held = self.random.choice(self.held) if self.held else (ns, key, 1)
        waiting = self.random.choice(self.waiting) if self.waiting else (ns, key, 1)
        hook = (ns, self.random.choice(EVENTS), self.random.choice(('note.hook(leasehold.lease_event)', 'note.veto(leasehold.lease_event)')))
        by = {'by': '%d min' % self.random.choice((4, 11, 37, 73))}
        chosen, = self.random.choices((
            [(sql, by) for sql in SET_BACK],
            [(sql, by) for sql in SET_BACK] + [('select namespace, key, outcome from leasehold.reap() order by 1, 2', ())],
            [self.policy()],
            [('select leasehold.reset_policy(p.namespace) from leasehold.policy p where p.namespace <> %s', ('',))],
            [('select leasehold.add_hook(%s, %s, %s)', hook)],
            [('select leasehold.remove_hook_named(h.namespace, h.event, h.function_name) from leasehold.registered_hook h', ())],
            [('select leasehold_internal.watch_add(note.key(%s), %s, %s)', (self.random.choice((901, 902)), ns, self.is_so(0.5)))],
            [('select leasehold_internal.watch_clear(note.key(%s))', (901,)), ('select leasehold_internal.watch_clear(note.key(%s))', (902,))],
            [('select position from leasehold.join_queue(%s, %s, note.key(%s), %s)', (*self.random.choice((held[:2], (ns, key))), self.random.randrange(1, 13), '1 hour 35 s'))],
            [('select leasehold.leave_queue(%s, %s, note.key(%s))', (ns, key, self.random.randrange(1, 13)))],
            [('select leasehold.leave_queue(w.namespace, w.key, w.lease_key) from (select * from leasehold.waiter order by namespace, key, ticket) w', ())],
            [('select outcome from leasehold_internal.leave_batch(note.key(901), array[%s], array[%s], array[note.key(%s)], array[%s])', (*waiting, self.is_so(0.7)))],
            [('update leasehold.waiter set wait_until = enqueued_at - %s::interval' + SCOPE + ' and lease_key = note.key(%s)', ('10 min', *waiting))],
            [('select count(*) from leasehold.force_release(%s, %s, %s)', (ns, key, 'why'))],
            [('select units from leasehold.downgrade(%s, %s, note.key(%s), 1)', held)],
            [('update leasehold.scope set ' + self.random.choice(TAMPERINGS) + SCOPE, (ns, key))],
        ), (10, 10, 10, 9, 4, 9, 4, 8, 4, 2, 5, 4, 3, 2, 2, 9))
        return Step(others=chosen)
