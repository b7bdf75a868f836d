"""What each RPC needs, and how it is tried: the one table that test_access_matrix.py is generated from.

A row says which right a method needs, what it is about (a scope, a namespace, items of a batch, a listing, the root, or
nothing at all), how it is called, and what an allowed call may end with. MODEL below says who may what, in a few lines
that share nothing with the daemon's code.
"""
import queue
import uuid

import grpc

import harness
import health_pb2
import health_pb2_grpc
import reflection_pb2
import reflection_pb2_grpc
from google.protobuf.field_mask_pb2 import FieldMask
from harness import duration, pb

BOUND = 60  # seconds until a call gives up; never a measurement

SCOPE, ITEM, NAMESPACE, LISTING, ROOT, OPEN = "scope", "item", "namespace", "listing", "root", "open"


# --- who may what ---


class Rule:
    def __init__(self, principal, namespace, *rights):
        self.principal, self.namespace, self.rights = principal, namespace, rights

    def names(self, principal):
        return principal.startswith(self.principal[:-1]) if self.principal.endswith("*") else principal == self.principal

    def covers(self, namespace):
        return self.namespace == "" or namespace == self.namespace or namespace.startswith(self.namespace + ".")

    def gives(self):
        return {right for given in self.rights for right in ((given, "read", "lease") if given == "admin" else (given,))}


class Model:
    def __init__(self, rules, admins):
        self.rules = rules + [Rule(admin, "", "admin") for admin in admins]

    def may(self, principal, right, namespace):
        return any(rule.names(principal) and rule.covers(namespace) and right in rule.gives() for rule in self.rules)

    def may_below(self, principal, right, namespace):
        """In a part of it."""
        return any(rule.names(principal) and right in rule.gives() and (namespace == "" or rule.namespace == namespace or
                                                                       rule.namespace.startswith(namespace + "."))
                   for rule in self.rules)


# --- how each method is tried: the answer is a word ---


def segments(namespace):
    return namespace.split(".") if namespace else []


def scope(namespace, key):
    return pb.Scope(namespace=segments(namespace), key=key)


def acquire_request(namespace, key):
    return pb.AcquireRequest(scope=scope(namespace, key), duration=duration(3600), owner="the-matrix")


def stream(method, request, metadata):
    """The call, and its requests: they end with the call."""
    requests = queue.Queue()
    requests.put(request)
    call = method(iter(requests.get, None), metadata=metadata, timeout=BOUND)
    call.add_callback(lambda: requests.put(None))
    return call


def first(call):
    try:
        return next(iter(call))
    finally:
        call.cancel()


def acquire(client, namespace, key, metadata):
    client.lease.Acquire(acquire_request(namespace, key), metadata=metadata, timeout=BOUND)
    return "OK"


def acquire_all(client, namespace, key, metadata):
    items = [pb.AcquireItem(scope=scope(namespace, name)) for name in (key, key + "-too")]
    client.lease.AcquireAll(pb.AcquireAllRequest(items=items, duration=duration(3600)), metadata=metadata, timeout=BOUND)
    return "OK"


def acquire_stream(client, namespace, key, metadata):
    return first(client.lease.AcquireStream(acquire_request(namespace, key), metadata=metadata, timeout=BOUND)).WhichOneof("event")


def hold(client, namespace, key, metadata):
    request = pb.HoldRequest(acquire=acquire_request(namespace, key))
    return first(stream(client.lease.Hold, request, metadata)).WhichOneof("event")


def refs(scopes):
    return [pb.LeaseRef(scope=scope(namespace, key), lease_key=str(uuid.uuid4())) for namespace, key in scopes]


def words(results, asked):
    assert [result.lease_key for result in results] == [ref.lease_key for ref in asked], "each item has its own answer"
    return [(pb.Outcome.Name(result.outcome), result) for result in results]


def heartbeat(client, scopes, metadata):
    asked = refs(scopes)
    return words(client.lease.Heartbeat(pb.HeartbeatRequest(leases=asked), metadata=metadata, timeout=BOUND).results, asked)


def keep_alive(client, scopes, metadata):
    asked = refs(scopes)
    return words(first(stream(client.lease.KeepAlive, pb.HeartbeatRequest(leases=asked), metadata)).results, asked)


