"""The client for asyncio: `async with client.lease(...)`."""
from __future__ import annotations

import asyncio
import contextlib
import functools
from types import TracebackType
from typing import Any, AsyncContextManager, AsyncIterator, Awaitable, Callable, Iterable, Mapping, ParamSpec, TypeVar, Unpack

from . import arguments, hand_over, look, nested
from .arguments import LeadOptions, Options, Scope, TickOptions
from .client import BaseClient, describe, has_failed, is_told, note
from .declared import AsyncDeclared
from .errors import Held, LeaseholdError, LeaseLost
from .lease import BaseLease
from .hand_over import HandOver
from .look import Event, Explanation
from .retry import Strategy
from .runtime import Runtime, Tasks
from .ticks import LEFT, AsyncTick

P = ParamSpec("P")
T = TypeVar("T")


class AsyncLease(BaseLease):
    """Acquired by `async with`, then renewed until the body ends. When the lease is lost, the body is cancelled, and `async with`
    raises LeaseLost."""

    _task: asyncio.Task[Any] | None = None
    _cancelling = 0
    _is_cancelled = False

    async def acquire(self) -> AsyncLease:
        """What `async with` does at its beginning, for a lease that is released elsewhere. Raises LeaseholdError while it is held."""
        self._claim(is_entering=False)
        await self._core.acquire(self)
        return self

    async def release(self, result: Any = None, failure: str | None = None) -> bool:
        """Gives it back, with a result (for json) or what failed. False: it was lost before."""
        return await self._core.release(self, result, failure)

    def acquire_in(self, connection: Any) -> AsyncContextManager[AsyncLease]:
        """As Lease.acquire_in, for `async with` and a psycopg.AsyncConnection."""
        from .transaction import Acquiring, Awaiting
        return Acquiring(self, Awaiting(connection))  # type: ignore[return-value]

    def release_in(self, connection: Any, result: Any = None, failure: str | None = None) -> AsyncContextManager[AsyncLease]:
        """As Lease.release_in, for `async with` and a psycopg.AsyncConnection."""
        from .transaction import Awaiting, Releasing
        return Releasing(self, Awaiting(connection), result, failure)  # type: ignore[return-value]

    async def downgrade(self, units: int = 1) -> None:
        """As Lease.downgrade."""
        await self._core.downgrade(self, units)

    async def refuse_hand_over(self, words: str) -> bool:
        """As Lease.refuse_hand_over."""
        return await hand_over.refuse(self, words)

    async def guard(self, cursor: Any) -> None:
        """In the transaction of the asynchronous cursor: until it ends, the lease passes to nobody else. Raises LeaseLost."""
        statement = self._guard_arguments()
        try:
            await cursor.execute(*statement)
        except Exception as error:
            self._guard_failed(error)

    def _tell_loss(self, reason: str) -> None:
        super()._tell_loss(reason)
        if self._task is not None and self._task is not asyncio.current_task():
            self._is_cancelled = True
            self._task.cancel()

    async def __aenter__(self) -> AsyncLease:
        if self._claim(is_entering=True):
            await self._core.acquire(self)
        self._task, self._is_cancelled = asyncio.current_task(), False
        self._cancelling = self._task.cancelling() if self._task is not None else 0
        nested.enter(self)
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        task, self._task = self._task, None
        nested.leave(self)
        try:
            await self._end(task, error)
        finally:
            self._is_entered = False

    async def _end(self, task: asyncio.Task[Any] | None, error: BaseException | None) -> None:
        if self._is_cancelled and task is not None and task.uncancel() <= self._cancelling and isinstance(error, asyncio.CancelledError):
            await self.release(failure=str(self._loss()))
            raise self._loss() from error
        if has_failed(error):
            with contextlib.suppress(LeaseholdError):  # which the loop goes on with
                await self.release(failure=describe(error))
            note(self, error)
        elif not await self.release(self.result) and is_told(self, error):
            raise self._loss()


