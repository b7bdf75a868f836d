"""Leases through a leaseholdd.

Each address has a channel of its own, and each call goes to one address: the one that answered last. A call that is not answered
in its time moves the client to the next address. So a server that hangs is left after one call, whatever its connection says.
"""
from __future__ import annotations

import datetime
import ipaddress
import json
import math
import os
import re
from typing import Any, AsyncIterator, Iterator, Sequence

import grpc
from google.protobuf.duration_pb2 import Duration

from .errors import Denied, Held, InvalidArgument, LeaseEnded, LeaseholdError, LeaseLost, Unavailable
from .grpc_calls import AsyncCalls, BlockingCalls
from .hand_over import HandOver
from .lease import BaseLease, RENEWALS
from .look import TIMES, Event, Explanation
from .retry import REASONS
from .runtime import clock
from .telemetry import traceparent
from .ticks import Claimed
from .tls import TLS
from .transport import Answer, Grant, Ref, Release, together
from .v1 import console_pb2, leasehold_pb2 as pb, schedule_pb2

console: Any = console_pb2
schedule: Any = schedule_pb2
DETAILS = "grpc-status-details-bin"
CLAIM_S = 5.0  # then a claim is sent again: the tick of one whose answer got lost is found before its lease expires
ALIVE_S = 15.0  # the longest time between two `alive` of a Hold: proxies end streams on which nothing is sent for 50 or 60 s
OPTIONS = [
    ("grpc.use_local_subchannel_pool", 1), ("grpc.enable_retries", 0),
    # Calls have deadlines. Streams last for as long as one waits or leads: these find a server that hangs meanwhile.
    ("grpc.keepalive_time_ms", 5000), ("grpc.keepalive_timeout_ms", 5000), ("grpc.http2.max_pings_without_data", 0),
    # The second is also how long one attempt to connect may take.
    ("grpc.initial_reconnect_backoff_ms", 50), ("grpc.min_reconnect_backoff_ms", 2000), ("grpc.max_reconnect_backoff_ms", 500),
]
# The reason of what has none from the server. CANCELLED and DEADLINE_EXCEEDED: cut short, to ask the next.
REPEATED = {grpc.StatusCode.UNAVAILABLE: "SOCKET_CLOSED_WHILE_IN_FLIGHT", grpc.StatusCode.DEADLINE_EXCEEDED: "SOCKET_CLOSED_WHILE_IN_FLIGHT",
            grpc.StatusCode.CANCELLED: "SOCKET_CLOSED_WHILE_IN_FLIGHT", grpc.StatusCode.UNKNOWN: "UNKNOWN", grpc.StatusCode.INTERNAL: "UNKNOWN"}
UNSENT = re.compile("failed to connect|connections to all backends failing|name resolution|DNS resolution", re.IGNORECASE)  # gRPC's words; it has no other sign


def seconds(value: Any) -> float:
    return float(value.ToNanoseconds()) / 1e9


def duration(value: float) -> Any:
    message = Duration()
    message.FromNanoseconds(round(value * 1e9))
    return message


def scope(where: Any) -> Any:
    return pb.Scope(namespace=where.namespace.split("."), key=where.key)


def reference(ref: Ref) -> Any:
    return pb.LeaseRef(scope=scope(ref), lease_key=ref.lease_key)


def ended(reason: int) -> str:
    return str(pb.EndReason.Name(reason))[len("END_REASON_"):].lower() if reason else "unknown"


def moment(value: Any) -> datetime.datetime:
    at: datetime.datetime = value.ToDatetime(datetime.timezone.utc)
    return at


def hand_over(asked: Any, owner: str = "", token: int | None = None) -> HandOver:
    return HandOver(moment(asked.asked_at), asked.asked_by, asked.principal, asked.reason, moment(asked.answer_by), seconds(asked.answer_in),
                    asked.refusal, owner, token)


def at_most(value: Any, most: float) -> float:
    """Seconds of an answer, as far as they can be true."""
    return min(max(seconds(value), 0.0), most)


