"""The console's API: each path, what is sent by it, and the page about it."""
import json
import os
import re
import subprocess
import time

import grpc
import pytest

import harness
from access_site import bearer
from console import Events
from console_site import NAMES, READS, as_, hold, keys_in, site  # noqa: F401
from harness import acquire_request, lease_ref, pb, wait_until


# --- each path ---


def test_leases_and_a_scope_are_what_grpc_says(site):
    lease = hold(site, "shop.orders", "7", owner="worker 3", labels={"team": "blue"})
    ops = as_(site, "ops")
    listed = ops.get("/leases?namespace=shop.orders&page_size=1").json
    assert keys_in(listed["leases"]) == {("shop.orders", "7")} and listed["next_page_token"] == ""
    found = listed["leases"][0]
    assert found["token"] == str(lease.token) and found["owner"] == "worker 3" and found["principal"] == "token:worker"
    assert found["labels"] == {"team": "blue"} and found["liveness"] == "LIVENESS_ALIVE" and found["duration"] == "30s"
    scope = ops.get("/scope?namespace=shop.orders&key=7").json
    assert scope["lease"]["token"] == str(lease.token) and scope["contention"]["waiters_ahead"] == 0
    assert scope["explain"]["state"] == "held" and scope["explain"]["holder"] == "worker 3"
    assert scope["explain"]["advice"].startswith("wait: worker 3 is alive")
    never = ops.get("/scope?namespace=shop.orders&key=never").json
    assert set(never) == {"explain"} and never["explain"]["advice"] == "free: acquire it"


def test_pages_follow_each_other(site):
    for key in "abc":
        hold(site, "shop.pages", key)
    ops = as_(site, "ops")
    seen, token = [], ""
    for _ in range(3):
        page = ops.get(f"/leases?namespace=shop.pages&page_size=1&page_token={token.replace('+', '%2B')}").json
        seen += [lease["scope"]["key"] for lease in page["leases"]]
        token = page["next_page_token"]
    assert seen == ["a", "b", "c"] and token == ""
    first = ops.get("/namespaces?namespace=shop&include_children=true&page_size=1").json
    second = ops.get(f"/namespaces?namespace=shop&include_children=true&page_token={first['next_page_token'].replace('+', '%2B')}").json
    assert len(first["namespaces"]) == 1 and first["namespaces"][0] not in second["namespaces"] and second["namespaces"]
    wrong = ops.get(f"/namespaces?page_token={first['next_page_token'].replace('+', '%2B')}")
    assert wrong.status == 400 and wrong.error["violations"][0]["field"] == "page_token"


def test_the_queue_names_who_waits_and_which_holders_wait_for_which(site):
    hold(site, "shop.queue", "stock", owner="a")
    order = hold(site, "shop.queue", "order", owner="b")
    hold(site, "shop.queue", "cart", owner="c")
    calls = []

    def wait(owner, key, lease_key=""):
        request = acquire_request("shop.queue", key, 30, wait=600, owner=owner, lease_key=lease_key)
        calls.append(site.client.lease.Acquire.future(request, metadata=bearer(site.tokens["worker"])))
        wait_until(lambda: site.psql("select count(*) from leasehold.waiter where namespace = 'shop.queue'") == str(len(calls)), 60, "waiters")

    # The lease key tells that the first holds "order"; the name alone does not tell it of the second.
    wait("b", "stock", order.lease_key)
    wait("c", "stock")
    ops = as_(site, "ops")
    queue = ops.get("/queue?namespace=shop.queue&key=stock").json
    assert [(w["position"], w["owner"]) for w in queue["waiters"]] == [("1", "b"), ("2", "c")]
    assert queue["waiters"][0]["principal"] == "token:worker" and queue["waiters"][0]["scope"]["key"] == "stock"
    page = ops.get("/queue?namespace=shop.queue&page_size=1").json
    rest = ops.get(f"/queue?namespace=shop.queue&page_size=1&page_token={page['next_page_token'].replace('+', '%2B')}").json
    assert [w["owner"] for w in page["waiters"] + rest["waiters"]] == ["b", "c"] and rest["next_page_token"] == ""
    counts = ops.get("/namespaces?namespace=shop.queue").json["namespaces"]
    assert counts == [{"namespace": {"segments": ["shop", "queue"]}, "held": "3", "waiting": "2", "expired": "0", "failing": "0", "partial": False}]
    # The graph has what somebody waits for, and from one scope on what its holder waits for.
    assert queue["waits"] == page["waits"] == []
    wait("d", "order")
    waits = ops.get("/queue?namespace=shop.queue&key=order").json["waits"]
    assert [(e["owner"], e["holds"]["key"], e["wants"]["key"]) for e in waits] == [("b", "order", "stock")]
    assert ops.get("/queue?namespace=shop&include_children=true&page_size=1").json["waits"] == waits
    assert ops.get("/queue?namespace=shop.queue&key=stock").json["waits"] == []
    for call in calls:
        call.cancel()


