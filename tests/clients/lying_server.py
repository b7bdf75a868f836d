"""A server that grants whatever it is asked for, and lies as a test says: for clients that believe no more of an answer than can be true.

    server = LyingServer()
    server.lies = {"waited": seconds, "remaining": seconds}      of grants and renewals; without them 0 and what was asked for
                  {"lease_key": text, "leases": count}           that it answers for; how many an AcquireAll is answered with
                  {"status": name, "is_garbage": True}           as a proxy that has lost the server; a message that cannot be read
    server.asked, server.released                                lease keys, of acquires and of releases
    server.renewals                                              how many were asked for
"""
import concurrent.futures

import harness
from harness import grpc, pb


class LyingServer(grpc.GenericRpcHandler):
    def __init__(self):
        self.lies, self.asked, self.released, self.renewals, self.duration = {}, [], [], 0, 0
        self.server = grpc.server(concurrent.futures.ThreadPoolExecutor(), handlers=[self])
        self.target = f"127.0.0.1:{self.server.add_insecure_port('127.0.0.1:0')}"
        self.server.start()

    def service(self, details):
        name = details.method.rsplit("/", 1)[1]
        if name == "Hold":
            return grpc.stream_stream_rpc_method_handler(self.hold)
        make = vars(type(self)).get(name)
        if make is None:
            return None

        def answer(body, context):
            message = make(self, body)
            if "status" in self.lies:
                context.abort(grpc.StatusCode[self.lies["status"]], "no healthy upstream")
            return b"\xff" if self.lies.get("is_garbage") else message.SerializeToString()

        if name == "AcquireStream":
            return grpc.unary_stream_rpc_method_handler(lambda body, context: iter([answer(body, context)]))
        return grpc.unary_unary_rpc_method_handler(answer)

    def time(self, what, truth=0):
        return harness.Duration(seconds=int(self.lies.get(what, truth)))

    def lease(self, scope, lease_key):
        return pb.Lease(scope=scope, lease_key=self.lies.get("lease_key", lease_key), token=1, remaining=self.time("remaining", self.duration))

    def hold(self, bodies, context):
        for request in map(pb.HoldRequest.FromString, bodies):
            if request.HasField("acquire"):
                asked, self.duration = request.acquire, request.acquire.duration.seconds
                event = pb.HoldEvent(granted=self.lease(asked.scope, asked.lease_key), waited=self.time("waited"))
            else:
                self.renewals += 1
                event = pb.HoldEvent(renewed=self.lease(asked.scope, asked.lease_key), alive_sequence=request.alive.sequence)
            yield event.SerializeToString()

    def AcquireStream(self, body):
        request = pb.AcquireRequest.FromString(body)
        self.asked.append(request.lease_key)
        self.duration = request.duration.seconds
        return pb.AcquireEvent(granted=self.lease(request.scope, request.lease_key), waited=self.time("waited"))

    def AcquireAll(self, body):
        request = pb.AcquireAllRequest.FromString(body)
        self.asked.append(request.lease_key)
        self.duration = request.duration.seconds
        leases = [self.lease(item.scope, request.lease_key) for item in request.items]
        return pb.AcquireAllResponse(leases=leases[:self.lies.get("leases", len(leases))], waited=self.time("waited"))

    def Downgrade(self, body):
        ref = pb.DowngradeRequest.FromString(body).lease
        return pb.DowngradeResponse(lease=self.lease(ref.scope, ref.lease_key), waited=self.time("waited"))

    def Heartbeat(self, body):
        self.renewals += 1
        return pb.HeartbeatResponse(results=[
            pb.HeartbeatResult(lease_key=self.lies.get("lease_key", each.lease_key), outcome=pb.OUTCOME_OK, remaining=self.time("remaining", self.duration))
            for each in pb.HeartbeatRequest.FromString(body).leases])

    def Release(self, body):
        keys = [item.lease.lease_key for item in pb.ReleaseRequest.FromString(body).items]
        self.released += keys
        return pb.ReleaseResponse(results=[pb.ReleaseResult(lease_key=self.lies.get("lease_key", key), outcome=pb.OUTCOME_OK) for key in keys])

    def close(self):
        self.server.stop(None)