def check(answers: Sequence[Any], lease_keys: Sequence[str]) -> None:
    """Refuses what is about other leases than were asked for. An answer may name none."""
    if len(answers) != len(lease_keys) or any(answer.lease_key not in ("", key) for answer, key in zip(answers, lease_keys)):
        raise Unavailable("the server answered for other leases than it was asked for", "UNKNOWN")


def granted(answer: Any, leases: Sequence[Any], lease_key: str, longest: float, sent: float, count: int = 1) -> list[Grant]:
    """What an answer grants: no later than it came, and for no longer than was asked."""
    check(leases, [lease_key] * count)
    since = sent + at_most(answer.waited, clock() - sent)
    return [Grant(each.token, since + at_most(each.remaining, longest), each.units, tuple(each.slots), is_final=each.deadline_is_final) for each in leases]


def fields(data: bytes) -> Iterator[tuple[int, bytes]]:
    """The fields of a message that have a length. google.rpc's messages are read by hand: generated code for them would collide
    with googleapis-common-protos in the one registry that a process has."""
    at = 0

    def number() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at, value, shift = at + 1, value | (byte & 127) << shift, shift + 7
            if byte < 128:
                return value

    while at < len(data):
        tag = number()
        if tag & 7 == 2:
            size = number()
            yield tag >> 3, data[at:at + size]
            at += size
        elif tag & 7 == 0:
            number()
        else:
            at += 8 if tag & 7 == 1 else 4


def details(error: Any) -> tuple[str, Any, float]:
    """What the server says of a failure: the reason (google.rpc.ErrorInfo), its Contention, and the seconds of a RetryInfo."""
    reason, contention, retry_after = "", None, 0.0
    for key, value in error.trailing_metadata() or ():
        if key == DETAILS:
            for any_message in (body for number, body in fields(value) if number == 3):
                parts = dict(fields(any_message))
                kind, body = parts.get(1, b"").decode().rsplit("/", 1)[-1], parts.get(2, b"")
                if kind == "google.rpc.ErrorInfo":
                    reason = dict(fields(body)).get(1, b"").decode()
                elif kind == "leasehold.v1.Contention":
                    contention = pb.Contention.FromString(body)
                elif kind == "google.rpc.RetryInfo":
                    retry_after = seconds(Duration.FromString(dict(fields(body)).get(1, b"")))
    return reason, contention, retry_after


def evidence(code: Any, words: str) -> str:
    return "SOCKET_NOT_AVAILABLE" if UNSENT.search(words) else REPEATED[code]


def translate(error: Any) -> LeaseholdError:
    code, words = error.code(), error.details() or ""
    reason, contention, retry_after = details(error)
    if reason in ("LEASE_HELD", "WAIT_TIMEOUT"):
        holder = contention.holder.owner if contention is not None and contention.HasField("holder") else None
        if contention is None:
            return Held(words, holder, reason=reason)
        held = Held(words, holder, contention.waiters_ahead, reason, contention.holder_count,
                    contention.units_free.value if contention.HasField("units_free") else None)
        if contention.HasField("holder"):
            lease = contention.holder
            now = lease.deadline.ToNanoseconds() - lease.remaining.ToNanoseconds()  # of the database
            held.is_alive = contention.liveness in (pb.LIVENESS_ALIVE, pb.LIVENESS_OVERDUE)
            held.silent_for, held.held_for = ((now - each.ToNanoseconds()) / 1e9 for each in (lease.heartbeat_at, lease.acquired_at))
        return held
    if reason == "LEASE_ENDED":
        return LeaseEnded(words, reason)
    if reason == "NOT_HELD":
        return LeaseLost(words, "unknown")
    if reason == "INVALID_ARGUMENT":
        return InvalidArgument(words, reason)
    if code in REPEATED or reason in REASONS or reason == "WATCH_LAGGED" or (retry_after and not reason):
        found = Unavailable(f"{words} ({code.name})", reason or ("RETRY_INFO" if retry_after else evidence(code, words)))
        found.retry_after = retry_after
        return found
    if code in (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.FAILED_PRECONDITION,
                grpc.StatusCode.RESOURCE_EXHAUSTED):
        return Denied(words, reason or code.name)
    return LeaseholdError(f"{words} ({code.name})", reason or code.name)