def release(client, scopes, metadata):
    asked = refs(scopes)
    request = pb.ReleaseRequest(items=[pb.ReleaseItem(lease=ref, success="") for ref in asked])
    return words(client.lease.Release(request, metadata=metadata, timeout=BOUND).results, asked)


def downgrade(client, namespace, key, metadata):
    request = pb.DowngradeRequest(lease=refs([(namespace, key)])[0])
    client.lease.Downgrade(request, metadata=metadata, timeout=BOUND)
    return "OK"


def ask_hand_over(client, namespace, key, metadata):
    """As one who does not wait there."""
    client.lease.AskHandOver(pb.AskHandOverRequest(scope=scope(namespace, key), reason="the matrix"), metadata=metadata, timeout=BOUND)
    return "OK"


def refuse_hand_over(client, namespace, key, metadata):
    request = pb.RefuseHandOverRequest(lease=refs([(namespace, key)])[0], reason="the matrix")
    client.lease.RefuseHandOver(request, metadata=metadata, timeout=BOUND)
    return "OK"


def get_lease(client, namespace, key, metadata):
    client.lease.GetLease(pb.GetLeaseRequest(scope=scope(namespace, key)), metadata=metadata, timeout=BOUND)
    return "OK"


def force_release(client, namespace, key, metadata):
    request = pb.ForceReleaseRequest(scope=scope(namespace, key), reason="the matrix", token=1)
    client.admin.ForceRelease(request, metadata=metadata, timeout=BOUND)
    return "OK"


def set_policy(client, namespace, metadata):
    policy = pb.Policy(namespace=pb.Namespace(segments=segments(namespace)), max_hold=duration(900))
    client.admin.SetPolicy(pb.SetPolicyRequest(policy=policy, update_mask=FieldMask(paths=["max_hold"])), metadata=metadata,
                           timeout=BOUND)
    return "OK"


def get_policy(client, namespace, metadata):
    client.admin.GetPolicy(pb.GetPolicyRequest(namespace=pb.Namespace(segments=segments(namespace))), metadata=metadata,
                           timeout=BOUND)
    return "OK"


def seen(lease):
    return ".".join(lease.scope.namespace), lease.scope.key


def list_leases(client, namespace, is_deep, metadata):
    """Page by page: what is shown."""
    shown, page = set(), ""
    while True:
        answer = client.lease.ListLeases(pb.ListLeasesRequest(namespace=segments(namespace), include_children=is_deep, page_size=50,
                                                              page_token=page), metadata=metadata, timeout=BOUND)
        shown |= {seen(lease) for lease in answer.leases}
        page = answer.next_page_token
        if not page:
            return shown


def watch_leases(client, namespace, is_deep, metadata):
    call = client.lease.WatchLeases(pb.WatchLeasesRequest(namespace=segments(namespace), include_children=is_deep,
                                                          include_initial=True), metadata=metadata, timeout=BOUND)
    shown = set()
    try:
        for event in call:
            if event.type == pb.LeaseEvent.TYPE_SYNCED:
                return shown
            shown.add(seen(event.lease))
    finally:
        call.cancel()


def reap(client, namespace, is_deep, metadata):
    namespaces = [pb.Namespace(segments=segments(namespace))] if namespace else []
    client.admin.Reap(pb.ReapRequest(namespaces=namespaces, include_children=is_deep), metadata=metadata, timeout=BOUND)


def list_policies(client, namespace, is_deep, metadata):
    shown, page = set(), ""
    while True:
        answer = client.admin.ListPolicies(pb.ListPoliciesRequest(page_size=9, page_token=page), metadata=metadata, timeout=BOUND)
        shown |= {".".join(policy.namespace.segments) for policy in answer.policies}
        page = answer.next_page_token
        if not page:
            return shown


def get_status(client, metadata):
    client.admin.GetStatus(pb.GetStatusRequest(), metadata=metadata, timeout=BOUND)
    return "OK"


def health_check(client, metadata):
    health_pb2_grpc.HealthStub(client.channel).Check(health_pb2.HealthCheckRequest(), metadata=metadata, timeout=BOUND)
    return "OK"


def health_watch(client, metadata):
    first(health_pb2_grpc.HealthStub(client.channel).Watch(health_pb2.HealthCheckRequest(), metadata=metadata, timeout=BOUND))
    return "OK"


