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
    """What is left of the call's time."""

    def service(self, details):
        return grpc.unary_unary_rpc_method_handler(lambda request, context: str(context.time_remaining()).encode())


def deadline_travels_in_metadata(place):
    server = grpc.server(futures.ThreadPoolExecutor(), handlers=[Answer()])
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
    finally:
        server.stop(None)
