"""The clients of a campaign, and what they see: stock gRPC against two daemons, psycopg2 against the primary.

Workers        acquire, write while the lease holds, release.
Careless ones  never look at their deadline, and write on for longer than their lease: fencing and guard() are there for them.
A line         waits for one scope, at one daemon each, and holds it shortly; its calls say when they are in the queue.
Keepers        acquire once, and renew to the end.
Challengers    ask for the keepers' scopes, one at each daemon; they must be refused.
Watchers       one at each daemon.
"""
import collections
import json
import pathlib
import random
import sys
import threading
import time
import uuid

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/integration"))
import grpc  # noqa: E402
import harness  # noqa: E402
import psycopg2  # noqa: E402
from harness import acquire_request, lease_ref, pb, pb_grpc, release_request  # noqa: E402

from history import Event, Grant, Hold, Loss, Register, Session, Waiter  # noqa: E402

CONFIG = (ROOT / "deploy/examples/grpc-service-config.json").read_text()
TARGETS = ("10.77.0.21:7420", "10.77.0.22:7420")
DATABASE = "host=10.77.0.11,10.77.0.12,10.77.0.13 dbname=leasehold user=postgres password=example target_session_attrs=read-write connect_timeout=3"
SCOPES = 4
NUMBERS = {"work": 4, "work_carelessly": 2, "stand_in_line": 5, "keep": 3, "challenge": 2, "watch": 2}
LINE = "line"
KINDS = {pb.LeaseEvent.TYPE_INITIAL: "initial", pb.LeaseEvent.TYPE_ACQUIRED: "acquired", pb.LeaseEvent.TYPE_RELEASED: "ended",
         pb.LeaseEvent.TYPE_EXPIRED: "ended", pb.LeaseEvent.TYPE_FORCED: "ended"}


def now():
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def seconds(duration):
    return duration.ToNanoseconds() / 1e9


