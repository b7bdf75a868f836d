"""Bearer tokens: which are accepted, how they end, and that they are written down nowhere."""
import base64
import concurrent.futures
import hashlib
import os
import pathlib
import re
import signal
import subprocess
import time
import urllib.request

import grpc
import pytest

import harness
from access_site import REFUSED, Site, bearer
from access_table import BOUND, tried
from commandline import environment
from harness import acquire_request, fails, pb, wait_until
from streams import keys


@pytest.fixture(scope="module")
def site(cluster):
    site = Site(cluster, "--log-level", "debug")
    site.grant("*", "open", "lease", "read")
    site.grant("token:*", "tokens", "lease", "read")
    site.waits_for("OK", "open")
    yield site
    site.close()


def known(site, name, *more):
    """A token that the daemon knows."""
    token, number = site.token(name, *more)
    site.waits_for("OK", "tokens", bearer(token))
    return token, number


def wrong(token):
    """The same, with another last character."""
    return token[:-1] + ("A" if token[-1] != "A" else "B")


def refused(site, metadata):
    with fails() as failure:
        site.client.lease.Acquire(acquire_request("open", keys()), metadata=metadata, timeout=BOUND)
    assert failure.value.code == REFUSED and failure.value.reason == "UNAUTHENTICATED", failure.value.message
    return failure.value


def test_a_token_that_is_not_valid_is_refused_even_where_anybody_may(site):
    good, _ = known(site, "good")
    gone, _ = known(site, "gone")
    site.psql("select leasehold.token_revoke('gone')")
    site.waits_for("UNAUTHENTICATED", "open", bearer(gone))
    unlike = base64.urlsafe_b64encode(os.urandom(32)).decode().rstrip("=")
    bad = {
        "a wrong checksum": f"Bearer {wrong(good)}",
        "revoked": f"Bearer {gone}",
        "never made": f"Bearer lht_{unlike}" + hashlib.sha256(f"lht_{unlike}".encode()).hexdigest()[:6],
        "too short": f"Bearer {good[:-1]}",
        "too long": f"Bearer {good}x",
        "of another case": f"Bearer {good.upper()}",
        "another scheme": f"Basic {good}",
        "no scheme": good,
        "the scheme alone": "Bearer",
        "two at once": f"Bearer {good}, Bearer {good}",
        "its ID": "Bearer " + site.token("by-id")[1],
        "its hash": "Bearer " + hashlib.sha256(good.encode()).hexdigest(),
        "nothing": "",
    }
    assert site.asks("open", bearer(good)) == site.asks("open") == "OK"
    words = {refused(site, (("authorization", value),)).message for value in bad.values()}
    assert not any(good in word or gone in word for word in words)
    assert site.asks("open", (("authorization", f"bearer {good}"),)) == "OK", "the scheme's case does not matter"
    # What is for a proxy in front is nothing of ours.
    for foreign in ("Basic dXNlcjpwYXNz", "Negotiate YII=", 'Digest username="u", realm="r"'):
        assert site.asks("open", (("authorization", foreign),)) == "OK", foreign
        assert site.asks("tokens", (("authorization", foreign),)) == site.asks("tokens") != "OK", foreign
    # Of two headers nobody can say which counts.
    for pair in (good, gone), (gone, good), (good, good):
        with fails():
            site.client.lease.Acquire(acquire_request("open", keys()), timeout=BOUND,
                                      metadata=tuple(("authorization", f"Bearer {token}") for token in pair))


def loads(site):
    with urllib.request.urlopen(f"http://127.0.0.1:{site.daemon.admin_port}/metrics", timeout=30) as answer:
        return int(re.search(r"^leasehold_access_loads_total (\d+)$", answer.read().decode(), re.M)[1])


def unknown():
    body = "lht_" + base64.urlsafe_b64encode(os.urandom(32)).decode().rstrip("=")
    return bearer(body + hashlib.sha256(body.encode()).hexdigest()[:6])


