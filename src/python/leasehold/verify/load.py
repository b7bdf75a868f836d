"""The clients, and what they see: gRPC to each daemon and to all of them, psycopg to the database.

Workers        acquire, write while the lease holds, release.
Careless ones  never look at their deadline, and write on for longer than their lease: fencing and guard() are there for them.
A line         waits for one scope, at one daemon each, and holds it shortly; its calls say when they are in the queue.
Keepers        acquire once, and renew to the end.
A newcomer     takes a scope of a new name twice a second, and renews late, as the packages do. A primary that lacks the last commits of the one before does
               not know the last of them.
Challengers    ask for the scopes of keepers, and the newcomer's last, one at each daemon; they must be refused.
Watchers       one at each daemon.
"""
from __future__ import annotations

import collections
import itertools
import random
import threading
import time
import uuid
from typing import Any, Callable

import grpc

from ..errors import LeaseholdError, Unavailable
from ..grpc_calls import BlockingCalls
from ..grpc_transport import GrpcTransport, duration, seconds
from ..runtime import clock as now
from ..tls import TLS
from ..v1 import leasehold_pb2 as pb, leasehold_pb2_grpc
from .history import Event, Grant, Hold, Loss, Promotion, Register, Session, Waiter

services: Any = leasehold_pb2_grpc
SCOPES = 4
KEEPERS = 3
NEW = 16
LINE = "line"
TABLE = "leasehold_verify_guarded"
ENDS_S = 20  # the longest call of those that do not wait in line, and some
KINDS = {pb.LeaseEvent.TYPE_INITIAL: "initial", pb.LeaseEvent.TYPE_ACQUIRED: "acquired", pb.LeaseEvent.TYPE_RELEASED: "ended",
         pb.LeaseEvent.TYPE_EXPIRED: "ended", pb.LeaseEvent.TYPE_FORCED: "ended"}
REFUSALS = (grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.ABORTED)
AWAY = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED, grpc.StatusCode.UNKNOWN)
# A daemon that hangs is found by pings.
OPTIONS = [("grpc.use_local_subchannel_pool", 1), ("grpc.enable_retries", 0),
           ("grpc.keepalive_time_ms", 1000), ("grpc.keepalive_timeout_ms", 1000), ("grpc.keepalive_permit_without_calls", 1),
           ("grpc.http2.max_pings_without_data", 0), ("grpc.http2.min_ping_interval_without_data_ms", 1000),
           ("grpc.http2.min_time_between_pings_ms", 1000), ("grpc.max_reconnect_backoff_ms", 500)]


class Site:
    """What is tried: the daemons' addresses, a namespace of its own, how to be let in, and the database where guard() is called, if it is."""

    def __init__(self, servers: str, namespace: str = "verify", tls: TLS | None = None, token_file: str | None = None, database: str | None = None) -> None:
        self.transport = GrpcTransport(servers, tls, token_file, BlockingCalls())  # it refuses what a client must not do
        self.servers, self.namespace, self.database = tuple(self.transport.addresses), namespace, database
        self.sent: list[tuple[str, str]] | None = None

    def channel(self, server: str) -> Any:
        tls = self.transport.tls
        if tls is None or server.startswith("unix:"):
            return grpc.insecure_channel(server, options=OPTIONS)
        credentials, more = tls.credentials()
        return grpc.secure_channel(server, credentials, options=OPTIONS + more)

    def metadata(self) -> list[tuple[str, str]]:
        """The token, or the last one while its file is being replaced."""
        try:
            self.sent = self.transport.metadata()
        except Unavailable:
            if self.sent is None:
                raise
        return self.sent

    def connect(self) -> Any:
        import psycopg
        return psycopg.connect(self.database or "", autocommit=False)

    def prepare(self) -> None:
        """A table for what is written behind guard()."""
        try:
            import psycopg
        except ImportError:
            raise LeaseholdError("a database needs psycopg 3: install leasehold-client[sql], or python3-psycopg", "UNAVAILABLE") from None
        try:
            with self.connect() as connection:
                connection.execute(f"create table {TABLE} (id bigserial primary key, scope text not null, token bigint not null)")
        except psycopg.Error as error:
            raise LeaseholdError(f"table {TABLE} cannot be made: {error}", "UNAVAILABLE") from None

    def guarded(self) -> list[tuple[str, int]]:
        with self.connect() as connection:
            return [(scope, token) for scope, token in connection.execute(f"select scope, token from {TABLE} order by id").fetchall()]

    def clean(self) -> None:
        with self.connect() as connection:
            connection.execute(f"drop table {TABLE}")


