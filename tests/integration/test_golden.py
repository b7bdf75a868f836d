"""Every answer of every RPC, its errors with their details, and what the command line prints: as they are frozen in golden/."""
import json

import grpc
import pytest

import harness
import health_pb2
import health_pb2_grpc
import reflection_pb2
import reflection_pb2_grpc
from access_site import bearer
from commandline import cli
from golden_world import Still, World, as_json, compare, error_json, key_of, namespace
from google.protobuf import descriptor_pb2
from harness import duration, pb, scope
from streams import BOUND, granted_event


@pytest.fixture(scope="module")
def world(cluster):
    world = World(cluster)
    yield world
    world.close()


@pytest.fixture
def fresh(cluster):
    """A world of the test's own, which it changes."""
    world = World(cluster)
    yield world
    world.close()


@pytest.fixture
def still():
    return Still()


def ref(dotted, key, number):
    return pb.LeaseRef(scope=scope(dotted, key), lease_key=key_of(number))


# --- what changes nothing, on one world ---


def test_answers_that_made_the_world(world, still):
    compare("made", still(world.made))


def test_queries(world, still):
    answers = {
        "GetLease": world.lease("GetLease", scope=scope("shop.orders", "7")),
        "GetLease at least": world.lease("GetLease", scope=scope("shop.orders", "8")),
        "GetLease shared": world.lease("GetLease", scope=scope("shop.pool", "p")),
        "GetLease past": world.lease("GetLease", scope=scope("shop.past", "k")),
        "GetLease expired": world.lease("GetLease", scope=scope("shop.failing", "f")),
        "ListLeases": world.lease("ListLeases", namespace=["shop"], include_children=True),
        "ListLeases page": world.lease("ListLeases", page_size=2),
        "ListLeases owner": world.lease("ListLeases", owner="two"),
        "ListLeases search": world.lease("ListLeases", search="WORKER"),
        "ListLeases expired": world.lease("ListLeases", state=pb.LEASE_STATE_EXPIRED),
        "ListLeases none": world.lease("ListLeases", namespace=["nowhere"]),
        "ListLeases reader": world.lease("ListLeases", "reader", namespace=["shop", "orders"]),
        "GetStatus": world.admin("GetStatus"),
        "GetStatus stranger": world.admin("GetStatus", "stranger"),
        "GetPolicy": world.admin("GetPolicy", namespace=namespace("shop.every")),
        "GetPolicy child": world.admin("GetPolicy", namespace=namespace("shop.every.child")),
        "GetPolicy root": world.admin("GetPolicy"),
        "ListPolicies": world.admin("ListPolicies"),
        "ListPolicies reader": world.admin("ListPolicies", "reader"),
        "ListAccess": world.admin("ListAccess"),
        "ListAccess page": world.admin("ListAccess", page_size=1),
        "ListTokens": world.admin("ListTokens"),
        "ListTokens page": world.admin("ListTokens", page_size=2),
    }
    for method, field in (("ListLeases", "leases"), ("ListPolicies", "policies"), ("ListAccess", "rules"), ("ListTokens", "tokens")):
        ask = world.lease if method == "ListLeases" else world.admin
        pages, page = [], ""
        while not pages or page:
            answer = ask(method, page_size=2, page_token=page)
            pages.append([each.get("name") or each.get("principal") or each.get("namespace") or "root" for each in answer[field]])
            page = answer.get("next_page_token", "")
        answers[method + " in pages"] = pages
    compare("queries", still(answers))


def test_views(world, still):
    answers = {f"{method} {name}": world.look(method, who, **fields) for method in (
        "ListAudit", "ListNamespaces", "ListQueue", "ListWaits", "ListHistory", "ListFailures") for name, who, fields in (
        ("all", "ops", {}), ("below", "reader", {"namespace": ["shop"], "include_children": True}), ("page", "ops", {"page_size": 1}),
        ("stranger", "stranger", {})) if (method, name) != ("ListAudit", "page")}
    for dotted, key in (("shop.orders", "7"), ("shop.orders", "8"), ("shop.pool", "p"), ("shop.past", "k"), ("shop.failing", "f"), ("shop", "free")):
        answers[f"Explain {dotted} {key}"] = world.look("Explain", scope=scope(dotted, key))
    for method in ("GetSession", "GetDatabase", "GetSamples"):
        answers[method] = world.look(method)
        answers[method + " reader"] = world.look(method, "reader")
        answers[method + " stranger"] = world.look(method, "stranger")
    answers["ListDaemons"] = world.look("ListDaemons")
    answers["ListHistory of a scope"] = world.look("ListHistory", namespace=["shop", "past"], key="k")
    answers["ListWaits of a scope"] = world.look("ListWaits", namespace=["shop", "orders"], key="7")
    compare("views", still(answers))


