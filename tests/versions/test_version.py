"""Leasehold on the PostgreSQL of LEASEHOLD_PGBIN: installed by an ordinary owner, every verb, a move to another version, an older
schema, and the embedded cluster. tests/versions/run runs this file for each version."""
import contextlib
import gzip
import os
import pathlib
import shutil
import subprocess
import sys
import threading
import uuid

import pytest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "integration"))

import harness  # noqa: E402
import streams  # noqa: E402
from commandline import cli  # noqa: E402
from harness import acquire_request, duration, fails, heartbeat, lease_ref, pb, release_request, scope, wait_until  # noqa: E402

DEBIANS = 15
LIMIT_S = 60


def version_of(cluster):
    return int(cluster.psql("show server_version_num", "postgres")) // 10000


def clusters():
    """One in which an ordinary role installs, another serves, and neither is a superuser."""
    cluster = harness.Cluster()
    cluster.psql("create role installer login createrole; create role server login", "postgres")
    return cluster


@pytest.fixture(scope="module")
def cluster():
    cluster = clusters()
    yield cluster
    cluster.destroy()


@pytest.fixture(scope="module")
def debians():
    """The same on Debian's version."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("LEASEHOLD_PGBIN")
        cluster = clusters()
    yield cluster
    cluster.destroy()


def make_database(cluster):
    database = cluster.create_database()
    cluster.psql(f"grant create on database {database} to installer", "postgres")
    return database


def install(cluster, database, user="installer"):
    said = cli("migrate", "--database", cluster.url(database, user))
    assert said.returncode == 0, said.stderr
    assert cli("migrate", "--database", cluster.url(database, user)).stdout == "the schema is up to date\n"
    cluster.psql("grant leasehold_coordinator to server", database, user=user)


class Called:
    """A stub that notes which of its methods were called."""

    def __init__(self, stub, names):
        self.stub = stub
        self.names = names

    def __getattr__(self, name):
        self.names.add(name)
        return getattr(self.stub, name)


class Site:
    """A daemon of the role `server` on a database, and a client of it."""

    def __init__(self, cluster, database):
        self.cluster, self.database = cluster, database
        self.daemon = harness.Daemon(database=cluster.url(database, "server"))
        self.client = harness.Client(self.daemon.target)
        self.called = set()
        self.lease = Called(self.client.lease, self.called)
        self.admin = Called(self.client.admin, self.called)

    def acquire(self, key, seconds=30, namespace="smoke", **more):
        return self.lease.Acquire(acquire_request(namespace, key, seconds, **more)).lease

    def psql(self, sql):
        return self.cluster.psql(sql, self.database)

    def close(self):
        self.client.close()
        assert self.daemon.stop() == 0, self.daemon.log()
        assert "ERROR" not in self.daemon.log(), self.daemon.log()
        self.daemon.destroy()


@contextlib.contextmanager
def site(cluster, database):
    opened = Site(cluster, database)
    try:
        yield opened
        opened.close()
    finally:
        opened.daemon.destroy()


def leases_and_results(on):
    first = on.acquire("a", owner="w", labels={"zone": "b"})
    assert heartbeat(on, first).outcome == pb.OUTCOME_OK
    shown = on.lease.GetLease(pb.GetLeaseRequest(scope=scope("smoke", "a"))).lease
    assert (shown.owner, shown.token, dict(shown.labels), shown.heartbeats) == ("w", first.token, {"zone": "b"}, 1)
    assert on.acquire("a", lease_key=first.lease_key).token == first.token
    with fails() as failure:
        on.acquire("a")
    assert failure.value.reason == "LEASE_HELD" and failure.value.contention.liveness == pb.LIVENESS_ALIVE
    keys = [lease.scope.key for lease in on.lease.ListLeases(pb.ListLeasesRequest(namespace=["smoke"])).leases]
    assert keys == ["a"]
    assert on.lease.Release(release_request(first, success='{"n": 1}')).results[0].outcome == pb.OUTCOME_OK
    second = on.acquire("a")
    assert second.token > first.token
    on.lease.Release(release_request(second, failure="disk full"))
    last = on.lease.GetLease(pb.GetLeaseRequest(scope=scope("smoke", "a"))).last
    assert last.end_reason == pb.END_REASON_FAILED and last.error == "disk full"
    assert heartbeat(on, second).outcome == pb.OUTCOME_LOST


def handing_over(on):
    lease = on.acquire("asked")
    asked, = on.lease.AskHandOver(pb.AskHandOverRequest(scope=scope("smoke", "asked"), reason="maintenance")).holders
    assert asked.token == lease.token and asked.asked.reason == "maintenance"
    assert on.lease.RefuseHandOver(pb.RefuseHandOverRequest(lease=lease_ref(lease), reason="not now")).asked.refusal == "not now"


def sharing(on):
    writer = on.acquire("shared")
    reader = on.lease.Downgrade(pb.DowngradeRequest(lease=lease_ref(writer))).lease
    other = on.acquire("shared", mode=pb.MODE_SHARED)
    assert reader.token > writer.token and reader.mode == pb.MODE_SHARED
    assert on.lease.GetLease(pb.GetLeaseRequest(scope=scope("smoke", "shared"))).holder_count == 2
    with fails() as failure:
        on.acquire("shared")
    assert failure.value.reason == "LEASE_HELD"
    for lease in (reader, other):
        assert heartbeat(on, lease).outcome == pb.OUTCOME_OK
        assert on.lease.Release(release_request(lease)).results[0].outcome == pb.OUTCOME_OK
    on.acquire("shared")


def several(on):
    items = [pb.AcquireItem(scope=scope("smoke", key)) for key in ("both-b", "both-a")]
    request = pb.AcquireAllRequest(items=items, duration=duration(30))
    leases = on.lease.AcquireAll(request).leases
    assert [lease.scope.key for lease in leases] == ["both-b", "both-a"]
    with fails() as failure:
        on.lease.AcquireAll(request)
    assert failure.value.reason == "LEASE_HELD"
    on.lease.Release(release_request(*leases))
    assert len(on.lease.AcquireAll(request).leases) == 2


def queue(on):
    """Two requests of the daemon's and a SQL user between them are served in order."""
    held = on.acquire("q")
    granted = []
    done = threading.Semaphore(0)

    def wait(name):
        lease = on.acquire("q", wait=LIMIT_S, owner=name)
        granted.append(name)
        on.lease.Release(release_request(lease))
        done.release()

    def queued(count):
        wait_until(lambda: on.psql("select count(*) from leasehold.waiter where key = 'q'") == str(count), what=f"{count} waiters")

    sql_key = uuid.uuid4()
    threading.Thread(target=wait, args=["first"], daemon=True).start()
    queued(1)
    assert on.psql(f"select position from leasehold.join_queue('smoke', 'q', '{sql_key}', '1 min')") == "2"
    threading.Thread(target=wait, args=["third"], daemon=True).start()
    queued(3)
    on.lease.Release(release_request(held))

    def taken():
        return on.psql(f"select token from leasehold.acquire('smoke', 'q', '30 s', lease_key => '{sql_key}')")

    assert int(wait_until(taken, what="the turn of the SQL user")) > held.token
    assert granted == ["first"]
    assert on.psql(f"select leasehold.release_ok('smoke', 'q', '{sql_key}')") == "t"
    for _ in range(2):
        assert done.acquire(timeout=LIMIT_S)
    assert granted == ["first", "third"]


