"""A holder in a process of its own: program.py API TRANSPORT TARGET NAMESPACE KEY MODE DURATION. It prints what happens to it.

    hold    acquire, work until SIGTERM or the loss
    exit    acquire, and end with status 7 without closing anything
    fork    hold, with a child that inherits the lease
    fork-first    hold here and in a child, by a client that was not used before the fork
    fork-locked    hold, with a child that is forked while another thread has the client's lock
    block   acquire, and keep the thread, or the event loop, busy for longer than the lease lives
    handler acquire and release, while a signal handler does the same at each call of a function, once
    lead    stand for election, work while leading
"""
import asyncio
import contextlib
import itertools
import os
import pathlib
import signal
import sys
import threading
import time

import leasehold

API, TRANSPORT, TARGET, NAMESPACE, KEY, MODE, DURATION = sys.argv[1:]
TARGETS = {"server": TARGET} if TRANSPORT == "grpc" else {"database": TARGET}
DURATION = float(DURATION)
stop = threading.Event()


def say(*words):
    sys.stdout.write(" ".join(map(str, words)) + "\n")  # in one piece: the loss is told by another thread
    sys.stdout.flush()


def work(lease):
    """One step; whether to go on."""
    if stop.is_set() or not lease.is_held():
        return False
    say("working", lease.token)
    return True


def told(reason):
    say("lost", reason)


def fork_locked(client):
    taken, done = threading.Event(), threading.Event()

    def take():
        with client._core.lock:
            taken.set()
            done.wait()

    holder = threading.Thread(target=take)
    holder.start()
    taken.wait()
    child = os.fork()
    if child == 0:
        client._core.close().close() if API == "asyncio" else client.close()
        os._exit(3) if API == "asyncio" else sys.exit(3)
    done.set()
    holder.join()
    for _ in range(600):
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            say("child ended", os.waitstatus_to_exitcode(status))
            return
        time.sleep(0.05)
    os.kill(child, signal.SIGKILL)
    say("child hangs", os.waitpid(child, 0)[1])


def sockets():
    """Of this process, by their numbers in the kernel: connections, of any kind."""
    links = (pathlib.Path("/proc/self/fd", each) for each in os.listdir("/proc/self/fd"))
    return {os.readlink(each) for each in links if each.is_symlink() and os.readlink(each).startswith("socket:")}


def fork(lease, unused, before):
    connections = sockets() - before
    child = os.fork()
    if child == 0:
        if TRANSPORT == "sql":  # grpcio sees to its own, if new enough
            say("inherited connections", len(connections & sockets()))
        try:
            lease._core.begin()
        except leasehold.LeaseholdError as error:
            say("refused", error.reason, f"process {os.getppid()}," in str(error) and f"process {os.getpid()} " in str(error))
        if API == "threads":
            try:
                with unused.lease(NAMESPACE, KEY + "-child", duration=DURATION) as own:
                    say("own lease", own.owner.endswith(f"/{os.getpid()}"))
            except leasehold.LeaseholdError as error:
                say("own lease", error.reason, f"process {os.getppid()} " in str(error) and f"process {os.getpid()} " in str(error))
        try:
            lease.check()
        except leasehold.LeaseLost as error:
            say("child", error.reason)
        if API == "asyncio":
            os._exit(0)  # two processes cannot both take an event loop down
        sys.exit(0)  # through the body of `with`
    return child


def fork_first():
    """A client that was not used before the fork: the child's as well as the parent's."""
    client = leasehold.Client(**TARGETS) if API == "threads" else leasehold.AsyncClient(**TARGETS)
    child = os.fork()
    lease = client.lease(NAMESPACE, f"{KEY}-{child == 0}", duration=DURATION)

    async def hold():
        async with lease:
            say("own lease", lease.owner.endswith(f"/{os.getpid()}"))
        await client.close()

    if API == "asyncio":
        asyncio.run(hold())
    else:
        with lease:
            say("own lease", lease.owner.endswith(f"/{os.getpid()}"))
        client.close()
    if child == 0:
        sys.exit(3)
    say("child ended", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))


def handler(client):
    """At the nth call of a function while the client acquires and releases: that is where a signal handler runs."""
    modules = ["leasehold.core", "leasehold.lease", "leasehold.runtime", "leasehold.sql_transport", "leasehold.grpc_transport", "leasehold.grpc_calls"]
    if TRANSPORT == "sql":  # grpcio waits for locks of threading's
        modules.append("threading")

    for number in itertools.count():
        calls, handled = itertools.count(), []

        def trace(frame, event, unused):
            if not handled and frame.f_globals.get("__name__") in modules and next(calls) == number:
                handled.append(frame.f_code.co_name)
                with client.lease(NAMESPACE, f"{KEY}-{number}-handler", duration=DURATION):
                    pass

        lease = client.lease(NAMESPACE, f"{KEY}-{number}", duration=DURATION)
        sys.settrace(trace)
        with lease:
            pass
        sys.settrace(None)
        if not handled:
            return say("handled", number)


def threads():
    before = sockets()  # an event loop's own
    client, unused = leasehold.Client(**TARGETS), leasehold.Client(**TARGETS)
    if MODE == "lead":
        for leadership in client.lead(NAMESPACE, KEY, duration=DURATION):
            say("leading", leadership.token)
            while work(leadership):
                time.sleep(0.02)
            say("over", leadership.lost)
            if stop.is_set():
                return
    if MODE == "handler":
        return handler(client)
    lease = client.lease(NAMESPACE, KEY, duration=DURATION, on_lost=told)
    if MODE == "exit":
        say("acquired", lease.acquire().token)
        sys.exit(7)
    with lease:
        say("acquired", lease.token)
        if MODE == "fork":
            child = fork(lease, unused, before)
            say("parent waited", os.waitpid(child, 0)[1])
        if MODE == "fork-locked":
            fork_locked(client)
        if MODE == "block":
            time.sleep(1.5 * DURATION)
            return
        while work(lease):
            time.sleep(0.02)
    client.close()
    say("released")


async def tasks():
    before = sockets()  # an event loop's own
    client, unused = leasehold.AsyncClient(**TARGETS), None
    if MODE == "lead":
        async with contextlib.aclosing(client.lead(NAMESPACE, KEY, duration=DURATION)) as terms:
            async for leadership in terms:
                say("leading", leadership.token)
                while work(leadership):
                    await asyncio.sleep(0.02)
                say("over", leadership.lost)
                if stop.is_set():
                    break
        await client.close()
        return
    lease = client.lease(NAMESPACE, KEY, duration=DURATION, on_lost=told)
    if MODE == "exit":
        say("acquired", (await lease.acquire()).token)
        sys.exit(7)
    async with lease:
        say("acquired", lease.token)
        if MODE == "fork":
            child = fork(lease, unused, before)
            say("parent waited", os.waitpid(child, 0)[1])
        if MODE == "fork-locked":
            fork_locked(client)
        if MODE == "block":
            time.sleep(1.5 * DURATION)
            return
        while work(lease):
            await asyncio.sleep(0.02)
    await client.close()
    say("released")


signal.signal(signal.SIGTERM, lambda *unused: stop.set())
try:
    if MODE == "fork-first":
        fork_first()
    else:
        threads() if API == "threads" else asyncio.run(tasks())
except leasehold.LeaseLost as error:
    say("ended", error.reason)
    sys.exit(4)