def test_a_new_token_is_good_at_once_in_each_kind_of_call(site, request):
    def new():
        return bearer(site.token("fresh")[0])

    def first(stream):
        request.addfinalizer(stream.close)
        return stream.next()

    for _ in range(3):
        assert site.asks("tokens", new()) == "OK"
        lease = site.client.lease.Acquire(acquire_request("tokens", keys(), 60), metadata=new(), timeout=BOUND).lease
        hold, _ = site.hold("tokens", keys(), 60, new())
        request.addfinalizer(hold.close)
        kept = first(site.open("KeepAlive", pb.HeartbeatRequest(leases=[harness.lease_ref(lease)]), metadata=new()))
        assert kept.results[0].outcome == pb.OUTCOME_OK
        granted = first(site.open("AcquireStream", unary=acquire_request("tokens", keys(), 60), metadata=new()))
        assert granted.WhichOneof("event") == "granted"
        assert first(site.open("WatchLeases", unary=pb.WatchLeasesRequest(namespace=["tokens"], include_initial=True), metadata=new())) is not None
        site.client.admin.GetStatus(pb.GetStatusRequest(), metadata=new(), timeout=BOUND)
        # More than fits into a stream's window.
        many = [pb.HeartbeatRequest(leases=[harness.lease_ref(lease)] * 4000)]
        assert many[0].ByteSize() > 2**16
        assert site.client.lease.Heartbeat(many[0], metadata=new(), timeout=BOUND).results[0].outcome == pb.OUTCOME_OK


def test_a_flood_of_unknown_tokens_costs_a_few_reads_and_keeps_nobody_out(site):
    good, _ = known(site, "beside")
    before, began = loads(site), time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(max_workers=60) as pool:
        flood = [pool.submit(site.asks, "open", unknown()) for _ in range(600)]
        assert site.asks("tokens", bearer(good)) == "OK"
        assert site.asks("tokens", bearer(site.token("amid")[0])) == "OK"
        assert {call.result(BOUND) for call in flood} == {"UNAUTHENTICATED"}
    # One in a quarter of a second, and those because the rules had changed.
    assert loads(site) - before <= 4 * (time.monotonic() - began) + 5


def test_an_unknown_token_is_refused_though_the_tokens_cannot_be_read(site):
    session = harness.Session(site.cluster, site.database)
    session.run("begin; lock table leasehold.access_token in access exclusive mode")
    try:
        assert site.asks("open", unknown()) == "UNAUTHENTICATED"
        assert site.psql("select count(*) from pg_locks where not granted and relation = 'leasehold.access_token'::regclass") != "0"
    finally:
        session.run("rollback")
        session.close()


def test_a_token_that_is_revoked_while_its_first_call_waits_is_refused(site):
    site.daemon.process.send_signal(signal.SIGSTOP)  # or it would read them by itself before the first call
    token, gone = site.token("early")[0], site.token("later")[0]
    session = harness.Session(site.cluster, site.database)
    session.run("begin; lock table leasehold.access_token in access exclusive mode")
    site.daemon.process.send_signal(signal.SIGCONT)
    calls = [site.client.lease.Acquire.future(acquire_request("tokens", keys(), 60), metadata=bearer(each), timeout=BOUND)
             for each in (token, gone, token)]
    wait_until(lambda: site.psql("select count(*) from pg_locks where not granted and relation = 'leasehold.access_token'::regclass") != "0",
               BOUND, "the read of the tokens")
    calls[2].cancel()
    session.run("delete from leasehold.access_token where name = 'later'; commit")
    session.close()
    assert calls[0].result(BOUND).lease.token > 0
    with fails() as failure:
        calls[1].result(BOUND)
    assert failure.value.reason == "UNAUTHENTICATED"
    site.waits_for("UNAUTHENTICATED", "tokens", bearer(gone))


