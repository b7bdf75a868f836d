"""The command line as a stranger uses it: the real program against a real daemon and a real PostgreSQL.

Where an answer has to be lost or a server has to fail in the right moment, a stock Python gRPC server plays the daemon.
"""
import concurrent.futures
import json
import os
import pathlib
import re
import shlex
import signal
import subprocess
import time
import uuid

import grpc
import pytest
from google.protobuf import any_pb2, json_format
from google.protobuf.timestamp_pb2 import Timestamp

import harness
from harness import error_details_pb2, pb, pb_grpc, status_pb2, wait_until

UUID = re.compile(r"^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$")
NOWHERE = "127.0.0.1:1"
SOME_KEY = "6f2c1f0e-5d0b-4b57-9a35-0c8f6c2e7a11"


def environment(**more):
    clean = {name: value for name, value in os.environ.items() if not name.startswith("LEASEHOLD_")}
    return {**clean, "TZ": "UTC", "LC_ALL": "C.UTF-8", **more}


def cli(*args, seconds=60, **env):
    """Run the program to its end: .returncode, .stdout, .stderr."""
    return subprocess.run(
        [harness.CLI, *map(str, args)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        timeout=seconds,
        env=environment(**env),
    )


def start(*args, **env):
    return subprocess.Popen(
        [harness.CLI, *map(str, args)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(**env),
    )


def ends(process, seconds=60):
    process.stdout_text, process.stderr_text = process.communicate(timeout=seconds)
    return process.returncode


class Shell:
    """The command line with a server, and what tests often ask of it."""

    def __init__(self, service):
        self.service = service
        self.env = {"LEASEHOLD_SERVER": service.daemon.target}

    def __call__(self, *args, **more):
        return cli(*args, **{**self.env, **more})

    def done(self, *args, **more):
        result = self(*args, **more)
        assert result.returncode == 0, f"{args}: exit {result.returncode}: {result.stderr}"
        return result

    def start(self, *args):
        return start(*args, **self.env)

    def acquire(self, namespace, key, *args):
        return json.loads(self.done("acquire", namespace, key, "-o", "json", *args).stdout)

    def waiters(self, namespace, key):
        """How many wait for it in the database."""
        return int(self.service.psql(
            f"select count(*) from leasehold.waiter where namespace = '{namespace}' and key = '{key}'"))

    def is_waiting(self, namespace, key, count=1):
        wait_until(lambda: self.waiters(namespace, key) == count, what=f"{count} waiter(s) for {namespace}/{key}")


@pytest.fixture
def shell(service):
    return Shell(service)


@pytest.fixture
def ns(request):
    """A namespace of the test's own."""
    return "cli." + re.sub(r"\W", "-", request.node.name)[:40] + "-" + uuid.uuid4().hex[:6]


# --- help and usage: no server is asked ---


def test_help_teaches():
    said = cli("--help")
    assert said.returncode == 0 and said.stderr == ""
    for command in "acquire heartbeat release run list show watch reap force-release policy hook status migrate".split():
        assert re.search(rf"^  {command} +\S", said.stdout, re.M)
        for own in (cli(command, "--help"), cli("help", command), cli("--help", command), cli(command, "-h", "a", "b")):
            assert own.returncode == 0
            assert own.stdout.startswith(f"leasehold {command}: ")
            assert "\nExamples\n  leasehold " in own.stdout and "\nExit status\n" in own.stdout
    assert max(len(line) for line in said.stdout.splitlines()) <= 80
    assert cli("--version").stdout.startswith("leasehold 0.")


def test_no_words_show_help_and_are_wrong_usage():
    said = cli()
    assert said.returncode == 2 and said.stdout == "" and "Commands" in said.stderr


WRONG = [
    (["frobnicate"], "there is no command frobnicate"),
    (["aquire", "a", "b"], "did you mean acquire?"),
    (["help", "frobnicate"], "there is no command frobnicate"),
    (["acquire", "a"], "acquire needs more words"),
    (["acquire", "a", "b", "c"], "a word too many: c"),
    (["acquire", "a", "b", "--duraton", "5s"], "did you mean --duration?"),
    (["acquire", "a", "b", "--duration"], "needs a value"),
    (["acquire", "a", "b", "-o", "xml"], "text, json and env"),
    (["list", "-o", "env"], "-o env is for acquire"),
    (["list", "--database", "x"], "list asks a server"),
    (["list", "--server", ""], "--server is empty"),
    (["list", "--server", "localhost"], "'localhost' is no address of a server"),
    (["list", "--server", "localhost:http"], "is no address of a server"),
    *[(["list", "--server", text], "is no address of a server") for text in
      (":7420", "localhost:", "localhost:74200", "localhost:123456789", "::1:7420", "[::1]", "[]:1", "unix:", "unix:" + "x" * 108)],
    (["list", "--timeout", "soon"], "timeout 'soon' is not a duration"),
    (["list", "--timeout", "0"], "timeout 0 is too short"),
    (["acquire", "", "k"], "namespace is empty"),
    (["acquire", "a..b", "k"], "empty segment"),
    (["acquire", ".", "k"], "empty segment"),
    (["acquire", "a" * 64, "k"], "too long"),
    (["acquire", ".".join("abcdefghijklmnopq"), "k"], "too many segments"),
    (["acquire", ".".join(["a" * 60] * 5), "k"], "255 bytes in all"),
    (["acquire", "a\nb", "k"], "control character"),
    (["acquire", "a", ""], "key is empty"),
    (["acquire", "a", "k" * 1025], "1 to 1024 bytes"),
    (["acquire", "a", "k\x7f"], "control character"),
    (["acquire", b"\xff", "k"], "not valid UTF-8"),
    (["acquire", "a", b"\xc0\x80"], "not valid UTF-8"),
    (["acquire", "a", "k", "--duration", "0"], "100 ms or more"),
    (["acquire", "a", "k", "--duration", "-5s"], "duration '-5s' is not a duration"),
    (["acquire", "a", "k", "--duration", "99ms"], "100 ms or more"),
    (["acquire", "a", "k", "--duration", "5 parsecs"], "is not a duration"),
    (["acquire", "a", "k", "--wait", "-1s"], "neither a duration, such as 5s, nor forever nor alive"),
    (["acquire", "a", "k", "--wait", "never"], "neither a duration"),
    (["acquire", "a", "k", "--owner", "o" * 256], "at most 255 bytes"),
    (["acquire", "a", "k", "--lease-key", "42"], "lease_key '42' is no UUID"),
    (["acquire", "a", "k", "--lease-key", "00000000-0000-0000-0000-000000000000"], "is no UUID"),
    (["acquire", "a", "k", "--label", "team"], "has no '='"),
    (["acquire", "a", "k", "--label", "=red"], "has no name"),
    (["acquire", "a", "k", "--label", "n" * 64 + "=x"], "name that is too long"),
    (["acquire", "a", "k", "--label", "n=" + "x" * 256], "value that is too long"),
    (["acquire", "a", "k", "--label", "n=1", "--label", "n=2"], "label n is given twice"),
    (["acquire", "a", "k", *sum((["--label", f"n{i}=x"] for i in range(17)), [])], "a lease may have 16"),
    (["heartbeat", "a", "k", "nonsense"], "is no UUID"),
    (["heartbeat", "a", "k"], "heartbeat needs more words"),
    (["release", "a", "k", "nonsense"], "is no UUID"),
    (["release", "a", "k", SOME_KEY, "--result", "text"], "result is not JSON"),
    (["release", "a", "k", SOME_KEY, "--result", '"\\u0000"'], "result is not JSON"),
    (["release", "a", "k", SOME_KEY, "--result", '"' + "x" * 8192 + '"'], "8192 bytes"),
    (["release", "a", "k", SOME_KEY, "--fail", ""], "fail is empty"),
    (["release", "a", "k", SOME_KEY, "--fail", "x" * 8193], "1 to 8192 bytes"),
    (["release", "a", "k", SOME_KEY, "--fail", "x", "--result", "1"], "exclude each other"),
    (["list", "a..b"], "empty segment"),
    (["show", "a", ""], "key is empty"),
    (["reap", "a..b"], "empty segment"),
    (["reap", "--max", "0"], "a whole number from 1 to 10000"),
    (["reap", "--max", "10001"], "a whole number from 1 to 10000"),
    (["reap", "--once", "--every", "1s"], "exclude each other"),
    (["reap", "--every", "1ms"], "100 ms or more"),
    (["force-release", "a", "k"], "needs --reason TEXT"),
    (["force-release", "a", "k", "--reason", ""], "reason is empty"),
    (["force-release", "a", "k", "--reason", "x", "--token", "0"], "token '0' is out of bounds"),
    (["force-release", "a", "k", "--reason", "x", "--token", "1e3"], "token '1e3' is out of bounds"),
    (["policy", "frob"], "there are show, set and reset"),
    (["policy", "set"], "policy set needs a namespace"),
    (["policy", "set", "a"], "policy set needs settings"),
    (["policy", "set", "a", "grace"], "'grace' is no name=value"),
    (["policy", "set", "a", "grase=1s"], "did you mean grace?"),
    (["policy", "set", "a", "grace=long"], "grace 'long' is not a duration"),
    (["policy", "set", "a", "expiry=never"], "one of: takeover, reap, manual"),
    (["policy", "set", "a", "frozen=ice"], "neither true nor false"),
    (["policy", "set", "a", "max_leases=-1"], "a whole number from 0 on"),
    (["policy", "reset", "a", "colour"], "no setting 'colour'"),
    (["policy", "show", "a", "b"], "a word too many: b"),
    (["status", "now"], "a word too many: now"),
    (["migrate"], "--database URL, or LEASEHOLD_DATABASE"),
    (["migrate", "--database", "x", "--print", "--status"], "exclude each other"),
    (["reap", "--database", "postgresql://%zz"], 'not the address of a database: invalid percent-encoded token: "%zz"'),
    (["reap", "--database", "postgresql://u:secret%zz@h/"], "not the address of a database: it is neither"),
    (["reap", "--database", "nonsense"], "not the address of a database"),
]


@pytest.mark.parametrize("args,sentence", WRONG, ids=[" ".join(map(repr, args))[:60] for args, _ in WRONG])
def test_wrong_usage_is_refused_before_anybody_is_asked(args, sentence):
    said = subprocess.run([harness.CLI, *args], stdin=subprocess.DEVNULL, capture_output=True, timeout=60,
                          env=environment(LEASEHOLD_SERVER=NOWHERE))
    text = said.stderr.decode()
    assert said.returncode == 2, text
    assert sentence in text and text.startswith("leasehold: ")
    assert said.stdout == b"" and "\nSee: leasehold " in text


def test_nobody_there_is_unavailable(tmp_path):
    for args in (["status"], ["acquire", "a", "b"], ["list"], ["policy", "show"], ["reap"]):
        said = cli("--server", NOWHERE, *args)
        assert said.returncode == 5
        assert "127.0.0.1:1" in said.stderr and "--server names another" in said.stderr and said.stdout == ""
    assert cli("status", "--server", f"unix:{tmp_path}/no.sock").returncode == 5
    assert cli("status", "--server", "no-such-host.invalid:7420").returncode == 5
    gone = f"host={tmp_path} dbname=x connect_timeout=2"
    for args in (["reap"], ["migrate"], ["policy", "show"], ["force-release", "a", "b", "--reason", "x"]):
        said = cli(*args, "--database", gone)
        assert said.returncode == 5 and "the database is unavailable" in said.stderr


# --- JSON against the mapping of stock Python ---


def timestamp(text):
    value = Timestamp()
    value.FromJsonString(text)
    return value


def messages():
    lease = pb.Lease(
        scope=harness.scope("a.für", 'k "1"\u2028\U0001f512'), token=2**63 - 1, owner="\x01\\", heartbeats=-1,
        duration=harness.duration(1.5), remaining=harness.duration(-0.02), deadline=timestamp("2026-11-20T18:28:57.123456Z"),
        acquired_at=timestamp("1969-12-31T23:59:59.999999999Z"), labels={"": "empty", "b": ""},
        liveness=pb.LIVENESS_OVERDUE)
    policy = pb.Policy(namespace=pb.Namespace(segments=["a", "b"]), expiry=pb.Policy.EXPIRY_MANUAL)
    policy.grace.CopyFrom(harness.duration(0))
    policy.frozen.value = False
    policy.max_leases.value = -(2**63)
    policy.max_reap_failures.value = 2**31 - 1
    request = pb.SetPolicyRequest(policy=policy)
    request.update_mask.paths.extend(["max_leases", "dead_after", "frozen"])
    return [
        pb.Lease(), lease, request, pb.SetPolicyRequest(),
        pb.GetPolicyResponse(own=policy, effective=pb.Policy(), source={"grace": "", "frozen": "a.b"}),
        pb.AcquireEvent(queued=pb.Contention()), pb.AcquireEvent(granted=lease, waited=harness.duration(3)),
        pb.ReapResponse(reaped=-3, failures=[pb.ReapFailure(error="e"), pb.ReapFailure(lease=lease)], more=True),
        error_details_pb2.ErrorInfo(reason="R", domain="leasehold", metadata={"key": "v", "a": "b"}),
    ]


@pytest.mark.parametrize("message", messages(), ids=lambda m: m.DESCRIPTOR.name)
def test_json_is_the_mapping_of_stock_python(message):
    tool = harness.BUILD / "tests/unit/test_cli"
    done = subprocess.run([tool, "json", message.DESCRIPTOR.full_name], input=message.SerializeToString(), check=True,
                          stdout=subprocess.PIPE, timeout=60)
    set_fields, all_fields = map(json.loads, done.stdout.decode().rstrip("\n").split("\n"))
    assert set_fields == json.loads(json_format.MessageToJson(message, preserving_proto_field_name=True))
    assert all_fields == json.loads(json_format.MessageToJson(message, preserving_proto_field_name=True,
                                                              including_default_value_fields=True))


# --- one lease from its beginning to its end ---


def test_a_lease_from_acquire_to_release(shell, ns):
    lease = shell.acquire(ns, "k", "--duration", "20s", "--owner", "worker-3", "--label", "team=red", "-l", "x=a=b")
    parsed = json_format.Parse(json.dumps(lease), pb.Lease())
    assert UUID.match(lease["lease_key"]) and int(lease["token"]) > 0 and isinstance(lease["token"], str)
    assert list(parsed.scope.namespace) == ns.split(".") and parsed.scope.key == "k" and parsed.owner == "worker-3"
    assert lease["duration"] == "20s" and dict(parsed.labels) == {"team": "red", "x": "a=b"}
    assert 0 < parsed.remaining.ToTimedelta().total_seconds() <= 20

    said = shell.done("heartbeat", ns, "k", lease["lease_key"])
    assert re.fullmatch(r"renewed: deadline in \S+ s", said.stdout.split(",")[0])
    assert said.stdout.rstrip().endswith("; heartbeat 1")
    again = json.loads(shell.done("heartbeat", ns, "k", lease["lease_key"].upper(), "-o", "json").stdout)
    assert again["outcome"] == "OUTCOME_OK" and again["heartbeats"] == "2"

    card = shell.done("show", ns, "k").stdout
    assert re.search(rf"^lease +{re.escape(ns)}/k$", card, re.M) and re.search(r"^owner +worker-3$", card, re.M)
    assert re.search(r"^state +alive$", card, re.M) and re.search(r"^heartbeats +2, the last ", card, re.M)
    assert re.search(r"^waiters +0$", card, re.M) and lease["lease_key"] not in card

    said = shell.done("release", ns, "k", lease["lease_key"], "--result", '{"rows": 12}')
    assert said.stdout == "released\n"
    said = shell("show", ns, "k")
    assert said.returncode == 4 and re.search(r"^state +free$", said.stdout, re.M)
    assert re.search(rf"^last hold +worker-3, token {lease['token']}, released, ", said.stdout, re.M)
    assert json.loads(re.search(r"^result +(.*)$", said.stdout, re.M).group(1)) == {"rows": 12}


def test_acquire_prints_text_for_people(shell, ns):
    card = shell.done("acquire", ns, "k", "--wait", "5s").stdout
    for line in (rf"lease +{re.escape(ns)}/k", r"lease key +\S{36}", r"token +\d+", r"owner +\S+@\S+",
                 r"duration +30 s", r"deadline +in (29|30) s, \d{4}-.* UTC"):
        assert re.search(rf"^{line}$", card, re.M), card


def test_acquire_prints_env_for_eval(shell, ns):
    key, owner = "it's $HOME `x` \"2\"", "a b\nc"
    said = shell.done("acquire", ns, key, "-o", "env", "--owner", owner)
    script = said.stdout + '\nprintf "%s\\n" "$LEASEHOLD_NAMESPACE" "$LEASEHOLD_KEY" "$LEASEHOLD_LEASE_KEY" ' \
                           '"$LEASEHOLD_TOKEN" "$LEASEHOLD_OWNER"'
    values = subprocess.run(["/bin/sh", "-c", script], check=True, stdout=subprocess.PIPE, text=True).stdout.split("\n")
    assert values[0] == ns and values[1] == key and UUID.match(values[2]) and int(values[3]) > 0
    assert values[4:6] == ["a b", "c"]
    shell.done("release", ns, key, values[2])


def test_release_with_an_error_is_kept(shell, ns):
    lease = shell.acquire(ns, "k")
    assert shell.done("release", ns, "k", lease["lease_key"], "--fail", "bank is closed").stdout == "released, as failed\n"
    said = shell("show", ns, "k", "-o", "json")
    last = json.loads(said.stdout)["last"]
    assert said.returncode == 4 and last["error"] == "bank is closed" and last["end_reason"] == "END_REASON_FAILED"


def test_options_go_before_and_after_the_command(service, ns):
    said = cli("-ojson", "--server", service.daemon.target, "acquire", ns, "-d", "5s", "--", "-k")
    assert said.returncode == 0 and json.loads(said.stdout)["scope"]["key"] == "-k"
    assert cli("show", "--server=" + service.daemon.target, ns, "--", "-k").returncode == 0


def test_a_lease_that_cannot_be_printed_is_given_back(shell, ns):
    with open("/dev/full", "w") as full:
        done = subprocess.run([harness.CLI, "acquire", ns, "k"], stdout=full, stderr=subprocess.PIPE, text=True,
                              env=environment(**shell.env), timeout=60)
    assert done.returncode == 1 and "cannot write the output" in done.stderr
    assert shell("show", ns, "k").returncode == 4


# --- exit statuses ---


def test_held_says_who_holds_it(shell, ns):
    lease = shell.acquire(ns, "k", "--owner", "worker-3\x1b[2J")
    shell.done("heartbeat", ns, "k", lease["lease_key"])
    said = shell("acquire", ns, "k")
    assert said.returncode == 3 and said.stdout == ""
    assert "is held by worker-3" in said.stderr and "--wait 30s would queue for it" in said.stderr
    assert "\x1b" not in said.stderr
    for line in (rf"  holder +worker-3\S+, alive, token {lease['token']}", r"  held +for .*, since .* UTC",
                 r"  heartbeats +1, the last .* ago", r"  waiters +0 ahead"):
        assert re.search(rf"^{line}$", said.stderr, re.M), said.stderr


def test_a_wait_that_passes_is_held(shell, ns):
    shell.acquire(ns, "k")
    said = shell("acquire", ns, "k", "--wait", "300ms")
    assert said.returncode == 3 and "alive" in said.stderr
    shell.is_waiting(ns, "k", 0)


def test_the_same_lease_key_renews(shell, ns):
    first = shell.acquire(ns, "k", "--duration", "10s")
    second = shell.acquire(ns, "k", "--duration", "40s", "--lease-key", first["lease_key"], "--owner", "another")
    assert second["token"] == first["token"] and second["duration"] == "40s" and second["owner"] == "another"


def test_lost_and_ended_leases(shell, ns):
    lease = shell.acquire(ns, "k")
    said = shell("heartbeat", ns, "k", SOME_KEY)
    assert said.returncode == 4 and "this lease key does not hold it" in said.stderr
    said = shell("release", ns, "k", SOME_KEY)
    assert said.returncode == 4 and "this lease key does not hold it" in said.stderr
    shell.done("release", ns, "k", lease["lease_key"])
    said = shell("release", ns, "k", lease["lease_key"])
    assert said.returncode == 4 and "given back before (released)" in said.stderr
    said = shell("heartbeat", ns, "k", lease["lease_key"], "-o", "json")
    assert said.returncode == 4 and json.loads(said.stdout)["end_reason"] == "END_REASON_RELEASED"
    said = shell("acquire", ns, "k", "--lease-key", lease["lease_key"])
    assert said.returncode == 4 and "acquire with a new one" in said.stderr
    assert shell("show", ns, "never-heard-of").returncode == 4


def test_an_expired_lease_is_lost(shell, ns):
    lease = shell.acquire(ns, "k", "--duration", "1s")
    wait_until(lambda: shell("show", ns, "k").returncode == 4, what="the reaper")
    said = shell("heartbeat", ns, "k", lease["lease_key"])
    assert said.returncode == 4 and "(expired)" in said.stderr


def test_a_frozen_namespace_and_a_used_up_quota_fail(shell, ns):
    shell.done("policy", "set", ns, "frozen=true")
    said = shell("acquire", ns, "k")
    assert said.returncode == 1 and "frozen" in said.stderr and "frozen=false" in said.stderr
    shell.done("policy", "set", ns, "frozen=no", "max_leases=1")
    shell.acquire(ns, "k")
    said = shell("acquire", ns, "k2")
    assert said.returncode == 1 and "policy show" in said.stderr


def test_bounds_of_the_policy_are_wrong_usage(shell, ns):
    said = shell("acquire", ns, "k", "--duration", "2d")
    assert said.returncode == 2 and "duration" in said.stderr
    said = shell("policy", "set", ns, "min_duration=1ms")
    assert said.returncode == 2 and "min_duration" in said.stderr


# --- waiting ---


def test_a_waiter_gets_the_lease_when_it_is_released(shell, ns):
    first = shell.acquire(ns, "k")
    waiter = shell.start("acquire", ns, "k", "--wait", "1m", "-o", "json")
    shell.is_waiting(ns, "k")
    assert re.search(r"^waiters +1$", shell.done("show", ns, "k").stdout, re.M)
    shell.done("release", ns, "k", first["lease_key"])
    assert ends(waiter) == 0
    second = json.loads(waiter.stdout_text)
    assert int(second["token"]) > int(first["token"])
    shell.done("heartbeat", ns, "k", second["lease_key"])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("wait", ["forever", "1h", "alive"])
def test_a_signal_leaves_the_queue(shell, ns, number, wait):
    shell.acquire(ns, "k")
    waiter = shell.start("acquire", ns, "k", "--wait", wait)
    shell.is_waiting(ns, "k")
    waiter.send_signal(number)
    assert ends(waiter) == 128 + number
    assert waiter.stdout_text == "" and "left the queue" in waiter.stderr_text
    shell.is_waiting(ns, "k", 0)


def test_a_wait_while_the_holder_is_alive_ends_when_it_falls_silent(shell, ns):
    shell.done("policy", "set", ns, "dead_after=500ms")
    shell.acquire(ns, "k", "--duration", "1h")
    said = shell("acquire", ns, "k", "--wait", "alive")
    assert said.returncode == 3 and "suspected dead" in said.stderr


def test_a_wait_outlasts_the_servers_blocking_limit(cluster, service, ns):
    daemon = harness.Daemon("--max-block", "300ms", database=cluster.url(service.database))
    try:
        shell = Shell(service)
        shell.env = {"LEASEHOLD_SERVER": daemon.target}
        first = shell.acquire(ns, "k", "--duration", "1m")
        waiter = shell.start("acquire", ns, "k", "--wait", "forever")
        brief = shell("acquire", ns, "k", "--wait", "1s")
        assert brief.returncode == 3 and "blocking limit" not in brief.stderr
        shell.is_waiting(ns, "k")
        assert waiter.poll() is None
        shell.done("release", ns, "k", first["lease_key"])
        assert ends(waiter) == 0
    finally:
        daemon.destroy()


def test_a_wait_outlives_its_daemon(cluster, service, ns):
    """The daemon is killed while somebody waits, and comes back on the same port."""
    daemon = harness.Daemon(database=cluster.url(service.database))
    try:
        shell = Shell(service)
        first = shell.acquire(ns, "k", "--duration", "10m")
        waiter = start("acquire", ns, "k", "--wait", "2m", "-o", "json", LEASEHOLD_SERVER=daemon.target)
        shell.is_waiting(ns, "k")
        daemon.kill()
        line = waiter.stderr.readline()
        assert daemon.target in line and "the wait goes on" in line
        daemon.start()
        shell.done("release", ns, "k", first["lease_key"])
        assert ends(waiter) == 0
        lease = json.loads(waiter.stdout_text)
        shell.done("heartbeat", ns, "k", lease["lease_key"])
    finally:
        daemon.destroy()


# --- list ---


def test_list_is_an_aligned_table(shell, ns):
    shell.acquire(ns + ".b", "second", "--owner", "für-2")
    shell.acquire(ns, "first", "--owner", "worker-1")
    lines = shell.done("list", ns, "--children").stdout.splitlines()
    assert lines[0].split() == "NAMESPACE KEY STATE HELD REMAINING TOKEN OWNER HEARTBEATS".split()
    assert [line.split()[1] for line in lines[1:]] == ["first", "second"]
    column = lines[0].index("STATE")
    assert all(line[column:].startswith("alive") for line in lines[1:])
    assert [line.split()[1] for line in shell.done("list", ns).stdout.splitlines()[1:]] == ["first"]
    mine = json.loads(shell.done("list", "--owner", "für-2", "-o", "json").stdout)
    assert [lease["scope"]["key"] for lease in mine["leases"]] == ["second"] and mine["next_page_token"] == ""
    assert mine["leases"][0]["lease_key"] == ""


def test_list_of_nothing_is_done(shell, ns):
    said = shell.done("list", ns)
    assert said.stdout == "" and said.stderr == "no lease is held\n"
    assert json.loads(shell.done("list", ns, "-o", "json").stdout) == {"leases": [], "next_page_token": ""}


def test_list_goes_through_all_pages(shell, service, ns):
    for first in range(0, 1002, 334):
        service.psql(f"select count(*) from generate_series({first}, {first + 333}) n, "
                     f"leasehold.acquire('{ns}', 'k' || lpad(n::text, 5, '0'), '1 h')")
    listed = json.loads(shell.done("list", ns, "-o", "json").stdout)["leases"]
    assert [lease["scope"]["key"] for lease in listed] == [f"k{n:05}" for n in range(1002)]
    assert len(shell.done("list", ns).stdout.splitlines()) == 1003


# --- administration, by the server and by the database alone ---


@pytest.fixture(params=["server", "database", "environment"])
def admin(request, shell, service, cluster):
    """Runs a command of an administrator: by the daemon, by --database, by LEASEHOLD_DATABASE."""
    url = cluster.url(service.database)

    def run(*args):
        if request.param == "server":
            return shell(*args)
        if request.param == "database":
            return shell(*args, "--database", url, LEASEHOLD_SERVER=NOWHERE)
        return cli(*args, LEASEHOLD_DATABASE=url)

    return run


def test_policy_set_show_and_reset(admin, ns):
    said = admin("policy", "set", ns, "grace=5s", "expiry=reap", "frozen=no", "max_leases=7", "max_reap_failures=3")
    assert said.returncode == 0, said.stderr
    assert f"{ns}: grace is now 5.0 s\n" in said.stdout and f"{ns}: expiry is now reap\n" in said.stdout
    table = {line.split()[0]: line for line in admin("policy", "show", ns + ".child").stdout.splitlines()}
    assert list(table)[:3] == ["SETTING", "min_duration", "max_duration"]
    assert re.fullmatch(rf"grace +5.0 s +{re.escape(ns)}", table["grace"])
    assert re.fullmatch(r"min_duration +1.0 s +\(root\)", table["min_duration"])
    assert re.fullmatch(rf"max_leases +7 +{re.escape(ns)}", table["max_leases"])
    assert re.fullmatch(r"dead_after +2/3 of the duration +\(default\)", table["dead_after"])

    shown = json_format.Parse(admin("policy", "show", ns, "-o", "json").stdout, pb.GetPolicyResponse())
    assert shown.own.grace.seconds == 5 and shown.own.expiry == pb.Policy.EXPIRY_REAP and shown.own.max_leases.value == 7
    assert shown.own.HasField("frozen") and not shown.own.frozen.value and not shown.own.HasField("min_duration")
    assert shown.effective.min_duration.seconds == 1 and shown.source["grace"] == ns and shown.source["min_duration"] == ""
    assert list(shown.own.namespace.segments) == ns.split(".")

    listed = admin("policy", "show")
    assert listed.returncode == 0
    assert re.search(rf"^{re.escape(ns)} +grace +5.0 s$", listed.stdout, re.M)
    assert re.search(r"^\(root\) +grace +1.0 s$", listed.stdout, re.M)

    assert admin("policy", "reset", ns, "grace").stdout == f"{ns}: grace is now 1.0 s\n"
    shown = json.loads(admin("policy", "show", ns, "-o", "json").stdout)
    assert "grace" not in shown["own"] and shown["own"]["max_leases"] == "7"
    assert admin("policy", "reset", ns).returncode == 0
    assert not re.search(rf"^{re.escape(ns)} ", admin("policy", "show").stdout, re.M)
    assert admin("policy", "show", ".").returncode == 0
    assert admin("policy", "show", "").stdout == admin("policy", "show", ".").stdout


def test_a_policy_that_the_database_refuses_is_wrong_usage(admin, ns):
    said = admin("policy", "set", ns, "min_duration=1ms")
    assert said.returncode == 2 and "min_duration" in said.stderr
    assert not re.search(rf"^{re.escape(ns)} ", admin("policy", "show").stdout, re.M)


def test_force_release(admin, shell, ns):
    lease = shell.acquire(ns, "k", "--owner", "worker-3")
    said = admin("force-release", ns, "k", "--reason", "gone", "--token", int(lease["token"]) + 1)
    assert said.returncode == 4, said.stderr
    said = admin("force-release", ns, "k", "--reason", "gone", "--token", lease["token"])
    assert said.returncode == 0, said.stderr
    assert said.stdout == f"ended the lease {ns}/k of worker-3, token {lease['token']}\n"
    said = shell("heartbeat", ns, "k", lease["lease_key"])
    assert said.returncode == 4 and "(forced)" in said.stderr
    assert admin("force-release", ns, "k", "--reason", "gone").returncode == 4
    second = shell.acquire(ns, "k")
    ended = json.loads(admin("force-release", ns, "k", "--reason", "gone", "-o", "json").stdout)["lease"]
    assert ended["token"] == second["token"] and ended["scope"]["key"] == "k"


def test_force_release_refuses_under_a_guard(admin, shell, service, ns):
    lease = shell.acquire(ns, "k")
    session = service.session()
    try:
        session.run(f"begin; select leasehold.guard('{ns}', 'k', {lease['token']})")
        said = admin("force-release", ns, "k", "--reason", "gone")
        assert said.returncode == 1, said.stderr
        session.run("rollback")
    finally:
        session.close()
    assert shell("heartbeat", ns, "k", lease["lease_key"]).returncode == 0


def test_reap_goes_on_until_nothing_is_due(admin, shell, service, ns):
    assert shell("policy", "set", ns, "reaper=external", "expiry=reap", "grace=0").returncode == 0
    service.psql(f"select count(*) from generate_series(1, 25) n, leasehold.acquire('{ns}.child', 'k' || n, '1 s')")
    held = lambda: int(service.psql(f"select count(*) from leasehold.scope where namespace = '{ns}.child' and state = 'held'"))
    expired = lambda: int(service.psql(f"select count(*) from leasehold.lease where namespace = '{ns}.child' "
                                       "and liveness = 'expired'"))
    wait_until(lambda: expired() == 25, what="the leases' expiry")
    assert admin("reap", ns).stdout == "reaped 0 leases\n" and held() == 25
    said = admin("reap", ns, "--children", "--max", "10", "-o", "json")
    assert said.returncode == 0, said.stderr
    assert json.loads(said.stdout) == {"reaped": 25, "failures": [], "more": False}
    assert held() == 0
    assert admin("reap", ns, "--children", "--once").stdout == "reaped 0 leases\n"


def test_reap_again_and_again_until_told_to_stop(admin, shell, service, cluster, ns):
    assert shell("policy", "set", ns, "reaper=external", "expiry=reap", "grace=0").returncode == 0
    reaper = start("reap", ns, "--every", "100ms", LEASEHOLD_DATABASE=cluster.url(service.database))
    try:
        for key in ("first", "second"):
            shell.acquire(ns, key, "--duration", "1s")
            wait_until(lambda: shell("show", ns, key).returncode == 4, what=f"reaping {key}")
        assert reaper.poll() is None
    finally:
        reaper.terminate()
    assert ends(reaper) == -signal.SIGTERM
    assert reaper.stdout_text == "reaped 1 lease\n" * 2


def test_a_role_without_the_right_is_denied(cluster, service, ns):
    service.psql("do $$ begin create role cli_nobody login; exception when duplicate_object then null; end $$")
    url = cluster.url(service.database, user="cli_nobody")
    for args in (["reap"], ["policy", "set", ns, "grace=1s"], ["force-release", ns, "k", "--reason", "x"]):
        said = cli(*args, "--database", url)
        assert said.returncode == 1 and "leasehold_admin" in said.stderr, said.stderr


# --- status and migrate ---


def test_status_tells_about_the_daemon(shell, service):
    said = shell.done("status").stdout
    assert re.search(rf"^server +{service.daemon.target}$", said, re.M) and re.search(r"^version +0\.", said, re.M)
    status = json.loads(shell.done("status", "-o", "json").stdout)
    assert status["schema_version"] >= 1 and status["max_block"] == "20s" and int(status["timeline"]) >= 1
    assert uuid.UUID(status["coordinator_id"]) and isinstance(status["waiters"], str)


def test_migrate_brings_a_schema_up(cluster, database):
    url = cluster.url(database)
    said = cli("reap", "--database", url)
    assert said.returncode == 1 and "leasehold migrate" in said.stderr
    pending = cli("migrate", "--status", "--database", url)
    assert pending.returncode == 0 and "pending" in pending.stdout
    assert cluster.psql("select count(*) from pg_namespace where nspname = 'leasehold'", database) == "0"
    assert cli("migrate", LEASEHOLD_DATABASE=url).returncode == 0
    assert "pending" not in cli("migrate", "--status", "--database", url).stdout
    assert cli("reap", "--database", url).stdout == "reaped 0 leases\n"
    assert cli("migrate", "--database", url).stdout == "nothing to do: the schema is up to date\n"


def test_migrate_prints_a_script_for_psql(cluster, database):
    script = cli("migrate", "--print")
    assert script.returncode == 0 and "create table leasehold.scope" in script.stdout
    cluster.psql(script.stdout, database)
    assert cli("reap", "--database", cluster.url(database)).stdout == "reaped 0 leases\n"
    assert "pending" not in cli("migrate", "--status", "--database", cluster.url(database)).stdout


# --- failures that a real daemon has too rarely ---


class Scripted(pb_grpc.LeaseServiceServicer, pb_grpc.AdminServiceServicer):
    """A server whose answers are written down beforehand: each is a callable of (request, context)."""

    def __init__(self, **scripts):
        self.scripts = {name: list(steps) for name, steps in scripts.items()}
        self.seen = []
        self.server = grpc.server(concurrent.futures.ThreadPoolExecutor(4))
        pb_grpc.add_LeaseServiceServicer_to_server(self, self.server)
        pb_grpc.add_AdminServiceServicer_to_server(self, self.server)
        self.port = self.server.add_insecure_port("127.0.0.1:0")
        self.server.start()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.server.stop(None).wait(30)

    @property
    def env(self):
        return {"LEASEHOLD_SERVER": f"127.0.0.1:{self.port}"}

    def _next(self, name, request, context):
        self.seen.append(request)
        steps = self.scripts[name]
        return (steps.pop(0) if len(steps) > 1 else steps[0])(request, context)

    def Acquire(self, request, context):
        return self._next("acquire", request, context)

    def Release(self, request, context):
        return self._next("release", request, context)

    def Heartbeat(self, request, context):
        return self._next("heartbeat", request, context)

    def ListLeases(self, request, context):
        return self._next("list", request, context)

    def Reap(self, request, context):
        return self._next("reap", request, context)

    def ForceRelease(self, request, context):
        return self._next("force", request, context)


def refused(code, reason=None, message="no", retry=None):
    """A step that answers with an error and its details."""

    def step(request, context):
        if reason is None:
            context.abort(code, message)
        status = status_pb2.Status(code=code.value[0], message=message)
        details = [error_details_pb2.ErrorInfo(reason=reason, domain="leasehold")]
        if retry is not None:
            details.append(error_details_pb2.RetryInfo(retry_delay=harness.duration(retry)))
        for detail in details:
            packed = any_pb2.Any()
            packed.Pack(detail)
            status.details.append(packed)
        context.set_trailing_metadata((("grpc-status-details-bin", status.SerializeToString()),))
        context.abort(code, message)

    return step


def granted(request, context):
    lease = pb.Lease(scope=request.scope, lease_key=request.lease_key, token=7, owner=request.owner)
    return pb.AcquireResponse(lease=lease)


def result_of(response, outcome, **more):
    return lambda request, context: response(results=[dict(outcome=outcome, **more)])


UNAVAILABLE, ABORTED = grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.ABORTED
DATABASE_AWAY = refused(UNAVAILABLE, "DATABASE_UNAVAILABLE", "the database is away")


def test_a_wait_asks_again_with_the_same_lease_key_and_what_is_left():
    steps = [refused(ABORTED, "BLOCKING_TIMEOUT", retry=0.01), DATABASE_AWAY, refused(UNAVAILABLE, "SHUTTING_DOWN"), granted]
    with Scripted(acquire=steps) as server:
        said = cli("acquire", "a", "k", "--wait", "1m", "-o", "json", **server.env)
        assert said.returncode == 0, said.stderr
        assert len({request.lease_key for request in server.seen}) == 1 and len(server.seen) == 4
        waits = [request.wait.ToTimedelta() for request in server.seen]
        assert waits == sorted(waits, reverse=True) and len(set(waits)) == 4
        assert "the database is away; the wait goes on" in said.stderr


def test_a_wait_forever_stays_one():
    with Scripted(acquire=[refused(ABORTED, "BLOCKING_TIMEOUT"), granted]) as server:
        assert cli("acquire", "a", "k", "--wait", "forever", **server.env).returncode == 0
        assert all(r.wait_forever and not r.HasField("wait") and not r.wait_while_alive for r in server.seen)
        assert len(server.seen) == 2
    with Scripted(acquire=[refused(ABORTED, "BLOCKING_TIMEOUT"), granted]) as server:
        assert cli("acquire", "a", "k", "--wait", "alive", **server.env).returncode == 0
        assert all(r.wait_while_alive and not r.HasField("wait") and not r.wait_forever for r in server.seen)


def test_an_outage_is_waited_out_for_the_timeout_and_no_longer():
    with Scripted(acquire=[DATABASE_AWAY], heartbeat=[DATABASE_AWAY], list=[DATABASE_AWAY], release=[DATABASE_AWAY]) as server:
        for args in (["acquire", "a", "k"], ["heartbeat", "a", "k", SOME_KEY], ["release", "a", "k", SOME_KEY], ["list"],
                     ["acquire", "a", "k", "--wait", "100ms"]):
            server.seen.clear()
            said = cli(*args, "--timeout", "500ms", **server.env)
            assert said.returncode == 5 and "the database is away" in said.stderr
            assert len(server.seen) > 1
    with Scripted(acquire=[DATABASE_AWAY, granted], list=[DATABASE_AWAY, lambda r, c: pb.ListLeasesResponse()]) as server:
        assert cli("acquire", "a", "k", **server.env).returncode == 0
        assert cli("list", **server.env).returncode == 0


def test_a_silent_server_is_unavailable_and_the_lease_key_is_told():
    def silent(request, context):
        wait_until(lambda: not context.is_active(), what="the client's deadline")
        return pb.AcquireResponse()

    with Scripted(acquire=[silent]) as server:
        said = cli("acquire", "a", "k", "--timeout", "300ms", **server.env)
        assert said.returncode == 5 and "no answer" in said.stderr
        assert f"--lease-key {server.seen[0].lease_key}" in said.stderr
    for answer in (refused(grpc.StatusCode.DEADLINE_EXCEEDED, message="Deadline Exceeded"), DATABASE_AWAY):
        with Scripted(acquire=[answer]) as server:
            said = cli("acquire", "a", "k", "--timeout", "300ms", **server.env)
            assert said.returncode == 5 and f"--lease-key {server.seen[0].lease_key}" in said.stderr
    with Scripted(acquire=[refused(UNAVAILABLE, "SHUTTING_DOWN")]) as server:
        said = cli("acquire", "a", "k", "--timeout", "300ms", **server.env)
        assert said.returncode == 5 and "--lease-key" not in said.stderr


def test_a_release_whose_answer_was_lost_is_done():
    lost = result_of(pb.ReleaseResponse, pb.OUTCOME_LOST, end_reason=pb.END_REASON_RELEASED)
    with Scripted(release=[refused(UNAVAILABLE, message="cut off"), lost]) as server:
        said = cli("release", "a", "k", SOME_KEY, **server.env)
        assert said.returncode == 0 and said.stdout == "released\n"
    with Scripted(release=[lost]) as server:
        assert cli("release", "a", "k", SOME_KEY, **server.env).returncode == 4


def test_outcomes_of_a_renewal():
    retry, ok = (result_of(pb.HeartbeatResponse, outcome) for outcome in (pb.OUTCOME_RETRY, pb.OUTCOME_OK))
    with Scripted(heartbeat=[retry, retry, ok]) as server:
        assert cli("heartbeat", "a", "k", SOME_KEY, **server.env).returncode == 0 and len(server.seen) == 3
    with Scripted(heartbeat=[retry]) as server:
        said = cli("heartbeat", "a", "k", SOME_KEY, "--timeout", "300ms", **server.env)
        assert said.returncode == 5 and "not lost either" in said.stderr
    with Scripted(heartbeat=[result_of(pb.HeartbeatResponse, pb.OUTCOME_REJECTED, message="the hook says no")]) as server:
        said = cli("heartbeat", "a", "k", SOME_KEY, **server.env)
        assert said.returncode == 1 and "the hook says no" in said.stderr


CODES = [
    (ABORTED, "LEASE_HELD", 3), (ABORTED, "SCOPE_BUSY", 3), (grpc.StatusCode.DEADLINE_EXCEEDED, "WAIT_TIMEOUT", 3),
    (grpc.StatusCode.FAILED_PRECONDITION, "NAMESPACE_FROZEN", 1), (grpc.StatusCode.FAILED_PRECONDITION, "HOOK_REJECTED", 1),
    (grpc.StatusCode.FAILED_PRECONDITION, "LEASE_ENDED", 4), (grpc.StatusCode.RESOURCE_EXHAUSTED, "QUOTA_EXCEEDED", 1),
    (grpc.StatusCode.RESOURCE_EXHAUSTED, "MESSAGE_TOO_LARGE", 2), (grpc.StatusCode.PERMISSION_DENIED, "ACCESS_DENIED", 1),
    (grpc.StatusCode.UNAUTHENTICATED, "UNAUTHENTICATED", 1), (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_ARGUMENT", 2),
    (grpc.StatusCode.INTERNAL, "INTERNAL", 1), (grpc.StatusCode.UNIMPLEMENTED, None, 1),
    (grpc.StatusCode.RESOURCE_EXHAUSTED, "OVERLOADED", 5), (grpc.StatusCode.NOT_FOUND, "NOT_HELD", 4),
    (grpc.StatusCode.UNKNOWN, None, 1), (grpc.StatusCode.FAILED_PRECONDITION, "SOMETHING_NEW", 1),
]


@pytest.mark.parametrize("code,reason,status", CODES, ids=[f"{c.name}-{r}" for c, r, _ in CODES])
def test_every_reason_has_its_exit_status(code, reason, status):
    with Scripted(acquire=[refused(code, reason, "a sentence\x07 for people")]) as server:
        said = cli("acquire", "a", "k", "--timeout", "300ms", **server.env)
        assert said.returncode == status
        assert said.stderr.startswith("leasehold: a sentence\\x07 for people") and said.stdout == ""


def test_a_signal_gives_back_a_lease_that_was_granted_in_that_instant():
    """The answer never comes; the client is interrupted, and releases what it may have got: by its own key only."""
    for more, released in (([], True), (["--lease-key", SOME_KEY], False)):
        def silent(request, context):
            wait_until(lambda: not context.is_active(), what="the client's cancel")
            return pb.AcquireResponse()

        done = result_of(pb.ReleaseResponse, pb.OUTCOME_LOST)
        with Scripted(acquire=[silent], release=[done]) as server:
            waiter = start("acquire", "a", "k", "--wait", "forever", *more, **server.env)
            wait_until(lambda: server.seen, what="the call")
            waiter.send_signal(signal.SIGINT)
            assert ends(waiter) == 130
            releases = [r for r in server.seen if isinstance(r, pb.ReleaseRequest)]
            assert len(releases) == (1 if released else 0)
            assert (SOME_KEY in waiter.stderr_text) == (not released)
            if released:
                assert releases[0].items[0].lease.lease_key == server.seen[0].lease_key


def test_an_answer_that_is_none_is_a_failure():
    with Scripted(acquire=[lambda r, c: pb.AcquireResponse()], heartbeat=[lambda r, c: pb.HeartbeatResponse()],
                  release=[lambda r, c: pb.ReleaseResponse()]) as server:
        for args in (["acquire", "a", "k"], ["heartbeat", "a", "k", SOME_KEY], ["release", "a", "k", SOME_KEY]):
            said = cli(*args, **server.env)
            assert said.returncode == 1 and "broken" in said.stderr


def test_reap_adds_up_its_rounds_and_reports_what_failed():
    failure = pb.ReapFailure(lease=pb.Lease(scope=harness.scope("a.b", "k\x07")), error="no such\ntable", reap_failures=3,
                             next_try_at=timestamp("2026-11-20T18:28:57Z"))
    first = lambda r, c: pb.ReapResponse(reaped=10, more=True, failures=[failure])
    last = lambda r, c: pb.ReapResponse(reaped=4)
    with Scripted(reap=[first, last]) as server:
        said = cli("reap", "a.b", "c", "--children", "--max", "11", **server.env)
        assert said.returncode == 1 and said.stdout == "reaped 14 leases\n"
        assert said.stderr == ("leasehold: could not reap a.b/k\\x07 (3 times so far): no such\\x0atable; "
                               "next try: 2026-11-20 18:28:57 UTC\n")
        request = server.seen[0]
        assert [list(n.segments) for n in request.namespaces] == [["a", "b"], ["c"]]
        assert request.include_children and request.max == 11 and len(server.seen) == 2
    with Scripted(reap=[first, last]) as server:
        said = cli("reap", "-o", "json", **server.env)
        response = json_format.Parse(said.stdout, pb.ReapResponse())
        assert said.returncode == 1 and response.reaped == 14 and response.failures[0] == failure
        assert not server.seen[0].namespaces and not response.more


def test_a_reap_that_breaks_off_tells_what_it_did():
    with Scripted(reap=[lambda r, c: pb.ReapResponse(reaped=10, more=True), refused(grpc.StatusCode.INTERNAL, "INTERNAL")]) as server:
        said = cli("reap", **server.env)
        assert said.returncode == 1 and said.stdout == "reaped 10 leases\n"


def test_a_reaper_goes_on_through_an_outage_and_ends_when_it_is_denied():
    steps = [refused(grpc.StatusCode.DEADLINE_EXCEEDED, message="too slow"), lambda r, c: pb.ReapResponse(reaped=2),
             refused(grpc.StatusCode.PERMISSION_DENIED, "ACCESS_DENIED", "not for you")]
    with Scripted(reap=steps) as server:
        said = cli("reap", "--every", "100ms", **server.env)
        assert said.returncode == 1 and "not for you" in said.stderr and said.stdout == "reaped 2 leases\n"


def test_a_force_release_is_repeated_only_with_a_token():
    """Without one a repetition could end the next holder's lease."""
    cut = refused(UNAVAILABLE, message="cut off")
    ended = lambda r, c: pb.ForceReleaseResponse(lease=pb.Lease(scope=r.scope, token=41))
    with Scripted(force=[cut, ended]) as server:
        said = cli("force-release", "a", "k", "--reason", "x", **server.env)
        assert said.returncode == 5 and len(server.seen) == 1
    with Scripted(force=[cut, ended]) as server:
        said = cli("force-release", "a", "k", "--reason", "x", "--token", "41", **server.env)
        assert said.returncode == 0 and [r.token for r in server.seen] == [41, 41]
    with Scripted(force=[refused(ABORTED, "SCOPE_BUSY", "a/k is busy: kept by pid 7")]) as server:
        said = cli("force-release", "a", "k", "--reason", "x", **server.env)
        assert said.returncode == 1 and "kept by pid 7" in said.stderr
