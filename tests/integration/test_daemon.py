"""The program leaseholdd: how it starts, tells about itself, reloads, and ends."""
import getpass
import http.client
import json
import os
import pathlib
import re
import signal
import socket
import ssl
import subprocess
import threading
import urllib.request

import pytest

import harness
from commandline import cli
from harness import pb, wait_until


def get(daemon, path, method="GET"):
    if "--tls-cert" in daemon.args:
        anyone = ssl.create_default_context()
        anyone.check_hostname, anyone.verify_mode = False, ssl.CERT_NONE
        connection = http.client.HTTPSConnection("127.0.0.1", daemon.admin_port, timeout=30, context=anyone)
    else:
        connection = http.client.HTTPConnection("127.0.0.1", daemon.admin_port, timeout=30)
    connection.request(method, path)
    answer = connection.getresponse()
    body = answer.read().decode()
    connection.close()
    return answer.status, body


def run(*args):
    return subprocess.run([str(harness.DAEMON), *map(str, args)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          timeout=60, cwd="/")


def is_ready(daemon):
    return get(daemon, "/readyz")[0] == 200


def acquire(daemon, key):
    client = harness.Client(daemon.target)
    try:
        return client.lease.Acquire(
            pb.AcquireRequest(scope=pb.Scope(namespace=["daemon"], key=key), duration=harness.duration(60)), timeout=30
        ).lease
    finally:
        client.close()


# --- settings ---


def test_version_help_and_example():
    assert run("--version").stdout.startswith("leaseholdd ")
    assert "--max-block" in run("--help").stdout
    example = run("--print-config")
    assert example.returncode == 0
    assert example.stdout == (harness.ROOT / "deploy/examples/leasehold.ini").read_text(), "write the example file again"


def test_check_config_prints_what_is_in_effect(place):
    config = place / "leasehold.ini"
    config.write_text("[leasehold]\ndatabase = host=db password=secret\nmax_block = 5s\n")
    done = run("--config", config, "--lanes", "3", "--check-config")
    assert done.returncode == 0
    assert "# command line\nlanes = 3\n" in done.stdout
    assert f"# {config}:3\nmax_block = 5s\n" in done.stdout
    assert "secret" not in done.stdout


@pytest.mark.parametrize("args, words", [
    (["--lanes", "17"], "lanes = 17: too large: allowed is 1 to 16"),
    (["--nonsense"], "unknown option"),
    (["--listen", "0.0.0.0:7420"], "insecure = yes"),
    (["--config", "/nonexistent.ini"], "/nonexistent.ini: cannot be opened"),
])
def test_wrong_settings_end_with_2(args, words):
    done = run(*args)
    assert done.returncode == 2
    assert words in done.stderr


def test_a_port_that_is_taken_ends_with_1_and_says_so(cluster, database, start):
    daemon = start(database=cluster.url(database))
    done = run("--database", cluster.url(database), "--admin", "none", "--listen", daemon.target)
    assert done.returncode == 1
    assert daemon.target in done.stderr


def test_one_pid_file_is_for_one_daemon(cluster, database, start, place):
    daemon = start("--pid-file", str(place / "pid"), database=cluster.url(database))
    assert (place / "pid").read_text() == f"{daemon.process.pid}\n"
    done = run("--database", cluster.url(database), "--admin", "none", "--pid-file", place / "pid")
    assert done.returncode == 1
    assert f"another leaseholdd, process {daemon.process.pid}," in done.stderr
    assert daemon.stop() == 0
    assert not (place / "pid").exists()


# --- the admin port ---


def test_healthy_ready_and_unknown(cluster, database, start):
    daemon = start(database=cluster.url(database))
    assert get(daemon, "/healthz") == (200, "ok\n")
    wait_until(lambda: is_ready(daemon), what="readiness")
    assert get(daemon, "/nothing")[0] == 404
    assert get(daemon, "/healthz", "HEAD") == (200, "")
    assert get(daemon, "/healthz", "DELETE")[0] in (405, 501)


def test_ready_follows_the_database(start):
    own = harness.Cluster()
    daemon = start(database=own.url(own.create_database()))
    wait_until(lambda: is_ready(daemon), what="readiness")
    own.stop("immediate")
    status, words = wait_until(lambda: not is_ready(daemon) and get(daemon, "/readyz"), what="unreadiness")
    assert status == 503 and "database" in words
    assert get(daemon, "/healthz")[0] == 200
    own.start()
    wait_until(lambda: is_ready(daemon), 60, "readiness again")
    assert daemon.stop() == 0
    own.destroy()


def admin_metric(daemon, name):
    return float(next(line for line in get(daemon, "/metrics")[1].splitlines() if line.startswith(name + " ")).split()[-1])


def test_slow_http_clients_are_bounded_in_number_and_time(cluster, database, start):
    daemon = start(database=cluster.url(database))
    slow = [socket.create_connection(("127.0.0.1", daemon.admin_port)) for _ in range(100)]
    for connection in slow:
        connection.sendall(b"GET /healthz HT")
    assert get(daemon, "/healthz")[0] == 200, "slow clients hold up no other"
    assert admin_metric(daemon, "leasehold_admin_connections_open") <= 64 == admin_metric(daemon, "leasehold_admin_connections_max")
    for connection in slow:
        connection.settimeout(30)
        try:
            assert connection.recv(1) == b""
        except ConnectionResetError:
            pass
        connection.close()
    wait_until(lambda: admin_metric(daemon, "leasehold_admin_connections_open") == 1, what="one connection, ours")
    cut = get(daemon, "/metrics")[1]
    assert 'leasehold_admin_connections_cut_total{reason="timeout"} ' in cut
    assert 'leasehold_admin_connections_cut_total{reason="max_connections"} 0' not in cut


@pytest.mark.parametrize("sent, status", [
    (b"GET / HTTP/1.0\n\n", 421),
    (b"GET /healthz?x=1 HTTP/1.1\r\nHost: x\r\n\r\n", 200),
    (b"POST /healthz HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc", 405),
    (b"GET http://x/healthz HTTP/1.1\r\n\r\n", 400),
    (b"GET /healthz\r\n\r\n", 400),
    (b"\r\n\r\n", 400),
    (b"GET /\0healthz HTTP/1.1\r\n\r\n", 400),
    (b"GET /healthz HTTP/1.1\r\nX: " + b"x" * 9000 + b"\r\n\r\n", 431),
])
def test_the_admin_port_speaks_http(service, sent, status):
    with socket.create_connection(("127.0.0.1", service.daemon.admin_port), timeout=30) as connection:
        connection.sendall(sent)
        answer = b""
        while part := connection.recv(65536):
            answer += part
    assert answer.startswith(b"HTTP/1.1 %d " % status), answer


def rests(daemon):
    """How often the daemon's thread went to sleep by itself: one that spins never does."""
    status = pathlib.Path(f"/proc/{daemon.process.pid}/status").read_text()
    return int(re.search(r"^voluntary_ctxt_switches:\s+(\d+)", status, re.MULTILINE).group(1))


def test_the_admin_port_waits_for_descriptors_without_spinning(cluster, database, start):
    daemon = start("--user", getpass.getuser(), database=cluster.url(database))  # whose limits this process may change
    subprocess.run(["prlimit", "--pid", str(daemon.process.pid), "--nofile=64:64"], check=True)
    crowd = [socket.create_connection(("127.0.0.1", daemon.port)) for _ in range(70)]
    wait_until(lambda: "cannot accept connections, waiting until one goes" in daemon.log(), what="the end of descriptors")
    late = socket.create_connection(("127.0.0.1", daemon.admin_port))
    late.sendall(b"GET /healthz HTTP/1.0\r\n\r\n")
    wait_until(lambda: "admin: cannot accept connections: Too many open files" in daemon.log(), what="the admin port's words")
    before = rests(daemon)
    wait_until(lambda: rests(daemon) > before + 5, what="a daemon that rests between its turns")
    assert daemon.log().count("admin: cannot accept connections") == 1
    for connection in crowd:
        connection.close()
    late.settimeout(30)
    assert late.recv(100).startswith(b"HTTP/1.1 200 ")
    late.close()
    assert daemon.stop() == 0


def test_max_connections_is_what_the_descriptors_allow(cluster, database, place):
    """64 are kept for other uses: a client beyond that is turned away, and everything else goes on."""
    process = subprocess.Popen(["prlimit", "--nofile=200:200", harness.DAEMON, "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--max-connections",
                                "1000", "--database", cluster.url(database), "--port-file", place / "port"], stderr=(place / "log").open("w"), cwd="/")
    crowd = []
    try:
        written = lambda: (place / "port").read_text().splitlines() if (place / "port").exists() else []  # noqa: E731
        wait_until(lambda: len(written()) == 2, 60, "leaseholdd serving")
        port, admin_port = (int(line.rsplit(":", 1)[1]) for line in written())
        assert "max_connections is lowered to 136: 200 files may be open" in (place / "log").read_text()

        def scrape():
            return urllib.request.urlopen(f"http://127.0.0.1:{admin_port}/metrics", timeout=30).read().decode()

        assert 'leasehold_bound_limit{bound="connections"} 136\n' in scrape()

        def all_are_taken():
            for _ in range(20):  # a connection without a request is closed after a time
                crowd.append(socket.create_connection(("127.0.0.1", port), source_address=(f"127.0.1.{len(crowd) % 200 + 1}", 0)))
            return re.search(r'leasehold_bound_refusals_total\{bound="connections"\} [1-9]', scrape())

        wait_until(all_are_taken, 60, "a client that is turned away")
        assert len(crowd) > 136 and "Too many open files" not in (place / "log").read_text()
    finally:
        for connection in crowd:
            connection.close()
        process.terminate()
        assert process.wait(60) == 0


def test_a_stuck_http_client_holds_up_nobody(cluster, database, start):
    daemon = start(database=cluster.url(database))
    stuck = [http.client.HTTPConnection("127.0.0.1", daemon.admin_port, timeout=30) for _ in range(20)]
    for connection in stuck:
        connection.connect()
        connection.sock.sendall(b"GET /hea")
    assert get(daemon, "/healthz")[0] == 200
    for connection in stuck:
        connection.close()


# --- life ---


def test_a_database_that_comes_later_is_waited_for(start, place):
    own = harness.Cluster()
    database = own.create_database()
    own.stop()
    daemon = start(database=own.url(database), wait=False)
    wait_until(lambda: "not serving yet, the database cannot be used: " in daemon.log(), what="the first attempt")
    assert daemon.process.poll() is None
    own.start()
    wait_until(lambda: "serving" in daemon.log(), 60, "serving")
    assert daemon.stop() == 0
    own.destroy()


def test_term_ends_a_daemon_that_waits_for_its_database(start):
    daemon = start(database="host=/nonexistent dbname=none", wait=False)
    wait_until(lambda: "not serving yet, the database cannot be used: " in daemon.log(), what="the first attempt")
    assert daemon.stop() == 0


def test_a_schema_that_is_refused_ends_with_1(cluster, database, start):
    daemon = start(database=cluster.url(database))
    assert daemon.stop() == 0
    cluster.psql("update leasehold.migration set checksum = 'not ours' where number = 1", database)
    done = run("--database", cluster.url(database), "--admin", "none", "--listen", "127.0.0.1:0")
    assert done.returncode == 1
    assert "migration" in done.stderr


def test_json_logs_are_an_object_a_line(cluster, database, start):
    daemon = start("--log-format", "json", database=cluster.url(database))
    assert daemon.stop() == 0
    lines = [json.loads(line) for line in daemon.log().splitlines()]
    assert all({"time", "level", "message"} <= line.keys() for line in lines)
    serving = next(line for line in lines if line["message"] == "serving")
    assert serving["grpc"] == daemon.target and serving["level"] == "info"


def test_a_log_that_nobody_reads_stops_nothing(cluster, database, place):
    """stderr is a pipe whose reader sleeps: leases go on, and the lines that were dropped are counted."""
    reader, writer = os.pipe()
    port_file = place / "ports"
    process = subprocess.Popen([harness.DAEMON, "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--database", cluster.url(database),
                                "--log-level", "debug", "--port-file", port_file], stdin=subprocess.DEVNULL, stderr=writer, cwd="/")
    try:
        os.close(writer)
        wait_until(lambda: port_file.exists() and len(port_file.read_text().splitlines()) >= 2, 60, "serving")
        target, admin = port_file.read_text().splitlines()[:2]

        def dropped():
            body = urllib.request.urlopen(f"http://{admin}/metrics", timeout=30).read().decode()
            return int(re.search(r"^leasehold_log_lines_dropped_total (\d+)$", body, re.M).group(1))

        client = harness.Client(target)
        refused = lambda: client.lease.Acquire(harness.acquire_request("log", "held"), timeout=30)
        held = refused().lease
        for _ in range(20000):
            with harness.fails():
                refused()
            if dropped() > 0:
                break
        assert dropped() > 0
        harness.heartbeat(client, held)
        os.set_blocking(reader, False)
        os.read(reader, 1 << 20)
        with harness.fails():
            refused()
        wait_until(lambda: b"WARN lines of the log were dropped because they could not be written lines=" in os.read(reader, 1 << 20), 30,
                   "a line about the dropped ones")
        client.close()
    finally:
        process.kill()
        process.wait(30)
        os.close(reader)


def test_a_reload_takes_effect_and_a_bad_one_changes_nothing(cluster, database, start, place):
    config = place / "leasehold.ini"
    config.write_text("[leasehold]\nmax_block = 20s\n")
    daemon = start("--config", str(config), database=cluster.url(database))
    client = harness.Client(daemon.target)

    def max_block():
        return client.admin.GetStatus(pb.GetStatusRequest(), timeout=30).max_block.seconds

    assert max_block() == 20
    config.write_text("[leasehold]\nmax_block = 7s\nlanes = 5\n")
    daemon.signal(signal.SIGHUP)
    wait_until(lambda: max_block() == 7, what="the new limit")
    assert "max_block is now 7s, it was 20s" in daemon.log()
    assert "lanes differs: 5 in the file; it takes effect at the next start" in daemon.log()
    config.write_text("[leasehold]\nmax_block = never\n")
    daemon.signal(signal.SIGHUP)
    wait_until(lambda: "nothing was changed" in daemon.log(), what="the refusal")
    assert f"{config}:2: max_block = never: expected a duration" in daemon.log()
    assert max_block() == 7
    client.close()


def test_a_clean_stop_unregisters_and_answers_waiters(cluster, database, start):
    daemon = start(database=cluster.url(database))
    acquire(daemon, "held")
    client = harness.Client(daemon.target)
    waiting = client.lease.Acquire.future(
        pb.AcquireRequest(scope=pb.Scope(namespace=["daemon"], key="held"), duration=harness.duration(60), wait_forever=True),
        timeout=60)
    wait_until(lambda: cluster.psql("select count(*) from leasehold.waiter", database) == "1", what="the waiter")
    daemon.signal(signal.SIGTERM)
    assert waiting.exception(30).code() == harness.grpc.StatusCode.UNAVAILABLE
    assert daemon.process.wait(30) == 0
    assert cluster.psql("select count(*) from leasehold.coordinator", database) == "0"
    client.close()


def test_a_stop_does_not_wait_for_a_client_that_stays(cluster, database, start):
    daemon = start("--shutdown-timeout", "1s", database=cluster.url(database))
    stranger = socket.create_connection(("127.0.0.1", daemon.port))  # speaks no HTTP/2 and never hangs up
    client = harness.Client(daemon.target)
    client.admin.GetStatus(pb.GetStatusRequest(), timeout=30)
    assert daemon.stop() == 0
    client.close()
    stranger.close()


def test_a_second_signal_cuts_what_is_open(cluster, database, start):
    daemon = start("--shutdown-timeout", "1h", database=cluster.url(database))
    client = harness.Client(daemon.target)
    hold_back = threading.Event()

    def messages():
        hold_back.wait(60)
        yield b""

    # Headers, and then nothing: no drain could end such a call well.
    call = client.channel.stream_unary("/leasehold.v1.LeaseService/Acquire").future(messages(), timeout=60)
    client.admin.GetStatus(pb.GetStatusRequest(), timeout=30)  # sent after it on the same connection
    daemon.signal(signal.SIGTERM)
    wait_until(lambda: "shutting down on SIGTERM" in daemon.log(), what="the first signal")
    daemon.signal(signal.SIGINT)
    assert daemon.process.wait(30) == 0
    assert "cutting the connections that are still open" in daemon.log()
    hold_back.set()
    assert call.exception(30).code() == harness.grpc.StatusCode.UNAVAILABLE
    client.close()


def test_a_database_that_hangs_does_not_keep_the_daemon(start):
    own = harness.Cluster()
    daemon = start("--shutdown-timeout", "1s", database=own.url(own.create_database()))
    wait_until(lambda: is_ready(daemon), what="readiness")
    postmaster = int((own.data / "postmaster.pid").read_text().split()[0])
    everybody = [postmaster] + [int(pid) for pid in pathlib.Path(f"/proc/{postmaster}/task/{postmaster}/children").read_text().split()]
    for pid in everybody:
        os.kill(pid, signal.SIGSTOP)
    try:
        daemon.signal(signal.SIGTERM)
        daemon.process.wait(60)
        assert "leaseholdd has stopped" in daemon.log()
    finally:
        for pid in everybody:
            os.kill(pid, signal.SIGCONT)
    own.destroy()


def test_daemons_share_a_port(cluster, database, start):
    first = start("--reuse-port", database=cluster.url(database))
    second = start("--reuse-port", "--listen", first.target, database=cluster.url(database))
    assert first.stop() == 0
    acquire(first, "shared")  # the other one answers
    assert second.stop() == 0


def test_the_service_manager_hears_ready_and_stopping(cluster, database, place):
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    listener.bind(str(place / "notify"))
    (place / "notify").chmod(0o777)  # as systemd's: a daemon that root started tells it as another user
    listener.settimeout(60)
    process = subprocess.Popen(
        [str(harness.DAEMON), "--database", cluster.url(database), "--admin", "none", "--listen", f"unix:{place}/sock"],
        env={**os.environ, "NOTIFY_SOCKET": str(place / "notify")}, stderr=subprocess.DEVNULL, cwd="/")
    try:
        assert listener.recv(100) == b"READY=1"
        said = cli("status", "--server", f"unix:{place}/sock")  # at once
        assert said.returncode == 0, said.stderr
        process.terminate()
        assert listener.recv(100) == b"STOPPING=1"
        assert process.wait(30) == 0
    finally:
        process.kill()
        listener.close()


# --- the embedded PostgreSQL ---


def test_embedded_leases_survive_kill_9_and_postgres_is_adopted(start, place):
    state = place / "state"
    daemon = start(embedded=state)
    lease = acquire(daemon, "kept")
    postmaster = (state / "data/postmaster.pid").read_text().split()[0]
    daemon.kill()
    assert pathlib.Path(f"/proc/{postmaster}").exists()
    daemon.start()
    assert "adopting the PostgreSQL" in daemon.log()
    assert (state / "data/postmaster.pid").read_text().split()[0] == postmaster
    client = harness.Client(daemon.target)
    result = client.lease.Heartbeat(
        pb.HeartbeatRequest(leases=[pb.LeaseRef(scope=lease.scope, lease_key=lease.lease_key)]), timeout=30).results[0]
    assert result.outcome == pb.OUTCOME_OK
    client.close()
    assert daemon.stop() == 0
    assert not (state / "data/postmaster.pid").exists()


def test_embedded_postgres_that_crashes_comes_back_under_the_daemon(start, place):
    state = place / "state"
    daemon = start(embedded=state)
    lease = acquire(daemon, "kept")
    os.kill(int((state / "data/postmaster.pid").read_text().split()[0]), signal.SIGKILL)
    client = harness.Client(daemon.target)

    def is_renewed():
        try:
            return client.lease.Heartbeat(
                pb.HeartbeatRequest(leases=[pb.LeaseRef(scope=lease.scope, lease_key=lease.lease_key)]), timeout=30
            ).results[0].outcome == pb.OUTCOME_OK
        except harness.grpc.RpcError as error:
            assert error.code() == harness.grpc.StatusCode.UNAVAILABLE, error
            return False

    wait_until(is_renewed, 60, "a renewal")
    client.close()
    assert daemon.stop() == 0


def test_embedded_psql_line_of_the_log_connects(start, place):
    daemon = start(embedded=place / "state")
    command = next(line for line in daemon.log().splitlines() if "psql -h" in line).split("to look at it: ")[1]
    done = subprocess.run(f"{command} -Atc 'select 6 * 7'", shell=True, stdout=subprocess.PIPE, text=True, timeout=60)
    assert done.stdout == "42\n"
    assert daemon.stop() == 0


def test_a_second_daemon_on_the_directory_is_refused(start, place):
    daemon = start(embedded=place / "state")
    done = run("--embedded", place / "state", "--admin", "none", "--listen", "127.0.0.1:0")
    assert done.returncode == 1
    assert f"another leaseholdd, process {daemon.process.pid}," in done.stderr
    assert daemon.stop() == 0


def test_term_while_the_cluster_is_made_leaves_a_directory_that_starts(start, place):
    daemon = start(embedded=place / "state", wait=False)
    wait_until(lambda: (place / "state/data.new").exists(), what="initdb")
    assert daemon.stop() == 0
    daemon.start()
    acquire(daemon, "first")
    assert daemon.stop() == 0