def test_two_tokens_of_a_name_are_valid_and_end_by_themselves(site):
    old, number = known(site, "rotated")
    new, _ = known(site, "rotated")
    assert old != new
    site.psql(f"select leasehold.token_revoke('{number}')")
    site.waits_for("UNAUTHENTICATED", "tokens", bearer(old))
    assert site.asks("tokens", bearer(new)) == "OK"
    third, _ = known(site, "rotated")
    site.psql("select leasehold.token_revoke('rotated')")
    for token in (new, third):
        site.waits_for("UNAUTHENTICATED", "tokens", bearer(token))


def test_a_token_that_expires_is_refused_and_ends_its_hold(site):
    token, _ = site.token("brief", "15 seconds")
    site.waits_for("OK", "tokens", bearer(token))
    key = keys()
    hold, lease = site.hold("tokens", key, 60, bearer(token))
    assert hold.fails().code in (REFUSED, grpc.StatusCode.PERMISSION_DENIED)
    site.waits_for("UNAUTHENTICATED", "tokens", bearer(token))
    assert site.scope("tokens", key, "state, token") == f"held|{lease.token}", "its lease is left to its expiry"


def test_what_is_open_ends_with_its_token(site, request):
    """A Hold, a KeepAlive, waiters and a watch: nothing goes on for a token that is revoked."""
    token, _ = known(site, "streams")
    mine, key, other = bearer(token), keys(), keys()
    hold, lease = site.hold("tokens", key, 60, mine)
    kept = site.client.lease.Acquire(acquire_request("tokens", other, 60), metadata=mine).lease
    ref = harness.lease_ref(kept)
    keep = site.open("KeepAlive", pb.HeartbeatRequest(leases=[ref]), metadata=mine)
    assert keep.next().results[0].outcome == pb.OUTCOME_OK
    queued = site.open("AcquireStream", unary=acquire_request("tokens", other, 60, wait_forever=True), metadata=mine)
    assert queued.next().WhichOneof("event") == "queued"
    waiting = site.client.lease.Acquire.future(acquire_request("tokens", key, 60, wait_forever=True), metadata=mine, timeout=BOUND)
    watch = site.open("WatchLeases", unary=pb.WatchLeasesRequest(namespace=["tokens"], include_initial=True), metadata=mine)
    watch.until(lambda event: event.type == pb.LeaseEvent.TYPE_SYNCED)
    wait_until(lambda: site.psql("select count(*) from leasehold.waiter") == "2", BOUND, "both in their queues")
    for each in (hold, keep, queued, watch):
        request.addfinalizer(each.close)

    site.psql("select leasehold.token_revoke('streams')")
    ended = (REFUSED, grpc.StatusCode.PERMISSION_DENIED)
    assert hold.fails().code in ended
    assert queued.fails().code in ended
    with fails() as failure:
        waiting.result(BOUND)
    assert failure.value.code in ended
    wait_until(lambda: site.psql("select count(*) from leasehold.waiter") == "0", BOUND, "nobody in the queues")
    # no renewal any more, by whichever way it is asked for; both leases are left to their expiry
    before = site.scope("tokens", other, "heartbeats")
    keep.send(pb.HeartbeatRequest(leases=[ref]))
    answer = keep.next()
    assert answer is None and keep.error.code() in ended or answer.results[0].outcome == pb.OUTCOME_DENIED, (answer, keep.error)
    assert site.scope("tokens", other, "heartbeats, state") == f"{before}|held"
    assert site.scope("tokens", key, "state, token") == f"held|{lease.token}"
    # and nothing more is seen: a watch that goes on shows nothing of it
    site.psql(f"select leasehold.force_release('tokens', '{other}', 'a test')")
    wait_until(lambda: site.psql("select count(*) from leasehold.event") == "0", BOUND, "the event to be taken")
    assert site.asks("open") == "OK"
    assert not [event for event in list(watch.events.queue) if event is not watch.END]


# --- where it is written down ---


