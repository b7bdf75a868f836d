"""The command line before it asks anybody: help, wrong usage; and JSON against the mapping of stock Python."""
import json
import re
import subprocess

import pytest
from google.protobuf import json_format

import harness
from commandline import NOWHERE, SOME_KEY, cli, environment, timestamp
from harness import error_details_pb2, pb


# --- help and usage: no server is asked ---


def test_help_teaches():
    said = cli("--help")
    assert said.returncode == 0 and said.stderr == ""
    for command in ("acquire heartbeat release ask-hand-over refuse-hand-over run mcp list show watch queue explain history reap force-release policy hook status "
                    "daemons migrate check-database").split():
        assert re.search(rf"^  {command} +\S", said.stdout, re.M)
        for own in (cli(command, "--help"), cli("help", command), cli("--help", command), cli(command, "-h", "a", "b")):
            assert own.returncode == 0
            assert own.stdout.startswith(f"leasehold {command}: ")
            assert "\nExamples\n  leasehold " in own.stdout and "\nExit status\n" in own.stdout
    assert max(len(line) for line in said.stdout.splitlines()) <= 80
    assert cli("--version").stdout.startswith("leasehold 0.")


def test_verify_runs_the_program_of_the_python_package(tmp_path):
    program = tmp_path / "leasehold-verify"
    program.write_text('#!/bin/sh\necho "$@"\nexit 7\n')
    program.chmod(0o755)
    said = cli("verify", "--seconds", "1", PATH=f"{tmp_path}:/usr/bin:/bin")
    assert (said.returncode, said.stdout) == (7, "--seconds 1\n")


@pytest.mark.parametrize("words", [[], ["--"]])
def test_no_words_show_help_and_are_wrong_usage(words):
    said = cli(*words)
    assert said.returncode == 2 and said.stdout == "" and "Commands" in said.stderr


