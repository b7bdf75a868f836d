"""The two ways in which the package waits: threads that block, and tasks of asyncio.

Everything that decides is written once, as `async def`. With Threads nothing in it ever suspends: each wait blocks the calling
thread instead, so that a coroutine runs from its beginning to its end in one step (`run`). With Tasks it is ordinary asyncio.
"""
from __future__ import annotations

import asyncio
import contextlib
import math
import queue
import select
import threading
import time
from typing import Any, Coroutine, Protocol, TypeVar

T = TypeVar("T")


def clock() -> float:
    """Runs while the machine is suspended, as a lease does."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def interval(seconds: float) -> str:
    """For PostgreSQL."""
    return f"{math.ceil(seconds * 1e6)} us"


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine on Threads."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        value: T = end.value
        return value
    coroutine.close()
    raise AssertionError("a coroutine on threads has suspended")


class Flag(Protocol):
    """Signal or asyncio.Event."""

    def set(self) -> None: ...

    def clear(self) -> None: ...

    def is_set(self) -> bool: ...


class Runtime(Protocol):
    def flag(self) -> Flag: ...

    def place(self) -> Any:
        """Where the client lives: it cannot be used elsewhere."""

    async def wait(self, flag: Any, seconds: float) -> bool:
        """Until the flag is set, at most so long; whether it is."""

    async def sleep(self, seconds: float) -> None: ...

    async def ready(self, descriptor: int, write: bool, seconds: float) -> bool:
        """Until the socket can be read (or read or written), at most so long; whether it can."""

    def spawn(self, coroutine: Coroutine[Any, Any, None], name: str) -> Any:
        """Run it beside the caller."""

    async def join(self, spawned: Any, seconds: float) -> None:
        """Until it has ended."""


class Signal:
    """threading.Event has a lock, on which a signal handler waits for ever when it interrupts the thread that has it; this has none."""

    def __init__(self) -> None:
        self.posts: queue.SimpleQueue[None] = queue.SimpleQueue()

    def set(self) -> None:
        self.posts.put(None)

    def clear(self) -> None:
        with contextlib.suppress(queue.Empty):
            while True:
                self.posts.get_nowait()

    def is_set(self) -> bool:
        return not self.posts.empty()

    def wait(self, seconds: float) -> bool:
        """One waits at a time."""
        with contextlib.suppress(queue.Empty):
            self.posts.get(timeout=seconds)
            self.posts.put(None)
        return self.is_set()


class Threads:
    def flag(self) -> Signal:
        return Signal()

    def place(self) -> None:
        return None

    async def wait(self, flag: Signal, seconds: float) -> bool:
        return flag.wait(max(seconds, 0))

    async def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    async def ready(self, descriptor: int, write: bool, seconds: float) -> bool:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN | (select.POLLOUT if write else 0))
        return bool(poll.poll(max(seconds, 0) * 1000))

    def spawn(self, coroutine: Coroutine[Any, Any, None], name: str) -> threading.Thread:
        thread = threading.Thread(target=run, args=(coroutine,), name=name, daemon=True)
        thread.start()
        return thread

    async def join(self, spawned: threading.Thread, seconds: float) -> None:
        if spawned is not threading.current_thread():
            spawned.join(seconds)


class Tasks:
    def flag(self) -> asyncio.Event:
        return asyncio.Event()

    def place(self) -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    async def wait(self, flag: asyncio.Event, seconds: float) -> bool:
        if not flag.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(seconds, 0)):
                    await flag.wait()
        return flag.is_set()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def ready(self, descriptor: int, write: bool, seconds: float) -> bool:
        loop, flag = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(descriptor, flag.set)
        if write:
            loop.add_writer(descriptor, flag.set)
        try:
            return await self.wait(flag, seconds)
        finally:
            loop.remove_reader(descriptor)
            loop.remove_writer(descriptor)

    def spawn(self, coroutine: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        return asyncio.get_running_loop().create_task(coroutine, name=name)

    async def join(self, spawned: asyncio.Task[None], seconds: float) -> None:
        if spawned is not asyncio.current_task() and not spawned.done():  # of a loop that has ended, all are
            await asyncio.wait([spawned], timeout=seconds)
            spawned.cancel()
            await asyncio.wait([spawned])