def mode(value: int) -> str:
    return "shared" if value == pb.MODE_SHARED else "exclusive"


def told(event: Any) -> Event:
    kind, lease = pb.LeaseEvent.Type.Name(event.type)[len("TYPE_"):].lower(), event.lease
    kind = {"initial": "held"}.get(kind, kind)
    if kind in ("released", "expired", "forced") and event.end_reason:
        kind = ended(event.end_reason)
    return Event(kind, ".".join(lease.scope.namespace), lease.scope.key, lease.token, lease.owner, lease.principal, mode(lease.mode), lease.units,
                 event.reason, event.result, event.error)


class Tie:
    """The stream Hold: the daemon ends the lease when this process ends. This process says `alive` while it waits, and while the lease
    is held: proxies answer for one that is stopped, so the daemon renews for nobody else."""

    def __init__(self, transport: GrpcTransport, lease: BaseLease, wait: Any) -> None:
        self.end: Any = transport.calls.queue()
        self.calls, self.lease, self.sequence = transport.calls, lease, 0
        self.is_waiting = not lease._is_held
        first = pb.HoldRequest(acquire=transport.request(lease, wait))
        self.call = transport.stream("Hold", transport.calls.repeat(first, self.alive, self.end, self.pause), None)

    @property
    def pause(self) -> float:
        return min(ALIVE_S, self.lease.duration / RENEWALS)

    def alive(self) -> Any:
        if not self.is_waiting and not self.lease._is_working():
            return None
        self.sequence += 1
        return pb.HoldRequest(alive=pb.Alive(sequence=self.sequence))

    async def read(self) -> str | None:
        """Until the stream ends: why the lease has ended, if the daemon says so."""
        try:
            while True:
                event = await self.calls.read(self.call)
                if event is None:
                    return None
                if event.HasField("lost"):
                    return ended(event.lost.end_reason)
                if event.HasField("asked"):
                    self.lease._was_asked(hand_over(event.asked))
        except grpc.RpcError:
            return None
        finally:
            self.close()

    def close(self) -> None:
        self.calls.put(self.end, None)
        self.calls.cancel(self.call)


