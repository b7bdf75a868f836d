"""OpenTelemetry traces, as a stock gRPC server gets them that speaks opentelemetry-proto."""
import concurrent.futures
import re
import socket
import threading
import uuid

import grpc
import pytest

import harness
from harness import Client, acquire_request, fails, heartbeat, lease_ref, pb, release_request, wait_until
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as otlp
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc as otlp_grpc
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status
from streams import BOUND, keys
from test_metrics import Metrics

NAMESPACE = "pay.in"
METHOD = "leasehold.v1.LeaseService/"
SENT, DROPPED = "leasehold_trace_spans_sent_total", "leasehold_trace_spans_dropped_total"


class Collector(otlp_grpc.TraceServiceServicer):
    """`answer`: what becomes of an Export, given its context."""

    def __init__(self, port=0, credentials=None, answer=lambda context: otlp.ExportTraceServiceResponse()):
        self.answer = answer
        self.requests = []
        self.attempts = 0
        self.server = grpc.server(concurrent.futures.ThreadPoolExecutor(4), options=[("grpc.so_reuseport", 0)])
        otlp_grpc.add_TraceServiceServicer_to_server(self, self.server)
        address = f"127.0.0.1:{port}"
        self.port = (self.server.add_secure_port(address, credentials) if credentials else self.server.add_insecure_port(address))
        assert self.port, f"{address} is taken"
        self.server.start()

    def Export(self, request, context):
        self.attempts += 1
        answer = self.answer(context)
        self.requests.append(request)
        return answer

    @property
    def spans(self):
        return [span for request in list(self.requests) for resource in request.resource_spans
                for scope in resource.scope_spans for span in scope.spans]

    def of(self, trace_id):
        return [span for span in self.spans if span.trace_id.hex() == trace_id]

    def trace(self, trace_id):
        """The spans of a trace whose call has ended, by name; the call's own by the method's name."""
        wait_until(lambda: any(span.kind == Span.SPAN_KIND_SERVER for span in self.of(trace_id)), BOUND, f"trace {trace_id}")
        return {span.name.replace(METHOD, ""): span for span in self.of(trace_id)}

    def stop(self):
        self.server.stop(0).wait(BOUND)


@pytest.fixture
def collector():
    started = []

    def collector(*args, **more):
        started.append(Collector(*args, **more))
        return started[-1]

    yield collector
    for each in started:
        each.stop()


@pytest.fixture
def traced(cluster, start):
    """A daemon that sends its traces to this port, and a client."""
    clients = []

    def traced(port, *args):
        daemon = start("--trace-endpoint", f"127.0.0.1:{port}", *args, database=cluster.url(cluster.create_database(migrated=True)))
        clients.append(Client(daemon.target))
        return daemon, clients[-1]

    yield traced
    for client in clients:
        client.close()


def parent(flags="01"):
    """A trace id, a span id, and the metadata of a call that is a part of it."""
    trace_id, span_id = uuid.uuid4().hex, uuid.uuid4().hex[:16]
    return trace_id, span_id, (("traceparent", f"00-{trace_id}-{span_id}-{flags}"),)


def attributes(span):
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in span.attributes}


def is_within(inner, outer):
    return outer.start_time_unix_nano <= inner.start_time_unix_nano <= inner.end_time_unix_nano <= outer.end_time_unix_nano


def work(client, metadata=None):
    lease = client.lease.Acquire(acquire_request(NAMESPACE, keys()), metadata=metadata).lease
    client.lease.Release(release_request(lease))
    return lease


def waiting(daemon):
    return Metrics(daemon).get("leasehold_waiters")


def test_acquire_that_waited_is_a_trace_of_its_caller(collector, traced):
    collector = collector()
    daemon, client = traced(collector.port)
    key, (trace_id, span_id, metadata) = keys(), parent()
    held = client.lease.Acquire(acquire_request(NAMESPACE, key)).lease
    waiter = client.lease.Acquire.future(acquire_request(NAMESPACE, key, wait=120), metadata=metadata)
    wait_until(lambda: waiting(daemon) == 1, BOUND, "a waiter")
    client.lease.Release(release_request(held))
    granted = waiter.result(BOUND)
    spans = collector.trace(trace_id)

    assert set(spans) == {"Acquire", "queueing", "batch", "grant"}, spans
    call, queueing, batch, grant = spans["Acquire"], spans["queueing"], spans["batch"], spans["grant"]
    assert call.name == METHOD + "Acquire" and call.kind == Span.SPAN_KIND_SERVER and call.parent_span_id.hex() == span_id
    assert queueing.parent_span_id == batch.parent_span_id == grant.parent_span_id == call.span_id
    assert len({each.span_id for each in spans.values()} | {bytes.fromhex(span_id)}) == 5
    assert is_within(queueing, call) and is_within(batch, call)
    assert queueing.end_time_unix_nano == batch.start_time_unix_nano
    assert grant.start_time_unix_nano == batch.end_time_unix_nano and is_within(grant, call)
    waited = queueing.end_time_unix_nano - queueing.start_time_unix_nano
    assert waited == granted.waited.ToNanoseconds() > 0
    assert call.flags == 0x301 and queueing.flags == 0x101  # sampled; the parent is remote, or it is not
    assert call.status.code == Status.STATUS_CODE_UNSET
    assert attributes(call) == {
        "rpc.system": "grpc", "rpc.service": "leasehold.v1.LeaseService", "rpc.method": "Acquire", "rpc.grpc.status_code": 0,
        "leasehold.namespace": NAMESPACE, "leasehold.key": key, "leasehold.outcome": "GRANTED",
        "leasehold.token": granted.lease.token}
    assert attributes(batch)["leasehold.items"] >= 1
    resource = attributes(collector.requests[0].resource_spans[0].resource)
    assert resource["service.name"] == "leaseholdd" and resource["service.instance.id"].endswith(f":{daemon.process.pid}")
    for lease_key in (held.lease_key, granted.lease.lease_key):
        sent = b"".join(request.SerializeToString() for request in collector.requests)
        assert lease_key.encode() not in sent and uuid.UUID(lease_key).bytes not in sent


