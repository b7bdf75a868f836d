"""A real daemon with access rules, and what there is to see on it: leases of every liveness, a queue, holders that wait for each other in a
circle, a history, a reap that fails, policies."""
import pathlib
import sys
import uuid

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "integration"))
import access_site  # noqa: E402
import harness  # noqa: E402
from access_site import bearer, literal  # noqa: E402
from harness import acquire_request, duration, pb, release_request  # noqa: E402

# Text that would be an element if it were ever read as HTML; the page has to show it letter for letter.
EVIL = "<img src=x onerror=\"document.title='broken'\"><script>document.title='broken'</script>"
KEYS = [str(uuid.UUID(int=number)) for number in (1, 2)]
LONG_S = 3600


class Site(access_site.Site):
    def __init__(self, cluster):
        super().__init__(cluster)
        self.base = f"http://127.0.0.1:{self.daemon.admin_port}"
        self.tokens = {}
        for name, namespace, *rights in (("ops", "", "admin", "read", "lease"), ("reader", "", "read"), ("worker", "", "lease", "read"),
                                         ("payments-admin", "payments", "admin", "read", "lease"), ("stranger", "nowhere", "lease")):
            self.grant("token:" + name, namespace, *rights)
            self.tokens[name] = self.token(name)[0]
        self.streams = []
        harness.wait_until(lambda: self.asks("warm.up", bearer(self.tokens["worker"])) == "OK", 60, "the rules to be in force")

    def acquire(self, namespace, key, owner, seconds=LONG_S, labels=(), **fields):
        request = acquire_request(namespace, key, seconds, owner=owner, **{"lease_key": str(uuid.uuid4()), **fields})
        request.labels.update(dict(labels))
        return self.client.lease.Acquire(request, metadata=bearer(self.tokens["worker"]), timeout=60).lease

    def release(self, lease, **result):
        answer = self.client.lease.Release(release_request(lease, **result), metadata=bearer(self.tokens["worker"]), timeout=60)
        assert answer.results[0].outcome == pb.OUTCOME_OK, answer

    def share(self, namespace, key, owner, units=1, **fields):
        return self.acquire(namespace, key, owner, mode=pb.MODE_SHARED, units=units, **fields)

    def wait_for(self, namespace, key, owner, **fields):
        """A request that stands in the queue."""
        stream = self.open("AcquireStream", unary=acquire_request(namespace, key, LONG_S, owner=owner, wait_forever=True, **fields), metadata=bearer(self.tokens["worker"]))
        event = stream.next()
        assert event is not None and event.WhichOneof("event") == "queued", stream.error
        self.streams.append(stream)
        return stream

    def policy(self, namespace, **settings):
        self.psql("select leasehold.set_policy({}, {})".format(literal(namespace), ", ".join(f"{name} => {literal(value)}" for name, value in settings.items())))

    def failing_hook(self, namespace, words):
        name = "public.refuse_" + uuid.uuid4().hex[:8]
        self.psql(f"""
            create function {name}(p_event leasehold.lease_event) returns void language plpgsql as $$ begin raise exception '%', {literal(words)}; end $$;
            alter function {name}(leasehold.lease_event) owner to leasehold_owner;
            set role leasehold_owner;
            select leasehold.add_hook({literal(namespace)}, 'reap', '{name}(leasehold.lease_event)')""")
        return name

    def fill(self):
        """What most tests look at."""
        for i in range(24):
            self.acquire(f"payments.{('invoices', 'refunds')[i % 2]}", f"order-{i:04d}", f"worker-{i % 5}/pid {4000 + i}", labels={"team": "billing"} if i % 3 else {})
        self.policy("etl", max_hold="1 s")
        self.policy("ci", dead_after="1 s")
        self.acquire("etl.nightly", "warehouse-load", "etl-2/pid 77")
        self.acquire("ci.deploy", "production", "runner-7/pid 31")
        # The history of one scope: each way to end but expiry.
        self.policy("payments.ledger", history="true")
        for i, result in enumerate(({"success": '{"rows": 118}'}, {"failure": "connection refused by the bank"}, {"success": '{"rows": 96}'})):
            self.release(self.acquire("payments.ledger", "month-end", f"closer-{i}"), **result)
        self.acquire("payments.ledger", "month-end", "closer-3")
        self.psql("select leasehold.force_release('payments.ledger', 'month-end', 'its host burned down')")
        self.acquire("payments.ledger", "month-end", "closer-4/pid 12")
        # Two holders that wait for each other, as their lease keys tell, and others behind them.
        self.acquire("stock", "shelf-a", "picker-1", lease_key=KEYS[0])
        self.acquire("stock", "shelf-b", "picker-2", lease_key=KEYS[1])
        self.wait_for("stock", "shelf-b", "picker-1", lease_key=KEYS[0])
        self.wait_for("stock", "shelf-a", "picker-2", lease_key=KEYS[1])
        for i in range(3):
            self.wait_for("stock", "shelf-a", f"counter-{i}")
        # A semaphore of ten units, with holders of several and a queue; its history has one that ended.
        self.policy("gpus", capacity="10", history="true")
        self.release(self.share("gpus", "rack-1", "trainer-0", units=4))
        for i, units in enumerate((3, 2, 2)):
            self.share("gpus", "rack-1", f"trainer-{i + 1}/pid {500 + i}", units=units, labels={"job": f"run-{i}"})
        self.wait_for("gpus", "rack-1", "trainer-9", mode=pb.MODE_SHARED, units=5)
        self.wait_for("gpus", "rack-1", "maintenance")
        # One that rests.
        self.release(self.acquire("cron", "nightly", "host-a", at_least=duration(LONG_S)))
        self.failing_hook("printers", "the printer of floor 3 still holds page 12")
        self.acquire("printers", "floor-3", "spooler-9/pid 5", seconds=1)
        self.fill_schedules()
        return self

    def fill_schedules(self, others=0):
        """One whose ticks have ended in each way, one that runs, one that is paused, one each minute; and `others` that run each minute, too."""
        self.schedule("reports.nightly", "0 3 * * *", "Europe/Berlin")
        self.ticks("reports.nightly", (4, "done"), (6, "done"), (8, "failed"), (10, "dead"), (12, "missed"), (14, "skipped"))
        self.schedule("reports.hourly", "0 * * * *")
        self.claimed = self.psql("select leasehold.run_schedule_now('reports.hourly'); select (c.lease).token from leasehold.claim_tick('reports.hourly', 'runner-3/pid 8', '1 hour') c")
        self.schedule("reports.paused", "*/10 * * * *")
        self.psql("select leasehold.pause_schedule('reports.paused')")
        for i in range(1 + others):
            self.schedule(f"sensors.s{i:03d}", "* * * * *")
            self.psql(f"""
                insert into leasehold.tick (schedule, at, due_at, claim_until, state, attempts, token, owner, started_at, ended_at)
                select 'sensors.s{i:03d}', g, g, 'infinity', 'done', 1, 1, 'poller', g, g
                  from generate_series(date_trunc('minute', now()) - interval '20 hours', now() - interval '2 minutes', interval '1 min') g
                 where extract(hour from g) <> 5""")

    def schedule(self, name, expression, zone="UTC"):
        self.psql(f"select leasehold.set_schedule({literal(name)}, {literal(expression)}, {literal(zone)})")

    def ticks(self, name, *ended):
        """Ticks so many hours ago."""
        for hours, state in ended:
            attempts = 0 if state in ("missed", "skipped") else 2
            ran = "1, 'runner-1/pid 7', now()" if attempts else "null, null, null"
            self.psql(f"""
                insert into leasehold.tick (schedule, at, due_at, claim_until, state, attempts, token, owner, started_at, next_try_at, ended_at, result, error)
                select {literal(name)}, x.at, x.at, 'infinity', '{state}', {attempts}, {ran}, {"x.at + interval '1 day'" if state == 'failed' else 'null'},
                       {'null' if state == 'failed' else "x.at + interval '90 s'"}, {literal('{"rows": 7}') if state == 'done' else 'null'}, {"'the disk is full'" if state in ('failed', 'dead') else 'null'}
                  from (select date_trunc('hour', now()) - interval '{hours} hours' as at) x""")

    def fill_evil(self):
        """The same words wherever a user can put words."""
        self.policy("evil", history="true")
        self.release(self.acquire("evil", EVIL, EVIL, labels={"note": EVIL}), success='"' + EVIL.replace('"', '\\"') + '"')
        self.release(self.acquire("evil", EVIL, EVIL), failure=EVIL)
        self.acquire("evil", EVIL, EVIL, labels={"note": EVIL})
        self.wait_for("evil", EVIL, EVIL + "2")
        self.failing_hook("evil.hook", EVIL)
        self.acquire("evil.hook", EVIL, EVIL, seconds=1)
        # A principal of a user's choice: a database role, whose name may be anything of 63 bytes.
        role = EVIL[:50] + ">"
        quoted = '"' + role.replace('"', '""') + '"'
        self.psql(f"do $$ begin if not exists (select from pg_roles where rolname = {literal(role)}) then create role {quoted} in role leasehold_client; end if; end $$")
        self.psql(f"set session authorization {quoted}; select count(*) from leasehold.acquire('evil.role', 'by-role', '1 hour', owner => 'somebody')")
        return role

    def close(self):
        for stream in self.streams:
            stream.close()
        super().close()