WRONG = [
    (["frobnicate"], "unknown command: frobnicate"),
    (["aquire", "a", "b"], "unknown command: aquire; did you mean acquire?"),
    (["acquire", "a", "b", "--lenght", "5s"], "unknown option --lenght; did you mean --duration?"),
    (["run", "a", "k", "--"], "missing command; usage: leasehold run NAMESPACE KEY -- COMMAND"),
    # NAMESPACE and KEY stand before "--": a command that is one word shorter may do anything.
    (["run", "a", "--", "echo", "rm", "-rf", "./build"], "missing KEY before --; usage: leasehold run NAMESPACE KEY -- COMMAND"),
    (["run", "--", "a", "k", "true"], "missing NAMESPACE and KEY before --; usage: "),
    (["run", "--", "git", "checkout", "--", "true"], "missing NAMESPACE and KEY before --"),
    (["run", "a", "--also", "a:b", "--", "echo", "true"], "missing KEY before --"),
    (["run", "a", "--repeat", "--", "sudo", "true"], "missing KEY before --"),
    (["run", "a", "--terraform", "--", "echo", "true"], "missing KEY before --"),
    (["run", "a", "-c", "true", "--", "echo"], "missing KEY before --"),
    (["run", "a", "sudo", "true"], "unexpected argument: true; COMMAND stands after --; usage: "),
    (["run", "a", "k", "sudo", "--", "true"], "unexpected argument: sudo; COMMAND stands after --"),
    (["run", "a", "k", "-c", "true", "--", "true"], "--command and COMMAND cannot be combined"),
    (["run", "a", "k", "--shared", "2", "--", "true"], "unexpected argument: 2; COMMAND stands after --"),
    *[(["run", "a", "k", option, "--", "true"], f"option {name} needs a value") for option, name in
      (("-c", "--command"), ("--also", "--also"), ("--wait", "--wait"), ("-E", "--conflict-exit-code"), ("--state", "--state"))],
    (["reap", "a", "--exec", "--", "rm", "-rf", "x"], "option --exec needs a value: --exec COMMAND"),
    (["reap", "a", "--exec", "echo", "--database", "x", "--", "rm", "x"], "unexpected argument after --: rm; --exec takes the whole command as one "
     "argument, in quotes"),
    (["reap", "a", "--plugin", "--", "x.so"], "option --plugin needs a value"),
    (["acquire", "--", "a"], "missing argument"),
    (["acquire", "a", "k", "--", "make"], "unexpected argument: make"),
    (["acquire", "a", "--duration", "--", "k"], "option --duration needs a value"),
    (["heartbeat", "a", "k", SOME_KEY, "--", "make"], "unexpected argument: make"),
    (["downgrade", "a", "k", SOME_KEY, "--", "make"], "unexpected argument: make"),
    (["release", "a", "k", SOME_KEY, "--", "make"], "unexpected argument: make"),
    (["release", "a", "k", SOME_KEY, "--fail", "--", "make"], "option --fail needs a value"),
    (["list", "a", "--", "--output"], "unexpected argument: --output"),
    (["show", "a", "k", "--", "--output"], "unexpected argument: --output"),
    (["watch", "a", "--", "make"], "unexpected argument: make"),
    *[([name, "a", "k", "--database", "x", "--", "make"], "unexpected argument: make") for name in ("queue", "explain", "history")],
    (["force-release", "a", "k", "--", "--reason", "x"], "unexpected argument: --reason"),
    (["force-release", "a", "k", "--reason", "--", "x"], "option --reason needs a value"),
    (["policy", "set", "a", "--", "--frozen"], "'--frozen' is not NAME=VALUE"),
    (["policy", "show", "a", "--", "b"], "unexpected argument: b"),
    (["hook", "list", "a", "--database", "x", "--", "b"], "unexpected argument: b"),
    (["access", "list", "--", "a"], "unexpected argument: a"),
    (["token", "list", "--", "a"], "unexpected argument: a"),
    *[([name, "--", "a"], "unexpected argument: a") for name in ("status", "daemons", "migrate")],
    (["help", "frobnicate"], "unknown command: frobnicate"),
    (["acquire", "a"], "missing argument; usage: leasehold acquire NAMESPACE KEY"),
    (["acquire", "a", "b", "c"], "unexpected argument: c"),
    (["acquire", "a", "b", "--duraton", "5s"], "did you mean --duration?"),
    (["acquire", "a", "b", "--duration"], "needs a value"),
    (["acquire", "a", "b", "-o", "xml"], "unknown output format: xml; use text, json or env"),
    (["acquire", "a", "k", "--units", "2"], "unknown option --units; did you mean --shared?"),
    (["hook", "add", "a", "acquired", "f(x)", "--database", "x"], "unknown event: acquired; use acquire, heartbeat, release_ok, release_fail or reap; "
     "did you mean acquire?"),
    (["verify", "--seconds", "1"], "verify runs leasehold-verify, which is not in PATH: pip install leasehold-client"),
    (["list", "-o", "env"], "-o env is for acquire only"),
    (["show", "--database", "x", "a", "k"], "show has no --database, it works with a server; --database is for schedule, list, queue, explain, history, "
     "reap, force-release, policy, hook, access, token, daemons, migrate and check-database"),
    (["list", "--server", ""], "--server is empty"),
    (["list", "--server", "localhost"], "'localhost' is not an address of a server"),
    (["list", "--server", "localhost:http"], "is not an address of a server"),
    *[(["list", "--server", text], "is not an address of a server") for text in
      (":7420", "localhost:", "localhost:74200", "localhost:123456789", "::1:7420", "[::1]", "[]:1", "unix:", "unix:" + "x" * 108)],
    (["list", "--timeout", "soon"], "timeout 'soon' is not a duration"),
    (["list", "--timeout", "0"], "timeout must be at least 1 ms, is 0 s"),
    (["acquire", "", "k"], "namespace must have 1 to 16 segments, has 0"),
    (["acquire", "a..b", "k"], "segment 2 of namespace must be 1 to 63 bytes, has 0"),
    (["acquire", ".", "k"], "segment 1 of namespace must be 1 to 63 bytes, has 0"),
    (["acquire", "a" * 64, "k"], "must be 1 to 63 bytes, has 64"),
    (["acquire", ".".join("abcdefghijklmnopq"), "k"], "namespace must have 1 to 16 segments, has 17"),
    (["acquire", ".".join(["a" * 60] * 5), "k"], "must be at most 255 bytes with the dots between segments, has 304"),
    (["acquire", "a\nb", "k"], "control character"),
    (["acquire", "a", ""], "key must be 1 to 1024 bytes, has 0"),
    (["acquire", "a", "k" * 1025], "1 to 1024 bytes"),
    (["acquire", "a", "k\x7f"], "control character"),
    (["acquire", b"\xff", "k"], "segment 1 of namespace must be UTF-8"),
    (["acquire", "a", b"\xc0\x80"], "key must be UTF-8"),
    (["acquire", "a", "k", "--duration", "0"], "duration must be at least 100 ms, is 0 s"),
    (["acquire", "a", "k", "--duration", "-5s"], "duration '-5s' is not a duration"),
    (["acquire", "a", "k", "--duration", "99ms"], "duration must be at least 100 ms, is 99 ms"),
    (["acquire", "a", "k", "--duration", "5 parsecs"], "is not a duration"),
    *[(["acquire", "a", "k", "--duration", text], f"duration must be at most 100 years, is {text}")
      for text in ("36501d", "99999999999h", "1" + "0" * 30, "1h" + "9" * 40 + "d")],
    (["acquire", "a", "k", "--wait", "1000000d"], "wait must be at most 100 years, is 1000000d"),
    (["acquire", "a", "k", "--wait", "-1s"], "use a duration such as 5s, forever or alive"),
    (["acquire", "a", "k", "--wait", "never"], "invalid wait 'never'"),
    (["acquire", "a", "k", "--owner", "o" * 256], "at most 255 bytes"),
    (["acquire", "a", "k", "--lease-key", "42"], "lease_key must be a UUID"),
    (["acquire", "a", "k", "--lease-key", "00000000-0000-0000-0000-000000000000"], "lease_key must be a UUID of 8-4-4-4-12 hexadecimal digits, and not all zero"),
    (["acquire", "a", "k", "--label", "team"], "has no '='"),
    (["acquire", "a", "k", "--label", "=red"], "the name of a label must be 1 to 63 bytes, has 0"),
    (["acquire", "a", "k", "--label", "n" * 64 + "=x"], "the name of a label must be 1 to 63 bytes, has 64"),
    (["acquire", "a", "k", "--label", "n=" + "x" * 256], "the value of a label must be at most 255 bytes, has 256"),
    (["acquire", "a", "k", "--label", "n=1", "--label", "n=2"], "label n is given twice"),
    (["acquire", "a", "k", *sum((["--label", f"n{i}=x"] for i in range(17)), [])], "too many labels; a lease can have 16"),
    (["heartbeat", "a", "k", "nonsense"], "lease_key must be a UUID"),
    (["heartbeat", "a", "k"], "missing lease key"),
    (["release", "a", "k", "nonsense"], "lease_key must be a UUID"),
    (["release", "a", "k", SOME_KEY, "--result", "text"], "result is not JSON"),
    (["release", "a", "k", SOME_KEY, "--result", '"\\u0000"'], "result is not JSON"),
    (["release", "a", "k", SOME_KEY, "--result", '"' + "x" * 8192 + '"'], "8192 bytes"),
    (["release", "a", "k", SOME_KEY, "--fail", ""], "fail must be 1 to 8192 bytes, has 0"),
    (["release", "a", "k", SOME_KEY, "--fail", "x" * 8193], "1 to 8192 bytes"),
    (["release", "a", "k", SOME_KEY, "--fail", "x", "--result", "1"], "cannot be combined"),
    (["list", "a..b"], "segment 2 of namespace must be"),
    (["show", "a", ""], "key must be 1 to 1024 bytes"),
    (["reap", "a..b"], "segment 2 of namespace must be"),
    (["reap", "--max", "0"], "a whole number from 1 to 10000"),
    (["reap", "--max", "10001"], "a whole number from 1 to 10000"),
    (["reap", "--once", "--every", "1s"], "cannot be combined"),
    (["reap", "--every", "1ms"], "every must be at least 100 ms, is 1 ms"),
    (["force-release", "a", "k"], "needs --reason TEXT"),
    (["force-release", "a", "k", "--reason", ""], "reason must be 1 to 8192 bytes, has 0"),
    (["force-release", "a", "k", "--reason", "x", "--token", "0"], "token '0' is out of bounds"),
    (["force-release", "a", "k", "--reason", "x", "--token", "1e3"], "token '1e3' is out of bounds"),
    (["policy", "frob"], "unknown subcommand: policy frob; use show, set or reset"),
    (["policy", "set"], "policy set needs a namespace"),
    (["policy", "set", "a"], "policy set needs at least one NAME=VALUE"),
    (["policy", "set", "a", "grace"], "'grace' is not NAME=VALUE"),
    (["policy", "set", "a", "grase=1s"], "did you mean grace?"),
    (["policy", "set", "a", "grace=long"], "grace 'long' is not a duration"),
    (["policy", "set", "a", "expiry=never"], "one of: takeover, reap, manual"),
    (["policy", "set", "a", "frozen=ice"], "neither true nor false"),
    (["policy", "set", "a", "max_leases=-1"], "a whole number from 0 on"),
    (["policy", "reset", "a", "colour"], "no setting 'colour'"),
    (["policy", "show", "a", "b"], "unexpected argument: b"),
    (["status", "now"], "unexpected argument: now"),
    (["migrate"], "--database URL, or LEASEHOLD_DATABASE"),
    (["migrate", "--database", "x", "--print", "--status"], "cannot be combined"),
    (["reap", "--database", "postgresql://%zz"], 'not the address of a database: invalid percent-encoded token: "%zz"'),
    (["reap", "--database", "postgresql://u:secret%zz@h/"], "not the address of a database: it is neither"),
    *[(["reap", "--database", url], f"'{scheme}://' is not a scheme of PostgreSQL; --database takes postgresql://")
      for scheme, url in (("mysql", "mysql://x"), ("postgre", "postgre://h/d"), ("http", "http://localhost:7420"))],
    *[(["reap", "--database", url], f'not the address of a database: invalid URI query parameter: "{name}"') for name, url in
      (("load_balance_hosts", "postgresql://u:secret@h/d?load_balance_hosts=random"), ("sslnegotiation", "postgresql:///d?sslnegotiation=direct"))],
    (["reap", "--database", "host=h password=secret sslnegotiation=direct"], 'invalid connection option "sslnegotiation"'),
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
        assert "127.0.0.1:1" in said.stderr and "name another server with --server" in said.stderr and said.stdout == ""
    assert cli("status", "--server", f"unix:{tmp_path}/no.sock").returncode == 5
    assert cli("status", "--server", "no-such-host.invalid:7420").returncode == 5
    gone = f"host={tmp_path} dbname=x connect_timeout=2"
    for args in (["reap"], ["migrate"], ["policy", "show"], ["force-release", "a", "b", "--reason", "x"]):
        said = cli(*args, "--database", gone)
        assert said.returncode == 5 and "the database is unavailable" in said.stderr


# --- JSON against the mapping of stock Python ---


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