def test_history_is_the_newest_first(site):
    site.psql("select leasehold.set_policy('shop.kept', history => true)")
    for outcome in ("success", "failure"):
        lease = hold(site, "shop.kept", "k", owner=outcome)
        item = pb.ReleaseItem(lease=lease_ref(lease), **{outcome: '{"n": 1}' if outcome == "success" else "boom"})
        site.client.lease.Release(pb.ReleaseRequest(items=[item]), metadata=bearer(site.tokens["worker"]), timeout=60)
    ops = as_(site, "ops")
    holds = ops.get("/history?namespace=shop.kept&key=k").json["holds"]
    assert [(h["outcome"], h["owner"], h["error"]) for h in holds] == [("failed", "failure", "boom"), ("ok", "success", "")]
    assert json.loads(holds[1]["result"]) == {"n": 1}
    first = ops.get("/history?namespace=shop.kept&key=k&page_size=1").json
    token = first["next_page_token"].replace("+", "%2B")
    assert first["holds"] + ops.get(f"/history?namespace=shop.kept&key=k&page_token={token}").json["holds"] == holds
    assert ops.get("/history?namespace=shop.kept").json["holds"] == holds


def test_modes_units_and_slots_are_shown(site):
    site.psql("select leasehold.set_policy('shop.shared', capacity => 4, history => true)")
    shared = {"mode": pb.MODE_SHARED}
    first, second = hold(site, "shop.shared", "k", owner="a", units=2, **shared), hold(site, "shop.shared", "k", owner="b", units=1, **shared)
    release = pb.ReleaseRequest(items=[pb.ReleaseItem(lease=lease_ref(first))])
    site.client.lease.Release(release, metadata=bearer(site.tokens["worker"]), timeout=60)
    calls = []
    for fields in ({"owner": "c"}, {"owner": "d", "units": 2, **shared}):
        calls.append(site.client.lease.Acquire.future(acquire_request("shop.shared", "k", 30, wait=600, **fields), metadata=bearer(site.tokens["worker"])))
        wait_until(lambda: site.psql("select count(*) from leasehold.waiter where namespace = 'shop.shared'") == str(len(calls)), 60, "waiters")
    ops = as_(site, "ops")
    queue = ops.get("/queue?namespace=shop.shared&key=k").json["waiters"]
    assert [(w["owner"], w["mode"], w["units"]) for w in queue] == [("c", "MODE_EXCLUSIVE", 0), ("d", "MODE_SHARED", 2)]
    ended = ops.get("/history?namespace=shop.shared&key=k").json["holds"]
    assert [(h["owner"], h["mode"], h["units"], h["slots"]) for h in ended] == [("a", "MODE_SHARED", 2, [1, 2])]
    scope = ops.get("/scope?namespace=shop.shared&key=k").json
    assert (scope["explain"]["state"], scope["explain"]["mode"], scope["explain"]["units"], scope["explain"]["holders"]) == ("shared", "MODE_SHARED", 1, 1)
    assert [(held["token"], held["slots"]) for held in scope["holders"]] == [(str(second.token), [3])] and scope["contention"]["units_free"] == 3
    hold(site, "shop.shared", "x")
    assert ops.get("/scope?namespace=shop.shared&key=x").json["explain"]["mode"] == "MODE_EXCLUSIVE"
    assert ops.get("/scope?namespace=shop.shared&key=never").json["explain"]["mode"] == "MODE_UNSPECIFIED"
    for call in calls:
        call.cancel()


def test_each_of_several_holders_is_released_by_its_token(site):
    leases = [hold(site, "shop.several", "k", mode=pb.MODE_SHARED) for _ in range(3)]
    ops = as_(site, "ops")
    body = {"namespace": "shop.several", "key": "k", "reason": "stuck"}
    refused = ops.post("/force-release", body)
    assert refused.status == 400 and refused.error["violations"][0]["field"] == "token"
    ended = ops.post("/force-release", {**body, "token": str(leases[1].token)}).json
    assert [lease["token"] for lease in ended["leases"]] == [str(leases[1].token)]
    ended = ops.post("/force-release", {**body, "all": True}).json
    assert sorted(lease["token"] for lease in ended["leases"]) == [str(leases[0].token), str(leases[2].token)]


