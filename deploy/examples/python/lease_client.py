#!/usr/bin/python3
"""A lease from Python that looks after itself, with nothing but stock gRPC. Copy it, or run it to see it work:

    protoc -Iproto -I/usr/include --python_out=/tmp/stubs --grpc_python_out=/tmp/stubs \\
      --plugin=protoc-gen-grpc_python="$(which grpc_python_plugin)" leasehold/v1/leasehold.proto
    PYTHONPATH=/tmp/stubs ./lease_client.py 127.0.0.1:7420 payments invoice-42 --duration 10 --wait 60

    with Lease(stub, "payments", "invoice-42", duration=10, wait=60) as lease:
        while lease.is_held():                        # stop before its deadline, whatever happened
            step(fence=lease.token, timeout=lease.remaining())
"""
import argparse
import signal
import sys
import threading
import time
import uuid

import grpc
from google.protobuf.duration_pb2 import Duration
from leasehold.v1 import leasehold_pb2 as pb
from leasehold.v1 import leasehold_pb2_grpc as pb_grpc


def clock():
    """Runs while the machine is suspended, as the lease does."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def duration_of(seconds):
    value = Duration()
    value.FromNanoseconds(round(seconds * 1e9))
    return value


class Lease:
    """Acquired when made: raises grpc.RpcError when it is held by another (ABORTED) or the wait has passed
    (DEADLINE_EXCEEDED). Then renewed at a third of its duration until released or lost; `on_lost(reason)` is called once,
    on the renewing thread, a margin before the deadline at the latest."""

    def __init__(self, stub, namespace, key, duration=30, wait=0, owner="", on_lost=None):
        self.stub, self.duration, self.margin, self.on_lost = stub, duration, duration / 5, on_lost
        self.ref = pb.LeaseRef(scope=pb.Scope(namespace=namespace.split("."), key=key), lease_key=str(uuid.uuid4()))
        self.lost_because = None
        self.is_over = threading.Event()  # lost or released
        self.lock = threading.Lock()
        self._acquire(wait, owner)
        threading.Thread(target=self._renew, daemon=True).start()

    def _acquire(self, wait, owner):
        wait_until = clock() + wait
        while True:
            sent, left = clock(), max(wait_until - clock(), 0)
            request = pb.AcquireRequest(scope=self.ref.scope, lease_key=self.ref.lease_key, owner=owner,
                                        duration=duration_of(self.duration), wait=duration_of(left))
            try:
                for event in self.stub.AcquireStream(request, timeout=left + 10):
                    if event.HasField("granted"):
                        self.token = event.granted.token
                        self.deadline = sent + event.waited.ToNanoseconds() / 1e9 + event.granted.remaining.ToNanoseconds() / 1e9
                        return
            except grpc.RpcError as error:
                # The same lease key makes the repetition the same acquisition, with its old place in the queue.
                if error.code() == grpc.StatusCode.UNAVAILABLE and clock() < wait_until + 5:
                    time.sleep(0.2)
                    continue
                if error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
                    self._send_release(clock() + 1, pb.ReleaseItem(lease=self.ref))  # it may have been granted unheard
                raise

    def remaining(self):
        """Until the work must have stopped; the timeout of calls made under the lease."""
        return max(self.deadline - self.margin - clock(), 0)

    def is_held(self):
        return not self.is_over.is_set() and self.remaining() > 0

    def _renew(self):
        next_beat = clock() + self.duration / 3
        while not self.is_over.wait(min(max(next_beat - clock(), 0), self.margin / 2)):  # short: a suspend stops this wait
            if self.remaining() <= 0:
                return self._lose("unreachable")
            if clock() < next_beat:
                continue
            sent = clock()
            next_beat = sent + self.duration / 3
            try:
                patience = min(self.remaining(), self.duration / 6)  # an answer that got lost must not cost the lease
                beat = self.stub.Heartbeat(pb.HeartbeatRequest(leases=[self.ref]), timeout=patience).results[0]
            except grpc.RpcError:  # one failed renewal is no loss; the deadline is
                next_beat = clock() + 0.1
                continue
            if beat.outcome == pb.OUTCOME_LOST:
                return self._lose(pb.EndReason.Name(beat.end_reason)[len("END_REASON_"):].lower())
            if beat.outcome == pb.OUTCOME_OK and self.remaining() > 0:  # an answer that was read too late saves nothing
                self.deadline = sent + beat.remaining.ToNanoseconds() / 1e9
            elif beat.outcome != pb.OUTCOME_OK:
                next_beat = clock() + 0.1

    def _lose(self, reason):
        with self.lock:
            if self.is_over.is_set():
                return
            self.lost_because = reason
            self.is_over.set()
        if self.on_lost is not None:
            self.on_lost(reason)

    def release(self, result="", failure=None):
        """True: given back. False: it had been lost before. Renewals end first."""
        with self.lock:
            if self.is_over.is_set():
                return False
            self.is_over.set()
        item = pb.ReleaseItem(lease=self.ref)
        if failure is not None:
            item.failure = failure
        else:
            item.success = result
        return self._send_release(self.deadline, item)

    def _send_release(self, until, item):
        is_repeated = False
        while clock() < until:
            try:
                done = self.stub.Release(pb.ReleaseRequest(items=[item]), timeout=until - clock()).results[0]
                if done.outcome != pb.OUTCOME_RETRY:
                    # Who repeats a release whose answer got lost is told LOST because of RELEASED: done.
                    ended_by_us = done.end_reason in (pb.END_REASON_RELEASED, pb.END_REASON_FAILED)
                    return done.outcome == pb.OUTCOME_OK or (is_repeated and ended_by_us)
            except grpc.RpcError:
                is_repeated = True
            time.sleep(0.1)
        return False  # it ends by its deadline

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        self.release(failure=str(error) if error else None)


def main():
    parser = argparse.ArgumentParser(description="Hold a lease until SIGTERM; exit status 0 released, 3 held by another, 4 lost.")
    for name in ("server", "namespace", "key"):
        parser.add_argument(name)
    parser.add_argument("--duration", type=float, default=30)
    parser.add_argument("--wait", type=float, default=0)
    options = parser.parse_args()
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *unused: stop.set())
    stub = pb_grpc.LeaseServiceStub(grpc.insecure_channel(options.server, options=[("grpc.max_reconnect_backoff_ms", 1000)]))
    try:
        lease = Lease(stub, options.namespace, options.key, options.duration, options.wait, owner="lease_client.py")
    except grpc.RpcError as error:
        print("refused", error.code().name, error.details(), flush=True)
        return 3
    print("acquired", lease.token, flush=True)
    while lease.is_held() and not stop.is_set():
        print("working", flush=True)
        lease.is_over.wait(0.05)
    if stop.is_set() and lease.release(result='{"by": "python"}'):
        print("released", flush=True)
        return 0
    lease.is_over.wait(lease.margin)  # the renewing thread says why
    print("lost", lease.lost_because or "deadline", "in time" if clock() < lease.deadline else "late", flush=True)
    return 4


if __name__ == "__main__":
    sys.exit(main())
