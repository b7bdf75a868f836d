"""Sessions that acquire, renew, release and guard a few scopes as fast as they can, half of them by the functions in C and half by those in SQL, and
write down what they did, each line in the transaction that did it: tests/soak/check_history.py judges the lines.
"""
import os
import random
import subprocess
import sys
import threading
import time

import place
from place import psycopg2

CHECKER = os.path.join(os.path.dirname(place.HERE), 'soak', 'check_history.py')
SCHEMAS = ('leasehold_internal', 'leasehold_sql')                  # C, SQL
NAMESPACE = 'crowd'
# Leases end by themselves, rows go at once, and both come back: so every path is met. Each new life of the database is a line.
PREPARE = """
create schema crowd;
create sequence crowd.number;
create table crowd.event (number bigint not null default nextval('crowd.number'), at timestamptz not null, kind text not null, scope text, lease uuid,
  token bigint, until timestamptz, actor text not null, way text);
create function crowd.note_life() returns trigger language plpgsql security definer as $$
begin
  insert into crowd.event (at, kind, actor) values (new.started_at, 'life', 'database');
  return null;
end $$;
create trigger note_life after insert or update on leasehold.incarnation for each row execute function crowd.note_life();
select leasehold.set_policy('crowd', min_duration => '100 ms', grace => '100 ms', free_retention => '0 s')
"""
EXPORT = """copy (select number, extract(epoch from at)::numeric(20, 6), kind, coalesce(scope, '-'), coalesce(lease::text, '-'), coalesce(token::text, '-'),
  coalesce(extract(epoch from until)::numeric(20, 6)::text, '-'), actor, '-', '-' from crowd.event order by number) to stdout"""
ACQUIRE = """select n, outcome from %s.acquire_items(null, null, array_fill('crowd'::text, array[%%(n)s]), %%(keys)s, %%(leases)s::uuid[],
  array_fill('w'::text, array[%%(n)s]), array_fill('{}'::text, array[%%(n)s]), array_fill(%%(us)s::bigint, array[%%(n)s]), array_fill(false, array[%%(n)s]),
  array_fill(null::bigint, array[%%(n)s]), array_fill(0::bigint, array[%%(n)s]), null, null, null)"""
SHARE = ACQUIRE.replace('null, null, null)', "null, null, array_fill(%%(units)s, array[%%(n)s]))")
HEARTBEAT = "select n, outcome from %s.heartbeat_batch(array_fill('crowd'::text, array[%%(n)s]), %%(keys)s, %%(leases)s::uuid[], %%(relax)s)"
RELEASE = """select n, outcome from %s.release_batch(null, array_fill('crowd'::text, array[%%(n)s]), %%(keys)s, %%(leases)s::uuid[],
  array_fill(%%(failed)s, array[%%(n)s]), array_fill('{"n": 1}'::text, array[%%(n)s]))"""
NOTE = """insert into crowd.event (at, kind, scope, lease, token, until, actor, way)
  select case %(kind)s when 'grant' then s.acquired_at else s.heartbeat_at end, %(kind)s, s.key, s.lease_key, s.token, s.deadline + s.grace, %(actor)s, %(way)s
    from leasehold.scope s where s.namespace = 'crowd' and (s.key, s.lease_key) in (select * from unnest(%(keys)s, %(leases)s::uuid[]))"""
NOTE_END = """insert into crowd.event (at, kind, scope, lease, actor, way)
  select clock_timestamp(), %(kind)s, u.*, %(actor)s, %(way)s from unnest(%(keys)s, %(leases)s::uuid[]) u"""
NOTE_CRASH = """insert into crowd.event (at, kind, actor)
  select clock_timestamp(), 'crash', 'database' where not leasehold_internal.incarnation_is_current()"""
REAP = """insert into crowd.event (at, kind, scope, token, actor)
  select clock_timestamp(), 'reap', r.key, r.token, 'reaper' from leasehold.reap() r where r.outcome = 'reaped'"""