class Load:
    def __init__(self, kept_s):
        self.kept_s = kept_s
        self.stop = threading.Event()       # no new requests
        self.give_up = threading.Event()    # who still waits is forgotten
        self.mutex = threading.Lock()
        self.holds, self.grants, self.promotions, self.waiters, self.losses, self.sessions, self.failed = [], [], [], [], [], [], []
        self.answers = collections.defaultdict(list)
        self.watched = dict.fromkeys(TARGETS, 0.0)
        self.renewals = 0
        self.waiting = {}
        self.kept = threading.Semaphore(0)
        self.register = Register()
        self.channels, self.threads = [], []

    def stub(self, *targets):
        channel = grpc.insecure_channel("ipv4:" + ",".join(targets), options=[
            ("grpc.use_local_subchannel_pool", 1), ("grpc.enable_retries", 1), ("grpc.service_config", CONFIG),
            ("grpc.keepalive_time_ms", 1000), ("grpc.keepalive_timeout_ms", 1000), ("grpc.keepalive_permit_without_calls", 1),
            ("grpc.http2.max_pings_without_data", 0), ("grpc.http2.min_ping_interval_without_data_ms", 1000),
            ("grpc.http2.min_time_between_pings_ms", 1000), ("grpc.max_reconnect_backoff_ms", 500)])
        self.channels.append(channel)
        return pb_grpc.LeaseServiceStub(channel)

    def stub_of_all(self, number):
        return self.stub(*TARGETS[number % 2:], *TARGETS[:number % 2])

    def granted(self, lease, waited, sent):
        """The deadline."""
        with self.mutex:
            self.grants.append(Grant(now(), lease.token))
        return sent + seconds(waited) + seconds(lease.remaining)

    def acquire(self, stub, scope, duration):
        """(lease, deadline, when it was asked for); None: not now. The same lease key until there is an answer: it may have been granted unheard."""
        request = acquire_request("ha", scope, duration, wait=10, lease_key=str(uuid.uuid4()))
        asked = now()
        while not self.give_up.is_set():
            sent = now()
            try:
                answer = stub.Acquire(request, timeout=15)
            except grpc.RpcError as error:
                if self.stop.is_set() or error.code() in (grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.ABORTED):
                    return None
                self.stop.wait(0.1)
                continue
            return answer.lease, self.granted(answer.lease, answer.waited, sent), asked
        return None

    def write(self, scope, token):
        with self.mutex:
            self.register.write(scope, token)

    def note(self, scope, token, begin, end, asked):
        with self.mutex:
            self.holds.append(Hold(scope, token, begin, end, asked))

    def lost(self, scope, token, deadline, reason):
        with self.mutex:
            self.losses.append(Loss(scope, token, now(), deadline, pb.EndReason.Name(reason)))

    def release(self, stub, lease, scope, deadline):
        try:
            result = stub.Release(release_request(lease), timeout=5).results[0]
        except grpc.RpcError:
            return  # it ends by its deadline
        if result.outcome == pb.OUTCOME_LOST and result.end_reason == pb.END_REASON_EXPIRED:
            self.lost(scope, lease.token, deadline, result.end_reason)

    def work(self, number):
        stub, dice = self.stub_of_all(number), random.Random(number)
        while not self.stop.is_set():
            scope = f"s{dice.randrange(SCOPES)}"
            found = self.acquire(stub, scope, 5)
            if found is None:
                continue
            lease, deadline, asked = found
            begin = now()
            until = min(deadline, begin + dice.uniform(0.05, 0.3))
            while now() < until:
                self.write(scope, lease.token)
                time.sleep(0.02)
            self.note(scope, lease.token, begin, min(deadline, now()), asked)
            self.release(stub, lease, scope, deadline)

    def work_carelessly(self, number):
        stub, dice = self.stub_of_all(number), random.Random(number)
        while not self.stop.is_set():
            scope = f"s{dice.randrange(SCOPES)}"
            found = self.acquire(stub, scope, 2)
            if found is None:
                continue
            lease, deadline, asked = found
            self.note(scope, lease.token, now(), deadline, asked)
            until = now() + dice.uniform(4, 7)
            while now() < until and not self.stop.is_set():
                self.write(scope, lease.token)
                self.guarded(scope, lease.token)
                time.sleep(0.1)
            self.stop.wait(dice.uniform(0, 3))

    def guarded(self, scope, token):
        """In one transaction with guard(): nobody else has the scope before it has ended."""
        try:
            with psycopg2.connect(DATABASE) as connection, connection.cursor() as cursor:
                cursor.execute("select leasehold.guard('ha', %s, %s)", (scope, token))
                cursor.execute("insert into app.guarded (scope, token) values (%s, %s)", (scope, token))
            connection.close()
        except psycopg2.Error:
            pass  # the lease has ended, or the database is away

    def stand_in_line(self, number):
        stubs, dice, turn = [self.stub(target) for target in TARGETS], random.Random(number), number
        while not self.stop.is_set():
            request = acquire_request("ha", LINE, 5, lease_key=str(uuid.uuid4()), wait_forever=True)
            asked, lease = now(), None
            self.waiting[number] = request.lease_key
            while lease is None and not self.give_up.is_set():
                turn += 1
                sent, queued, ended = now(), None, False
                call = stubs[turn % 2].AcquireStream(request)
                try:
                    for event in call:
                        if event.WhichOneof("event") == "granted":
                            lease, deadline = event.granted, self.granted(event.granted, event.waited, sent)
                            break
                        queued = queued or now()
                        if self.give_up.is_set():
                            call.cancel()
                except grpc.RpcError as error:
                    ended = error.code() in (grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.ABORTED)
                with self.mutex:
                    self.waiters.append(Waiter(LINE, TARGETS[turn % 2], asked, queued, now(), lease.token if lease else None))
                if ended:
                    break
                if lease is None:
                    time.sleep(0.1)
            if not self.give_up.is_set():
                del self.waiting[number]
            if lease is None:
                continue
            begin = now()
            time.sleep(dice.uniform(0.02, 0.2))
            self.note(LINE, lease.token, begin, min(deadline, now()), asked)
            self.release(stubs[turn % 2], lease, LINE, deadline)

    def keep(self, number):
        stub, scope = self.stub_of_all(number), f"keeper-{number}"
        found = self.acquire(stub, scope, self.kept_s)
        self.kept.release()
        if found is None:
            raise RuntimeError(f"{scope} was not granted")
        lease, deadline, asked = found
        begin = now()
        while not self.stop.wait(2):
            sent = now()
            try:
                result = stub.Heartbeat(pb.HeartbeatRequest(leases=[lease_ref(lease)]), timeout=5).results[0]
            except grpc.RpcError:
                continue
            if result.outcome == pb.OUTCOME_LOST:
                self.lost(scope, lease.token, deadline, result.end_reason)
                break
            if result.outcome == pb.OUTCOME_OK:
                deadline = sent + seconds(result.remaining)
                self.renewals += 1
        self.note(scope, lease.token, begin, min(deadline, now()), asked)

    def challenge(self, number):
        """One at each daemon. What it is answered comes from the database, so it also shows when that daemon was in touch with it."""
        target = TARGETS[number % 2]
        stub, dice = self.stub(target), random.Random(number)
        while not self.stop.wait(0.5):
            scope, asked = f"keeper-{dice.randrange(NUMBERS['keep'])}", now()
            try:
                lease = stub.Acquire(acquire_request("ha", scope, 5), timeout=2).lease
                self.note(scope, lease.token, now(), now() + 5, asked)
            except grpc.RpcError as error:
                if "held" in (error.details() or ""):
                    self.answers[target].append(now())

    def watch(self, number):
        target = TARGETS[number % 2]
        stub = self.stub(target)
        while not self.stop.is_set():
            session = None
            initial = []
            try:
                call = stub.WatchLeases(pb.WatchLeasesRequest(namespace=["ha"], include_initial=True))
                self.channels.append(call)
                for event in call:
                    if event.type == pb.LeaseEvent.TYPE_SYNCED:
                        session = Session(target, now(), initial)
                        self.sessions.append(session)
                    else:
                        self.watched[target] = now()
                        initial.append(Event(event.lease.scope.key, KINDS[event.type], event.lease.token))
            except grpc.RpcError:
                self.stop.wait(0.2)

    def run(self, name, number):
        try:
            getattr(self, name)(number)
        except Exception as error:  # a client that dies unseen would make a history look good
            if not self.give_up.is_set():  # after that its channel is closed
                self.failed.append(f"{name}: {error!r}")

    def start_all(self, *names):
        for name in names:
            for number in range(NUMBERS[name]):
                self.threads.append(threading.Thread(target=self.run, args=(name, number), daemon=True))
                self.threads[-1].start()

    def start(self):
        self.start_all("keep")
        for _ in range(NUMBERS["keep"]):
            self.kept.acquire()
        self.start_all("watch", "work", "work_carelessly", "stand_in_line", "challenge")

    def end(self, limit_s):
        """Nobody asks any more; those in line are served. Who still waits after `limit_s` is forgotten: the lease keys."""
        self.stop.set()
        until = time.monotonic() + limit_s
        while self.waiting and time.monotonic() < until:
            time.sleep(0.1)
        forgotten = list(self.waiting.values())
        self.give_up.set()
        for channel in self.channels:
            (channel.cancel if hasattr(channel, "cancel") else channel.close)()
        for thread in self.threads:
            thread.join(60)
        return forgotten

    def save(self, path):
        """The whole history, for people."""
        things = {name: [list(thing) for thing in getattr(self, name)] for name in ("holds", "grants", "promotions", "waiters", "losses", "sessions")}
        pathlib.Path(path).write_text(json.dumps({**things, "answers": self.answers, "failed": self.failed}, indent=1), encoding="utf-8")
