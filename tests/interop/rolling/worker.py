"""A stock Python client that works through restarts: worker.py TARGETS SERVICE_CONFIG. See test_rolling_restart.py."""
import sys
import threading
import time
import uuid

import grpc
from leasehold.v1 import leasehold_pb2 as pb
from leasehold.v1 import leasehold_pb2_grpc as pb_grpc

WORKERS = 4
TIMEOUT_S = 60

pairs = [0] * WORKERS
stop = threading.Event()


def work(stub, number):
    while not stop.is_set():
        lease_key = str(uuid.uuid4())
        request = pb.AcquireRequest(scope=pb.Scope(namespace=["restart"], key="python%d" % number), lease_key=lease_key)
        request.duration.seconds, request.wait.seconds = 30, 20
        try:
            lease = stub.Acquire(request, timeout=TIMEOUT_S).lease
            ref = pb.LeaseRef(scope=lease.scope, lease_key=lease_key)
            stub.Heartbeat(pb.HeartbeatRequest(leases=[ref]), timeout=TIMEOUT_S)
            stub.Release(pb.ReleaseRequest(items=[pb.ReleaseItem(lease=ref)]), timeout=TIMEOUT_S)
            pairs[number] += 1
        except Exception as error:
            print("failed", error.code() if isinstance(error, grpc.RpcError) else "", " ".join(str(error).split()), flush=True)


def main():
    targets, config = sys.argv[1:]
    with open(config, encoding="utf-8") as file:
        options = [("grpc.service_config", file.read()), ("grpc.enable_retries", 1), ("grpc.max_reconnect_backoff_ms", 500)]
    with grpc.insecure_channel("ipv4:" + targets, options=options) as channel:
        threads = [threading.Thread(target=work, args=(pb_grpc.LeaseServiceStub(channel), number)) for number in range(WORKERS)]
        for thread in threads:
            thread.start()
        threading.Thread(target=lambda: (sys.stdin.read(), stop.set()), daemon=True).start()
        while not stop.is_set():
            print("pairs", *pairs, flush=True)
            time.sleep(0.1)
        for thread in threads:
            thread.join()
    print("ended", *pairs, flush=True)


main()