def streaming(on):
    watch = streams.Stream(on.lease.WatchLeases, unary=pb.WatchLeasesRequest(namespace=["smoke"], include_initial=True))
    watch.until(lambda event: event.type == pb.LeaseEvent.TYPE_SYNCED)
    held = streams.Stream(on.lease.Hold, pb.HoldRequest(acquire=acquire_request("smoke", "s", 1), by_ping=True))
    lease = held.next().granted
    watch.until(lambda event: event.type == pb.LeaseEvent.TYPE_ACQUIRED and event.lease.token == lease.token)
    assert held.next().renewed.token == lease.token
    waiting = streams.Stream(on.lease.AcquireStream, unary=acquire_request("smoke", "s", 30, wait=LIMIT_S))
    assert waiting.next().queued.holder.token == lease.token
    held.half_close()
    held.ends()
    granted = waiting.until(streams.granted_event).granted
    watch.until(lambda event: event.type == pb.LeaseEvent.TYPE_ACQUIRED and event.lease.token == granted.token)
    beats = streams.Stream(on.lease.KeepAlive, streams.beat(granted))
    assert beats.next().results[0].outcome == pb.OUTCOME_OK
    for each in (beats, watch, waiting):
        each.close()


def administration(on):
    mask = {"paths": ["grace", "history", "reaper"]}
    policy = pb.Policy(namespace=pb.Namespace(segments=["smoke", "admin"]), grace=duration(0.1), reaper=pb.Policy.REAPER_EXTERNAL)
    policy.history.value = True
    effective = on.admin.SetPolicy(pb.SetPolicyRequest(policy=policy, update_mask=mask)).effective
    assert effective.grace.ToMilliseconds() == 100
    shown = on.admin.GetPolicy(pb.GetPolicyRequest(namespace=policy.namespace))
    assert shown.own.history.value and shown.source["grace"] == "smoke.admin"
    assert len(on.admin.ListPolicies(pb.ListPoliciesRequest()).policies) == 2
    forced = on.acquire("forced", namespace="smoke.admin")
    ended = on.admin.ForceRelease(pb.ForceReleaseRequest(scope=scope("smoke.admin", "forced"), reason="test", token=forced.token))
    assert ended.lease.token == forced.token and heartbeat(on, forced).end_reason == pb.END_REASON_FORCED
    expired = on.acquire("expired", 1, namespace="smoke.admin")
    reap = pb.ReapRequest(namespaces=[policy.namespace])
    wait_until(lambda: on.admin.Reap(reap).reaped == 1, LIMIT_S, "the reap")
    assert heartbeat(on, expired).end_reason == pb.END_REASON_EXPIRED
    history = on.psql("select key, outcome from leasehold.history where namespace = 'smoke.admin' order by token")
    assert history == "forced|forced\nexpired|expired"
    assert on.admin.GetStatus(pb.GetStatusRequest()).timeline == 1


