"""The client for threads: `with client.lease(...)`."""
from __future__ import annotations

import atexit
import contextlib
import functools
import os
import weakref
from types import TracebackType
from typing import Any, Callable, ContextManager, Coroutine, Iterable, Iterator, Mapping, ParamSpec, TypeGuard, TypeVar, Unpack

from . import arguments, hand_over, look, nested
from .arguments import LeadOptions, Options, Scope, TickOptions
from .core import Core
from .declared import Declared
from .errors import Held, InvalidArgument, LeaseholdError, LeaseLost
from .lease import BaseLease, Unique
from .hand_over import HandOver
from .look import Event, Explanation
from .retry import Strategy, best_effort
from .runtime import Runtime, Threads, run
from .ticks import LEFT, Tick
from .tls import TLS, from_environment
from .transport import Transport

P = ParamSpec("P")
T = TypeVar("T")


class BaseClient(Unique):
    """Options of both clients:

    server      "HOST:PORT", "[IPv6]:PORT" or "unix:/path", with commas between, the preferred first; None: LEASEHOLD_SERVER, or
                127.0.0.1:7420. All must lead to coordinators of the same database.
    database    a connection string of libpq: leases in SQL, without a daemon. Not together with server.
    owner       names the holder for people; None: HOST/PROGRAM/PID
    timeout     seconds that a call may take beyond its wait, while no server answers
    strategy    decides about retries; None: best_effort. A lease's own counts before it; renewals go on whatever it says
    tls, token_file    for server; None: what LEASEHOLD_CA, _CERT, _KEY, _SERVER_NAME, _TLS and _TOKEN_FILE say
    """

    is_async = False

    def __init__(self, server: str | None = None, *, database: str | None = None, owner: str | None = None, timeout: float = 5.0,
                 tls: TLS | None = None, token_file: str | None = None, strategy: Strategy | None = None) -> None:
        if server is not None and database is not None:
            raise InvalidArgument("server and database exclude each other", "INVALID_ARGUMENT")
        for name, value in {"server": server, "database": database, "token_file": token_file}.items():
            arguments.given(name, value)
        timeout = arguments.more_than_zero("timeout", timeout)
        runtime = self._runtime()
        transport: Transport
        if database is not None:
            from .sql_transport import SqlTransport
            transport = SqlTransport(database, runtime, timeout)
        else:
            from .grpc_calls import AsyncCalls, BlockingCalls
            from .grpc_transport import GrpcTransport
            transport = GrpcTransport(server or os.environ.get("LEASEHOLD_SERVER") or "127.0.0.1:7420", tls or from_environment(),
                                      token_file or os.environ.get("LEASEHOLD_TOKEN_FILE"),
                                      AsyncCalls() if self.is_async else BlockingCalls())
        self._core = Core(transport, runtime, owner, timeout, arguments.strategy_of(strategy) or best_effort)

    def _runtime(self) -> Runtime:
        raise NotImplementedError


class Lease(BaseLease):
    """Acquired by `with`, then renewed until the body ends. The body's end releases it; an error in it releases it as failed."""

    def acquire(self) -> Lease:
        """What `with` does at its beginning, for a lease that is released elsewhere. Raises LeaseholdError while it is held."""
        self._claim(is_entering=False)
        self._run(self._core.acquire(self))
        return self

    def release(self, result: Any = None, failure: str | None = None) -> bool:
        """Gives it back, with a result (for json) or what failed. False: it was lost before."""
        return self._run(self._core.release(self, result, failure))

    def acquire_in(self, connection: Any) -> ContextManager[Lease]:
        """For `with`, on a psycopg.Connection of yours: begins a transaction, acquires, and commits at the end of the body. The lease is held,
        and renewed, from the commit on. An error rolls back, and nobody holds it. It does not wait. When the connection breaks at COMMIT it looks
        the outcome up; Unavailable with the reason UNKNOWN_OUTCOME: it could not, and gives back what it may have acquired."""
        from .transaction import Acquiring, Blocking
        return Acquiring(self, Blocking(connection))  # type: ignore[return-value]

    def release_in(self, connection: Any, result: Any = None, failure: str | None = None) -> ContextManager[Lease]:
        """For `with`, on a psycopg.Connection of yours: begins a transaction, and releases the lease and commits at the end of the body, with
        this result or lease.result. An error rolls back: then the lease goes on, and is renewed. When the connection breaks at COMMIT it looks
        the outcome up; Unavailable with the reason UNKNOWN_OUTCOME: it could not, and the lease counts as lost."""
        from .transaction import Blocking, Releasing
        return Releasing(self, Blocking(connection), result, failure)  # type: ignore[return-value]

    def downgrade(self, units: int = 1) -> None:
        """Makes the exclusive lease shared, with so many units, in one step: shared requests that wait behind it are let in, and no
        exclusive one comes between. A shared lease gives units back in the same way. The lease goes on under another token. Raises
        LeaseLost when it is lost. After Unavailable call it again: it may have been done."""
        run(self._core.downgrade(self, units))

    def refuse_hand_over(self, words: str) -> bool:
        """Answers a request to hand the lease over; the asker reads the words, 1 to 1024 bytes. The first ones stay. False: nobody has asked."""
        return run(hand_over.refuse(self, words))

    def guard(self, cursor: Any) -> None:
        """In the cursor's transaction, of any DB-API driver: until it ends, the lease passes to nobody else. Raises LeaseLost."""
        statement = self._guard_arguments()
        try:
            cursor.execute(*statement)
        except Exception as error:
            self._guard_failed(error)

    def __enter__(self) -> Lease:
        if self._claim(is_entering=True):
            self._run(self._core.acquire(self))
        try:
            nested.enter(self)
        except BaseException as error:
            self._torn_away(error)
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            nested.leave(self)
            self._end(error)
        except BaseException as trouble:
            self._torn_away(trouble)
            raise
        finally:
            self._is_entered = False

    def _end(self, error: BaseException | None) -> None:
        if has_failed(error):
            with contextlib.suppress(LeaseholdError):  # which the loop goes on with
                self.release(failure=describe(error))
            note(self, error)
        elif not self.release(self.result) and is_told(self, error):
            raise self._loss()

    def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        try:
            return run(coroutine)
        except BaseException as error:
            self._torn_away(error)
            raise

    def _torn_away(self, error: BaseException) -> None:
        """An exception of a signal handler's, as Ctrl-C is one, may come at any instruction, also between the grant and the body."""
        if not isinstance(error, LeaseholdError):
            self._core.drop(self, describe(error))


