"""How calls of gRPC are made and waited for: by threads, and by asyncio."""
from __future__ import annotations

import asyncio
import queue
import threading
import weakref
from typing import Any, AsyncIterator, Callable, Iterator

import grpc
import grpc.aio

from .errors import Unavailable
from .lease import BaseLease


def apart(work: Callable[[], Any]) -> Any:
    """Its result, from another thread than the main one. There an exception of a signal handler's, such as Ctrl-C, may leave a lock of
    grpcio's locked, and no call on the channel would end any more, renewals among them."""
    if threading.get_ident() != threading.main_thread().ident:
        return work()
    done: queue.SimpleQueue[tuple[Any, BaseException | None]] = queue.SimpleQueue()
    turns = [work]  # of the thread; of this one at the interpreter's end, where no thread can be started

    def run() -> None:
        try:
            done.put((turns.pop()(), None))
        except BaseException as error:
            done.put((None, error))

    try:
        threading.Thread(target=run, name="leasehold-call", daemon=True).start()
    except RuntimeError:
        if not turns:
            raise
        return turns.pop()()
    value, error = done.get()
    if error is not None:
        raise error
    return value


class BlockingCalls:
    """gRPC by threads."""

    channel, secure = staticmethod(grpc.insecure_channel), staticmethod(grpc.secure_channel)
    queue = staticmethod(queue.SimpleQueue)

    def __init__(self) -> None:
        self.connecting: weakref.WeakSet[Any] = weakref.WeakSet()

    async def unary(self, method: Any, request: Any, **options: Any) -> Any:
        return apart(lambda: method(request, **options))

    async def long(self, lease: BaseLease, method: Any, request: Any, **options: Any) -> Any:
        """A call that waits: a caller who is torn away leaves the queue."""
        call = apart(lambda: method.future(request, **options))
        lease._cancel_by(lambda: self.cancel(call))
        try:
            return apart(call.result)
        except grpc.FutureCancelledError:
            raise Unavailable("the channel is closed", "CLOSED") from None
        except BaseException:
            self.cancel(call)
            raise

    def start(self, method: Any, request: Any, **options: Any) -> Any:
        return apart(lambda: method(request, **options))

    async def read(self, call: Any) -> Any:
        return apart(lambda: next(call, None))

    def cancel(self, call: Any) -> None:
        apart(call.cancel)

    def put(self, end: Any, message: Any) -> None:
        end.put(message)

    def repeat(self, first: Any, make: Any, end: Any, pause: float) -> Iterator[Any]:
        yield first
        while True:
            if (message := make()) is not None:
                yield message
            try:
                return end.get(timeout=pause)
            except queue.Empty:
                pass

    def connect(self, channel: Any) -> None:
        """gRPC without asyncio gets on with a connection only while a call is under way. One that fails at once leaves it no time, so a
        thread of gRPC's looks after the connection until it stands."""
        if channel in self.connecting:
            return
        self.connecting.add(channel)
        reference = weakref.ref(channel)

        def look(state: Any) -> None:
            made = reference()
            if made is not None and state is grpc.ChannelConnectivity.READY:
                self.connecting.discard(made)
                made.unsubscribe(look)

        apart(lambda: channel.subscribe(look))

    async def close(self, channel: Any) -> None:
        channel.close()


class AsyncCalls:
    """gRPC by asyncio."""

    channel, secure = staticmethod(grpc.aio.insecure_channel), staticmethod(grpc.aio.secure_channel)
    queue = staticmethod(asyncio.Queue)

    async def unary(self, method: Any, request: Any, **options: Any) -> Any:
        try:
            answer = await method(request, **options)
        except asyncio.CancelledError:
            if is_cancelled():
                raise
            raise Unavailable("the channel is closed", "CLOSED") from None
        if answer is None:  # so grpc.aio says that it could not read the message
            raise Unavailable("the server's answer cannot be read", "UNKNOWN")
        return answer

    async def long(self, lease: BaseLease, method: Any, request: Any, **options: Any) -> Any:
        """The task of the body around it is cancelled when that is lost."""
        return await self.unary(method, request, **options)

    def start(self, method: Any, request: Any, **options: Any) -> Any:
        return method(request, **options)

    def cancel(self, call: Any) -> None:
        call.cancel()

    async def read(self, call: Any) -> Any:
        try:
            event = await call.read()
        except asyncio.CancelledError:
            if is_cancelled():
                raise
            return None
        return None if event is grpc.aio.EOF else event

    def put(self, end: Any, message: Any) -> None:
        end.put_nowait(message)

    async def repeat(self, first: Any, make: Any, end: Any, pause: float) -> AsyncIterator[Any]:
        yield first
        while True:
            if (message := make()) is not None:
                yield message
            try:
                await asyncio.wait_for(end.get(), pause)
                return
            except asyncio.TimeoutError:
                pass

    def connect(self, channel: Any) -> None:
        """A thread of gRPC's does it, always."""

    async def close(self, channel: Any) -> None:
        await channel.close()


def is_cancelled() -> bool:
    """This task is; and not only the call, for which grpc.aio raises the same."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