def test_streams_heartbeats_and_releases_are_traced(collector, traced):
    collector = collector()
    _, client = traced(collector.port)
    streamed, held, beaten, released = parent(), parent(), parent(), parent()

    lease = list(client.lease.AcquireStream(acquire_request(NAMESPACE, keys()), metadata=streamed[2]))[-1].granted
    assert client.lease.Heartbeat(pb.HeartbeatRequest(leases=[lease_ref(lease)] * 3), metadata=beaten[2]).results
    client.lease.Release(release_request(lease), metadata=released[2])
    granted = threading.Event()

    def say():
        yield pb.HoldRequest(acquire=acquire_request(NAMESPACE, keys()))
        granted.wait(BOUND)

    for event in client.lease.Hold(say(), metadata=held[2]):
        assert event.WhichOneof("event") != "lost"
        granted.set()

    assert set(collector.trace(streamed[0])) == {"AcquireStream", "queueing", "batch", "grant"}
    assert set(collector.trace(held[0])) == {"Hold", "queueing", "batch", "grant"}
    assert attributes(collector.trace(held[0])["Hold"])["leasehold.token"] > 0
    for (trace_id, span_id, _), name, items in (beaten, "Heartbeat", 3), (released, "Release", 1):
        spans = collector.trace(trace_id)
        assert set(spans) == {name, "batch"}
        assert spans[name].parent_span_id.hex() == span_id and spans["batch"].parent_span_id == spans[name].span_id
        assert attributes(spans[name])["leasehold.items"] == items and is_within(spans["batch"], spans[name])


def test_hook_is_a_span_of_its_batch(collector, traced, cluster):
    collector = collector()
    daemon, client = traced(collector.port)
    database = re.search(r"dbname=(\S+)", " ".join(daemon.args))[1]
    cluster.psql(f"""create function public.noop(leasehold.lease_event) returns void language sql as '';
                     select leasehold.add_hook('{NAMESPACE}', 'acquire', 'public.noop(leasehold.lease_event)');""", database)
    trace_id, _, metadata = parent()
    client.lease.Acquire(acquire_request(NAMESPACE, keys()), metadata=metadata)
    spans = collector.trace(trace_id)
    assert set(spans) == {"Acquire", "queueing", "batch", "hook", "grant"}
    assert spans["hook"].parent_span_id == spans["batch"].span_id and is_within(spans["hook"], spans["batch"])


def test_failures_are_told(collector, traced):
    collector = collector()
    _, client = traced(collector.port)
    key, refused, broken = keys(), parent(), parent()
    client.lease.Acquire(acquire_request(NAMESPACE, key))
    with fails():
        client.lease.Acquire(acquire_request(NAMESPACE, key), metadata=refused[2])
    with fails():
        client.lease.Acquire(acquire_request(NAMESPACE, ""), metadata=broken[2])
    call = collector.trace(refused[0])["Acquire"]
    assert set(collector.trace(refused[0])) == {"Acquire", "queueing", "batch"}
    assert attributes(call)["leasehold.outcome"] == "LEASE_HELD" and "leasehold.token" not in attributes(call)
    assert attributes(call)["rpc.grpc.status_code"] == grpc.StatusCode.ABORTED.value[0]
    call = collector.trace(broken[0])["Acquire"]
    assert attributes(call)["rpc.grpc.status_code"] == grpc.StatusCode.INVALID_ARGUMENT.value[0]
    assert "leasehold.key" not in attributes(call) and "leasehold.outcome" not in attributes(call)


def marked(collector, client):
    """A trace that is certain to arrive, after all that was before it."""
    trace_id, _, metadata = parent()
    work(client, metadata)
    return collector.trace(trace_id)