def test_a_token_and_its_hash_are_in_no_log(site):
    token, _ = known(site, "logged")
    refused(site, bearer(wrong(token)))
    refused(site, (("authorization", f"Basic {token}"),))
    digest = hashlib.sha256(token.encode())
    logs = site.daemon.log() + (site.cluster.dir / "data" / "log").read_text(errors="replace")
    for secret in (token, token[4:47], digest.hexdigest(), digest.hexdigest().upper(), base64.b64encode(digest.digest()).decode()):
        assert secret not in logs
    assert "logged" in site.psql("select string_agg(a.reason, ' ') from leasehold.audit a where a.action = 'token_create'")
    for table in ("audit", "access_token", "access_rule"):
        assert token not in site.psql(f"select x::text from leasehold.{table} x")
    metrics = site.psql("select string_agg(query, ' ') from pg_stat_activity")
    assert token not in metrics and digest.hexdigest() not in metrics


def test_hashes_are_for_daemons_alone(site):
    site.psql("""do $$ declare r text; begin foreach r in array array['client', 'reader', 'coordinator', 'admin'] loop
        execute format('create role token_%s login in role leasehold_%s', r, r); end loop; exception when duplicate_object then null; end $$""")
    for role in ("client", "reader", "coordinator", "admin"):
        asked = site.cluster.psql("select hash from leasehold.access_token", site.database, check=False, user=f"token_{role}")
        assert asked.returncode != 0 and "permission denied" in asked.stderr, role
        function = site.cluster.psql("select count(*) from leasehold_internal.access_tokens()", site.database, check=False,
                                     user=f"token_{role}")
        assert (function.returncode == 0) == (role == "coordinator"), (role, function.stderr)
        for table in ("access_token", "access_rule", "access_state", "audit"):
            changed = site.cluster.psql(f"delete from leasehold.{table}", site.database, check=False, user=f"token_{role}")
            assert changed.returncode != 0 and "permission denied" in changed.stderr, (role, table)


# --- where it is accepted ---

BEYOND = """
import sys
sys.path.insert(0, sys.argv[1])
import harness
from access_site import bearer
from access_table import tried
from harness import Client, acquire_request, wait_until

daemon = harness.Daemon("--listen", "10.9.9.9:0,127.0.0.1:7420", "--insecure", "yes", database=sys.argv[2])
def asks(target, namespace, token=None):
    client = Client(target)
    def acquire():
        client.lease.Acquire(acquire_request(namespace, "k-" + target + str(token), 30), timeout=60,
                             metadata=bearer(token) if token else None)
        return "OK"
    word = tried(acquire)[0]
    client.close()
    return word

far, near, token = f"10.9.9.9:{daemon.port}", "127.0.0.1:7420", sys.argv[3]
wait_until(lambda: asks(near, "open") == "OK", 60)
print("near", asks(near, "tokens", token), asks(near, "elsewhere"))
print("far", asks(far, "open"), asks(far, "open", token), asks(far, "tokens", token), asks(far, "elsewhere"))
print("stopped", daemon.stop(), "plaintext" in daemon.log())
daemon.destroy()
"""


def test_beyond_loopback_a_token_needs_tls_and_rules_are_the_default(site):
    """In a network of its own, whose other address nobody else reaches."""
    token, _ = known(site, "plain")
    setup = 'ip link set lo up && ip addr add 10.9.9.9/32 dev lo && exec "$@"'
    done = subprocess.run(
        ["unshare", *([] if os.geteuid() == 0 else ["--map-root-user"]), "--net", "sh", "-c", setup, "sh", "/usr/bin/python3", "-B", "-c", BEYOND, pathlib.Path(__file__).parent,
         site.cluster.url(site.database), token],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300, env=environment())
    said = dict(line.split(" ", 1) for line in done.stdout.splitlines() if line.startswith(("near", "far", "stopped")))
    assert said.get("near") == "OK ACCESS_DENIED", done.stdout
    assert said.get("far") == "OK UNAUTHENTICATED UNAUTHENTICATED ACCESS_DENIED", done.stdout
    assert said.get("stopped", "").startswith("0"), done.stdout
