"""leasehold mcp: a client on its stdin and stdout, a real daemon behind it."""
import json
import os
import pathlib
import re
import select
import signal
import subprocess
import threading

import jsonschema
import pytest

import harness
from access_site import Site, bearer
from commandline import environment
from harness import wait_until

META = "io.modelcontextprotocol/"
LINE_MAX = 1024 * 1024


class Session:
    """A client that checks each line: framing, ids, schemas."""

    def __init__(self, *args, initialized=True, **env):
        self.process = subprocess.Popen([harness.CLI, "mcp", *map(str, args)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, env=environment(**env))
        self.replies, self.notes, self.orphans = {}, [], []
        self.changed = threading.Condition()
        self.is_over = False
        self.last_id = 0
        self.errors = ""
        self.readers = [threading.Thread(target=read, daemon=True) for read in (self.read, self.read_errors)]
        for reader in self.readers:
            reader.start()
        if initialized:
            said = self.result("initialize", protocolVersion="2025-11-25", capabilities={}, clientInfo={"name": "test", "version": "1"})
            assert said["protocolVersion"] == "2025-11-25" and said["serverInfo"]["name"] == "leasehold"
            self.notify("notifications/initialized")
            self.tools = {tool["name"]: tool for tool in self.result("tools/list")["tools"]}

    def read(self):
        for line in self.process.stdout:
            message = json.loads(line)
            assert line.endswith(b"\n") and message["jsonrpc"] == "2.0"
            with self.changed:
                if "method" in message:
                    assert "id" not in message
                    self.notes.append(message)
                elif message["id"] is None:
                    self.orphans.append(message)
                else:
                    assert message["id"] not in self.replies, "a second answer"
                    self.replies[message["id"]] = message
                self.changed.notify_all()
        with self.changed:
            self.is_over = True
            self.changed.notify_all()

    def read_errors(self):
        for line in self.process.stderr:
            self.errors += line.decode()

    def write(self, line):
        self.process.stdin.write(line if isinstance(line, bytes) else line.encode())
        self.process.stdin.flush()

    def send(self, message):
        self.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")

    def notify(self, method, **params):
        self.send({"method": method, **({"params": params} if params else {})})

    def ask(self, method, **params):
        self.last_id += 1
        self.send({"id": self.last_id, "method": method, "params": params})
        return self.last_id

    def until(self, has, what):
        with self.changed:
            assert self.changed.wait_for(lambda: has() or self.is_over, 60) and has(), f"{what}: {self.replies} {self.notes} {self.errors}"

    def reply(self, number):
        self.until(lambda: number in self.replies, f"an answer to {number}")
        return self.replies[number]

    def result(self, method, **params):
        return self.reply(self.ask(method, **params))["result"]

    def error(self, method, **params):
        return self.reply(self.ask(method, **params))["error"]

    def start(self, tool, progress=None, **arguments):
        meta = {"_meta": {"progressToken": progress}} if progress is not None else {}
        return self.ask("tools/call", name=tool, arguments=arguments, **meta)

    def answer(self, number, tool):
        result = self.reply(number)["result"]
        content = result["structuredContent"]
        jsonschema.validate(content, self.tools[tool]["outputSchema"])
        assert json.loads(result["content"][0]["text"]) == content and result["content"][0]["type"] == "text"
        assert result["isError"] == (content["status"] != "OK")
        return content

    def call(self, tool, **arguments):
        return self.answer(self.start(tool, **arguments), tool)

    def orphan(self):
        self.until(lambda: self.orphans, "an error without an id")
        return self.orphans.pop(0)["error"]

    def ends(self):
        self.process.stdin.close()
        return self.process.wait(60)


@pytest.fixture
def sessions_of(service):
    opened = []

    def open_session(*args, **more):
        opened.append(Session("--server", service.daemon.target, *args, **more))
        return opened[-1]

    yield open_session
    for session in opened:
        if session.process.poll() is None:
            session.process.terminate()
            session.process.wait(60)


@pytest.fixture
def mcp(sessions_of):
    return sessions_of()


def is_held(shell, ns, key):
    return shell("show", ns, key).returncode == 0


# --- the protocol ---


@pytest.mark.parametrize("asked, given", [("2025-06-18", "2025-06-18"), ("2025-11-25", "2025-11-25"), ("1999-01-01", "2025-11-25")])
def test_a_revision_is_agreed_on(sessions_of, asked, given):
    session = sessions_of(initialized=False)
    assert session.error("tools/list")["message"] == "initialize comes before tools/list"
    assert session.result("ping") == {}
    said = session.result("initialize", protocolVersion=asked, capabilities={}, clientInfo={"name": "t", "version": "1"})
    assert said["protocolVersion"] == given and "tools" in said["capabilities"] and said["instructions"]
    assert session.error("initialize", protocolVersion=asked)["code"] == -32600


def test_the_newest_revision_needs_no_initialize(sessions_of, ns):
    session = sessions_of(initialized=False)
    meta = {META + "protocolVersion": "2026-07-28", META + "clientCapabilities": {}}
    said = session.result("server/discover", _meta=meta)
    assert said["supportedVersions"] == ["2026-07-28", "2025-11-25", "2025-06-18"] and said["resultType"] == "complete"
    assert said["_meta"][META + "serverInfo"]["name"] == "leasehold" and said["cacheScope"] == "private"
    listed = session.result("tools/list", _meta=meta)
    assert listed["ttlMs"] >= 0 and listed["resultType"] == "complete" and len(listed["tools"]) == 5
    called = session.result("tools/call", name="acquire", arguments={"namespace": ns, "key": "k"}, _meta=meta)
    assert called["resultType"] == "complete" and called["structuredContent"]["status"] == "OK"
    wrong = session.error("tools/list", _meta={**meta, META + "protocolVersion": "2030-01-01"})
    assert wrong["code"] == -32022 and wrong["data"]["requested"] == "2030-01-01" and "2026-07-28" in wrong["data"]["supported"]
    assert session.error("tools/list", _meta={META + "protocolVersion": "2026-07-28"})["code"] == -32602


def test_tools_have_schemas_and_hints(mcp, sessions_of):
    assert sorted(mcp.tools) == ["acquire", "explain", "list", "release", "renew"]
    for tool in mcp.tools.values():
        for schema in (tool["inputSchema"], tool["outputSchema"]):
            jsonschema.Draft202012Validator.check_schema(schema)
            assert schema["type"] == "object" and set(schema["required"]) <= set(schema["properties"])
        assert tool["annotations"]["readOnlyHint"] == (tool["name"] in ("list", "explain"))
    assert mcp.tools["release"]["annotations"]["destructiveHint"] and mcp.tools["renew"]["annotations"]["idempotentHint"]
    assert sorted(sessions_of("--read-only").tools) == ["explain", "list"]
    assert sorted(sessions_of("--allow-run").tools) == ["acquire", "explain", "list", "release", "renew", "run"]
    assert sessions_of("--read-only").error("tools/call", name="acquire")["code"] == -32602


def test_garbage_is_an_error_and_the_session_goes_on(mcp, ns):
    for line, code in [("{", -32700), ("\xff\n{}", -32700), ("[]", -32600), ('[{"jsonrpc":"2.0","id":1,"method":"ping"}]', -32600), ("7", -32600),
                       ('{"jsonrpc":"1.0","id":5,"method":"ping"}', -32600), ('{"jsonrpc":"2.0","id":null,"method":"ping"}', -32600),
                       ('{"jsonrpc":"2.0","id":1.5,"method":"ping"}', -32600), ('{"jsonrpc":"2.0","id":9}', -32600),
                       ('{"jsonrpc":"2.0","id":9,"id":10,"method":"ping"}', -32700)]:
        mcp.write(line.encode("latin-1") + b"\n")
        assert mcp.orphan()["code"] == code, line
        mcp.orphans.clear()
    mcp.write("x" * (3 * LINE_MAX) + "\n")
    assert mcp.orphan()["message"] == f"line: must be at most {LINE_MAX} bytes, has more"
    mcp.write("\n\r\n")
    assert mcp.error("tools/nothing")["code"] == -32601
    assert mcp.error("tools/call", name="nothing")["message"] == "unknown tool: nothing"
    assert mcp.error("tools/call", name="list", arguments=[])["message"] == "arguments must be an object"
    mcp.send({"id": "text", "method": "ping", "params": []})
    assert mcp.reply("text")["error"]["code"] == -32602
    assert mcp.error("logging/setLevel", level="loud")["code"] == -32602 and mcp.error("tools/list", cursor="x")["code"] == -32602
    assert mcp.call("acquire", namespace=ns, key="k")["status"] == "OK" and not mcp.orphans
    assert mcp.ends() == 0 and mcp.errors == ""


@pytest.mark.parametrize("arguments, field, words", [
    ({"key": "k"}, "namespace", "missing argument: namespace"),
    ({"namespace": "a", "key": 7}, "key", "key must be of type string"),
    ({"namespace": "a", "key": "k", "colour": 1}, "colour", "acquire has no argument 'colour'"),
    ({"namespace": "a", "key": "k", "shared": 0}, "shared", "shared 0 must be 1 to 1000000"),
    ({"namespace": "a", "key": "k" * 1025}, "key", "1 to 1024 bytes, has 1025"),
    ({"namespace": "a", "key": "k", "wait": "soon"}, "wait", "wait 'soon' is not a duration"),
])
def test_an_argument_out_of_bounds_is_named(mcp, arguments, field, words):
    said = mcp.call("acquire", **arguments)
    assert said["status"] == "INVALID_ARGUMENT" and words in said["message"] and said.get("field", field) == field


# --- leases ---


def test_a_lease_is_acquired_renewed_explained_and_released(mcp, shell, ns):
    got = mcp.call("acquire", namespace=ns, key="k")
    assert (got["mode"], got["namespace"], got["key"]) == ("exclusive", ns, "k") and 0 < got["remaining_seconds"] <= 30
    assert json.loads(shell.done("show", ns, "k", "-o", "json").stdout)["lease"]["token"] == got["token"]
    again = mcp.call("acquire", namespace=ns, key="k")
    assert (again["status"], again["token"]) == ("LEASE_HELD", got["token"]) and again["next"]
    assert mcp.call("renew", namespace=ns, key="k")["token"] == got["token"]
    assert "held" in json.dumps(mcp.call("explain", namespace=ns, key="k"))
    assert [lease["token"] for lease in mcp.call("list", namespace=ns)["leases"]] == [got["token"]]
    assert mcp.call("release", namespace=ns, key="k", result={"n": 1}, failure="x")["status"] == "INVALID_ARGUMENT"
    assert mcp.call("release", namespace=ns, key="k", result={"rows": 12})["status"] == "OK"
    last = json.loads(shell("show", ns, "k", "-o", "json").stdout)["last"]
    assert json.loads(last["result"]) == {"rows": 12}
    assert mcp.call("release", namespace=ns, key="k")["status"] == "NOT_HELD"
    shared = mcp.call("acquire", namespace=ns, key="s", shared=3)
    assert (shared["mode"], shared["units"]) == ("shared", 3)


def test_a_refusal_says_who_holds_it(mcp, shell, ns):
    shell.acquire(ns, "k", "--owner", "somebody else")
    said = mcp.call("acquire", namespace=ns, key="k")
    assert said["status"] == "LEASE_HELD" and "somebody else" in said["message"] and "wait" in said["next"]
    assert mcp.call("acquire", namespace=ns, key="k", wait="50ms")["status"] == "WAIT_TIMEOUT"


def test_an_acquire_that_waits_tells_its_progress_and_can_be_cancelled(mcp, shell, ns):
    key = shell.acquire(ns, "k", "--owner", "somebody else")["lease_key"]
    number = mcp.start("acquire", progress="p1", namespace=ns, key="k", wait="forever")
    mcp.until(lambda: mcp.notes, "progress")
    params = mcp.notes[0]["params"]
    assert params["progressToken"] == "p1" and params["progress"] >= 1 and "held by somebody else" in params["message"]
    shell.is_waiting(ns, "k", 1)
    assert mcp.call("acquire", namespace=ns, key="k")["message"] == "this server is waiting for it already"
    mcp.send({"id": number, "method": "ping"})
    assert "id: a call in flight" in mcp.orphan()["message"]
    mcp.notify("notifications/cancelled", requestId=number)
    wait_until(lambda: shell.waiters(ns, "k") == 0, what="an empty queue")
    mcp.notify("notifications/cancelled", requestId=number)
    mcp.notify("notifications/cancelled", requestId="never")
    second = mcp.start("acquire", namespace=ns, key="k", wait="forever")
    shell.is_waiting(ns, "k", 1)
    shell.done("release", ns, "k", key)
    assert mcp.answer(second, "acquire")["status"] == "OK" and number not in mcp.replies


def test_a_grant_that_races_its_cancellation_leaves_no_lease(mcp, ns):
    numbers = {}
    for n in range(40):
        numbers[f"k{n}"] = mcp.start("acquire", namespace=ns, key=f"k{n}")
        mcp.notify("notifications/cancelled", requestId=numbers[f"k{n}"])

    def is_settled():
        held = {lease["scope"]["key"] for lease in mcp.call("list", namespace=ns)["leases"]}
        return held == {key for key, number in numbers.items() if number in mcp.replies}

    def is_waiting(key):
        return mcp.call("renew", namespace=ns, key=key)["status"] == "SCOPE_BUSY"

    wait_until(lambda: not any(map(is_waiting, numbers)), what="the end of all calls")
    wait_until(is_settled, what="leases of answered calls alone")
    assert any(number not in mcp.replies for number in numbers.values()), "no call was cancelled in time"
    assert all(mcp.call("acquire", namespace=ns, key=key)["status"] in ("OK", "LEASE_HELD") for key in numbers)


@pytest.mark.parametrize("how", ["stdin", "TERM"])
def test_the_end_releases_all_leases_and_leaves_the_queue(mcp, shell, ns, how):
    shell.acquire(ns, "busy")
    mcp.call("acquire", namespace=ns, key="k")
    mcp.start("acquire", namespace=ns, key="busy", wait="forever")
    shell.is_waiting(ns, "busy", 1)
    if how == "TERM":
        mcp.process.send_signal(signal.SIGTERM)
        assert mcp.process.wait(60) == 0
    else:
        assert mcp.ends() == 0
    assert not is_held(shell, ns, "k") and shell.waiters(ns, "busy") == 0
    assert json.loads(shell("show", ns, "k", "-o", "json").stdout)["last"]["end_reason"] == "END_REASON_RELEASED"


def test_a_lease_that_is_lost_is_told_once(sessions_of, shell, ns):
    session = sessions_of("--duration", "9s")
    session.call("acquire", namespace=ns, key="k")
    shell.done("force-release", ns, "k", "--reason", "test")
    session.until(lambda: session.notes, "a warning")
    note = session.notes[0]
    assert note["method"] == "notifications/message" and note["params"]["level"] == "warning" and f"{ns}/k is lost" in note["params"]["data"]
    said = session.call("acquire", namespace=ns, key="k")
    assert said["status"] == "LOST" and said["reason"] and "Stop the work" in said["next"]
    assert session.call("acquire", namespace=ns, key="k")["status"] == "OK"


def test_a_daemon_that_dies_loses_the_lease(cluster, ns):
    daemon = harness.Daemon(database=cluster.url(cluster.create_database(migrated=True)))
    session = Session("--server", daemon.target, "--duration", "9s", "--timeout", "5s")
    try:
        session.call("acquire", namespace=ns, key="k")
        daemon.kill()
        session.until(lambda: session.notes, "a warning")
        assert session.call("renew", namespace=ns, key="k")["status"] == "LOST"
        assert session.call("list", namespace=ns)["status"] == "UNAVAILABLE"
        assert session.ends() == 0
    finally:
        session.process.kill()
        daemon.destroy()


def test_leases_are_bounded(mcp, ns):
    numbers = [mcp.start("acquire", namespace=ns, key=f"k{n}") for n in range(50)]
    assert all(mcp.answer(number, "acquire")["status"] == "OK" for number in numbers)
    numbers = [mcp.start("acquire", namespace=ns, key=f"l{n}") for n in range(50)]
    assert all(mcp.answer(number, "acquire")["status"] == "OK" for number in numbers)
    said = mcp.call("acquire", namespace=ns, key="one more")
    assert said["status"] == "OVERLOADED" and "this server has 100; the limit is 100" in said["message"]


def test_calls_in_flight_are_bounded(mcp, sessions_of, ns):
    other = sessions_of()
    for number in [other.start("acquire", namespace=ns, key=f"k{n}") for n in range(64)]:
        assert other.answer(number, "acquire")["status"] == "OK"
    waiting = [mcp.start("acquire", namespace=ns, key=f"k{n}", wait="forever") for n in range(64)]
    said = mcp.call("acquire", namespace=ns, key="one more")
    assert said["status"] == "OVERLOADED" and said["message"] == "calls: too many are in flight; the limit is 64"
    assert other.ends() == 0
    assert all(mcp.answer(number, "acquire")["status"] == "OK" for number in waiting)


def test_a_client_that_reads_no_answers_is_not_read_either(service, shell, ns):
    """Its leases live on, and it gets each answer when it reads again."""
    process = subprocess.Popen([harness.CLI, "mcp", "--server", service.daemon.target, "--duration", "12s"], stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, env=environment())
    try:
        os.set_blocking(process.stdin.fileno(), False)
        meta = {META + "protocolVersion": "2026-07-28", META + "clientCapabilities": {}, "padding": "x" * 8000}
        acquire = {"jsonrpc": "2.0", "id": 0, "method": "tools/call", "params": {"name": "acquire", "arguments": {"namespace": ns, "key": "k"}, "_meta": meta}}
        text, asked = json.dumps(acquire).encode() + b"\n", 0
        begun = peak_kib(process.pid)
        sent = 0
        while sent < 32 * LINE_MAX and select.select([], [process.stdin], [], 3)[1]:
            if len(text) < 65536:
                text += b"".join(json.dumps({"jsonrpc": "2.0", "id": asked + n, "method": "tools/list", "params": {"_meta": meta}}).encode() + b"\n"
                                 for n in range(1, 21))
                asked += 20
            size = os.write(process.stdin.fileno(), text)
            text, sent = text[size:], sent + size
        assert sent <= 3 * LINE_MAX  # a line, its answers, and what pipes and one read take
        assert peak_kib(process.pid) - begun < 128 * 1024
        wait_until(lambda: int(json.loads(shell.done("show", ns, "k", "-o", "json").stdout)["lease"]["heartbeats"]) >= 3, 60, "renewals")
        os.set_blocking(process.stdin.fileno(), True)
        writer = threading.Thread(target=lambda: (process.stdin.write(text), process.stdin.flush()))
        writer.start()
        answered = [json.loads(process.stdout.readline())["id"] for _ in range(asked + 1)]
        writer.join()
        process.stdin.close()
        assert process.wait(60) == 0 and sorted(answered) == list(range(asked + 1))
    finally:
        process.kill()
        process.wait(60)


def peak_kib(pid):
    return int(re.search(r"VmHWM:\s+(\d+)", pathlib.Path(f"/proc/{pid}/status").read_text())[1])


def test_the_rights_are_those_of_the_token(cluster, tmp_path):
    site = Site(cluster)
    session = None
    try:
        token = site.token("agent")[0]
        site.grant("token:agent", "allowed", "lease", "read")
        site.waits_for("OK", "allowed", bearer(token))
        (tmp_path / "token").write_text(token)
        session = Session("--server", site.daemon.target, "--token-file", tmp_path / "token", "--allow-run")
        assert session.call("acquire", namespace="allowed", key="k")["status"] == "OK"
        assert [lease["scope"]["key"] for lease in session.call("list", namespace="allowed")["leases"]][:1] == ["k"]
        said = session.call("acquire", namespace="denied", key="k")
        assert said["status"] == "ACCESS_DENIED" and "Do not repeat" in said["next"]
        assert session.call("run", namespace="denied", key="k", command=["true"])["status"] == "ACCESS_DENIED"
        assert session.call("explain", namespace="denied", key="k")["status"] == "REFUSED"
        assert session.ends() == 0
    finally:
        if session is not None:
            session.process.kill()
        site.close()


def test_namespaces_are_restricted(sessions_of, ns):
    session = sessions_of("--namespace", ns, "--namespace", "other")
    assert session.call("acquire", namespace=ns + ".child", key="k")["status"] == "OK"
    for arguments in ({"namespace": ns + "x", "key": "k"}, {"namespace": ns.rsplit(".", 1)[0], "key": "k"}):
        said = session.call("acquire", **arguments)
        assert said["status"] == "INVALID_ARGUMENT" and said["field"] == "namespace" and f"started for {ns} and others" in said["message"]
    assert session.call("list")["field"] == "namespace" and session.call("explain", namespace="a", key="k")["field"] == "namespace"


# --- run ---


def test_a_command_runs_under_a_lease(sessions_of, shell, ns):
    session = sessions_of("--allow-run")
    said = session.call("run", namespace=ns, key="k", command=["sh", "-c", "echo $LEASEHOLD_TOKEN; printf '\\377' >&2; ls /proc/self/fd | wc -l"])
    lines = said["stdout"].split()
    assert said["exit_status"] == 0 and lines[0] == said["token"] and said["stderr"] == "\ufffd" and not said["is_cut"]
    assert session.call("run", namespace=ns, key="k", command=["printf", "%s", "$HOME;x"])["stdout"] == "$HOME;x"
    for status in (3, 4, 5):
        failed = session.call("run", namespace=ns, key="k", command=["sh", "-c", f"exit {status}"])
        assert (failed["status"], failed["exit_status"]) == ("COMMAND_FAILED", status)
    big = session.call("run", namespace=ns, key="k", command=["head", "-c", "1000000", "/dev/zero"])
    assert big["is_cut"] and big["stdout_bytes"] == 1000000 and len(big["stdout"]) == 65536
    assert session.call("run", namespace=ns, key="k", command=[])["field"] == "command"
    shell.acquire(ns, "k", "--owner", "somebody else")
    held = session.call("run", namespace=ns, key="k", command=["true"])
    assert held["status"] == "LEASE_HELD" and "somebody else" in held["message"] and "exit_status" not in held


def is_alive(pid):
    return os.path.exists(f"/proc/{pid}") and "(zombie)" not in open(f"/proc/{pid}/status").read()


@pytest.mark.parametrize("how", ["lost", "cancelled", "ended"])
def test_a_command_is_ended_with_all_that_it_started(sessions_of, shell, ns, tmp_path, how):
    session = sessions_of("--allow-run", "--duration", "9s")
    number = session.start("run", namespace=ns, key="k", command=["sh", "-c", f"setsid sleep 1000 & echo $! > {tmp_path}/pid; wait"])
    wait_until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text().strip(), what="the command")
    pid = int((tmp_path / "pid").read_text())
    if how == "lost":
        shell.done("force-release", ns, "k", "--reason", "test")
        assert session.answer(number, "run")["status"] == "LOST"
    elif how == "cancelled":
        session.notify("notifications/cancelled", requestId=number)
    else:
        assert session.ends() == 0
    wait_until(lambda: not is_alive(pid), what="the end of the command")
    wait_until(lambda: not is_held(shell, ns, "k"), what="the end of the lease")
    assert (number in session.replies) == (how == "lost")