def test_events_of_each_shared_holder_come(site):
    """So fast after each other that they come in one update."""
    site.psql("select leasehold.set_policy('shop.crowd', capacity => 100)")
    stream = Events(as_(site, "ops"), "/events?namespace=shop.crowd")
    assert stream.next() == ("synced", {})
    site.psql("select count(*) from generate_series(1, 20) i cross join lateral leasehold.acquire('shop.crowd', 'k', '1 hour', owner => i::text, mode => 'shared')")
    seen = set()
    while len(seen) < 20:
        name, data = stream.next()
        assert name == "changes", data
        seen |= {event["lease"]["token"] for event in data["events"]}
    assert seen == set(site.psql("select token from leasehold.share where namespace = 'shop.crowd'").split())
    stream.close()


def test_a_failing_reap_is_listed_and_tried_again(site):
    site.psql("""create schema if not exists shop_hooks; grant usage on schema shop_hooks to public;
        create or replace function shop_hooks.refuse(leasehold.lease_event) returns void language plpgsql as
        $$ begin raise exception 'no: <b>%</b>', 'hook'; end $$;
        grant execute on all functions in schema shop_hooks to public;
        select leasehold.add_hook('shop.failing', 'reap', 'shop_hooks.refuse(leasehold.lease_event)');
        select leasehold.set_policy('shop.failing', grace => '0', min_duration => '100 ms')""")
    hold(site, "shop.failing", "k", seconds=1)
    ops = as_(site, "ops")
    failure = wait_until(lambda: ops.get("/failures?namespace=shop&include_children=true").json["failures"], 60, "a failing reap")[0]
    assert "no: <b>hook</b>" in failure["error"] and failure["principal"] == "token:worker" and "next_try_at" in failure
    again = ops.post("/reap", {"namespace": "shop.failing"})
    assert again.status == 200 and again.json["failures"][0]["reap_failures"] > failure["reap_failures"]
    assert ops.get("/namespaces?namespace=shop.failing").json["namespaces"][0]["failing"] == "1"
    site.psql("select leasehold.remove_hook('shop.failing', 'reap', 'shop_hooks.refuse(leasehold.lease_event)')")
    assert ops.post("/reap", {"namespace": "shop.failing"}).json["reaped"] == 1


def test_a_namespace_is_frozen_and_thawed(site):
    ops = as_(site, "ops")
    frozen = ops.post("/policy", {"namespace": "shop.frozen", "frozen": True, "grace": "2.5s", "max_leases": "7", "expiry": "EXPIRY_REAP"})
    assert frozen.status == 200 and frozen.json["effective"]["frozen"] is True
    found = ops.get("/policies?namespace=shop.frozen.below").json
    assert found["effective"]["grace"] == "2.500s" and found["effective"]["max_leases"] == "7"
    assert found["source"]["frozen"] == "shop.frozen" and found["source"]["max_hold"] == ""
    assert "shop.frozen" in [".".join(p["namespace"]["segments"]) for p in ops.get("/policies").json["policies"]]
    with pytest.raises(grpc.RpcError) as refused:
        hold(site, "shop.frozen", "k")
    assert refused.value.code() == grpc.StatusCode.FAILED_PRECONDITION
    thawed = ops.post("/policy", {"namespace": "shop.frozen", "frozen": None, "grace": None})
    assert thawed.json["effective"]["frozen"] is False and thawed.json["effective"]["grace"] == "1s"
    assert ops.get("/policies?namespace=").json["own"]["namespace"] == {"segments": []}


