"""The cases about work that is torn away from its lease, or put off beyond it; cases.py has the others."""
import asyncio
import contextlib
import functools
import itertools
import sys
import types

import leasehold
import pytest
from cases import LONG, NAMESPACE, fresh
from harness import wait_until


class Torn(BaseException):
    pass


@contextlib.contextmanager
def at_call(number, act):
    """Does so at the nth call of a function while the body runs, where a signal handler would run; yields whether it was done. Not at the
    call of __exit__, which no class can guard, nor in threading, which raises another error then."""
    calls, done = itertools.count(), []

    def trace(frame, event, unused):
        if not done and frame.f_code.co_name != "__exit__" and frame.f_globals.get("__name__") != "threading" and next(calls) == number:
            done.append(frame.f_code.co_qualname)
            act()

    sys.settrace(trace)
    try:
        yield done
    finally:
        sys.settrace(None)


@types.coroutine
def cancelled_at(number, coroutine):
    """Cancels the task at its nth await; whether it got so far."""
    step, argument = coroutine.send, None
    for count in itertools.count():
        try:
            awaited = step(argument)
        except StopIteration:
            return count > number
        if count == number:
            asyncio.current_task().cancel()
        try:
            step, argument = coroutine.send, (yield awaited)
        except BaseException as error:
            step, argument = coroutine.throw, error


def interrupted_caller_holds_nothing(place):
    client, word, is_over = place.client(), fresh(), False

    def tear():
        raise Torn

    async def body(lease):
        async with lease:
            await asyncio.sleep(0)

    async def cancelled(number, lease):
        try:
            return not await cancelled_at(number, body(lease))
        except asyncio.CancelledError:
            asyncio.current_task().uncancel()
            return False

    with client.lease(NAMESPACE, fresh()):
        pass
    for number in itertools.count():
        if is_over:
            break
        lease = client.lease(NAMESPACE, f"{word}-{number}", duration=LONG)
        if place.api.name == "asyncio":
            is_over = client.run(cancelled(number, lease.lease))
        else:
            with contextlib.suppress(Torn), at_call(number, tear) as torn, lease:
                pass
            is_over = not torn
        assert not lease.is_held(), number
    assert number > 4 and not client._core.leases
    wait_until(lambda: place.psql(f"select count(*) from leasehold.scope where namespace = '{NAMESPACE}' and key like '{word}-%' and state = 'held'") == "0")
    with client.lease(NAMESPACE, f"{word}-0", wait=60) as lease:
        lease.check()


def handler_may_use_the_client(place):
    if place.api.name == "asyncio":  # there a handler is a callback of the loop's
        return
    program = place.program("handler", fresh(), 60)
    assert program.end() == 0 and int(program.find("handled").split()[1]) > 30, program.lines[-5:]


def work_that_ends_the_program_is_told(place):
    key = fresh()
    if place.api.name == "asyncio":  # SystemExit ends the case's loop
        return
    with pytest.raises(SystemExit) as end, place.client().lease(NAMESPACE, key, duration=LONG) as lease:
        lease.result = "done"
        sys.exit(0)
    assert not end.value.code and place.row(key, "state, last_outcome, last_result") == 'free|ok|"done"'
    with pytest.raises(leasehold.LeaseLost), place.client().lease(NAMESPACE, key, duration=LONG):
        place.force(key)
        sys.exit()
    with pytest.raises(SystemExit), place.client().lease(NAMESPACE, key):
        sys.exit("the disk is full")
    assert place.row(key, "state, last_outcome, last_error") == "free|failed|SystemExit: the disk is full"


def deferred_work_is_refused(place):
    def lines():
        yield 1

    async def task():
        pass

    async def items():
        yield 1

    if place.api.name == "asyncio":  # awaits what the function returns, and what cannot be awaited is a TypeError
        return
    for work in (lines, items, task, functools.partial(task)):
        with pytest.raises(ValueError, match="the function must be a function that does its work when it is called"):
            place.client().leased(NAMESPACE, fresh())(work)