class AsyncClient(BaseClient):
    """Leases for asyncio. Make one for an event loop, and close it in that loop."""

    __doc__ += BaseClient.__doc__ or ""
    is_async = True

    def _runtime(self) -> Runtime:
        return Tasks()

    def lease(self, namespace: str, key: str, *, duration: float = 30, wait: float | None = 0, owner: str | None = None,
              labels: Mapping[str, str] | None = None, on_lost: Callable[[str], object] | None = None, shared: bool = False,
              units: int = 1, at_least: float | None = None, while_alive: bool = False, on_granted: Callable[[AsyncLease], object] | None = None,
              on_renewed: Callable[[AsyncLease], object] | None = None, on_released: Callable[[AsyncLease], object] | None = None, strategy: Strategy | None = None,
              priority: int = 0, on_asked: Callable[[HandOver], object] | None = None, ask_hand_over: bool = False) -> AsyncLease:
        """A lease for `async with`. wait: seconds to wait for it; None: for ever. on_lost(reason) is called once, in the loop. The
        rest is as of Client.lease."""
        return AsyncLease(self._core, namespace, key, duration=duration, wait=wait, owner=owner, labels=labels, on_lost=on_lost, shared=shared,
                          units=units, at_least=at_least, while_alive=while_alive, on_granted=on_granted, on_renewed=on_renewed, on_released=on_released,
                          strategy=strategy, priority=priority, on_asked=on_asked, ask_hand_over=ask_hand_over)

    def lease_all(self, scopes: Iterable[tuple[str, str] | Scope], *, duration: float = 30, wait: float | None = 0, owner: str | None = None,
                  labels: Mapping[str, str] | None = None, on_lost: Callable[[str], object] | None = None, strategy: Strategy | None = None) -> AsyncLease:
        """As Client.lease_all, for `async with`."""
        all_of_them = arguments.scopes_of(scopes)
        return AsyncLease(self._core, *all_of_them[0][:2], scopes=all_of_them, duration=duration, wait=wait, owner=owner, labels=labels, on_lost=on_lost,
                          strategy=strategy)

    def declare(self, namespace: str, **options: Unpack[Options]) -> AsyncDeclared:
        """As Client.declare."""
        return AsyncDeclared(self, namespace, options)

    def leased(self, namespace: str, key: str, *, skip_if_held: bool = False,
               **options: Unpack[Options]) -> Callable[[Callable[P, Awaitable[T]]], Callable[P, Awaitable[T | None]]]:
        """As Client.leased, for a coroutine function."""
        self.lease(namespace, key, **options)  # wrong arguments are told here

        def decorate(function: Callable[P, Awaitable[T]]) -> Callable[P, Awaitable[T | None]]:
            @functools.wraps(function)
            async def wrapped(*args: P.args, **kwargs: P.kwargs) -> T | None:
                lease = self.lease(namespace, key, **options)
                try:
                    async with lease:
                        return await function(*args, **kwargs)
                except Held:
                    if skip_if_held and not lease.token:
                        return None
                    raise
            return wrapped
        return decorate

    async def lead(self, namespace: str, key: str, **options: Unpack[LeadOptions]) -> AsyncIterator[AsyncLease]:
        """Stands for election: the loop's body runs while this process leads, and its end gives leadership up. Then it stands
        again. The body watches `is_held()`. Through a daemon a leader that dies is followed at once; in SQL, after its duration.
        To leave the loop early, use contextlib.aclosing."""
        while True:
            leadership = AsyncLease(self._core, namespace, key, wait=None, is_tied=True, **options)
            await leadership.acquire()
            nested.enter(leadership)
            try:
                yield leadership
            finally:
                nested.leave(leadership)
                with contextlib.suppress(LeaseLost):
                    await leadership.release(leadership.result)

    async def ticks(self, name: str, **options: Unpack[TickOptions]) -> AsyncIterator[AsyncTick]:
        """As Client.ticks, with `async for` and `async with tick`. To leave the loop early, use contextlib.aclosing."""
        while True:
            lease = AsyncLease(self._core, name, "", wait=None, is_tick=True, **options)
            try:
                tick = AsyncTick(await lease.acquire())
                yield tick
                await tick._end()
            except GeneratorExit:
                await tick._end(LEFT)
                raise
            except BaseException as error:
                if not isinstance(error, LeaseholdError):
                    self._core.drop(lease, describe(error))
                raise

    async def ask_hand_over(self, namespace: str, key: str, reason: str = "") -> list[HandOver]:
        """As Client.ask_hand_over."""
        return await hand_over.ask(self._core, namespace, key, reason)

    async def explain(self, namespace: str, key: str) -> Explanation:
        """As Client.explain."""
        return await look.explain(self._core, namespace, key)

    def watch(self, namespace: str = "", key: str | None = None, *, children: bool = False) -> AsyncIterator[Event]:
        """As Client.watch, for `async for`. To leave the loop early, use contextlib.aclosing."""
        return look.watch(self._core, namespace, key, children)

    async def close(self) -> None:
        """Leases that are still held are renewed no more, and end by their deadline."""
        await self._core.close()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *unused: object) -> None:
        await self.close()