def test_a_forced_release_is_in_the_audit(site):
    lease = hold(site, "shop.forced", "k")
    ops = as_(site, "ops")
    other = ops.post("/force-release", {"namespace": "shop.forced", "key": "k", "reason": "stuck", "token": str(lease.token + 1)})
    assert other.status == 404 and other.error["reason"] == "NOT_HELD"
    done = ops.post("/force-release", {"namespace": "shop.forced", "key": "k", "reason": "stuck", "token": str(lease.token)})
    assert done.status == 200 and done.json["lease"]["token"] == str(lease.token)
    entry = ops.get("/audit?namespace=shop.forced&key=k").json["entries"][0]
    assert (entry["principal"], entry["action"], entry["reason"], entry["outcome"]) == ("token:ops", "force_release", "stuck", "done")
    assert entry["token"] == str(lease.token) and re.fullmatch(r"127\.0\.0\.1:\d+", entry["peer"])
    seen, token = [], ""
    while token is not None:
        page = ops.get(f"/audit?page_size=2&page_token={token.replace('+', '%2B')}").json
        seen += page["entries"]
        token = page["next_page_token"] or None
    assert entry in seen and [e["at"] for e in seen] == sorted((e["at"] for e in seen), reverse=True)


def test_daemons_and_the_database(site):
    found = as_(site, "ops").get("/daemons").json
    assert [d["self"] and d["live"] for d in found["daemons"]] == [True]
    assert found["daemons"][0]["id"] == found["status"]["coordinator_id"]
    assert found["database"]["role"] == "primary" and found["database"]["version"].split(".")[0].isdigit()
    assert found["status"]["trouble"] == "" and found["samples"]["period"] == "10s"
    lists = ("grants", "renewals", "waiters", "latency_p50_us", "latency_p99_us")
    sampled = wait_until(lambda: (s := as_(site, "ops").get("/daemons").json["samples"])["grants"] and s, 60, "a sample")
    assert len({len(sampled[name]) for name in lists}) == 1 and "ended_at" in sampled
    lease = hold(site, "shop.sampled", "k", owner="renewer")

    def renewals():
        site.client.lease.Heartbeat(pb.HeartbeatRequest(leases=[lease_ref(lease)]), metadata=bearer(site.tokens["worker"]), timeout=60)
        return sum(map(int, as_(site, "ops").get("/daemons").json["samples"]["renewals"]))

    wait_until(lambda: renewals() > 0, 60, "a sample with a renewal of a client")


# --- what is sent ---


def test_text_of_users_comes_back_as_text(site):
    script = NAMES[1]
    site.psql("select leasehold.set_policy('shop.text', history => true)")
    lease = hold(site, "shop.text", NAMES[0], owner=script, labels={"l": script})
    ops = as_(site, "ops")
    listed = ops.get("/leases?namespace=shop.text")
    assert listed.json["leases"][0]["owner"] == script and listed.json["leases"][0]["labels"] == {"l": script}
    assert listed.json["leases"][0]["scope"]["key"] == NAMES[0]
    site.client.lease.Release(pb.ReleaseRequest(items=[pb.ReleaseItem(lease=lease_ref(lease), failure=NAMES[2])]),
                              metadata=bearer(site.tokens["worker"]), timeout=60)
    history = ops.get("/history?namespace=shop.text&key=%3Cimg%20src%3Dx%20onerror%3Dalert(1)%3E")
    assert history.json["holds"][0]["error"] == NAMES[2]
    refused = ops.get("/leases?%3Cscript%3E=1")
    assert refused.status == 400 and "<script>" in refused.error["message"]
    for answer in (listed, history, refused, ops.get("/nothing"), as_(site, "nobody").get("/leases")):
        assert answer.headers["Content-Type"] == "application/json; charset=utf-8"
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert "script-src 'self';" in answer.headers["Content-Security-Policy"] and "unsafe" not in answer.headers["Content-Security-Policy"]


def test_no_answer_has_a_lease_key(site):
    lease = hold(site, "shop.secret", "k", owner="keeper")
    waiting = site.client.lease.Acquire.future(acquire_request("shop.secret", "k", 30, wait=600), metadata=bearer(site.tokens["worker"]))
    wait_until(lambda: site.scope("shop.secret", "k", "queued") == "t", 60, "a waiter")
    ops = as_(site, "ops")
    paths = [path.format("shop.secret") for path in READS]
    answers = [ops.get(path) for path in (*paths, "/leases", "/daemons", "/audit", "/session")]
    answers.append(ops.post("/force-release", {"namespace": "shop.secret", "key": "k", "reason": "r"}))
    assert all(answer.status == 200 for answer in answers)
    keys = site.psql("select s.lease_key from leasehold.scope s where s.lease_key is not null union select w.lease_key from leasehold.waiter w").split()
    assert len(keys) > 1
    for answer in answers:
        assert "lease_key" not in answer.text
        assert not [key for key in (*keys, lease.lease_key) if key in answer.text]
    waiting.cancel()


