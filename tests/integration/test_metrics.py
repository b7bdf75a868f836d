"""/metrics of a real daemon: what Prometheus accepts, what the documentation lists, and what has really happened."""
import http.client
import re
import shutil
import socket
import subprocess
import time
import threading
import uuid

import grpc
import pytest

import harness
from harness import acquire_request, fails, free_port, lease_ref, pb, release_request, wait_until

FAMILY = re.compile(r"# TYPE (\S+) (\S+)")
SAMPLE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)")
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"')
ACQUIRE = "leasehold.v1.LeaseService/Acquire"


def scrape(daemon):
    connection = http.client.HTTPConnection("127.0.0.1", daemon.admin_port, timeout=30)
    connection.request("GET", "/metrics")
    answer = connection.getresponse()
    body = answer.read().decode()
    connection.close()
    assert answer.status == 200
    assert answer.getheader("Content-Type") == "text/plain; version=0.0.4; charset=utf-8"
    return body


def promtool(text):
    """Prometheus's own judgement: no complaint at all."""
    assert shutil.which("promtool"), "promtool is missing: install prometheus"
    done = subprocess.run(["promtool", "check", "metrics"], input=text, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0 and done.stdout == "", done.stdout


class Metrics:
    def __init__(self, daemon):
        self.text = scrape(daemon)
        self.types = dict(FAMILY.findall(self.text))
        self.samples = {}
        for line in self.text.splitlines():
            if not line.startswith("#"):
                name, labels, value = SAMPLE.fullmatch(line).groups()
                key = name, frozenset(LABEL.findall(labels or ""))
                assert key not in self.samples, f"twice: {line}"
                self.samples[key] = float(value)

    def get(self, name, **labels):
        return self.samples.get((name, frozenset(labels.items())))

    def requests(self, method, code, reason=""):
        return self.get("leasehold_rpc_requests_total", method=method, code=code, reason=reason)


def bound(metrics, kind, name):
    return metrics.get(f"leasehold_bound_{kind}", bound=name)


@pytest.fixture
def client():
    clients = []

    def client(daemon):
        clients.append(harness.Client(daemon.target))
        return clients[-1]

    yield client
    for one in clients:
        one.close()


def work(client, number):
    """A little of everything; every name has a word that must not be found in the metrics."""
    namespace, key = "secretns.child", f"secretkey-{number}"
    lease = client.lease.Acquire(acquire_request(namespace, key, owner="secretowner")).lease
    client.lease.Acquire(acquire_request(namespace, key, lease_key=lease.lease_key))
    with fails():
        client.lease.Acquire(acquire_request(namespace, key))
    with fails():
        client.lease.Acquire(acquire_request(namespace, key, wait=0.05))
    waiting = client.lease.Acquire.future(acquire_request(namespace, key, wait=60))
    client.lease.Heartbeat(pb.HeartbeatRequest(leases=[lease_ref(lease)]))
    client.lease.Release(release_request(lease))
    client.lease.Release(release_request(waiting.result(30).lease))
    lost = client.lease.Heartbeat(pb.HeartbeatRequest(leases=[lease_ref(lease)])).results[0]
    assert lost.outcome == pb.OUTCOME_LOST


@pytest.fixture(scope="module")
def loaded(service):
    """A daemon that has had some load: 4 clients, 5 rounds each, and one call of a method that there is not."""
    clients = [harness.Client(service.daemon.target) for _ in range(4)]
    failures = []

    def run(number):
        try:
            for turn in range(5):
                work(clients[number], f"{number}-{turn}")
        except Exception as error:  # told by the test's thread
            failures.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not failures, failures
    with fails():
        clients[0].channel.unary_unary("/secret.Service/Method")(b"", timeout=30)
    for client in clients:
        client.close()
    return service


def test_prometheus_accepts_what_is_exported(loaded):
    promtool(scrape(loaded.daemon))


def test_every_metric_has_a_meaning_and_the_page_names_what_is_there(loaded):
    exported = Metrics(loaded.daemon).types
    meanings = dict(re.findall(r"^# HELP (\S+) (\S.*)$", scrape(loaded.daemon), re.M))
    assert set(meanings) == set(exported) and all(len(words.split()) > 1 for words in meanings.values())
    page = (harness.ROOT / "docs/run/metrics.md").read_text().partition("\n## ")[0]
    documented = re.findall(r"^- `([a-z_]+)`: ", page, re.M)
    assert set(documented) <= set(exported) and len(set(documented)) == len(documented) > 40


# Promise 12.
def test_every_bound_is_documented(loaded):
    page = (harness.ROOT / "docs/run/metrics.md").read_text().partition("\n## Bounds\n")[2]
    exported = {dict(labels)["bound"] for name, labels in Metrics(loaded.daemon).samples if name == "leasehold_bound_limit"}
    assert exported == set(re.findall(r"^- `([a-z_]+)`: ", page, re.M))


def test_calls_are_counted_by_method_code_and_reason(loaded):
    metrics = Metrics(loaded.daemon)
    assert metrics.requests(ACQUIRE, "OK") == 60
    assert metrics.requests(ACQUIRE, "ABORTED", "LEASE_HELD") == 20
    assert metrics.requests(ACQUIRE, "DEADLINE_EXCEEDED", "WAIT_TIMEOUT") == 20
    assert metrics.requests("leasehold.v1.LeaseService/Release", "OK") == 40
    assert metrics.requests("unknown", "UNIMPLEMENTED", "UNIMPLEMENTED") == 1
    assert metrics.get("leasehold_rpc_request_duration_seconds_count", method=ACQUIRE) == 100
    # 20 of them waited for 50 ms or longer.
    assert metrics.get("leasehold_rpc_request_duration_seconds_sum", method=ACQUIRE) >= 1
    assert metrics.get("leasehold_rpc_request_duration_seconds_bucket", method=ACQUIRE, le="0.025") <= 80


def test_leases_are_counted(loaded):
    metrics = Metrics(loaded.daemon)
    assert metrics.get("leasehold_lease_grants_total") == 40
    assert metrics.get("leasehold_lease_renewals_total") == 20
    assert metrics.get("leasehold_heartbeats_total") == 20
    assert metrics.get("leasehold_releases_total") == 40
    assert metrics.get("leasehold_lease_losses_total", reason="released") == 20
    assert metrics.get("leasehold_lease_losses_total", reason="expired") == 0
    assert metrics.get("leasehold_waiters") == 0 and metrics.get("leasehold_pending_items") == 0
    assert metrics.get("leasehold_batch_items_sum", kind="release") == 40
    assert metrics.get("leasehold_batch_items_count", kind="release") == metrics.get("leasehold_batch_duration_seconds_count", kind="release")


def test_histograms_are_cumulative_and_end_with_their_count(loaded):
    metrics = Metrics(loaded.daemon)
    series = {}
    for (name, labels), value in metrics.samples.items():
        if name.endswith("_bucket"):
            bare = frozenset(label for label in labels if label[0] != "le")
            series.setdefault((name[:-7], bare), []).append((float(dict(labels)["le"].replace("+Inf", "inf")), value))
    assert len(series) >= 20
    for (name, labels), buckets in series.items():
        buckets.sort()
        counts = [count for _, count in buckets]
        assert counts == sorted(counts) and buckets[-1][0] == float("inf")
        assert counts[-1] == metrics.samples[name + "_count", labels]
        assert metrics.samples[name + "_sum", labels] >= 0


def test_no_label_tells_of_a_namespace_a_key_an_owner_or_a_path(loaded):
    assert "secret" not in scrape(loaded.daemon).lower()


def test_the_process_tells_of_itself(loaded):
    metrics = Metrics(loaded.daemon)
    pid = loaded.daemon.process.pid
    assert abs(metrics.get("process_resident_memory_bytes") / 1024 - loaded.daemon.memory_kib()) < 16 * 1024
    assert 8 <= metrics.get("process_open_fds") <= 100 < metrics.get("process_max_fds")
    started = subprocess.run(["ps", "-o", "etimes=", "-p", str(pid)], stdout=subprocess.PIPE, text=True).stdout
    assert abs(time.time() - metrics.get("process_start_time_seconds") - float(started)) < 5
    assert metrics.get("process_cpu_seconds_total") > 0
    version = subprocess.run([str(harness.DAEMON), "--version"], stdout=subprocess.PIPE, text=True).stdout.split()[-1]
    assert metrics.get("leasehold_build_info", version=version) == 1


def test_the_database_is_surveyed_and_old_transactions_show(cluster, database, start, client):
    daemon = start(database=cluster.url(database))
    lease = client(daemon).lease
    for number in range(3):
        lease.Acquire(acquire_request("jobs", f"k{number}", 300))
    session = cluster.session(database)
    session.run("begin isolation level repeatable read; select 1")

    def is_seen():
        metrics = Metrics(daemon)
        return metrics.get("leasehold_leases_held") == 3 and metrics.get("leasehold_database_oldest_transaction_seconds") > 0.5 and metrics

    metrics = wait_until(is_seen, 60, "the survey")
    assert metrics.get("leasehold_database_survey_age_seconds") < 30
    assert abs(metrics.get("leasehold_database_clock_skew_seconds")) < 1
    offset = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
    assert abs(metrics.get("leasehold_database_clock_offset_seconds") - offset) < 1
    session.close()


@pytest.mark.parametrize("named", [0, 1])
def test_a_stuck_lease_shows(cluster, database, start, client, named):
    """With the name of its namespace only where the configuration says so: /metrics asks for no right."""
    daemon = start("--metrics-namespaces", str(named), database=cluster.url(database))
    lease = client(daemon).lease
    cluster.psql("select leasehold.set_policy('stuck', max_hold => '0 s')", database)
    for namespace in ("stuck", "fine.one", "fine.two"):
        lease.Acquire(acquire_request(namespace, "k", 300))
    label = {"namespace": "stuck" if named else ""}

    def is_seen():
        metrics = Metrics(daemon)
        return metrics.get("leasehold_namespace_leases_held_too_long", **label) == 1 and metrics

    metrics = wait_until(is_seen, 90, "the lease that is held too long")
    assert metrics.get("leasehold_namespace_leases_silent", namespace="") == 0
    assert metrics.get("leasehold_namespace_oldest_hold_seconds", namespace="") > 0
    assert ("stuck" in metrics.text) == (named == 1) and "fine" not in metrics.text


def test_metrics_work_while_the_database_is_down_and_count_its_return(start, client):
    own = harness.Cluster(migrated=True)
    daemon = start(database=own.url(own.create_database(migrated=True)))
    wait_until(lambda: Metrics(daemon).get("leasehold_ready") == 1, what="readiness")
    whole = Metrics(daemon)
    assert whole.get("leasehold_database_connections", role="lane") == 3
    assert whole.get("leasehold_database_connections_up", role="lane") == 3
    waiting = client(daemon).lease.Acquire.future(acquire_request("jobs", "k", wait=60))
    own.stop("immediate")
    down = wait_until(lambda: (m := Metrics(daemon)).get("leasehold_ready") == 0 and m, 60, "unreadiness")
    promtool(down.text)
    for role in ("lane", "control", "listener"):
        assert down.get("leasehold_database_connections_up", role=role) == 0
    assert down.types == whole.types
    age = down.get("leasehold_database_answer_age_seconds")
    assert wait_until(lambda: Metrics(daemon).get("leasehold_database_answer_age_seconds") > age)
    own.start()
    back = wait_until(lambda: (m := Metrics(daemon)).get("leasehold_ready") == 1 and m.get(
        "leasehold_database_connections_up", role="lane") == 3 and m.get("leasehold_database_connections_up", role="listener") == 1 and m,
        60, "the return")
    assert back.get("leasehold_database_reconnects_total", role="lane") >= 2
    assert back.get("leasehold_database_reconnects_total", role="control") >= 1
    assert back.get("leasehold_database_reconnects_total", role="listener") >= 1
    waiting.cancel()


def test_before_there_is_a_database_the_process_still_tells_of_itself(start):
    port = free_port()
    daemon = start("--admin", f"127.0.0.1:{port}", database="host=/nonexistent dbname=none", wait=False)
    daemon.admin_port = port

    def answered():
        try:
            return scrape(daemon)
        except OSError:
            return None

    text = wait_until(answered, what="an answer")
    promtool(text)
    assert "\nleasehold_ready 0\n" in text and "\nleasehold_build_info{" in text


# --- bounds: each refuses as it should, and each refusal shows ---

# Promise 12.
def test_waiters_above_the_bound_are_refused_and_counted(cluster, database, start, client):
    daemon = start("--max-waiters", "2", database=cluster.url(database))
    lease = client(daemon).lease
    lease.Acquire(acquire_request("jobs", "k", 300))
    waiting = [lease.Acquire.future(acquire_request("jobs", "k", wait=60)) for _ in range(2)]
    wait_until(lambda: bound(Metrics(daemon), "usage", "waiters") == 2)
    with fails() as failure:
        lease.Acquire(acquire_request("jobs", "k", wait=60), timeout=30)
    assert failure.value.code == grpc.StatusCode.RESOURCE_EXHAUSTED and failure.value.reason == "OVERLOADED"
    metrics = Metrics(daemon)
    assert bound(metrics, "limit", "waiters") == 2 and bound(metrics, "refusals_total", "waiters") == 1
    assert metrics.requests(ACQUIRE, "RESOURCE_EXHAUSTED", "OVERLOADED") == 1
    for one in waiting:
        one.cancel()
    wait_until(lambda: bound(Metrics(daemon), "usage", "waiters") == 0)
    assert Metrics(daemon).requests(ACQUIRE, "CANCELLED", "CANCELED") == 2


def test_connections_of_one_principal_share_its_bound_and_anonymous_ones_do_not(cluster, database, start, client, tmp_path):
    path = f"unix:{tmp_path}/s"
    daemon = start("--listen", f"127.0.0.1:0,{path}", "--max-waiters-per-client", "2", database=cluster.url(database))
    same = [harness.Client(path) for _ in range(3)]
    same[0].lease.Acquire(acquire_request("jobs", "k", 300))
    waiting = [one.lease.Acquire.future(acquire_request("jobs", "k", wait=60)) for one in same[:2]]
    wait_until(lambda: bound(Metrics(daemon), "usage", "waiters") == 2)
    with fails() as failure:
        same[2].lease.Acquire(acquire_request("jobs", "k", wait=60), timeout=30)
    assert failure.value.code == grpc.StatusCode.RESOURCE_EXHAUSTED and failure.value.reason == "OVERLOADED"
    assert "max_waiters_per_client" in failure.value.message
    waiting += [client(daemon).lease.Acquire.future(acquire_request("jobs", "k", wait=60)) for _ in range(4)]
    wait_until(lambda: bound(Metrics(daemon), "usage", "waiters") == 6)
    assert bound(Metrics(daemon), "refusals_total", "waiters_of_a_client") == 1
    for one in waiting:
        one.cancel()
    for one in same:
        one.close()


def test_a_client_may_have_a_tenth_of_the_daemon_and_at_least_100(cluster, database, start):
    metrics = Metrics(start("--max-waiters", "3000", "--max-watchers", "10", database=cluster.url(database)))
    for name, limit in (("waiters", 300), ("watchers", 100), ("control_calls", 102)):
        assert bound(metrics, "limit", f"{name}_of_a_client") == limit


def test_connections_above_the_bound_are_sent_away_and_counted(cluster, database, start, client):
    daemon = start("--max-connections", "1", database=cluster.url(database))
    first = client(daemon)
    first.admin.GetStatus(pb.GetStatusRequest(), timeout=30)
    with fails() as failure:
        client(daemon).admin.GetStatus(pb.GetStatusRequest(), timeout=30)
    assert failure.value.code == grpc.StatusCode.UNAVAILABLE
    metrics = Metrics(daemon)
    assert bound(metrics, "limit", "connections") == 1 and bound(metrics, "usage", "connections") == 1
    assert bound(metrics, "refusals_total", "connections") >= 1
    first.admin.GetStatus(pb.GetStatusRequest(), timeout=30)


def test_messages_above_the_bound_are_refused_and_counted(cluster, database, start, client):
    daemon = start(database=cluster.url(database))
    with fails() as failure:
        client(daemon).lease.Release(pb.ReleaseRequest(items=[pb.ReleaseItem(success="x" * (5 << 20))]), timeout=30)
    assert failure.value.code == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert bound(Metrics(daemon), "refusals_total", "message_bytes") == 1


def test_idle_connections_are_sent_away_and_counted(cluster, database, start, client):
    daemon = start("--idle-timeout", "1s", database=cluster.url(database))
    one = client(daemon)
    one.admin.GetStatus(pb.GetStatusRequest(), timeout=30)
    wait_until(lambda: Metrics(daemon).get("leasehold_rpc_connections_closed_total", reason="idle") == 1, 90, "the idle connection's end")
    one.admin.GetStatus(pb.GetStatusRequest(), timeout=30)


def test_a_client_that_answers_no_ping_is_parted_from_and_counted(cluster, database, start):
    daemon = start("--keepalive", "1s", "--keepalive-timeout", "500ms", database=cluster.url(database))
    with socket.create_connection(("127.0.0.1", daemon.port), timeout=60) as mute:
        mute.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]))
        received = b""
        while chunk := mute.recv(4096):
            received += chunk
    ping, goaway = received[-34:-25], received[-17:]
    assert ping == bytes([0, 0, 8, 6, 0, 0, 0, 0, 0])
    assert goaway == bytes([0, 0, 8, 7, 0, 0, 0, 0, 0]) + bytes(8)  # NO_ERROR: it has no call, and is welcome again
    assert Metrics(daemon).get("leasehold_rpc_connections_closed_total", reason="silent") == 1