class Crowd:
    def __init__(self, cluster, database, scopes=16, sessions=8, seed=1, duration_ms=(150, 400, 1500), may_break=False):
        self.cluster, self.database = cluster, database
        self.keys = ['k%d' % number for number in range(scopes)]
        self.sessions, self.seed, self.duration_ms, self.may_break = sessions, seed, duration_ms, may_break
        self.is_over = threading.Event()
        self.faults, self.slowest_s, self.counts = [], 0.0, {}
        self.lock = threading.Lock()
        self.fresh = 0

    def prepare(self):
        self.cluster.psql(self.database, PREPARE)

    def __enter__(self):
        self.threads = [threading.Thread(target=self.guarded, args=(self.work, number)) for number in range(self.sessions)]
        self.threads += [threading.Thread(target=self.guarded, args=(what, 100 + number)) for number, what in enumerate((self.guard, self.guard, self.keep, self.reap))]
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *unused):
        self.is_over.set()
        for thread in self.threads:
            thread.join()

    def new_lease(self):
        with self.lock:
            self.fresh += 1
            return place.lease_key(self.fresh + 1000000 * self.seed)

    def guarded(self, what, number):
        """A session that is killed begins again, where that is a part of the test."""
        chance = random.Random(self.seed * 1000 + number)
        while not self.is_over.is_set():
            try:
                connection = place.connect_patiently(self.cluster, self.database)
                connection.autocommit = False
                place.rows(connection, NOTE_CRASH)
                connection.commit()
                while not self.is_over.is_set():
                    what(connection, chance, number)
                connection.close()
            except psycopg2.Error as error:
                if not (self.may_break and error.pgcode in (None, '57P01', '57P02', '57P03')):
                    self.faults.append('%s: %s %s' % (what.__name__, error.pgcode, error))
                    return

    # --- what sessions do ---

    def work(self, connection, chance, number):
        """A lease's life, of several scopes at once."""
        way = number % 2
        keys = chance.sample(self.keys, chance.choice((1, 1, 2, 4)))
        leases = [self.new_lease() for unused in keys]
        held = self.call(connection, ACQUIRE, way, 'grant', number, keys, leases, us=chance.choice(self.duration_ms) * 1000)
        for unused in range(chance.randrange(4)):
            time.sleep(chance.random() * 0.004 if chance.random() < 0.95 else chance.random() * 0.3)
            # The one or the other, for each must understand the other's rows.
            held = held and self.call(connection, HEARTBEAT, chance.choice((way, 1 - way)), 'renew', number, *zip(*held), relax=False)
        if not held:
            time.sleep(chance.random() * 0.01)
        for unused in range(5 if chance.random() < 0.9 else 0):
            if held:
                ended = self.call(connection, RELEASE, way, 'end', number, *zip(*held), failed=chance.random() < 0.3)
                # What somebody guards is busy, and asked again.
                held = [lease for lease in held if lease not in ended]
                time.sleep(chance.random() * 0.005 * bool(held))

    def call(self, connection, sql, way, kind, number, keys, leases, **others):
        arguments = dict(n=len(keys), keys=list(keys), leases=list(leases), **others)
        begun = time.monotonic()
        answers = place.rows(connection, sql % SCHEMAS[way], arguments)
        took_s = time.monotonic() - begun
        good, lost = ([(keys[n - 1], leases[n - 1]) for n, outcome in answers if outcome in outcomes] for outcomes in (('granted', 'ok'), ('lost',)))
        for what, those in ((kind, good), ('lost', lost)):
            if those:
                place.rows(connection, NOTE_END if what in ('end', 'lost') else NOTE, dict(kind=what, actor='s%d' % number, way=('C', 'SQL')[way],
                           keys=[key for key, unused in those], leases=[lease for unused, lease in those]))
        connection.commit()
        with self.lock:
            self.slowest_s = max(self.slowest_s, took_s)
            for unused, outcome in answers:
                name = kind, ('C', 'SQL')[way], outcome
                self.counts[name] = self.counts.get(name, 0) + 1
            if len(answers) != len(keys) or sorted(n for n, unused in answers) != list(range(1, len(keys) + 1)):
                self.faults.append('%s of %s answered %s' % (kind, keys, answers))
        return good

    def guard(self, connection, chance, number):
        """A transaction that relies on a lease that somebody holds."""
        found = place.rows(connection, "select key, lease_key, token from leasehold.scope where namespace = 'crowd' and state = 'held' order by random() limit 1")
        if not found:
            connection.rollback()
            time.sleep(0.002)
            return
        key, lease, token = found[0]
        time.sleep(chance.random() * 0.02)
        line = "insert into crowd.event (at, kind, scope, lease, token, actor) values (clock_timestamp(), %s, %s, %s, %s, %s)"
        try:
            place.rows(connection, 'select leasehold.guard(%s, %s, %s)', (NAMESPACE, key, token))
            place.rows(connection, line, ('guard', key, lease, token, 'g%d' % number))
            time.sleep(chance.random() * 0.02)
            place.rows(connection, line, ('unguard', key, lease, None, 'g%d' % number))
            connection.commit()
            with self.lock:
                self.counts['guard'] = self.counts.get('guard', 0) + 1
        except psycopg2.Error as error:
            if error.pgcode != 'LH001':
                raise
            connection.rollback()

    def keep(self, connection, chance, unused):
        """Somebody who has a row for a while, and changes nothing; in the end a rollback."""
        mode = chance.choice(('for update', 'for no key update', 'for share', 'for key share'))
        place.rows(connection, "select 1 from leasehold.scope where namespace = 'crowd' and key = %s " + mode + ' skip locked', (chance.choice(self.keys),))
        time.sleep(chance.random() * 0.05)
        connection.rollback()
        time.sleep(chance.random() * 0.05)

    def reap(self, connection, chance, unused):
        time.sleep(chance.random() * 0.05)
        place.rows(connection, REAP)
        connection.commit()

    # --- what became of it ---

    def judge(self, tally, when):
        history = os.path.join(self.cluster.directory, 'crowd.tsv')
        with open(history, 'w', encoding='utf-8') as file:
            file.write(self.cluster.psql(self.database, EXPORT) + '\n')
        judged = subprocess.run([sys.executable, CHECKER, history], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True, check=False)
        tally.check(judged.returncode == 0, '%s, one holder at each moment, tokens that grow, no guard beneath which a lease ended' % when, judged.stdout[-2000:])
        tally.equal(self.faults[:3], [], '%s, no session failed' % when)
        grants = place.rows(place.connect(self.cluster, self.database), """
            select scope from (select scope, at, lag(at) over w as before, token, lag(token) over w as last from crowd.event where kind = 'grant'
                       window w as (partition by scope order by number)) x where token <= last or at < before""")
        tally.equal(grants, [], '%s, of each scope the later grant has the larger token' % when)
        print('# %s: %s; the slowest call took %.0f ms' % (when, judged.stdout.strip().splitlines()[-1:] or '', self.slowest_s * 1000))
        print('# ' + ', '.join('%d %s' % (count, ' '.join(name) if isinstance(name, tuple) else name) for name, count in sorted(self.counts.items(), key=str)))