class GrpcTransport:
    process: int | None = None  # that used gRPC first

    def __init__(self, addresses: str, tls: TLS | None, token_file: str | None, calls: BlockingCalls | AsyncCalls) -> None:
        self.addresses = [each.strip() for each in addresses.split(",") if each.strip()]
        if not self.addresses:
            raise InvalidArgument("no address of a server is given", "INVALID_ARGUMENT")
        self.tls, self.token_file, self.calls = tls, token_file, calls
        far = [each for each in self.addresses if not is_local(each)]
        if token_file is not None and tls is None and far:
            raise InvalidArgument(f"server {far[0]!r}: a token is sent over TLS, unix sockets and loopback only: set tls", "INVALID_ARGUMENT")
        self.current, self.is_closed = 0, False
        self.channels: dict[int, tuple[Any, Any]] = {}  # address: the state of the TLS files, channel

    # -- addresses

    def channel(self, at: int) -> Any:
        if self.is_closed:
            raise Unavailable("the client is closed", "CLOSED")
        check_process()
        is_secure = self.tls is not None and not self.addresses[at].startswith("unix:")
        try:
            stamp = self.tls.stamp() if self.tls is not None and is_secure else None
        except OSError as error:
            raise Unavailable(str(error), "CREDENTIALS") from None
        if at not in self.channels or self.channels[at][0] != stamp:  # new files: a new channel; calls keep the old one
            # A proxy of the environment is another host: it leads nowhere, and would read what loopback keeps.
            near = [("grpc.enable_http_proxy", 0)] if is_local(self.addresses[at]) else []
            if self.tls is not None and is_secure:
                credentials, options = self.tls.credentials()
                made = self.calls.secure(self.addresses[at], credentials, options=OPTIONS + near + options)
            else:
                made = self.calls.channel(self.addresses[at], options=OPTIONS + near)
            self.channels[at] = (stamp, made)
        return self.channels[at][1]

    def failed(self, at: int, error: Any) -> LeaseholdError:
        """What became of a call there. The next one goes elsewhere where that may help."""
        found = translate(error)
        if isinstance(found, Unavailable) and REASONS.get(str(found.reason), REASONS["UNKNOWN"]).is_next:
            self.leave(at)
        return found

    def leave(self, at: int) -> None:
        if not self.is_closed:
            self.calls.connect(self.channels[at][1])
        if self.current == at:
            self.current = (at + 1) % len(self.addresses)

    def metadata(self) -> list[tuple[str, str]]:
        if self.token_file is None:
            return traceparent()
        try:
            with open(self.token_file, encoding="ascii") as file:  # it may be replaced at any time
                token = file.read().strip()
        except OSError as error:
            raise Unavailable(str(error), "CREDENTIALS") from None
        if not token:  # it is being written
            raise Unavailable(f"{self.token_file} is empty", "CREDENTIALS")
        return [("authorization", "Bearer " + token), *traceparent()]

    async def unary(self, name: str, request: Any, answer: Any, timeout: float, waiting: BaseLease | None = None, service: str = "LeaseService") -> Any:
        at = self.current
        method = self.channel(at).unary_unary(f"/leasehold.v1.{service}/{name}", request_serializer=type(request).SerializeToString,
                                              response_deserializer=answer.FromString)
        options = {"timeout": None if math.isinf(timeout) else max(timeout, 0.001), "metadata": self.metadata()}
        try:
            if waiting is not None:
                return await self.calls.long(waiting, method, request, **options)
            return await self.calls.unary(method, request, **options)
        except grpc.RpcError as error:
            raise self.failed(at, error) from None

    def stream(self, name: str, request: Any, timeout: float | None) -> Any:
        path = f"/leasehold.v1.LeaseService/{name}"
        channel, options = self.channel(self.current), {"timeout": timeout, "metadata": self.metadata()}
        if name == "Hold":
            method = channel.stream_stream(path, request_serializer=pb.HoldRequest.SerializeToString,
                                           response_deserializer=pb.HoldEvent.FromString)
        else:
            event: Any = pb.LeaseEvent if name == "WatchLeases" else pb.AcquireEvent
            method = channel.unary_stream(path, request_serializer=type(request).SerializeToString, response_deserializer=event.FromString)
        return self.calls.start(method, request, **options)

    # -- the verbs

    def request(self, lease: BaseLease, wait: float) -> Any:
        asked = lease._asked
        request = pb.AcquireRequest(scope=scope(asked))
        if asked.units:
            request.mode, request.units = pb.MODE_SHARED, asked.units
        if asked.while_alive and wait:
            request.wait_while_alive = True
        request.priority = asked.priority
        if asked.ask_hand_over and wait:
            request.ask_hand_over = True
        if asked.at_least is not None:
            request.at_least.CopyFrom(duration(asked.at_least))
        return self.fill(request, lease, asked.wait if asked.while_alive and wait else wait)

    @staticmethod
    def fill(request: Any, lease: BaseLease, wait: float) -> Any:
        """What an acquire of one key and of several have in common."""
        asked = lease._asked
        request.duration.CopyFrom(duration(asked.duration))
        request.owner, request.lease_key = asked.owner, lease.lease_key
        request.labels.update(asked.labels)
        if math.isinf(wait):
            request.wait_forever = True
        else:
            request.wait.CopyFrom(duration(wait))
        return request

    async def acquire_all(self, lease: BaseLease, wait_until: float, timeout: float) -> Grant:
        sent = clock()
        wait = max(wait_until - sent, 0.0)
        request = pb.AcquireAllRequest(items=[
            pb.AcquireItem(scope=scope(each), mode=pb.MODE_SHARED if each.shared else pb.MODE_EXCLUSIVE, units=each.units if each.shared else 0)
            for each in lease._asked.scopes])
        response = await self.unary("AcquireAll", self.fill(request, lease, wait), pb.AcquireAllResponse, wait + timeout, lease)
        return together(granted(response, response.leases, lease.lease_key, lease.duration, sent, len(lease._asked.scopes)))

    async def acquire(self, lease: BaseLease, wait_until: float, timeout: float) -> Grant:
        """By a stream: a long wait is one call, and a broken connection is noticed."""
        if lease._asked.scopes:
            return await self.acquire_all(lease, wait_until, timeout)
        if lease._asked.is_tick:
            return await self.claim(lease, timeout)
        at, sent = self.current, clock()
        wait = max(wait_until - sent, 0.0)
        tie = Tie(self, lease, wait) if lease._asked.is_tied else None
        call = tie.call if tie is not None else self.stream(
            "AcquireStream", self.request(lease, wait), None if math.isinf(wait) else wait + timeout)
        is_granted = False
        lease._cancel_by(lambda: self.calls.cancel(call))
        try:
            while (event := await self.calls.read(call)) is not None:
                if event.HasField("granted"):
                    [grant] = granted(event, [event.granted], lease.lease_key, lease.duration, sent)
                    grant.tie, is_granted = tie, True
                    if tie is not None:
                        tie.is_waiting = False
                    return grant
            raise Unavailable("the server ended the stream without a grant")
        except grpc.RpcError as error:
            raise self.failed(at, error) from None
        finally:
            if not is_granted:
                self.calls.cancel(call)
                if tie is not None:
                    tie.close()

    async def claim(self, lease: BaseLease, timeout: float) -> Grant:
        asked = lease._asked
        request = schedule.ClaimTickRequest(namespace=pb.Namespace(segments=asked.namespace.split(".")), wait=duration(CLAIM_S), duration=duration(asked.duration),
                                            owner=asked.owner, lease_key=lease.lease_key, labels=asked.labels)
        while True:
            sent = clock()
            response = await self.unary("ClaimTick", request, schedule.ClaimTickResponse, CLAIM_S + timeout, lease, service="ScheduleService")
            if response.HasField("lease"):
                [grant] = granted(response, [response.lease], lease.lease_key, lease.duration, sent)
                grant.claimed = Claimed(response.lease.scope.key, response.at.ToDatetime(datetime.timezone.utc), response.attempt)
                return grant

    def tie(self, lease: BaseLease) -> Tie:
        return Tie(self, lease, 0.0)

    async def downgrade(self, ref: Ref, units: int, until: float) -> Grant:
        sent = clock()
        response = await self.unary("Downgrade", pb.DowngradeRequest(lease=reference(ref), units=units), pb.DowngradeResponse, until - sent)
        return granted(response, [response.lease] if response.HasField("lease") else [], ref.lease_key, ref.duration, sent)[0]

    async def heartbeat(self, refs: Sequence[Ref], until: float) -> list[Answer]:
        request = pb.HeartbeatRequest(leases=map(reference, refs))
        response = await self.unary("Heartbeat", request, pb.HeartbeatResponse, until - clock())
        check(response.results, [ref.lease_key for ref in refs])
        return [Answer("ok", "", at_most(each.remaining, ref.duration), each.deadline_is_final, hand_over(each.asked) if each.HasField("asked") else None)
                if each.outcome == pb.OUTCOME_OK else self._refused(each) for ref, each in zip(refs, response.results)]

    async def ask_hand_over(self, namespace: str, key: str, reason: str, owner: str, until: float) -> list[HandOver]:
        request = pb.AskHandOverRequest(scope=pb.Scope(namespace=namespace.split("."), key=key), reason=reason, owner=owner)
        response = await self.unary("AskHandOver", request, pb.AskHandOverResponse, until - clock())
        return [hand_over(each.asked, each.owner, each.token or None) for each in response.holders]

    async def refuse_hand_over(self, ref: Ref, words: str, until: float) -> bool:
        try:
            await self.unary("RefuseHandOver", pb.RefuseHandOverRequest(lease=reference(ref), reason=words), pb.RefuseHandOverResponse, until - clock())
            return True
        except (Denied, LeaseLost) as error:
            if error.reason in ("NOT_ASKED", "unknown"):
                return False
            raise

    async def settle(self, ref: Ref, until: float) -> Answer:
        return (await self.heartbeat([ref], until))[0]

    async def release(self, items: Sequence[Release], until: float) -> list[Answer]:
        request = pb.ReleaseRequest()
        for item in items:
            message = request.items.add(lease=reference(item.ref))
            if item.failure is not None:
                message.failure = item.failure
            else:
                message.success = item.result or ""
        response = await self.unary("Release", request, pb.ReleaseResponse, until - clock())
        check(response.results, [item.ref.lease_key for item in items])
        return [Answer("ok", "") if each.outcome == pb.OUTCOME_OK else self._refused(each) for each in response.results]

    async def end_reason(self, ref: Ref, until: float) -> str:
        return "unknown"  # else the answer to the release has said it

    @staticmethod
    def _refused(result: Any) -> Answer:
        if result.outcome == pb.OUTCOME_LOST:
            return Answer("lost", ended(result.end_reason))
        return Answer("retry") if result.outcome == pb.OUTCOME_RETRY else Answer("denied", result.message)

    async def explain(self, namespace: str, key: str, until: float) -> Explanation:
        request = console.ExplainRequest(scope=pb.Scope(namespace=namespace.split("."), key=key))
        found = await self.unary("Explain", request, console.ExplainResponse, until - clock(), service="ConsoleService")
        times = {name: getattr(found, name).ToDatetime(datetime.timezone.utc) for name in TIMES if found.HasField(name)}
        is_held = found.state in ("held", "shared")
        return Explanation(
            found.state, found.advice, found.waiters, found.holders, json.loads(found.policy or "{}"), found.holder or None, found.principal or None,
            found.token or None, found.liveness or None, heartbeats=found.heartbeats if is_held else None, first_waiter=found.first_waiter or None,
            mode=mode(found.mode) if found.mode else None, units=found.units if is_held else None, **times)

    async def watch(self, namespace: str, key: str | None, children: bool) -> AsyncIterator[Event]:
        at = self.current
        request = pb.WatchLeasesRequest(namespace=namespace.split(".") if namespace else [], include_children=children, include_initial=True,
                                        key=key or "", alive=True)
        call = self.stream("WatchLeases", request, None)
        try:
            while (event := await self.calls.read(call)) is not None:
                if event.type != pb.LeaseEvent.TYPE_ALIVE:
                    yield told(event)
            raise Unavailable("the server ended the watch")
        except grpc.RpcError as error:
            raise self.failed(at, error) from None
        finally:
            self.calls.cancel(call)

    async def interrupt(self) -> None:
        self.is_closed = True
        for _, channel in self.channels.values():
            await self.calls.close(channel)

    async def close(self) -> None:
        self.channels.clear()

    def forget(self) -> None:
        """grpcio does it, if new enough. What a child does with the parent's channel may wait for a lock for ever."""


def check_process() -> None:
    """grpcio waits at times for ever for threads that a fork did not copy, in new channels too."""
    first, here = GrpcTransport.process or os.getpid(), os.getpid()
    if first != here:
        raise LeaseholdError(f"gRPC was used in process {first} before process {here} was forked from it, where it may hang: "
                             "fork before its first use, or start processes by spawn", "FORKED")
    GrpcTransport.process = first


LOCAL = re.compile(r"(?:(?P<ipv4>[0-9.]+)|localhost|\[::1\])(?::[0-9]+)?", re.IGNORECASE)


def is_local(address: str) -> bool:
    """What is sent there without TLS nobody else reads. A name that only begins like a loopback address is another host's."""
    if address.startswith("unix:"):
        return True
    found = LOCAL.fullmatch(address)
    if found is None:
        return False
    try:
        return found["ipv4"] is None or ipaddress.IPv4Address(found["ipv4"]).is_loopback
    except ValueError:
        return False