def access(on):
    namespace = pb.Namespace(segments=["smoke"])
    rule = on.admin.GrantAccess(pb.GrantAccessRequest(principal="token:smoke", namespace=namespace, rights=[pb.RIGHT_LEASE, pb.RIGHT_READ])).rule
    assert (rule.principal, list(rule.rights)) == ("token:smoke", [pb.RIGHT_READ, pb.RIGHT_LEASE])
    assert list(on.admin.ListAccess(pb.ListAccessRequest()).rules) == [rule]
    left = on.admin.RevokeAccess(pb.RevokeAccessRequest(principal="token:smoke", namespace=namespace, rights=[pb.RIGHT_LEASE])).rule
    assert list(left.rights) == [pb.RIGHT_READ]
    made = on.admin.CreateToken(pb.CreateTokenRequest(name="smoke", expires=duration(3600)))
    token, = on.admin.ListTokens(pb.ListTokensRequest()).tokens
    assert (token.id, token.name, token.expires_at) == (made.id, "smoke", made.expires_at) and made.token.startswith("lht_")
    assert on.admin.RevokeToken(pb.RevokeTokenRequest(name_or_id="smoke")).revoked == 1
    assert on.psql("select string_agg(action, ' ' order by at) from leasehold.audit where reason like '%smoke%'") == \
        "access_grant access_revoke token_create token_revoke"


def test_every_verb_on_a_database_of_an_ordinary_owner(cluster):
    database = make_database(cluster)
    install(cluster, database)
    cluster.psql("grant leasehold_client to server", database)
    with site(cluster, database) as on:
        for part in (leases_and_results, handing_over, sharing, several, queue, streaming, administration, access):
            part(on)
        services = pb.DESCRIPTOR.services_by_name
        assert on.called == {method.name for service in services.values() for method in service.methods}