class Kept:
    """A lease that is renewed, as its holder sees it."""

    def __init__(self, lease: Any, deadline: float, asked: float) -> None:
        self.lease, self.deadline, self.asked = lease, deadline, asked
        self.begin = self.asked_last = now()
        self.is_lost = False


class Load:
    def __init__(self, site: Site, kept_s: float) -> None:
        self.site, self.kept_s = site, kept_s
        self.stop = threading.Event()       # no new requests
        self.give_up = threading.Event()    # who still waits is forgotten
        self.mutex = threading.Lock()
        self.holds: list[Hold] = []
        self.grants: list[Grant] = []
        self.promotions: list[Promotion] = []
        self.waiters: list[Waiter] = []
        self.losses: list[Loss] = []
        self.sessions: list[Session] = []
        self.failed: list[str] = []
        self.errors: collections.deque[str] = collections.deque(maxlen=100)  # why the last requests got no lease
        self.answers: dict[str, list[float]] = collections.defaultdict(list)
        self.watched = dict.fromkeys(site.servers, 0.0)
        self.renewals = 0
        self.waiting: dict[int, tuple[str, float]] = {}  # the lease key, and since when
        self.kept = threading.Semaphore(0)
        self.new: collections.deque[str] = collections.deque(maxlen=NEW)
        self.register = Register()
        self.ends: list[Callable[[], Any]] = []
        self.threads: list[threading.Thread] = []

    def stub(self, server: str) -> Any:
        channel = self.site.channel(server)
        self.ends.append(channel.close)
        return services.LeaseServiceStub(channel)

    def stubs_of_all(self, number: int) -> list[Any]:
        """With another daemon first for each number."""
        first = number % len(self.site.servers)
        return [self.stub(server) for server in self.site.servers[first:] + self.site.servers[:first]]

    def request(self, key: str, length_s: float, **fields: Any) -> Any:
        return pb.AcquireRequest(scope=pb.Scope(namespace=self.site.namespace.split("."), key=key), duration=duration(length_s),
                                 lease_key=str(uuid.uuid4()), owner="leasehold-verify", **fields)

    def start_call(self, stub: Any, method: str, request: Any, timeout: float | None = None) -> Any:
        return getattr(stub, method)(request, timeout=timeout, metadata=self.site.metadata())

    def call(self, stubs: list[Any], method: str, request: Any, timeout: float) -> Any:
        """Of the first stub. One whose daemon is away goes to the end; after UNAVAILABLE the next one is asked at once."""
        for left in reversed(range(len(stubs))):
            try:
                return self.start_call(stubs[0], method, request, timeout)
            except grpc.RpcError as error:
                if error.code() in AWAY:
                    stubs.append(stubs.pop(0))
                if not left or error.code() is not grpc.StatusCode.UNAVAILABLE:
                    raise

    def granted(self, lease: Any, waited: Any, sent: float) -> float:
        """The deadline."""
        with self.mutex:
            self.grants.append(Grant(now(), lease.token))
        return sent + seconds(waited) + seconds(lease.remaining)

    def acquire(self, stubs: list[Any], key: str, length_s: float) -> tuple[Any, float, float] | None:
        """(lease, deadline, when it was asked for); None: not now. The same lease key until there is an answer: it may have been granted unheard."""
        request = self.request(key, length_s, wait=duration(10))
        asked = now()
        while not self.give_up.is_set():
            sent = now()
            try:
                answer = self.call(stubs, "Acquire", request, 15)
            except grpc.RpcError as error:
                self.errors.append(f"{error.code().name}: {error.details()}")
                if self.stop.is_set() or error.code() in REFUSALS:
                    return None
                self.stop.wait(0.1)
                continue
            return answer.lease, self.granted(answer.lease, answer.waited, sent), asked
        return None

    def write(self, key: str, token: int) -> None:
        with self.mutex:
            self.register.write(key, token)

    def note(self, key: str, token: int, begin: float, end: float, asked: float) -> None:
        with self.mutex:
            self.holds.append(Hold(key, token, begin, end, asked))

    def lost(self, key: str, token: int, deadline: float, reason: int) -> None:
        with self.mutex:
            self.losses.append(Loss(key, token, now(), deadline, pb.EndReason.Name(reason)))

    def release(self, stubs: list[Any], lease: Any, deadline: float) -> None:
        try:
            item = pb.ReleaseItem(lease=pb.LeaseRef(scope=lease.scope, lease_key=lease.lease_key))
            result = self.call(stubs, "Release", pb.ReleaseRequest(items=[item]), 5).results[0]
        except grpc.RpcError:
            return  # it ends by its deadline
        if result.outcome == pb.OUTCOME_LOST and result.end_reason == pb.END_REASON_EXPIRED:
            self.lost(lease.scope.key, lease.token, deadline, result.end_reason)

    def work(self, number: int) -> None:
        stubs, dice = self.stubs_of_all(number), random.Random(number)
        while not self.stop.is_set():
            key = f"s{dice.randrange(SCOPES)}"
            found = self.acquire(stubs, key, 5)
            if found is None:
                continue
            lease, deadline, asked = found
            begin = now()
            until = min(deadline, begin + dice.uniform(0.05, 0.3))
            while now() < until:
                self.write(key, lease.token)
                time.sleep(0.02)
            self.note(key, lease.token, begin, min(deadline, now()), asked)
            self.release(stubs, lease, deadline)

    def work_carelessly(self, number: int) -> None:
        stubs, dice = self.stubs_of_all(number), random.Random(number)
        while not self.stop.is_set():
            key = f"s{dice.randrange(SCOPES)}"
            found = self.acquire(stubs, key, 2)
            if found is None:
                continue
            lease, deadline, asked = found
            self.note(key, lease.token, now(), deadline, asked)
            until = now() + dice.uniform(4, 7)
            while now() < until and not self.stop.is_set():
                self.write(key, lease.token)
                if self.site.database is not None:
                    self.write_guarded(key, lease.token)
                time.sleep(0.1)
            self.stop.wait(dice.uniform(0, 3))

    def write_guarded(self, key: str, token: int) -> None:
        """In one transaction with guard(): nobody else has the scope before it has ended."""
        import psycopg
        try:
            with self.site.connect() as connection:
                connection.execute("select leasehold.guard(%s, %s, %s)", (self.site.namespace, key, token))
                connection.execute(f"insert into {TABLE} (scope, token) values (%s, %s)", (key, token))
        except psycopg.Error:
            pass  # the lease has ended, or the database is away

    def stand_in_line(self, number: int) -> None:
        servers = self.site.servers
        stubs, dice, turn = [self.stub(server) for server in servers], random.Random(number), number
        while not self.stop.is_set():
            request = self.request(LINE, 5, wait_forever=True)
            asked, lease, deadline = now(), None, 0.0
            self.waiting[number] = request.lease_key, asked
            while lease is None and not self.give_up.is_set():
                turn = (turn + 1) % len(servers)
                sent, queued, ended = now(), None, False
                try:
                    call = self.start_call(stubs[turn], "AcquireStream", request)
                    for event in call:
                        if event.WhichOneof("event") == "granted":
                            lease, deadline = event.granted, self.granted(event.granted, event.waited, sent)
                            break
                        queued = queued or now()
                        if self.give_up.is_set():
                            call.cancel()
                except grpc.RpcError as error:
                    ended = error.code() in REFUSALS
                with self.mutex:
                    self.waiters.append(Waiter(LINE, servers[turn], asked, queued, now(), lease.token if lease else None))
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
            self.release([stubs[turn]], lease, deadline)

    def keep(self, number: int) -> None:
        stubs, key = self.stubs_of_all(number), f"keeper-{number}"
        found = self.acquire(stubs, key, self.kept_s)
        self.kept.release()
        if found is None:
            raise RuntimeError(f"{key} was not granted")
        kept = Kept(*found)
        while not self.stop.wait(2) and not kept.is_lost:
            self.renew(stubs, kept)
        self.give_back(stubs, kept)

    def come_anew(self, number: int) -> None:
        stubs, all_kept = self.stubs_of_all(number), collections.deque[Kept]()
        for turn in itertools.count():
            if self.stop.wait(0.5):
                break
            key = f"new-{turn}"
            found = self.acquire(stubs, key, 2 * self.kept_s)
            if found is not None:
                all_kept.append(Kept(*found))
                self.new.append(key)
            for kept in all_kept:
                if now() > kept.asked_last + self.kept_s * 2 / 3:
                    self.renew(stubs, kept)
            while all_kept and now() > all_kept[0].begin + self.kept_s:
                self.give_back(stubs, all_kept.popleft())
        for kept in all_kept:
            self.give_back(stubs, kept)

    def renew(self, stubs: list[Any], kept: Kept) -> None:
        sent = kept.asked_last = now()
        reference = pb.LeaseRef(scope=kept.lease.scope, lease_key=kept.lease.lease_key)
        try:
            result = self.call(stubs, "Heartbeat", pb.HeartbeatRequest(leases=[reference]), 5).results[0]
        except grpc.RpcError:
            return
        if result.outcome == pb.OUTCOME_LOST:
            kept.is_lost = True
            self.lost(kept.lease.scope.key, kept.lease.token, kept.deadline, result.end_reason)
            kept.deadline = min(kept.deadline, now())
        elif result.outcome == pb.OUTCOME_OK:
            kept.deadline = sent + seconds(result.remaining)
            self.renewals += 1

    def give_back(self, stubs: list[Any], kept: Kept) -> None:
        self.note(kept.lease.scope.key, kept.lease.token, kept.begin, min(kept.deadline, now()), kept.asked)
        self.release(stubs, kept.lease, kept.deadline)

    def challenge(self, number: int) -> None:
        """What it is answered comes from the database, so it also shows when that daemon was in touch with it."""
        server = self.site.servers[number]
        stub, dice = self.stub(server), random.Random(number)
        while not self.stop.wait(0.5):
            key, asked = dice.choice([f"keeper-{dice.randrange(KEEPERS)}", *self.new]), now()
            try:
                lease = self.start_call(stub, "Acquire", self.request(key, 5), 2).lease
                self.note(key, lease.token, now(), now() + 5, asked)
            except grpc.RpcError as error:
                if "held" in (error.details() or ""):
                    self.answers[server].append(now())

    def watch(self, number: int) -> None:
        server = self.site.servers[number]
        stub = self.stub(server)
        while not self.stop.is_set():
            events: list[Event] = []
            try:
                call = self.start_call(stub, "WatchLeases", pb.WatchLeasesRequest(namespace=self.site.namespace.split("."), include_initial=True))
                self.ends.append(call.cancel)
                for event in call:
                    if event.type == pb.LeaseEvent.TYPE_SYNCED:
                        self.sessions.append(Session(server, now(), events))
                    else:
                        self.watched[server] = now()
                        events.append(Event(event.lease.scope.key, KINDS[event.type], event.lease.token))
            except grpc.RpcError:
                self.stop.wait(0.2)

    def run(self, work: Callable[[int], None], number: int) -> None:
        try:
            work(number)
        except Exception as error:  # a client that dies unseen would make a history look good
            if not self.give_up.is_set():  # after that its channel is closed
                self.failed.append(f"{work.__name__}: {error!r}")

    def start_some(self, work: Callable[[int], None], count: int) -> None:
        for number in range(count):
            self.threads.append(threading.Thread(target=self.run, args=(work, number), daemon=True, name=work.__name__))
            self.threads[-1].start()

    def start(self, limit_s: float) -> None:
        """The others once the keepers have their leases, or the time is over."""
        self.start_some(self.keep, KEEPERS)
        until = time.monotonic() + limit_s
        for _ in range(KEEPERS):
            self.kept.acquire(timeout=max(0, until - time.monotonic()))
        for work, count in ((self.watch, len(self.site.servers)), (self.work, 4), (self.work_carelessly, 2), (self.stand_in_line, 5),
                            (self.come_anew, 1), (self.challenge, len(self.site.servers))):
            self.start_some(work, count)

    def end(self, limit_s: float) -> list[tuple[str, Waiter]]:
        """Nobody asks any more; those in line are served. Who still waits after `limit_s` is forgotten: the lease keys, and the waits."""
        self.stop.set()
        until = time.monotonic() + limit_s
        while self.waiting and time.monotonic() < until:
            time.sleep(0.1)
        forgotten = [(lease_key, Waiter(LINE, "", asked, None, now(), None)) for lease_key, asked in list(self.waiting.values())]
        until = time.monotonic() + ENDS_S
        for thread in self.threads:  # holders give their leases back
            if thread.name != self.watch.__name__:
                thread.join(max(0, until - time.monotonic()))
        self.give_up.set()
        for end in self.ends:
            end()
        for thread in self.threads:
            thread.join(60)
        return forgotten

    def history(self) -> dict[str, Any]:
        """All that was seen, for people."""
        things = {name: [list(thing) for thing in getattr(self, name)] for name in ("holds", "grants", "promotions", "waiters", "losses", "sessions")}
        return {**things, "answers": self.answers, "failed": self.failed}