def test_a_listener_that_lost_its_session_comes_back_and_is_counted(cluster, database, start):
    daemon = start(database=cluster.url(database))
    wait_until(lambda: Metrics(daemon).get("leasehold_database_connections_up", role="listener") == 1)
    wait_until(lambda: cluster.psql(
        # Half a second later its last statement is the check of the listener.
        "select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid() and "
        "(query ilike 'listen%' or query like '%pg_listening_channels%')", database))
    wait_until(lambda: Metrics(daemon).get("leasehold_database_reconnects_total", role="listener") == 1)
    wait_until(lambda: Metrics(daemon).get("leasehold_database_connections_up", role="listener") == 1, what="a new session")
    before = Metrics(daemon)  # a check that was on its way when its session was ended has failed
    wait_until(lambda: Metrics(daemon).get("leasehold_listener_checks_total") > before.get("leasehold_listener_checks_total") + 1,
               what="a check of the new session, and its answer")
    assert Metrics(daemon).get("leasehold_listener_check_failures_total") == before.get("leasehold_listener_check_failures_total") <= 1


def test_notifications_and_losses_by_an_administrator_are_counted(cluster, database, start, client):
    daemon = start(database=cluster.url(database))
    lease = client(daemon).lease
    held = lease.Acquire(acquire_request("jobs", "k", 300, lease_key=str(uuid.uuid4()))).lease
    waiting = lease.Acquire.future(acquire_request("jobs", "k", 300, wait=60))
    wait_until(lambda: cluster.psql("select count(*) from leasehold.waiter", database) == "1")
    cluster.psql("select leasehold.force_release('jobs', 'k', reason => 'a test')", database)
    waiting.result(30)
    lost = lease.Heartbeat(pb.HeartbeatRequest(leases=[lease_ref(held)])).results[0]
    assert lost.end_reason == pb.END_REASON_FORCED
    metrics = Metrics(daemon)
    assert metrics.get("leasehold_lease_losses_total", reason="forced") == 1
    assert metrics.get("leasehold_notifications_total") >= 1 and metrics.get("leasehold_wakes_total") >= 1


def test_what_watchers_are_told_is_counted(cluster, database, start, client):
    daemon = start(database=cluster.url(database))
    lease = client(daemon).lease
    streams = [lease.WatchLeases(pb.WatchLeasesRequest(namespace=["jobs"])) for _ in range(2)]
    for stream in streams:
        stream.initial_metadata()
    lease.Release(release_request(lease.Acquire(acquire_request("jobs", "k", 300)).lease))
    for stream in streams:
        assert [next(stream).type, next(stream).type] == [pb.LeaseEvent.TYPE_ACQUIRED, pb.LeaseEvent.TYPE_RELEASED]
    metrics = Metrics(daemon)
    assert metrics.get("leasehold_watch_events_total") == 4 and metrics.get("leasehold_watch_lags_total") == 0
    assert bound(metrics, "usage", "watchers") == 2
    cluster.psql("select leasehold_internal.watch_clear(id) from leasehold.coordinator", database)  # as if the database had lost them
    for stream in streams:
        with fails() as failure:
            next(stream)
        assert failure.value.reason == "WATCH_LAGGED"
    assert Metrics(daemon).get("leasehold_watch_lags_total") == 2