@pytest.mark.parametrize("method,path,raw,headers,status", [
    ("GET", "/api/v1/nothing", None, {}, 404), ("GET", "/nothing", None, {}, 404), ("POST", "/", "{}", {}, 404),
    ("GET", "/api/v1/reap", None, {}, 405), ("POST", "/api/v1/leases", "{}", {}, 405), ("PUT", "/api/v1/reap", "{}", {}, 405),
    ("POST", "/metrics", "", {}, 405), ("POST", "/api/v1/reap", "x" * 16385, {"Content-Type": "application/json"}, 413),
    ("POST", "/api/v1/reap", "{", {"Content-Type": "application/json"}, 400), ("POST", "/api/v1/reap", "[]", {"Content-Type": "application/json"}, 400),
    ("POST", "/api/v1/reap", '{"namespace": 1}', {"Content-Type": "application/json"}, 400),
    ("POST", "/api/v1/reap", '{"namespace": "a", "namespace": "b"}', {"Content-Type": "application/json"}, 400),
    ("POST", "/api/v1/policy", '{"namespace": "a", "grace": 5}', {"Content-Type": "application/json"}, 400),
    ("POST", "/api/v1/policy", '{"namespace": "a", "frozen": "true"}', {"Content-Type": "application/json"}, 400),
    ("POST", "/api/v1/policy", '{"namespace": "a", "unknown": 1}', {"Content-Type": "application/json"}, 400),
    ("GET", "/api/v1/leases?namespace=a..b", None, {}, 400), ("GET", "/api/v1/leases?namespace=a&namespace=b", None, {}, 400),
    ("GET", "/api/v1/leases?owner=%ff", None, {}, 400), ("GET", "/api/v1/leases?owner=%00", None, {}, 400),
    ("GET", "/api/v1/leases?page_size=1x", None, {}, 400), ("GET", "/api/v1/leases?page_size=1001", None, {}, 400),
    ("GET", "/api/v1/scope?namespace=a", None, {}, 400), ("GET", "/api/v1/leases", None, {"X-Long": "x" * 8192}, 431)])
def test_what_is_malformed_is_refused_with_words(site, method, path, raw, headers, status):
    answer = as_(site, "ops").request(method, path, raw=raw, headers=headers)
    assert answer.status == status
    if "/api/" in path and status not in (413, 431) and method != "PUT":
        assert answer.error["message"]


def test_the_page_is_served_with_its_tag(site):
    console = as_(site, "nobody")
    page = console.request("GET", "/")
    assert page.status == 200 and page.headers["Content-Type"] == "text/html; charset=utf-8" and "<title>" in page.text
    again = console.request("GET", "/", headers={"If-None-Match": page.headers["ETag"]})
    assert again.status == 304 and again.text == ""
    assert console.request("HEAD", "/").status == 200
    assert "://" not in re.sub(r"http://www\.w3\.org/\S+", "", page.text)


def test_ten_thousand_leases_are_pages_and_counts(site):
    site.psql("""insert into leasehold.scope (namespace, key, state, lease_key, token, acquired_at, heartbeat_at, deadline, check_at, duration, grace, owner)
        select 'many', 'k' || lpad(i::text, 5, '0'), 'held', gen_random_uuid(), i, now(), now(), now() + '1 h', now() + '1 h', '1 h', '1 s', 'o'
          from generate_series(1, 10000) i""")
    ops = as_(site, "ops")
    assert {row["held"] for row in ops.get("/namespaces?namespace=many").json["namespaces"]} == {"10000"}
    assert not any(row["partial"] for row in ops.get("/namespaces?namespace=many").json["namespaces"])
    assert len(ops.get("/leases?namespace=many&page_size=1000").json["leases"]) == 1000
    found = ops.get("/leases?namespace=many&search=MANY/K0999").json
    assert [lease["scope"]["key"] for lease in found["leases"]] == [f"k{i:05}" for i in range(9990, 10000)]
    assert (found["partial"], found["next_page_token"]) == (False, "")
    refused = ops.get("/leases?search=" + "x" * 256)
    assert refused.status == 400 and refused.json["error"]["violations"][0]["field"] == "search", refused.json