def test_health_and_reflection(world, still):
    health = health_pb2_grpc.HealthStub(world.client.channel)
    answers = {f"Check {name}": as_json(health.Check(health_pb2.HealthCheckRequest(service=name)))
               for name in ("", "leasehold.v1.LeaseService", "leasehold.v1.AdminService")}
    watch = health.Watch(health_pb2.HealthCheckRequest())
    answers["Watch"] = as_json(next(watch))
    watch.cancel()
    try:
        health.Check(health_pb2.HealthCheckRequest(service="none"))
    except grpc.RpcError as error:
        answers["Check none"] = error_json(error)
    reflection = reflection_pb2_grpc.ServerReflectionStub(world.client.channel)
    for fields in ({"list_services": ""}, {"file_by_filename": "leasehold/v1/leasehold.proto"}, {"file_by_filename": "none"},
                   {"file_containing_symbol": "leasehold.v1.AdminService"}, {"file_containing_symbol": "leasehold.v1.None"}):
        call = reflection.ServerReflectionInfo(iter([reflection_pb2.ServerReflectionRequest(**fields)]))
        answer = next(call)
        files = answer.file_descriptor_response.file_descriptor_proto
        answers[f"Reflection {fields}"] = [descriptor_pb2.FileDescriptorProto.FromString(file).name for file in files] or as_json(answer)
    compare("health", still(answers))


LONG = "x" * 5000

BAD_SCOPES = {
    "none": None, "no namespace": pb.Scope(key="k"), "no key": pb.Scope(namespace=["a"]), "empty segment": pb.Scope(namespace=["a", ""], key="k"),
    "dot": pb.Scope(namespace=["a.b"], key="k"), "control": pb.Scope(namespace=["a\n"], key="k\t"),
    "long": pb.Scope(namespace=["n" * 64], key="k" * 1025), "long in all": pb.Scope(namespace=["n" * 60] * 5, key="k"),
    "many segments": pb.Scope(namespace=["a"] * 17, key="k"),
}

BAD_ACQUIRES = {
    "duration absent": {"duration": None}, "duration zero": {"duration": duration(0)}, "duration negative": {"duration": duration(-1)},
    "duration short": {"duration": duration(0.01)}, "duration below the policy": {"duration": duration(0.5)},
    "duration above the policy": {"duration": duration(86400 * 30)}, "duration huge": {"duration": duration(86400 * 365 * 200)},
    "wait negative": {"wait": duration(-1)}, "wait twice": {"wait": duration(1), "wait_forever": True},
    "wait alive forever": {"wait_while_alive": True, "wait_forever": True}, "owner long": {"owner": "o" * 256}, "owner control": {"owner": "a\nb"},
    "lease key": {"lease_key": "x"}, "lease key zero": {"lease_key": "00000000-0000-0000-0000-000000000000"},
    "labels many": {"labels": {f"l{n}": "" for n in range(17)}}, "label name": {"labels": {"": "v"}}, "label value": {"labels": {"n": "v" * 256}},
    "label control": {"labels": {"n\n": "v\t"}}, "mode": {"mode": 7}, "units of an exclusive": {"units": 2},
    "units negative": {"mode": pb.MODE_SHARED, "units": -1}, "units many": {"mode": pb.MODE_SHARED, "units": 1000001},
    "at least of a shared": {"mode": pb.MODE_SHARED, "at_least": duration(1)}, "at least long": {"at_least": duration(86401)},
    "at least negative": {"at_least": duration(-1)},
}