def test_nothing_is_sent_unless_it_is_sampled(collector, traced):
    collector = collector()
    _, client = traced(collector.port)
    work(client)
    trace_id, _, unsampled = parent("00")
    work(client, unsampled)
    for broken in ("", "00", "x" * 55, f"00-{'0' * 32}-{'1' * 16}-01", f"00-{'A' * 32}-{'1' * 16}-01", f"ff-{'1' * 32}-{'1' * 16}-01"):
        work(client, (("traceparent", broken),))
    work(client, parent()[2] + parent()[2])
    spans = marked(collector, client)
    assert {span.trace_id for span in collector.spans} == {spans["Acquire"].trace_id}


def test_share_of_calls_without_a_traceparent_is_traced(collector, traced):
    collector = collector()
    _, client = traced(collector.port, "--trace-sample", "1")
    broken = f"00-{'0' * 32}-{'1' * 16}-01"
    trace_id, _, unsampled = parent("00")
    work(client)
    work(client, (("traceparent", broken),))
    work(client, unsampled)
    spans = marked(collector, client)
    calls = [span for span in collector.spans if span.kind == Span.SPAN_KIND_SERVER and span.trace_id != spans["Acquire"].trace_id]
    # Each is a trace of its own. The last Release may come after the mark.
    assert len([span for span in calls if span.name.endswith("/Acquire")]) == 2
    assert len({span.trace_id for span in calls}) == len(calls) and not any(span.parent_span_id for span in calls)
    assert trace_id not in {span.trace_id.hex() for span in calls}


def test_spans_wait_for_a_collector_that_is_away(collector, traced):
    first = collector()
    daemon, client = traced(first.port)
    marked(first, client)
    wait_until(lambda: Metrics(daemon).get(SENT) == len(first.spans), BOUND, "the answer")
    first.stop()
    trace_id, _, metadata = parent()
    work(client, metadata)
    wait_until(lambda: "the collector of traces does not take spans" in daemon.log(), BOUND, "a warning")
    second = collector(port=first.port)
    assert set(second.trace(trace_id)) == {"Acquire", "queueing", "batch", "grant"}
    wait_until(lambda: "the collector of traces takes spans again" in daemon.log(), BOUND, "the news")
    metrics = Metrics(daemon)
    assert metrics.get(SENT) == len(first.spans) + len(second.spans) and metrics.get(DROPPED) == 0


def test_collector_that_never_answers_delays_no_call(traced):
    """One whose system takes connections, and that reads nothing."""
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        daemon, client = traced(deaf.getsockname()[1], "--trace-sample", "1")
        # Far more spans than the ring holds: five for each round.
        rounds, threads, failures = 120, 16, []

        def run():
            try:
                for _ in range(rounds):
                    work(client)
            except Exception as error:  # told by the test's thread
                failures.append(error)

        running = [threading.Thread(target=run) for _ in range(threads)]
        for each in running:
            each.start()
        for each in running:
            each.join(240)
        assert not failures and not any(each.is_alive() for each in running), failures
        metrics = Metrics(daemon)
        assert metrics.get(DROPPED) > 0 and metrics.get(SENT) == 0
        assert daemon.stop() == 0, daemon.log()


def test_spans_that_a_collector_refuses_are_counted(collector, traced):
    def refuse(context):
        context.abort(grpc.StatusCode.INVALID_ARGUMENT, "not these")

    collector = collector(answer=refuse)
    daemon, client = traced(collector.port)
    work(client, parent()[2])
    wait_until(lambda: Metrics(daemon).get(DROPPED) == 4, BOUND, "the count")
    assert "status=INVALID_ARGUMENT: not these" in daemon.log()
    collector.answer = lambda context: otlp.ExportTraceServiceResponse(
        partial_success=otlp.ExportTracePartialSuccess(rejected_spans=2, error_message="two of them"))
    marked(collector, client)
    wait_until(lambda: Metrics(daemon).get(DROPPED) == 6 and Metrics(daemon).get(SENT) == 2, BOUND, "the count")
    assert "two of them" in daemon.log()


def test_collector_is_spoken_to_with_tls(collector, traced, authority, other_authority, server):
    credentials = grpc.ssl_server_credentials([server.read()])
    collector = collector(credentials=credentials)
    _, client = traced(collector.port, "--trace-ca", authority.cert)
    assert marked(collector, client)
    daemon, client = traced(collector.port, "--trace-ca", other_authority.cert)
    trace_id, _, metadata = parent()
    work(client, metadata)
    wait_until(lambda: "the collector of traces does not take spans" in daemon.log(), BOUND, "a warning")
    assert not collector.of(trace_id)


def test_daemon_serves_where_the_collector_cannot_be_found(cluster, start):
    daemon = start("--trace-endpoint", "nowhere.invalid:4317", database=cluster.url(cluster.create_database(migrated=True)))
    client = Client(daemon.target)
    assert heartbeat(client, work(client, parent()[2])).outcome == pb.OUTCOME_LOST
    client.close()
    assert "trace_endpoint = nowhere.invalid:4317" in daemon.log()