# --- shared leases ---

class Sharers(Crowd):
    """Sessions that share two scopes of `CAPACITY` units, several at once in a call; of the guards, those of shared leases. At each moment the units that
    are held fit, and nobody has another's number."""

    CAPACITY = 6

    def prepare(self):
        super().prepare()
        self.cluster.psql(self.database, "select leasehold.set_policy('crowd', capacity => %d); select leasehold.acquire('crowd', k, '100 ms') from unnest(%s) k"
                          % (self.CAPACITY, "array['%s']" % "','".join(self.keys)))

    def work(self, connection, chance, number):
        way = number % 2
        key, n = chance.choice(self.keys), chance.choice((1, 1, 2, 3))
        pairs = [(key, self.new_lease()) for unused in range(n)]
        held = self.ask(connection, SHARE, way, 'share', pairs, us=chance.choice(self.duration_ms) * 1000, units=chance.choice((1, 1, 2)))
        for unused in range(chance.randrange(4)):
            time.sleep(chance.random() * 0.004)
            held = held and self.ask(connection, HEARTBEAT, chance.choice((way, 1 - way)), 'renew', held, relax=False)
        if not held:
            time.sleep(chance.random() * 0.004)
        for unused in range(5 if chance.random() < 0.9 else 0):
            if held:
                ended = self.ask(connection, RELEASE, chance.choice((way, 1 - way)), 'end', held, failed=chance.random() < 0.3)
                held = [pair for pair in held if pair not in ended]
                time.sleep(chance.random() * 0.005 * bool(held))

    def ask(self, connection, sql, way, kind, pairs, **others):
        keys, leases = ([pair[i] for pair in pairs] for i in range(2))
        answers = place.rows(connection, sql % SCHEMAS[way], dict(n=len(pairs), keys=keys, leases=leases, **others))
        connection.commit()
        with self.lock:
            for unused, outcome in answers:
                name = kind, ('C', 'SQL')[way], outcome
                self.counts[name] = self.counts.get(name, 0) + 1
            if sorted(n for n, unused in answers) != list(range(1, len(pairs) + 1)):
                self.faults.append('%s of %s answered %s' % (kind, pairs, answers))
        return [pairs[n - 1] for n, outcome in answers if outcome in ('granted', 'ok')]

    def guard(self, connection, chance, number):
        found = place.rows(connection, "select key, lease_key, token from leasehold.share where namespace = 'crowd' and state = 'held' order by random() limit 1")
        try:
            for key, lease, token in found:
                place.rows(connection, 'select leasehold.guard(%s, %s, %s)', (NAMESPACE, key, token))
                time.sleep(chance.random() * 0.02)
                if place.one(connection, "select state from leasehold.share where namespace = 'crowd' and key = %s and lease_key = %s", (key, lease)) != 'held':
                    self.faults.append('a lease ended beneath a guard')
            connection.commit()
        except psycopg2.Error as error:
            if error.pgcode != 'LH001':
                raise
            connection.rollback()
        time.sleep(chance.random() * 0.01)

    def reap(self, connection, chance, number):
        """And looks, in one snapshot, whether the units fit."""
        place.rows(connection, 'select count(*) from leasehold.reap()')
        connection.commit()
        for _ in range(20):
            self.faults += [words for words, in place.rows(connection, place.SHARING)]
            self.faults += ['%s has %d units' % pair for pair in place.rows(
                connection, "select key, sum(units) from leasehold.share where namespace = 'crowd' and state = 'held' group by key having sum(units) > %s",
                (self.CAPACITY,))]
            connection.commit()
            time.sleep(chance.random() * 0.005)

    def judge(self, tally, when):
        tally.equal(self.faults[:3], [], '%s, no session failed, and the units fit at each moment' % when)
        print('# ' + ', '.join('%d %s' % (count, ' '.join(name) if isinstance(name, tuple) else name) for name, count in sorted(self.counts.items(), key=str)))