BAD_CALLS = {
    "GetLease": [{"scope": scope("nobody", "k")}, {}],
    "ListLeases": [{"page_size": -1}, {"page_size": 1001}, {"page_token": "x"}, {"longer_than": duration(-1)}, {"search": "s" * 256}, {"state": 9},
                   {"namespace": ["a.b"]}, {"owner": "o" * 256}],
    "AcquireAll": [{}, {"items": [pb.AcquireItem(scope=scope("a", "k"))] * 2, "duration": duration(30)},
                   {"items": [pb.AcquireItem(scope=scope("a", "k"), units=1), pb.AcquireItem()], "duration": duration(30)},
                   {"items": [pb.AcquireItem(scope=scope("a", f"k{n}")) for n in range(101)], "duration": duration(30)}],
    "Downgrade": [{}, {"lease": ref("shop", "none", 99)}, {"lease": ref("shop", "none", 99), "units": -1}],
    "Heartbeat": [{"leases": [pb.LeaseRef(), ref("shop.orders", "7", 99), ref("a.b", "", 1), ref("shop.orders", "7", 1)]}, {}],
    "Release": [{"items": [pb.ReleaseItem(), pb.ReleaseItem(lease=ref("shop", "none", 99)),
                           pb.ReleaseItem(lease=ref("shop.orders", "7", 1), success="{"), pb.ReleaseItem(lease=ref("shop.orders", "7", 1), failure=LONG * 2),
                           pb.ReleaseItem(lease=ref("shop.orders", "7", 1), success='"' + LONG * 2 + '"')]}, {}],
}

BAD_ADMIN = {
    "Reap": [{"max": -1}, {"max": 10001}, {"key": "k"}, {"namespaces": [pb.Namespace()]}, {"namespaces": [namespace("a"), namespace("b")], "key": "k"}],
    "ForceRelease": [{"scope": scope("shop", "none")}, {"scope": scope("shop", "none"), "reason": "r" * 8193},
                     {"scope": scope("shop", "none"), "reason": "r", "token": -1}, {"scope": scope("shop", "none"), "reason": "r", "token": 5, "all": True},
                     {"scope": scope("shop", "none"), "reason": "r"}, {"scope": scope("shop.pool", "p"), "reason": "r"}, {"reason": "r"}],
    "SetPolicy": [{}, {"policy": {}, "update_mask": {"paths": ["none"]}}, {"policy": {}, "update_mask": {"paths": ["namespace"]}},
                  {"policy": {"min_duration": duration(0.001)}, "update_mask": {"paths": ["min_duration"]}},
                  {"policy": {"max_hold": duration(-1)}, "update_mask": {"paths": ["max_hold"]}},
                  {"policy": {"max_duration": duration(86400 * 365 * 200)}, "update_mask": {"paths": ["max_duration"]}},
                  {"policy": {"expiry": 9}, "update_mask": {"paths": ["expiry"]}}, {"policy": {"reaper": 9}, "update_mask": {"paths": ["reaper"]}},
                  {"policy": {"max_leases": {"value": -1}}, "update_mask": {"paths": ["max_leases"]}},
                  {"policy": {"capacity": {"value": 0}}, "update_mask": {"paths": ["capacity"]}},
                  {"policy": {"capacity": {"value": 1000001}}, "update_mask": {"paths": ["capacity"]}},
                  {"policy": {"at_least": duration(86401)}, "update_mask": {"paths": ["at_least"]}},
                  {"policy": {"namespace": {"segments": ["a.b"]}}, "update_mask": {"paths": ["grace"]}},
                  {"policy": {"namespace": {"segments": ["shop"]}, "end_at_max_hold": {"value": True}}, "update_mask": {"paths": ["end_at_max_hold"]}}],
    "GetPolicy": [{"namespace": {"segments": ["a.b"]}}], "ListPolicies": [{"page_size": -1}, {"page_token": "x"}],
    "GrantAccess": [{}, {"principal": "p", "rights": [9]}, {"principal": "p\n", "rights": [1]}, {"principal": "p" * 1025, "rights": [1]},
                    {"principal": "p", "rights": [0]}, {"principal": "p", "namespace": {"segments": [""]}, "rights": [1]}],
    "RevokeAccess": [{}, {"principal": "p", "rights": [9]}], "ListAccess": [{"page_size": -1}, {"page_token": "x"}],
    "CreateToken": [{}, {"name": "A B"}, {"name": "01234567"}, {"name": "n" * 64}, {"name": "n", "expires": duration(-1)},
                    {"name": "n", "expires": duration(86400 * 365 * 101)}],
    "RevokeToken": [{}, {"name_or_id": "A B"}, {"name_or_id": "none"}], "ListTokens": [{"page_size": 1001}, {"page_token": "x"}],
}

