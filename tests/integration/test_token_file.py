"""The bearer token that the library and the command line send: flags, environment, rotation, and what a denial looks like."""
import concurrent.futures
import os
import pathlib

import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2

from certificates import SERVER_NAMES
from commandline import cli
from harness import pb, pb_grpc, wait_until
from streams import keys
from library import Driver

DETAILS = "grpc-status-details-bin"


class Server(pb_grpc.LeaseServiceServicer, pb_grpc.AdminServiceServicer):
    """A stock gRPC server that writes down the token of each call, and grants or denies."""

    def __init__(self, credentials=None):
        self.tokens, self.denial = [], None
        self.grpc = grpc.server(concurrent.futures.ThreadPoolExecutor(4))
        pb_grpc.add_LeaseServiceServicer_to_server(self, self.grpc)
        pb_grpc.add_AdminServiceServicer_to_server(self, self.grpc)
        self.port = self.grpc.add_secure_port("127.0.0.1:0", credentials) if credentials else self.grpc.add_insecure_port("127.0.0.1:0")
        self.target = f"127.0.0.1:{self.port}"
        self.grpc.start()

    def hear(self, context):
        self.tokens.append(dict(context.invocation_metadata()).get("authorization"))
        if self.denial is None:
            return
        code, reason, words = self.denial
        status = status_pb2.Status(code=code.value[0], message=words)
        status.details.add().Pack(error_details_pb2.ErrorInfo(reason=reason, domain="leasehold"))
        context.set_trailing_metadata([(DETAILS, status.SerializeToString())])
        context.abort(code, words)

    def GetStatus(self, request, context):
        self.hear(context)
        return pb.GetStatusResponse(version="0", coordinator_id="00000000-0000-0000-0000-000000000000")

    def Acquire(self, request, context):
        self.hear(context)
        lease = pb.Lease(scope=request.scope, lease_key=request.lease_key, token=7)
        lease.duration.CopyFrom(request.duration)
        lease.remaining.CopyFrom(request.duration)
        return pb.AcquireResponse(lease=lease)

    def WatchLeases(self, request, context):
        self.hear(context)
        yield pb.LeaseEvent()

    def Reap(self, request, context):
        self.hear(context)
        return pb.ReapResponse()

    def Heartbeat(self, request, context):
        self.hear(context)
        return pb.HeartbeatResponse(results=[pb.HeartbeatResult(outcome=pb.OUTCOME_RETRY) for _ in request.leases])

    def KeepAlive(self, requests, context):
        self.hear(context)
        for request in requests:
            yield pb.HeartbeatResponse(results=[pb.HeartbeatResult(outcome=pb.OUTCOME_RETRY) for _ in request.leases])


@pytest.fixture
def server():
    servers = []

    def start(**options):
        servers.append(Server(**options))
        return servers[-1]

    yield start
    for each in servers:
        each.grpc.stop(None).wait()


@pytest.fixture
def token(tmp_path):
    """Write a token into its file, as a rotation does it."""
    def write(text):
        (tmp_path / "new").write_text(text)
        os.rename(tmp_path / "new", tmp_path / "token")
        return str(tmp_path / "token")

    write.file = str(tmp_path / "token")
    return write


@pytest.mark.parametrize("command", [["status"], ["acquire", "ns", "k"], ["run", "ns", "k", "--", "true"]], ids=lambda words: words[0])
def test_the_token_comes_from_the_flag_or_the_environment(server, token, command):
    heard = server()
    for args, env in ((["--token-file", token("lht_one\n")], {}), ([], {"LEASEHOLD_TOKEN_FILE": token.file}),
                      (["--token-file", token.file], {"LEASEHOLD_TOKEN_FILE": "/nowhere"})):
        heard.tokens.clear()
        cli(command[0], "--server", heard.target, "--timeout", "20s", *args, *command[1:], **env)
        assert heard.tokens and set(heard.tokens) == {"Bearer lht_one"}
    heard.tokens.clear()
    cli(command[0], "--server", heard.target, *command[1:])
    assert heard.tokens and set(heard.tokens) == {None}


def test_the_token_goes_over_tls_too(server, token, authority):
    own = authority.issue("token-server-" + keys(), SERVER_NAMES)
    read = lambda file: pathlib.Path(file).read_bytes()
    heard = server(credentials=grpc.ssl_server_credentials([(read(own.key), read(own.cert))]))
    done = cli("status", "--server", heard.target, "--ca", authority.cert, "--token-file", token("lht_one"))
    assert done.returncode == 0 and heard.tokens == ["Bearer lht_one"], done.stderr


