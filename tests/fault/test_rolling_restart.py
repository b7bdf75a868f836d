"""Daemons that are restarted one after the other under stock clients with the service config of deploy/examples."""
import threading
import uuid

import grpc

from flaky_proxy import FlakyProxy
from place import BOUND, harness, metric
from harness import acquire_request, lease_ref, pb, pb_grpc, release_request, wait_until

CONFIG = (harness.ROOT / "deploy/examples/grpc-service-config.json").read_text()
WORKERS = 4


def connect(target, *options):
    return grpc.insecure_channel(target, options=[("grpc.use_local_subchannel_pool", 1), ("grpc.enable_retries", 1),
                                                  ("grpc.max_reconnect_backoff_ms", 500), *options])


def work(stub, number, stop, pairs, faults):
    """A lease that is taken, renewed and given back, again and again. Each has a lease key, so that it may be repeated."""
    try:
        while not stop.is_set():
            request = acquire_request("restart", f"k{number}", 30, wait=20, lease_key=str(uuid.uuid4()))
            lease = stub.Acquire(request, timeout=BOUND).lease
            stub.Heartbeat(pb.HeartbeatRequest(leases=[lease_ref(lease)]), timeout=BOUND)
            stub.Release(release_request(lease), timeout=BOUND)
            pairs[number] += 1
    except Exception as error:
        faults.append(error)


def test_no_short_call_fails_while_daemons_are_restarted_in_turn(place):
    daemons = [place.daemon(), place.daemon()]
    target = "ipv4:" + ",".join(daemon.target for daemon in daemons)
    stop, pairs, faults = threading.Event(), [0] * WORKERS, []
    channel = connect(target, ("grpc.service_config", CONFIG))
    stub = pb_grpc.LeaseServiceStub(channel)
    threads = [threading.Thread(target=work, args=(stub, number, stop, pairs, faults)) for number in range(WORKERS)]
    for thread in threads:
        thread.start()

    def work_goes_on():
        before = list(pairs)
        wait_until(lambda: faults or all(now > then + 5 for now, then in zip(pairs, before)), BOUND, "pairs of each worker")

    try:
        work_goes_on()
        for daemon in daemons * 2:
            assert daemon.stop() == 0, daemon.log()
            work_goes_on()
            daemon.start()
            # The client has found it again: then the next one may go.
            wait_until(lambda: metric(daemon, "leasehold_rpc_connections_open") > 0, BOUND, "the client's connection")
            work_goes_on()
    finally:
        stop.set()
        for thread in threads:
            thread.join()
        channel.close()
    assert not faults, faults


def test_the_service_config_repeats_a_call_whose_connection_broke(place):
    """Without it the same calls fail: what saves them is the config."""
    proxy = FlakyProxy(place.daemon().target)
    try:
        for options, survives in (((), False), ((("grpc.service_config", CONFIG),), True)):
            answers = iter(["cut", "cut"])
            proxy.decide = lambda answers=answers: next(answers, "pass")
            with connect(proxy.target, *options) as channel:
                request = acquire_request("restart", f"cut-{survives}", 30, wait=20, lease_key=str(uuid.uuid4()))
                try:
                    assert pb_grpc.LeaseServiceStub(channel).Acquire(request, timeout=BOUND).lease.token > 0
                    assert survives
                except grpc.RpcError as error:
                    assert not survives and error.code() == grpc.StatusCode.UNAVAILABLE, error
        assert proxy.actions["cut"] >= 3, proxy.actions
    finally:
        proxy.close()