def test_guard_fences_a_transaction(cluster):
    database = make_database(cluster)
    install(cluster, database)
    with site(cluster, database) as on:
        lease = on.acquire("g")
        session = cluster.session(database)
        assert "lease_lost" not in session.run(f"begin; select leasehold.guard('smoke', 'g', {lease.token})")
        assert heartbeat(on, lease).outcome == pb.OUTCOME_OK
        assert on.lease.Release(release_request(lease)).results[0].outcome == pb.OUTCOME_RETRY
        session.run("commit")
        assert on.lease.Release(release_request(lease)).results[0].outcome == pb.OUTCOME_OK
        assert "lease_lost" in session.run(f"select leasehold.guard('smoke', 'g', {lease.token})")
        session.close()


def test_a_dump_moves_to_the_newer_version(cluster, debians):
    """pg_dump 15 dumps servers up to 15, and what it writes is for servers from 15 on. Our schemas alone are dumped: a dump of a whole
    database of 13 or 14 gives the schema public to its owner, which an ordinary role may not."""
    older, newer = (cluster, debians) if version_of(cluster) < DEBIANS else (debians, cluster)
    database = make_database(older)
    install(older, database)
    with site(older, database) as on:
        held = on.acquire("held", 3600, owner="w")
        highest = on.acquire("done").token
        dump = subprocess.run([os.path.join(debians.programs, "pg_dump"), "--schema=leasehold*", "-d", older.url(database, "installer")],
                              stdout=subprocess.PIPE, text=True, check=True).stdout
    install(newer, make_database(newer))  # the roles
    restored = make_database(newer)
    newer.psql(dump, restored, user="installer")
    install(newer, restored)
    with site(newer, restored) as on:
        assert heartbeat(on, held).outcome == pb.OUTCOME_OK
        assert on.acquire("new").token > highest
        with fails() as failure:
            on.acquire("held")
        assert failure.value.contention.holder.owner == "w"


def old_lease(number, key, namespace="upgrade"):
    return pb.Lease(scope=scope(namespace, key), lease_key=f"00000000-0000-4000-8000-{number:012d}")


def test_an_older_schema_is_migrated_with_its_leases(cluster):
    """schema_0008.sql.gz is pg_dump 15's output, with --no-owner, of a database of the schema with the migrations up to 0008: seven
    leases of a daemon, two that have ended, a queue of three, a hook, history and a policy."""
    database = cluster.create_database()
    install(cluster, make_database(cluster))  # the roles
    with gzip.open(HERE / "schema_0008.sql.gz", "rt", encoding="utf-8") as dump:
        cluster.psql(dump.read(), database)
    highest = int(cluster.psql("select max(token) from leasehold.scope", database))
    tokens = "select key, token from leasehold.scope where state = 'held' order by namespace, key"
    before = cluster.psql(tokens, database)
    install(cluster, database, "postgres")
    assert cluster.psql(tokens, database) == before and before.count("\n") == 4
    cluster.psql("select leasehold.set_policy('upgrade', free_retention => '1 h')", database)  # what has ended is known until the end of the test
    with site(cluster, database) as on:
        kept = [old_lease(1, "held"), old_lease(2, "renewed"), old_lease(5, "held", "upgrade.hooked"), old_lease(6, "queued")]
        for lease in kept:
            assert heartbeat(on, lease).outcome == pb.OUTCOME_OK, lease
        assert heartbeat(on, old_lease(3, "released")).end_reason == pb.END_REASON_RELEASED
        assert heartbeat(on, old_lease(4, "failed")).end_reason == pb.END_REASON_FAILED
        with fails() as failure:
            on.acquire("released", namespace="upgrade", lease_key=old_lease(3, "released").lease_key)
        assert failure.value.reason == "LEASE_ENDED"
        new = [on.acquire(key, namespace="upgrade") for key in ("released", "failed", "new")]
        assert min(lease.token for lease in new) > highest
        # The waiters' daemon is gone; the SQL user leaves.
        left = on.psql(f"select leasehold.leave_queue('upgrade', 'queued', '{old_lease(61, 'queued').lease_key}')")
        assert left == "t"
        assert on.lease.Release(release_request(kept[3])).results[0].outcome == pb.OUTCOME_OK
        assert on.acquire("queued", namespace="upgrade", wait=LIMIT_S).token > highest
        # What work.note writes to was its owner's; hooks run as leasehold_owner now.
        on.psql("grant usage on schema work to leasehold_owner; grant insert on work.ended to leasehold_owner")
        assert on.lease.Release(release_request(kept[2])).results[0].outcome == pb.OUTCOME_OK
        assert on.psql("select key, event from work.ended") == "held|release_ok"
        # The lease `short` ends by itself, by now or below.
        assert on.psql("select key, outcome from leasehold.history where token <= %d and key <> 'short' order by token" % highest) == (
            "released|ok\nfailed|failed\nheld|ok\nqueued|ok")
        # Nobody renews it: it had a whole duration and grace from the restart on.
        wait_until(lambda: on.psql("select count(*) from leasehold.lease where key = 'short'") == "0", LIMIT_S, "the end of a lease")