@pytest.mark.parametrize("command", [["status"], ["run", "ns", "k", "--", "true"]], ids=lambda words: words[0])
def test_a_token_does_not_leave_the_machine_in_plaintext(token, command):
    done = cli(command[0], "--server", "192.0.2.1:7420", "--token-file", token("lht_secret"), *command[1:])
    assert done.returncode == 2
    assert "192.0.2.1:7420: without TLS a token is sent to loopback addresses and unix sockets only" in done.stderr
    assert "lht_secret" not in done.stderr


def test_a_file_without_a_token_is_named(server, token):
    heard = server()
    for args, words in ((["--token-file", "/nowhere/token"], "the token file /nowhere/token cannot be opened: No such file"),
                        (["--token-file", token("two words")], f"the token file {token.file} holds no token")):
        done = cli("status", "--server", heard.target, *args)
        assert done.returncode == 1 and words in done.stderr and "two words" not in done.stderr
    assert heard.tokens == []


@pytest.mark.parametrize("code, reason", [(grpc.StatusCode.UNAUTHENTICATED, "UNAUTHENTICATED"), (grpc.StatusCode.PERMISSION_DENIED, "ACCESS_DENIED")],
                         ids=["unknown", "denied"])
@pytest.mark.parametrize("command", [["status"], ["acquire", "ns", "k", "--wait", "60s"], ["run", "ns", "k", "--wait", "60s", "--", "true"],
                                     ["run", "ns", "k", "--repeat", "--", "true"], ["watch", "ns"], ["reap", "--every", "1s"]],
                         ids=lambda words: " ".join(words[:4]))
def test_a_denial_is_an_error_with_words_and_is_not_repeated(server, token, command, code, reason):
    heard = server()
    heard.denial = code, reason, "anonymous has no right here"
    done = cli(command[0], "--server", heard.target, "--token-file", token("lht_one"), "--timeout", "60s", *command[1:])
    assert done.returncode == 1, done.stderr
    assert "anonymous has no right here" in done.stderr and "lht_one" not in done.stderr
    assert len(heard.tokens) == 1


def test_a_value_of_the_environment_that_is_none_is_wrong_usage():
    for command in (["status"], ["run", "ns", "k", "--", "true"]):
        done = cli(*command, LEASEHOLD_TLS="maybe")
        assert done.returncode == 2 and "LEASEHOLD_TLS is maybe; it takes yes or no" in done.stderr
    assert cli("daemons", LEASEHOLD_TLS="maybe", LEASEHOLD_DATABASE="postgresql://127.0.0.1:1/x").returncode == 5


@pytest.mark.parametrize("mode", ["thread", "base"])
def test_the_library_sends_a_token_that_was_rotated_without_a_restart(server, token, monkeypatch, mode):
    heard = server()
    monkeypatch.setenv("LEASEHOLD_TOKEN_FILE", token("lht_one"))
    driver = Driver(mode, heard.target, flush_ms=300)
    try:
        driver.declare(duration_ms=60000)
        assert driver.ask("acquire a d k").startswith("acquire a OK")
        assert set(heard.tokens) == {"Bearer lht_one"}
        token("lht_two")
        wait_until(lambda: driver.ask("heartbeat a") and heard.tokens[-1] == "Bearer lht_two", 30, "the new token")
        assert not any("lht_" in line for line in driver.log)
    finally:
        driver.close()


@pytest.mark.parametrize("code, reason", [(grpc.StatusCode.UNAUTHENTICATED, "UNAUTHENTICATED"), (grpc.StatusCode.PERMISSION_DENIED, "ACCESS_DENIED")],
                         ids=["unknown", "denied"])
def test_the_library_reports_a_denial_and_does_not_repeat_it(server, code, reason):
    heard = server()
    heard.denial = code, reason, "anonymous has no right here"
    driver = Driver("thread", heard.target, flush_ms=300)
    try:
        driver.declare(duration_ms=60000)
        assert reason in driver.ask("acquire a d k wait_ms=60000")
        assert driver.stats()["retries"] == 0 and len(heard.tokens) == 1
    finally:
        driver.close()


def test_a_command_that_runs_under_a_lease_gets_the_path_alone(server, token):
    heard = server()
    done = cli("run", "--server", heard.target, "ns", "k", "--", "env", LEASEHOLD_TOKEN_FILE=token("lht_one"), LEASEHOLD_DATABASE="password=secret")
    assert f"LEASEHOLD_TOKEN_FILE={token.file}" in done.stdout.splitlines()
    assert "LEASEHOLD_DATABASE" not in done.stdout and "lht_one" not in done.stdout