BAD_LOOKS = {"Explain": [{}], "ListQueue": [{"page_size": -1}, {"page_token": "x"}, {"key": "k"}, {"namespace": ["a.b"]}], "ListHistory": [{"key": "k"}],
             "ListWaits": [{"namespace": [""]}]}


def test_errors(fresh, still):
    good = {"scope": scope("shop.new", "k"), "duration": duration(600), "lease_key": key_of(50)}
    answers = {f"Acquire, scope {name}": fresh.lease("Acquire", **{**good, "scope": bad}) for name, bad in BAD_SCOPES.items()}
    answers |= {f"Acquire, {name}": fresh.lease("Acquire", **{**good, **bad}) for name, bad in BAD_ACQUIRES.items()}
    for ask, table in ((fresh.lease, BAD_CALLS), (fresh.admin, BAD_ADMIN), (fresh.look, BAD_LOOKS)):
        answers |= {f"{method} {n}": ask(method, **bad) for method, each in table.items() for n, bad in enumerate(each)}
    answers["Acquire, held"] = fresh.lease("Acquire", **{**good, "scope": scope("shop.orders", "7")})
    answers["Acquire, shared held"] = fresh.lease("Acquire", **{**good, "scope": scope("shop.pool", "p"), "mode": pb.MODE_SHARED, "units": 4})
    answers["Acquire, above the capacity"] = fresh.lease("Acquire", **{**good, "scope": scope("shop.pool", "p"), "mode": pb.MODE_SHARED, "units": 5})
    answers["Acquire, ended"] = fresh.acquire("shop.past", "k", 10)
    answers["Acquire, another mode"] = fresh.acquire("shop.orders", "7", 1, mode=pb.MODE_SHARED)
    answers["Acquire, waits in vain"] = fresh.lease("Acquire", **{**good, "scope": scope("shop.orders", "7"), "wait": duration(0.05)})
    for name, fields in (("key alone", {"key": "k"}), ("key and children", {"namespace": ["a"], "key": "k", "include_children": True})):
        answers[f"WatchLeases, {name}"] = error_json(failed(fresh.open("WatchLeases", unary=pb.WatchLeasesRequest(**fields), metadata=bearer(fresh.tokens["ops"]))))
    for name, request in (("nothing", pb.HoldRequest()), ("release first", pb.HoldRequest(release=pb.ReleaseItem())),
                          ("bad", pb.HoldRequest(acquire=pb.AcquireRequest()))):
        answers[f"Hold, {name}"] = error_json(failed(fresh.open("Hold", request, metadata=bearer(fresh.tokens["ops"]))))
    raw = fresh.client.channel.unary_unary("/leasehold.v1.LeaseService/Acquire", None, None)
    none = fresh.client.channel.unary_unary("/leasehold.v1.LeaseService/None", None, None)
    for name, call in (("garbage", raw), ("no such method", none)):
        with pytest.raises(grpc.RpcError) as caught:
            call(b"\xff\xff\xff", metadata=bearer(fresh.tokens["ops"]), timeout=BOUND)
        answers[name] = error_json(caught.value)
    compare("errors", still(answers))


def failed(stream):
    while stream.next() is not None:
        pass
    stream.close()
    return stream.error


def test_who_may_not(world, still):
    answers = {}
    for who in ("reader", "stranger", "", "Bearer lht_" + "A" * 49, "Basic x"):
        name = who or "nobody"
        answers |= {
            f"Acquire {name}": world.lease("Acquire", who, scope=scope("shop.orders", "7"), duration=duration(30), lease_key=key_of(60)),
            f"AcquireAll {name}": world.lease("AcquireAll", who, items=[pb.AcquireItem(scope=scope("shop.orders", "7"))], duration=duration(30)),
            f"Heartbeat {name}": world.lease("Heartbeat", who, leases=[ref("shop.orders", "7", 1)]),
            f"Release {name}": world.lease("Release", who, items=[pb.ReleaseItem(lease=ref("shop.orders", "7", 1))]),
            f"Downgrade {name}": world.lease("Downgrade", who, lease=ref("shop.orders", "7", 1)),
            f"GetLease {name}": world.lease("GetLease", who, scope=scope("other", "7")),
            f"ListLeases {name}": world.lease("ListLeases", who, namespace=["other"]),
            f"Reap {name}": world.admin("Reap", who, namespaces=[namespace("shop.none")]),
            f"ForceRelease {name}": world.admin("ForceRelease", who, scope=scope("shop.orders", "7"), reason="r"),
            f"SetPolicy {name}": world.admin("SetPolicy", who, policy={"namespace": {"segments": ["shop"]}, "grace": duration(1)}, update_mask={"paths": ["grace"]}),
            f"GetPolicy {name}": world.admin("GetPolicy", who, namespace=namespace("other")),
            f"ListPolicies {name}": world.admin("ListPolicies", who, page_size=1),
            f"GrantAccess {name}": world.admin("GrantAccess", who, principal="p", rights=[1]),
            f"RevokeAccess {name}": world.admin("RevokeAccess", who, principal="p"),
            f"ListAccess {name}": world.admin("ListAccess", who),
            f"CreateToken {name}": world.admin("CreateToken", who, name="n"),
            f"RevokeToken {name}": world.admin("RevokeToken", who, name_or_id="n"),
            f"ListTokens {name}": world.admin("ListTokens", who),
        }
    compare("denied", still(answers))