def reflection(client, metadata):
    stub = reflection_pb2_grpc.ServerReflectionStub(client.channel)
    first(stream(stub.ServerReflectionInfo, reflection_pb2.ServerReflectionRequest(list_services=""), metadata))
    return "OK"


def administers(method, make_request):
    """Of the rules and tokens themselves."""
    def call(client, metadata):
        getattr(client.admin, method)(make_request(), metadata=metadata, timeout=BOUND)
        return "OK"
    return call


class Row:
    def __init__(self, method, right, kind, call, allowed=("OK",)):
        self.method, self.right, self.kind, self.call, self.allowed = method, right, kind, call, set(allowed)

    def __repr__(self):
        return self.method


LEASE, ADMIN = "LeaseService.", "AdminService."
HELD = {"LEASE_HELD"}

TABLE = [
    Row(LEASE + "Acquire", "lease", SCOPE, acquire, {"OK"} | HELD),
    Row(LEASE + "AcquireAll", "lease", SCOPE, acquire_all, {"OK"} | HELD),
    Row(LEASE + "AcquireStream", "lease", SCOPE, acquire_stream, {"granted"} | HELD),
    Row(LEASE + "Hold", "lease", SCOPE, hold, {"granted"} | HELD),
    Row(LEASE + "Downgrade", "lease", SCOPE, downgrade, {"NOT_HELD"}),
    Row(LEASE + "AskHandOver", "admin", SCOPE, ask_hand_over, {"OK", "NOT_HELD"}),
    Row(LEASE + "RefuseHandOver", "lease", SCOPE, refuse_hand_over, {"NOT_HELD", "NOT_ASKED"}),
    Row(LEASE + "Heartbeat", "lease", ITEM, heartbeat, {"OUTCOME_LOST"}),
    Row(LEASE + "KeepAlive", "lease", ITEM, keep_alive, {"OUTCOME_LOST"}),
    Row(LEASE + "Release", "lease", ITEM, release, {"OUTCOME_LOST"}),
    Row(LEASE + "GetLease", "read", SCOPE, get_lease, {"OK", "NOT_HELD"}),
    Row(LEASE + "ListLeases", "read", LISTING, list_leases),
    Row(LEASE + "WatchLeases", "read", LISTING, watch_leases),
    Row(ADMIN + "Reap", "admin", LISTING, reap),
    Row(ADMIN + "ForceRelease", "admin", SCOPE, force_release, {"NOT_HELD"}),
    Row(ADMIN + "SetPolicy", "admin", NAMESPACE, set_policy),
    Row(ADMIN + "GetPolicy", "read", NAMESPACE, get_policy),
    Row(ADMIN + "ListPolicies", "read", LISTING, list_policies),
    Row(ADMIN + "GetStatus", None, OPEN, get_status),
    Row(ADMIN + "GrantAccess", "admin", ROOT, administers("GrantAccess", lambda: pb.GrantAccessRequest(
        principal="dns:nobody.example", namespace=pb.Namespace(segments=["matrix"]), rights=[pb.RIGHT_READ]))),
    Row(ADMIN + "RevokeAccess", "admin", ROOT, administers("RevokeAccess", lambda: pb.RevokeAccessRequest(
        principal="dns:nobody.example", namespace=pb.Namespace(segments=["matrix", "none"])))),
    Row(ADMIN + "ListAccess", "admin", ROOT, administers("ListAccess", lambda: pb.ListAccessRequest())),
    Row(ADMIN + "CreateToken", "admin", ROOT, administers("CreateToken", lambda: pb.CreateTokenRequest(name="matrix"))),
    Row(ADMIN + "RevokeToken", "admin", ROOT, administers("RevokeToken", lambda: pb.RevokeTokenRequest(name_or_id="matrix-none"))),
    Row(ADMIN + "ListTokens", "admin", ROOT, administers("ListTokens", lambda: pb.ListTokensRequest())),
    Row("Health.Check", None, OPEN, health_check),
    Row("Health.Watch", None, OPEN, health_watch),
    Row("ServerReflection.ServerReflectionInfo", None, OPEN, reflection),
]


def tried(call, *args):
    """The word of a call, and its failure where it had one."""
    try:
        return call(*args), None
    except grpc.RpcError as error:
        failure = harness.Failure(error)
        return failure.reason or failure.code.name, failure