def test_timeouts_of_a_role_are_found_and_do_not_end_a_migration(cluster):
    names = cluster.psql("select name from pg_settings where name in ('lock_timeout', 'statement_timeout', 'idle_in_transaction_session_timeout',"
                         " 'idle_session_timeout', 'transaction_timeout')", "postgres").split()
    assert len(names) == 3 + (version_of(cluster) >= 14) + (version_of(cluster) >= 17)
    database = cluster.create_database()
    cluster.psql("create role hasty login superuser;" + "".join(f"alter role hasty set {name} = '100ms';" for name in names), database)
    said = cli("migrate", "--database", cluster.url(database, "hasty"))
    assert said.returncode == 0, said.stderr
    found = cli("check-database", "--database", cluster.url(database, "hasty")).stdout
    assert sorted(name for name in names if f"{name} is 100 ms" in found) == sorted(names), found


@pytest.fixture
def hidden(tmp_path_factory, monkeypatch):
    """A daemon that finds no PostgreSQL but that of LEASEHOLD_PGBIN, on its PATH: Debian's directory is empty in its mount namespace."""
    directory = tmp_path_factory.mktemp("hidden")
    flags = "" if os.geteuid() == 0 else "--user --map-current-user --keep-caps"
    (directory / "empty").mkdir()
    wrapper = directory / "leaseholdd"
    wrapper.write_text(f"""#!/bin/sh
exec unshare --mount {flags} /bin/sh -c 'mount --bind {directory}/empty /usr/lib/postgresql && exec {harness.DAEMON} "$@"' leaseholdd "$@"
""")
    wrapper.chmod(0o755)
    monkeypatch.setattr(harness, "DAEMON", wrapper)
    monkeypatch.setenv("PATH", os.environ["LEASEHOLD_PGBIN"] + ":" + os.environ["PATH"])


@pytest.fixture
def directory():
    """Where the cluster's user may pass: what is above tmp_path each pytest that starts closes again, and versions are tested at once."""
    directory = pathlib.Path("/tmp") / f"lh-embedded-{uuid.uuid4().hex[:8]}"
    yield directory
    shutil.rmtree(directory, ignore_errors=True)


def test_the_embedded_cluster_is_of_this_version(hidden, cluster, directory):
    lease = None
    for _ in range(2):  # made, then found
        daemon = harness.Daemon(embedded=directory)
        try:
            client = harness.Client(daemon.target)
            if lease is None:
                lease = client.lease.Acquire(acquire_request("embedded", "k", 600)).lease
            else:
                assert client.lease.Acquire(acquire_request("embedded", "other", 30)).lease.token > lease.token
            assert client.lease.Heartbeat(pb.HeartbeatRequest(leases=[lease_ref(lease)])).results[0].outcome == pb.OUTCOME_OK
            assert (directory / "data/PG_VERSION").read_text() == f"{version_of(cluster)}\n"
        finally:
            assert daemon.stop(60) == 0, daemon.log()
            daemon.destroy()