# --- what changes its world has one of its own ---


def test_changes(fresh, still):
    watch = fresh.open("WatchLeases", unary=pb.WatchLeasesRequest(namespace=["shop"], include_children=True, include_initial=True),
                       metadata=bearer(fresh.tokens["ops"]))
    fresh.streams.append(watch)
    watch.until(lambda event: event.type == pb.LeaseEvent.TYPE_SYNCED)
    answers = {"WatchLeases initial": [as_json(event) for event in watch.seen]}
    answers["Heartbeat"] = fresh.lease("Heartbeat", leases=[ref("shop.orders", "7", 1), ref("shop.pool", "p", 3), ref("shop.orders", "7", 90)])
    answers["Heartbeat final"] = fresh.lease("Heartbeat", leases=[ref("shop.every", "final", 5)])
    answers["Downgrade"] = fresh.lease("Downgrade", lease=ref("shop.orders", "8", 2), units=3)
    answers["Downgrade again"] = fresh.lease("Downgrade", lease=ref("shop.orders", "8", 2), units=1)
    answers["Reap fails"] = fresh.admin("Reap", namespaces=[namespace("shop.failing")])
    answers["ListFailures"] = fresh.look("ListFailures")
    answers["Explain failing"] = fresh.look("Explain", scope=scope("shop.failing", "f"))
    answers["ForceRelease"] = fresh.admin("ForceRelease", scope=scope("shop.failing", "f"), reason="it is stuck")
    answers["ForceRelease rest"] = fresh.admin("ForceRelease", scope=scope("shop.pool", "all"), reason="all of it", all=True)
    answers["Release"] = fresh.lease("Release", items=[pb.ReleaseItem(lease=ref("shop.orders", "7", 1), success='{"n": 1}'),
                                                       pb.ReleaseItem(lease=ref("shop.orders", "7", 90))])
    answers["AcquireStream granted"] = as_json(fresh.waiting.until(granted_event))
    answers["Release again"] = fresh.end("shop.orders", "7", 1)
    answers["Heartbeat lost"] = fresh.lease("Heartbeat", leases=[ref("shop.orders", "7", 1), ref("shop.failing", "f", 7)])
    hold = fresh.open("Hold", pb.HoldRequest(acquire=pb.AcquireRequest(scope=scope("shop.held", "h"), duration=duration(60), lease_key=key_of(70))),
                      metadata=bearer(fresh.tokens["ops"]))
    hold.until(granted_event)
    hold.send(pb.HoldRequest(release=pb.ReleaseItem(success="3")))
    hold.ends()
    answers["Hold"] = [as_json(event) for event in hold.seen]
    watch.until(lambda event: event.type == pb.LeaseEvent.TYPE_RELEASED and event.lease.scope.key == "h")
    events = watch.seen[len(answers["WatchLeases initial"]):]
    answers["WatchLeases"] = sorted((as_json(event) for event in events), key=lambda event: (event["lease"]["scope"]["key"], int(event["lease"]["token"]), event["type"]))
    keep = fresh.open("KeepAlive", pb.HeartbeatRequest(leases=[ref("shop.orders", "7", 20), pb.LeaseRef(), ref("shop.orders", "7", 1)]),
                      metadata=bearer(fresh.tokens["ops"]))
    answers["KeepAlive"] = as_json(keep.next())
    keep.half_close()
    keep.ends()
    compare("changes", still(answers))


