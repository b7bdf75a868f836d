#!/usr/bin/python3
"""Say that a runner is there, until TERM: presence.py SERVER NAME [SECONDS]

SECONDS (default 15) is how long it may be silent before it is gone.
"""
import signal
import sys
import time
import uuid

import grpc
from google.protobuf.duration_pb2 import Duration
from google.rpc import error_details_pb2, status_pb2
from leasehold.v1 import leasehold_pb2, leasehold_pb2_grpc


def reason_of(error):
    """LEASE_ENDED, LEASE_HELD, ...; the code alone says less."""
    info = error_details_pb2.ErrorInfo()
    for name, value in error.trailing_metadata() or ():
        if name == "grpc-status-details-bin":
            for detail in status_pb2.Status.FromString(value).details:
                if detail.Unpack(info):
                    return info.reason
    return error.code().name


def main():
    server, name = sys.argv[1:3]
    seconds = float(sys.argv[3]) if len(sys.argv) > 3 else 15
    stub = leasehold_pb2_grpc.LeaseServiceStub(grpc.insecure_channel(server))
    scope = leasehold_pb2.Scope(namespace=["runners", "present"], key=name)
    duration = Duration()
    duration.FromNanoseconds(round(seconds * 1e9))
    lease_key = str(uuid.uuid4())
    signal.signal(signal.SIGTERM, lambda *unused: sys.exit(0))
    try:
        while True:
            try:
                stub.Acquire(leasehold_pb2.AcquireRequest(scope=scope, duration=duration, owner=name, lease_key=lease_key), timeout=seconds / 3)
            except grpc.RpcError as error:
                reason = reason_of(error)
                print(f"{name}: {reason}: {error.details()}", flush=True)
                if reason == "LEASE_HELD":
                    sys.exit(f"there is a {name} already")
                if reason == "LEASE_ENDED":
                    lease_key = str(uuid.uuid4())
                    continue
                # Anything else passes: the lease outlives two calls that were lost.
            time.sleep(seconds / 3)
    finally:
        lease = leasehold_pb2.LeaseRef(scope=scope, lease_key=lease_key)
        stub.Release(leasehold_pb2.ReleaseRequest(items=[leasehold_pb2.ReleaseItem(lease=lease, success="")]), timeout=5)


main()
