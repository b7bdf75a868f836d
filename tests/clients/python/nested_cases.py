"""The cases about what is called in the body of a lease."""
import asyncio
from concurrent import futures

import grpc
import leasehold
import pytest
from cases import LONG, NAMESPACE, fresh
from harness import wait_until


def lost_lease_ends_nested_calls(place):
    outer, other, client = fresh(), fresh(), place.client()
    held = place.client().lease(NAMESPACE, other, duration=LONG).acquire()

    def force():
        wait_until(lambda: place.waiting(other) == 1)
        place.force(outer)

    with futures.ThreadPoolExecutor() as pool, pytest.raises(leasehold.LeaseLost) as lost:
        forced = pool.submit(force)
        if place.api.name == "threads":
            with client.lease(NAMESPACE, outer, duration=6):
                client.lease(NAMESPACE, other, wait=LONG).acquire()
        else:
            async def body():
                async with client.client.lease(NAMESPACE, outer, duration=6):
                    await client.client.lease(NAMESPACE, other, wait=LONG).acquire()

            client.run(body())
    forced.result()
    assert lost.value.reason == "forced" and outer in str(lost.value)
    wait_until(lambda: place.waiting(other) == 0)
    held.check()
    assert held.release()
    assert client.lease(NAMESPACE, other, wait=60).acquire().release()


class Answer(grpc.GenericRpcHandler):
    """What is left of the call's time; to a request of this package's it is a refusal."""

    def __init__(self):
        self.left = {}

    def service(self, details):
        name = details.method.split("/")[-1]

        def answer(request, context):
            self.left[name] = context.time_remaining()
            if "leasehold" in details.method:
                context.abort(grpc.StatusCode.PERMISSION_DENIED, "a test")
            return str(self.left[name]).encode()

        return grpc.unary_unary_rpc_method_handler(answer)


async def refused(*requests):
    for each in requests:
        with pytest.raises(leasehold.Denied):
            await each


def own_requests_carry_it(place, key, target, answer):
    both, options = [(NAMESPACE, key + "-1"), (NAMESPACE, key + "-2")], {"timeout": 1000}
    if place.api.name == "threads":
        with place.client().lease(NAMESPACE, key, duration=30) as lease, leasehold.Client(target, **options) as other:
            most = lease.remaining()
            for request in (lambda: other.explain(NAMESPACE, "x"), lambda: other.ask_hand_over(NAMESPACE, "x", "a test"), other.lease_all(both).acquire,
                            other.lease(NAMESPACE, "x").acquire):
                with pytest.raises(leasehold.Denied):
                    request()
            within = dict(answer.left)
            with pytest.raises(leasehold.Denied):
                other.lease(NAMESPACE, "x", wait=LONG).acquire()
    else:
        outer = place.client()

        async def body():
            async with outer.client.lease(NAMESPACE, key, duration=30) as lease, leasehold.AsyncClient(target, **options) as other:
                most = lease.remaining()
                await refused(other.explain(NAMESPACE, "x"), other.ask_hand_over(NAMESPACE, "x", "a test"), other.lease_all(both).acquire(),
                              other.lease(NAMESPACE, "x").acquire())
                within = dict(answer.left)
                await refused(other.lease(NAMESPACE, "x", wait=LONG).acquire())
                return most, within

        most, within = outer.run(body())
    assert {name for name, left in within.items() if 0 < left <= most + 1} == {"Explain", "AskHandOver", "AcquireAll", "AcquireStream"}, within
    assert answer.left["AcquireStream"] > 1000  # renewals move the deadline meanwhile


def deadline_travels_in_metadata(place):
    answer = Answer()
    server = grpc.server(futures.ThreadPoolExecutor(), handlers=[answer])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    key, client = fresh(), place.client()
    try:
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            def ask():
                left = channel.unary_unary("/other.Service/Ask")(b"", timeout=leasehold.remaining()).decode()
                return None if left == "None" or float(left) > 1e6 else float(left)

            assert leasehold.remaining() is None and ask() is None
            if place.api.name == "threads":
                with client.lease(NAMESPACE, key, duration=30) as lease:
                    most = lease.remaining()
                    assert 0 < ask() <= most + 1  # gRPC rounds it up
                    with client.lease(NAMESPACE, key + "-inner", duration=LONG):
                        assert 0 < ask() <= most + 1  # gRPC rounds it up
            else:
                async def body():
                    async with client.client.lease(NAMESPACE, key, duration=30) as lease:
                        most = lease.remaining()
                        async with client.client.lease(NAMESPACE, key + "-inner", duration=LONG):
                            assert 0 < await asyncio.to_thread(ask) <= most + 1

                client.run(body())
            assert leasehold.remaining() is None
            for _ in client.lead(NAMESPACE, key) if place.api.name == "threads" else []:
                assert 0 < ask() <= 31
                break
        answer.left.clear()
        own_requests_carry_it(place, key + "-own", f"127.0.0.1:{port}", answer)
    finally:
        server.stop(None)