def test_administration(fresh, still):
    answers = {
        "GrantAccess": fresh.admin("GrantAccess", principal="token:new", namespace=namespace("jobs"), rights=[1, 2]),
        "GrantAccess more": fresh.admin("GrantAccess", principal="token:new", namespace=namespace("jobs"), rights=[4, 3, 2]),
        "GrantAccess root": fresh.admin("GrantAccess", principal="*", rights=[3]),
        "RevokeAccess": fresh.admin("RevokeAccess", principal="token:new", namespace=namespace("jobs"), rights=[1]),
        "RevokeAccess rest": fresh.admin("RevokeAccess", principal="token:new", namespace=namespace("jobs")),
        "RevokeAccess again": fresh.admin("RevokeAccess", principal="token:new", namespace=namespace("jobs")),
        "CreateToken": fresh.admin("CreateToken", name="fresh"),
        "CreateToken expires": fresh.admin("CreateToken", name="short", expires=duration(3600)),
        "ListTokens": fresh.admin("ListTokens"),
        "RevokeToken": fresh.admin("RevokeToken", name_or_id="fresh"),
        "SetPolicy": fresh.admin("SetPolicy", policy={"namespace": {"segments": ["jobs"]}, "grace": duration(1.5), "frozen": {"value": True}},
                                 update_mask={"paths": ["grace", "frozen"]}),
        "Acquire frozen": fresh.lease("Acquire", scope=scope("jobs", "k"), duration=duration(30), lease_key=key_of(80)),
        "SetPolicy inherit": fresh.admin("SetPolicy", policy={"namespace": {"segments": ["jobs"]}}, update_mask={"paths": ["frozen"]}),
        "ListAudit": fresh.look("ListAudit"),
    }
    compare("administration", still(answers))


def test_schedules(fresh, still):
    yearly = {"namespace": {"segments": ["jobs", "yearly"]}, "expression": "30 3 1 1 *", "time_zone": "Europe/Berlin", "catch_up": 3, "catch_up_max": 7,
              "tick_deadline": duration(3600), "overlap": 2, "jitter": duration(1.5), "attempts": 2, "backoff": duration(60)}
    jobs = namespace("jobs.yearly")

    def release(number, at, **how):
        ref = pb.LeaseRef(scope=scope("jobs.yearly", at), lease_key=key_of(number))
        return fresh.lease("Release", items=[pb.ReleaseItem(lease=ref, **how)])

    answers = {
        "SetSchedule": fresh.schedule("SetSchedule", schedule=yearly),
        "SetSchedule defaults": fresh.schedule("SetSchedule", schedule={"namespace": {"segments": ["jobs", "plain"]}, "expression": "@yearly"}),
        "SetSchedule expression": fresh.schedule("SetSchedule", schedule={**yearly, "expression": "61 * * * *"}),
        "SetSchedule zone": fresh.schedule("SetSchedule", schedule={**yearly, "time_zone": "Mars/Olympus"}),
        "SetSchedule overlap": fresh.schedule("SetSchedule", schedule={**yearly, "overlap": -1}),
        "SetSchedule reader": fresh.schedule("SetSchedule", "reader", schedule=yearly),
        "GetSchedule": fresh.schedule("GetSchedule", namespace=jobs, next=2, last=3),
        "GetSchedule none": fresh.schedule("GetSchedule", namespace=namespace("jobs.none")),
        "ListSchedules": fresh.schedule("ListSchedules", namespace=["jobs"], include_children=True),
        "ListSchedules page": fresh.schedule("ListSchedules", page_size=1),
        "ListSchedules stranger": fresh.schedule("ListSchedules", "stranger"),
        "ClaimTick nothing": fresh.schedule("ClaimTick", namespace=jobs),
        "ClaimTick none": fresh.schedule("ClaimTick", namespace=namespace("jobs.none")),
        "RunScheduleNow": fresh.schedule("RunScheduleNow", namespace=jobs),
        "RunScheduleNow reader": fresh.schedule("RunScheduleNow", "reader", namespace=jobs),
    }
    claimed = fresh.schedule("ClaimTick", namespace=jobs, owner="w1", duration=duration(600), lease_key=key_of(90), labels={"a": "b"})
    at = claimed["lease"]["scope"]["key"]
    answers |= {
        "ClaimTick": claimed,
        "ClaimTick again": fresh.schedule("ClaimTick", namespace=jobs, owner="w1", duration=duration(600), lease_key=key_of(90), labels={"a": "b"}),
        "ClaimTick duration": fresh.schedule("ClaimTick", namespace=jobs, duration=duration(864000)),
        "ListTicks running": fresh.schedule("ListTicks", namespace=["jobs", "yearly"]),
        "Release": release(90, at, success='{"rows": 3}'),
        "ClaimTick ended": fresh.schedule("ClaimTick", namespace=jobs, lease_key=key_of(90)),
        "ListTicks": fresh.schedule("ListTicks", namespace=["jobs", "yearly"]),
        "ListTicks missed": fresh.schedule("ListTicks", namespace=["jobs"], include_children=True, state=6),
        "PauseSchedule": fresh.schedule("PauseSchedule", namespace=jobs, paused=True),
        "PauseSchedule none": fresh.schedule("PauseSchedule", namespace=namespace("jobs.none")),
        "RemoveSchedule": fresh.schedule("RemoveSchedule", namespace=jobs),
        "RemoveSchedule again": fresh.schedule("RemoveSchedule", namespace=jobs),
    }
    compare("schedules", still(answers))