def test_a_search_stops_after_a_hundred_thousand_rows_and_goes_on(site):
    # Held ones: the daemon removes free rows when it has the time.
    site.psql("""insert into leasehold.scope (namespace, key, state, lease_key, token, acquired_at, heartbeat_at, deadline, check_at, duration, grace, owner)
        select 'wide', 'k' || i, 'held', gen_random_uuid(), i, now(), now(), now() + '1 h', now() + '1 h', '1 h', '1 s', 'o'
          from generate_series(1, 100010) i""")
    hold(site, "wide", "z", name="ops", owner="needle")
    ops = as_(site, "ops")
    first = ops.get("/leases?search=needle").json
    assert (first["leases"], first["partial"]) == ([], True)
    second = ops.get("/leases?search=needle&page_token=" + first["next_page_token"].replace("+", "%2B")).json
    assert [lease["scope"]["key"] for lease in second["leases"]] == ["z"] and not second["partial"] and not second["next_page_token"]
    refused = ops.get("/leases?search=other&page_token=" + first["next_page_token"].replace("+", "%2B"))
    assert refused.status == 400, "a token is that of its search"
    # Without a search the same rows cost more statements, and no page stops early.
    assert [lease["scope"]["key"] for lease in ops.get("/leases?owner=needle").json["leases"]] == ["z"]


def test_schedules_are_listed_shown_paused_and_run(site):
    ops = as_(site, "ops")
    site.psql("select leasehold.set_schedule('shop.plan.a', '*/10 * * * *', 'Europe/Berlin'), leasehold.set_schedule('shop.plan.b', '@yearly')")
    listed = ops.get("/schedules?namespace=shop.plan&include_children=true&page_size=1").json
    assert [(each["expression"], each["time_zone"]) for each in listed["schedules"]] == [("*/10 * * * *", "Europe/Berlin")] and listed["next_page_token"]
    assert ops.post("/schedule-pause", {"namespace": "shop.plan.b", "paused": True}).json["schedule"]["paused"]
    at = ops.post("/schedule-run", {"namespace": "shop.plan.b"}).json["at"]
    shown = ops.get("/schedule?namespace=shop.plan.b&next=3&last=5").json
    assert [(tick["at"], tick["state"], tick["by_hand"]) for tick in shown["ticks"]] == [(at, "TICK_STATE_DUE", True)] and len(shown["next"]) == 3
    assert [tick["at"] for tick in ops.get("/ticks?namespace=shop.plan&include_children=true&state=TICK_STATE_DUE").json["ticks"]] == [at]
    days = ops.get("/schedule-days?namespace=shop.plan&include_children=true").json["schedules"]
    assert [".".join(each["namespace"]["segments"]) for each in days] == ["shop.plan.a", "shop.plan.b"]
    one, other = days
    assert set(one["states"]) == {0} and len(one["first"]) == len(one["length"]) == len(one["ticks"]) == len(one["states"]) > 100
    assert (other["states"], other["ticks"], other["length"]) == ([1], [1], [1]) and other["first"][0] in (299, 300, 301) and one["period"] == "300s"
    refused = ops.post("/schedule-run", {"namespace": "shop.plan.none"})
    assert (refused.status, refused.error["violations"][0]["field"]) == (400, "namespace")
    assert not ops.post("/schedule-pause", {"namespace": "shop.plan.b", "paused": False}).json["schedule"]["paused"]


# --- the page about it ---


def test_the_examples_for_scripts_work(site):
    page = (harness.ROOT / "docs/run/console.md").read_text()
    script = re.search(r"## For scripts.*?```sh\n(.*?)```", page, re.S)[1]
    hold(site, "payments", "order-7", name="ops", owner="w1")
    said = []
    for line in script.splitlines():
        done = subprocess.run(["sh", "-ec", line], capture_output=True, text=True, timeout=60,
                              env={**os.environ, "CONSOLE": f"http://127.0.0.1:{site.daemon.admin_port}", "TOKEN": site.tokens["ops"]})
        assert done.returncode == 0, done.stderr
        said.append(json.loads(done.stdout))
    leases, scope, frozen, thawed, forced, audit = said
    assert keys_in(leases["leases"]) == {("payments", "order-7")} and scope["explain"]["state"] == "held"
    assert frozen["effective"]["frozen"] and not thawed["effective"]["frozen"]
    assert forced["lease"]["owner"] == "w1" and audit["entries"][0]["reason"] == "its worker is gone"
    for path in re.findall(r"^\| `GET /([a-z]+)`", page, re.M):
        if path != "events":
            assert as_(site, "ops").get(f"/{path}?namespace=payments&key=order-7" if path in ("scope", "history") else f"/{path}").status == 200, path
