"""Both clients with one face, that of threads, so that each case is written once.

The asyncio client runs in an event loop on a thread of its own; the body of its `async with` is a task there that ends when the
case's `with` does.
"""
import asyncio
import contextlib
import signal
import threading

import leasehold
import psycopg
from harness import wait_until


class Interrupted(BaseException):
    pass


@contextlib.contextmanager
def signalled(when):
    """The body, on the main thread, is interrupted as by Ctrl-C once `when()` is true."""
    def handle(*unused):
        raise Interrupted

    def watch():
        wait_until(when, 60)
        signal.pthread_kill(threading.main_thread().ident, signal.SIGUSR1)  # which it wakes up

    before = signal.signal(signal.SIGUSR1, handle)
    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield
    finally:
        thread.join()
        signal.signal(signal.SIGUSR1, before)


class SyncClient(leasehold.Client):
    name = "threads"

    def give_up(self, lease, when):
        """Waits for the lease, and gives up once `when()` is true."""
        with contextlib.suppress(Interrupted), signalled(when):
            lease.acquire()
            raise AssertionError("granted")

    def give_up_tick(self, name, when):
        """The same, in a worker's loop."""
        with contextlib.suppress(Interrupted), signalled(when):
            next(self.ticks(name))
            raise AssertionError("claimed")

    def guard(self, lease, url):
        with psycopg.connect(url) as connection, connection.cursor() as cursor:
            lease.guard(cursor)

    def acquire_in(self, lease, url, work):
        with psycopg.connect(url) as connection, lease.acquire_in(connection):
            return work(lambda sql: connection.execute(sql))

    def release_in(self, lease, url, work, **options):
        with psycopg.connect(url) as connection, lease.release_in(connection, **options):
            return work(lambda sql: connection.execute(sql))

    def another(self, **options):
        """A client of the package, with these options."""
        return leasehold.Client(**options)

    def shared(self, lease):
        """For another body, at the same time."""
        return lease

    finish = leasehold.Client.close

    def leftovers(self):
        return [thread.name for thread in threading.enumerate() if "leasehold" in thread.name]


class AsyncioLease:
    def __init__(self, client, lease):
        self.client, self.lease = client, lease
        self.work = self.finish = None

    def __getattr__(self, name):
        return getattr(self.lease, name)

    def __setattr__(self, name, value):
        if name == "result":
            self.lease.result = value
        else:
            super().__setattr__(name, value)

    def remaining(self):
        return self.client.call(self.lease.remaining)

    def is_held(self):
        return self.client.call(self.lease.is_held)

    def check(self):
        return self.client.call(self.lease.check)

    def acquire(self):
        self.client.run(self.lease.acquire())
        return self

    def release(self, *arguments, **more):
        return self.client.run(self.lease.release(*arguments, **more))

    def try_release(self, *arguments, **more):
        return self.client.call(lambda: self.lease.try_release(*arguments, **more))

    def downgrade(self, *arguments):
        self.client.run(self.lease.downgrade(*arguments))

    def refuse_hand_over(self, words):
        return self.client.run(self.lease.refuse_hand_over(words))

    def __enter__(self):
        entered = threading.Event()

        async def body():
            self.finish = asyncio.get_running_loop().create_future()
            async with self.lease:
                entered.set()
                error = await self.finish
                if error is not None:
                    raise error

        self.work = asyncio.run_coroutine_threadsafe(body(), self.client.loop)
        self.work.add_done_callback(lambda *unused: entered.set())
        assert entered.wait(120)
        if self.work.done() and self.work.exception() is not None:
            self.work.result()
        return self

    def __exit__(self, kind, error, trace):
        def end():
            if not self.finish.done():
                self.finish.set_result(error)

        self.client.loop.call_soon_threadsafe(end)
        try:
            self.work.result(120)
        except BaseException as raised:
            if raised is error:
                return False
            raise
        return False


class AsyncioTick:
    def __init__(self, client, tick):
        self.tick, self.at, self.attempt = tick, tick.at, tick.attempt
        self.lease = AsyncioLease(client, tick.lease)
        self.body = AsyncioLease(client, tick)

    def __enter__(self):
        self.body.__enter__()
        return self.lease

    def __exit__(self, *error):
        return self.body.__exit__(*error) or isinstance(error[1], Exception)


