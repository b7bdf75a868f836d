"""What the tests of the streaming calls share: streams that are read by a thread, and clients in a process of their own."""
import pathlib
import queue
import subprocess
import sys
import threading
import uuid

import grpc

import harness
from harness import lease_ref, pb

STUBS = str(pathlib.Path(pb.__file__).parents[2])
BOUND = 60  # seconds until a test gives up; never a measurement


def keys():
    return "k-" + uuid.uuid4().hex[:8]


class Reading:
    """The events of a call, read by a thread: next() one by one, until() one of them, and how it ended."""

    END = object()

    def __init__(self, call):
        self.call = call
        self.events = queue.Queue()
        self.seen = []
        self.error = None

    def read(self):
        self.thread = threading.Thread(target=self._read, daemon=True)
        self.thread.start()

    def _read(self):
        try:
            for event in self.call:
                self.events.put(event)
        except grpc.RpcError as error:
            self.error = error
        self.events.put(Reading.END)

    def next(self, seconds=BOUND):
        """The next event, or None at the end of the stream."""
        event = self.events.get(timeout=seconds)
        if event is Reading.END:
            self.events.put(event)
            return None
        self.seen.append(event)
        return event

    def until(self, condition, what="the event"):
        """Read on to the first event for which `condition` is true."""
        while True:
            event = self.next()
            assert event is not None, f"the stream ended before {what}: {self.error}"
            if condition(event):
                return event

    def ends(self):
        """It ends with OK, whatever comes before."""
        while self.next() is not None:
            pass
        assert self.error is None, self.error

    def fails(self):
        while self.next() is not None:
            pass
        assert self.error is not None, "the stream ended with OK"
        return harness.Failure(self.error)

    def close(self):
        self.call.cancel()


class Stream(Reading):
    """A bidirectional or server stream: requests by send(), events by next(), and how it ended."""

    def __init__(self, method, *requests, unary=None):
        self.requests = queue.Queue()
        for request in requests:
            self.requests.put(request)
        super().__init__(method(unary) if unary is not None else method(iter(self.requests.get, None)))
        self.read()

    def send(self, request):
        self.requests.put(request)

    def half_close(self):
        self.requests.put(None)

    def close(self):
        self.half_close()
        super().close()


def beat(*leases):
    return pb.HeartbeatRequest(leases=[lease_ref(lease) for lease in leases])


def waiters(service, key):
    return int(service.psql(f"select count(*) from leasehold.waiter where key = '{key}'"))


def holder(service, key):
    """Owner of a held scope, else ''."""
    return service.psql(f"select owner from leasehold.scope where key = '{key}' and state = 'held'")


def queued_event(event):
    return event.WhichOneof("event") == "queued"


def granted_event(event):
    return event.WhichOneof("event") == "granted"


CLIENT = """
import queue, sys
sys.path.insert(0, sys.argv[1])
import google
google.__path__.append(sys.argv[1] + "/google")
import grpc
from leasehold.v1 import leasehold_pb2 as pb, leasehold_pb2_grpc as pb_grpc
stub = pb_grpc.LeaseServiceStub(grpc.insecure_channel(sys.argv[2]))
request = pb.AcquireRequest.FromString(bytes.fromhex(sys.argv[4]))
requests = queue.Queue()
requests.put(pb.HoldRequest(acquire=request, by_ping=True))
events = stub.Hold(iter(requests.get, None)) if sys.argv[3] == "Hold" else stub.AcquireStream(request)
for event in events:
    print(event.WhichOneof("event"), event.lost.end_reason if sys.argv[3] == "Hold" else "", flush=True)
print("end", flush=True)
sys.stdin.read()
"""


def start_client(target, method, request):
    """Of AcquireStream or Hold, in a process of its own, to be killed and stopped."""
    return subprocess.Popen(
        [sys.executable, "-c", CLIENT, STUBS, target, method, request.SerializeToString().hex()],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def says(process, what):
    """Read its lines up to this event."""
    for line in process.stdout:
        if line.split()[0] == what:
            return line.split()[1:]
    raise AssertionError(f"the client ended without {what}")