# --- the command line, by the daemon and by the database ---

COMMANDS = [["list"], ["list", "shop", "--children"], ["list", "shop.pool"], ["list", "none"], ["policy", "show"], ["policy", "show", "shop.every"],
            ["policy", "show", "shop.every.child"], ["policy", "show", "."], ["policy", "set", "cli", "grace=5s", "frozen=no", "max_leases=7", "expiry=reap"],
            ["policy", "reset", "cli", "grace"], ["policy", "reset", "cli"], ["policy", "set", "cli", "none=1"], ["policy", "set", "cli", "grace=never"],
            ["policy", "set", "cli", "min_duration=1ms"], ["policy", "set", "cli", "capacity=0"], ["policy", "set", "cli"],
            ["policy", "set", "cli", "expiry=never"], ["policy", "set", "cli", "frozen=perhaps"], ["policy", "set", "cli", "max_leases=-1"],
            ["policy", "reset", "cli", "none"], ["access", "list"], ["access", "grant", "token:cli", "jobs", "read", "lease"],
            ["access", "grant", "token:cli", "jobs", "own"], ["access", "revoke", "token:cli", "jobs", "read"], ["access", "revoke", "token:cli", "jobs"],
            ["access", "revoke", "token:cli", "jobs"], ["token", "list"], ["token", "create", "cli", "--expires", "90d"], ["token", "create", "A B"],
            ["token", "revoke", "cli"], ["token", "revoke", "none"], ["queue"], ["queue", "shop.pool", "p"], ["history"], ["explain", "shop.every", "final"],
            ["hook", "list", "shop.failing"], ["daemons"]]


def test_the_command_line_prints_the_same(fresh, still, tmp_path):
    token = tmp_path / "token"
    token.write_text(fresh.tokens["ops"])
    token.chmod(0o600)
    ways = {"server": {"LEASEHOLD_SERVER": fresh.daemon.target, "LEASEHOLD_TOKEN_FILE": str(token)},
            "database": {"LEASEHOLD_DATABASE": fresh.cluster.url(fresh.database)}}
    answers = {}
    for way, env in ways.items():
        for n, command in enumerate(COMMANDS):
            if way == "server" and command[0] == "hook":
                continue
            for output in (["-o", "json"], []):
                said = cli(*command, *output, **env)
                try:
                    out = still(json.loads(said.stdout))
                except ValueError:
                    out = [squeezed(still, line, command[0] != "policy") for line in said.stdout.splitlines()]
                answers[f"{way} {n}: {' '.join(command + output)}"] = [said.returncode, out, squeezed(still, said.stderr).replace(fresh.daemon.target, "SERVER")]
    compare("command_line", answers)


def squeezed(still, line, has_ages=True):
    """A line of a table without the width of its columns, and without the last use of a token."""
    words = still.text(line, in_words=has_ages).split()
    if words and words[0].startswith("ID"):
        words = words[:-1] if words[-1] == "never" else words[:-2]
    return " ".join("HOST" if word == harness.os.uname().nodename else "N" if word.isdigit() and len(word) > 2 else word for word in words)