class AsyncioDeclared:
    def __init__(self, client, declared):
        self.client, self.declared = client, declared

    def lease(self, *arguments, **options):
        return AsyncioLease(self.client, self.client.call(lambda: self.declared.lease(*arguments, **options)))

    def acquire(self, *arguments, **options):
        return AsyncioLease(self.client, self.client.run(self.declared.acquire(*arguments, **options)))

    def leased(self, *arguments, **options):
        return self.client.decorator(self.declared.leased(*arguments, **options))

    def lead(self, *arguments, **options):
        return self.client.leaderships(self.declared.lead(*arguments, **options))


class AsyncioClient:
    name = "asyncio"

    def __init__(self, *arguments, **options):
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, name="the case's loop")
        self.thread.start()
        self.is_open = True
        self.client = self.call(lambda: leasehold.AsyncClient(*arguments, **options))
        self._core = self.client._core

    def call(self, function):
        async def wrapped():
            return function()

        return self.run(wrapped())

    def run(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(120)

    def lease(self, *arguments, **options):
        return AsyncioLease(self, self.call(lambda: self.client.lease(*arguments, **options)))

    def lease_all(self, *arguments, **options):
        return AsyncioLease(self, self.call(lambda: self.client.lease_all(*arguments, **options)))

    def explain(self, *arguments):
        return self.run(self.client.explain(*arguments))

    def ask_hand_over(self, *arguments):
        return self.run(self.client.ask_hand_over(*arguments))

    def watch(self, *arguments, **options):
        generator = self.client.watch(*arguments, **options)
        try:
            while True:
                yield self.run(generator.__anext__())
        finally:
            self.run(generator.aclose())

    def another(self, **options):
        return self.call(lambda: leasehold.AsyncClient(**options))

    def shared(self, lease):
        return AsyncioLease(self, lease.lease)

    def declare(self, *arguments, **options):
        return AsyncioDeclared(self, self.call(lambda: self.client.declare(*arguments, **options)))

    def leased(self, *arguments, **options):
        return self.decorator(self.client.leased(*arguments, **options))

    def decorator(self, leased):
        def decorate(function):
            async def work():
                return function()

            wrapped = leased(work)
            return lambda: self.run(wrapped())

        return decorate

    def lead(self, *arguments, **options):
        return self.leaderships(self.client.lead(*arguments, **options))

    def leaderships(self, generator):
        try:
            while True:
                yield AsyncioLease(self, self.run(generator.__anext__()))
        finally:
            self.run(generator.aclose())

    def ticks(self, *arguments, **options):
        generator = self.client.ticks(*arguments, **options)
        try:
            while True:
                yield AsyncioTick(self, self.run(generator.__anext__()))
        finally:
            self.run(generator.aclose())

    def give_up(self, lease, when):
        self.cancel(lease.lease.acquire(), when)

    def give_up_tick(self, name, when):
        self.cancel(self.client.ticks(name).__anext__(), when)

    def cancel(self, coroutine, when):
        task = asyncio.run_coroutine_threadsafe(coroutine, self.loop)
        wait_until(lambda: when() or task.done(), 60)
        assert not task.done(), task.result()
        task.cancel()
        with contextlib.suppress(BaseException):
            task.result(60)

    def guard(self, lease, url):
        async def guard():
            async with await psycopg.AsyncConnection.connect(url) as connection, connection.cursor() as cursor:
                await lease.lease.guard(cursor)

        self.run(guard())

    def acquire_in(self, lease, url, work):
        self._in(lease.lease.acquire_in, url, work)

    def release_in(self, lease, url, work, **options):
        self._in(lease.lease.release_in, url, work, **options)

    def _in(self, step, url, work, **options):
        """`work` gathers its statements, and may raise; they run before that."""
        async def transact():
            async with await psycopg.AsyncConnection.connect(url) as connection, step(connection, **options):
                statements = []
                try:
                    return work(statements.append)
                finally:
                    for each in statements:
                        await connection.execute(each)

        return self.run(transact())

    def leftovers(self):
        async def tasks():
            return [task.get_name() for task in asyncio.all_tasks() if task is not asyncio.current_task()]

        return self.run(tasks())

    def close(self):
        if self.is_open:
            self.is_open = False
            self.run(self.client.close())

    def finish(self):
        self.close()
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()


APIS = {"threads": SyncClient, "asyncio": AsyncioClient}