class Client(BaseClient):
    """Leases for threads. Make one for a process; any thread may use it."""

    __doc__ += BaseClient.__doc__ or ""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        CORES.add(self._core)

    def _runtime(self) -> Runtime:
        return Threads()

    def lease(self, namespace: str, key: str, *, duration: float = 30, wait: float | None = 0, owner: str | None = None,
              labels: Mapping[str, str] | None = None, on_lost: Callable[[str], object] | None = None, shared: bool = False,
              units: int = 1, at_least: float | None = None, while_alive: bool = False, on_granted: Callable[[Lease], object] | None = None,
              on_renewed: Callable[[Lease], object] | None = None, on_released: Callable[[Lease], object] | None = None, strategy: Strategy | None = None,
              priority: int = 0, on_asked: Callable[[HandOver], object] | None = None, ask_hand_over: bool = False) -> Lease:
        """A lease for `with`. wait: seconds to wait for it; None: for ever. while_alive: as long as the holder is
        alive, and these seconds beyond. on_lost(reason) is called once, on the thread
        that finds the loss, mostly the one that renews: it must not block. shared: beside other shared leases, with so many units (1 to 1,000,000) of the capacity that
        the namespace's policy sets. at_least: nobody else gets the lease before so many seconds after its grant, though it ends earlier; at
        most a day; None: as the namespace's policy says. on_granted, on_renewed and on_released(lease) are called each time; what they raise is
        logged. strategy: decides about the retries of the acquire, and of what is done with the lease. priority:
        0 to 1000, at most the policy's max_priority (Denied above it): a waiter of a higher one overtakes those who came up to `ageing` of the policy, 10 s
        by default, before it for each step. on_asked(request), a HandOver, is called once for each request to hand the lease over, as on_lost is:
        release it, call lease.refuse_hand_over, or let the request's answer_in seconds pass. ask_hand_over: while it waits, it asks each holder that it
        waits behind, once."""
        return Lease(self._core, namespace, key, duration=duration, wait=wait, owner=owner, labels=labels, on_lost=on_lost, shared=shared, units=units,
                     at_least=at_least, while_alive=while_alive, on_granted=on_granted, on_renewed=on_renewed, on_released=on_released,
                     strategy=strategy, priority=priority, on_asked=on_asked, ask_hand_over=ask_hand_over)

    def lease_all(self, scopes: Iterable[tuple[str, str] | Scope], *, duration: float = 30, wait: float | None = 0, owner: str | None = None,
                  labels: Mapping[str, str] | None = None, on_lost: Callable[[str], object] | None = None, strategy: Strategy | None = None) -> Lease:
        """One lease of several keys, 1 to 100, for `with`: all are acquired in one step, or none; it is lost as soon as one of them is, and its end
        releases all. Each scope is a pair (namespace, key), or a Scope. lease.tokens has the token of each. While it waits it holds none of them. In
        SQL it does not wait."""
        all_of_them = arguments.scopes_of(scopes)
        return Lease(self._core, *all_of_them[0][:2], scopes=all_of_them, duration=duration, wait=wait, owner=owner, labels=labels, on_lost=on_lost,
                     strategy=strategy)

    def declare(self, namespace: str, **options: Unpack[Options]) -> Declared:
        """The leases of a namespace, with these options of `lease`: declare them once, and use them everywhere."""
        return Declared(self, namespace, options)

    def leased(self, namespace: str, key: str, *, skip_if_held: bool = False,
               **options: Unpack[Options]) -> Callable[[Callable[P, T]], Callable[P, T | None]]:
        """A decorator: the function runs under a lease. With at_least a second clock that is late does not start the
        function again. skip_if_held: then None is returned."""
        self.lease(namespace, key, **options)  # wrong arguments are told here

        def decorate(function: Callable[P, T]) -> Callable[P, T | None]:
            arguments.callback("the function", function)

            @functools.wraps(function)
            def wrapped(*args: P.args, **kwargs: P.kwargs) -> T | None:
                lease = self.lease(namespace, key, **options)
                try:
                    with lease:
                        return function(*args, **kwargs)
                except Held:
                    if skip_if_held and not lease.token:
                        return None
                    raise
            return wrapped
        return decorate

    def lead(self, namespace: str, key: str, **options: Unpack[LeadOptions]) -> Iterator[Lease]:
        """Stands for election: the loop's body runs while this process leads, and its end gives leadership up. Then it stands
        again. The body watches `is_held()`. Through a daemon a leader that dies is followed at once; in SQL, after its duration."""
        while True:
            try:
                with Lease(self._core, namespace, key, wait=None, is_tied=True, **options) as leadership:
                    yield leadership
            except LeaseLost:
                pass

    def ticks(self, name: str, **options: Unpack[TickOptions]) -> Iterator[Tick]:
        """A worker of the schedule: a loop that waits for each next tick, for ever. No other worker gets the same one meanwhile.

            for tick in client.ticks("reports.nightly", duration=60):
                with tick as lease:
                    lease.result = report(tick.at)

        The end of the body makes the tick done, with lease.result. An error in `with tick` makes it failed, with the error's words, is logged, and the
        loop goes on; the schedule decides when the tick comes again. Leaving the loop elsewhere than in `with tick` makes it failed too. `duration`,
        30 seconds by default, is the lease's, which the client renews: so long after a worker died another gets the tick. Raises InvalidArgument where
        no schedule has the name, Denied, and LeaseholdError once the client is closed; it waits while no server answers."""
        while True:
            lease = Lease(self._core, name, "", wait=None, is_tick=True, **options)
            try:
                tick = Tick(lease.acquire())
                yield tick
                tick._end()
            except GeneratorExit:
                tick._end(LEFT)
                raise
            except BaseException as error:
                lease._torn_away(error)
                raise

    def ask_hand_over(self, namespace: str, key: str, reason: str = "") -> list[HandOver]:
        """As an administrator, asks the holders of a key to give their leases back, with a reason of up to 1024 bytes. The request of each, with its
        refusal where there is one: ask again to see it. Nobody holds the key: none. Raises Denied."""
        return run(hand_over.ask(self._core, namespace, key, reason))

    def explain(self, namespace: str, key: str) -> Explanation:
        """Who holds the key, whether it is alive, who waits, and what to do."""
        return run(look.explain(self._core, namespace, key))

    def watch(self, namespace: str = "", key: str | None = None, *, children: bool = False) -> Iterator[Event]:
        """For `for`: first what is held in the namespace (none: everywhere; children: and below it), then `synced`, then each grant and end. After a
        connection broke it begins anew, with what is held. Through a server only."""
        events = look.watch(self._core, namespace, key, children)
        try:
            while True:
                try:
                    yield run(events.__anext__())  # type: ignore[arg-type]
                except StopAsyncIteration:
                    return
        finally:
            run(events.aclose())  # type: ignore[attr-defined]

    def close(self) -> None:
        """Leases that are still held are renewed no more, and end by their deadline."""
        run(self._core.close())

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *unused: object) -> None:
        self.close()


def has_failed(error: BaseException | None) -> TypeGuard[BaseException]:
    """Whether a body that ends with it has: a generator that is closed has not, nor a program that ends itself with status 0."""
    is_good = isinstance(error, GeneratorExit) or (isinstance(error, SystemExit) and not error.code)
    return error is not None and not is_good


def is_told(lease: BaseLease, error: BaseException | None) -> bool:
    """Whether a body that has not failed raises for a lease that was not held at its end. A child that ends itself after a fork had none."""
    return lease.lost is not None and not isinstance(error, GeneratorExit) and not (error is not None and lease.lost == "forked")


def describe(error: BaseException) -> str:
    return arguments.shown(f"{type(error).__name__}: {error}").encode()[:8000].decode("utf-8", "ignore")


def note(lease: BaseLease, error: BaseException) -> None:
    if lease.lost is not None and not isinstance(error, LeaseLost):
        error.add_note(str(lease._loss()))


# Not the clients: an error that ends the program may have let go of them before, while their threads still tell a loss.
CORES: weakref.WeakSet[Core] = weakref.WeakSet()


@atexit.register
def close_all() -> None:
    for core in list(CORES):
        run(core.close())
