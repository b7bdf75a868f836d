"""The command line and failures that a real daemon has too rarely: a stock Python gRPC server plays it."""
import concurrent.futures
import signal

import grpc
import pytest
from google.protobuf import any_pb2, json_format

import harness
from commandline import NOWHERE, SOME_KEY, cli, ends, start, timestamp
from harness import error_details_pb2, pb, pb_grpc, status_pb2, wait_until


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
        assert "the database is away; still waiting" in said.stderr


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
        said = cli("heartbeat", "a", "k", SOME_KEY, "--timeout", "2s", **server.env)
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


def test_a_lease_is_given_back_though_the_server_is_slow_to_do_it():
    """Its database answers nobody for a moment: five times RETRY, which take over a second."""
    def silent(request, context):
        wait_until(lambda: not context.is_active(), what="the client's cancel")
        return pb.AcquireResponse()

    steps = [result_of(pb.ReleaseResponse, pb.OUTCOME_RETRY)] * 5 + [result_of(pb.ReleaseResponse, pb.OUTCOME_OK)]
    with Scripted(acquire=[silent], release=steps) as server:
        waiter = start("acquire", "a", "k", "--wait", "forever", **server.env)
        wait_until(lambda: server.seen, what="the call")
        waiter.send_signal(signal.SIGINT)
        assert ends(waiter) == 130
        assert [type(r) for r in server.seen[1:]] == [pb.ReleaseRequest] * 6


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


def test_the_next_server_is_asked_when_one_cannot_be_reached():
    with Scripted(list=[lambda request, context: pb.ListLeasesResponse()], acquire=[granted]) as server:
        both = f"{NOWHERE}, {server.env['LEASEHOLD_SERVER']}"
        assert cli("--server", both, "list").returncode == 0
        assert cli("acquire", "a", "k", LEASEHOLD_SERVER=both).returncode == 0
        assert len(server.seen) == 2
    said = cli("--server", f"{NOWHERE},nonsense", "list")
    assert (said.returncode, "nonsense" in said.stderr) == (2, True), said.stderr
    said = cli("--server", f"{NOWHERE},127.0.0.1:2", "list", "--timeout", "5s")
    assert said.returncode == 5, said.stderr
