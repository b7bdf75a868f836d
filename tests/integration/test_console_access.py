"""The console's API: what a caller may see and do by it, who signs in, and what another site's page cannot."""
import json

import pytest

from access_site import Site
from certificates import flags
from console import Console, Events, trusting
from console_site import READS, allowed, as_, hold, keys_in, site  # noqa: F401
from harness import wait_until


# --- rights ---


CHANGES = (("/force-release", {"namespace": "{0}", "key": "k", "reason": "r"}), ("/reap", {"namespace": "{0}"}),
           ("/policy", {"namespace": "{0}", "frozen": True}), ("/schedule-pause", {"namespace": "{0}", "paused": True}),
           ("/schedule-run", {"namespace": "{0}"}), ("/ask-hand-over", {"namespace": "{0}", "key": "k", "reason": "r"}))


def in_(namespace, body):
    return {name: namespace if value == "{0}" else value for name, value in body.items()}


def test_a_caller_sees_what_it_may_read_and_changes_nothing(site):
    hold(site, "vault", "k", name="ops")
    hold(site, "shop.seen", "k")
    reader = as_(site, "reader")
    allowed(site, "reader", "/leases?namespace=shop.seen")
    for path in READS:
        assert reader.get(path.format("shop.seen")).status == 200, path
        refused = reader.get(path.format("vault"))
        assert (refused.status, refused.error["reason"]) == (403, "ACCESS_DENIED"), path
        assert refused.error["metadata"] == {"principal": "token:reader", "right": "read", "namespace": "vault"}
    assert {ns.split(".")[0] for ns, _ in keys_in(reader.get("/leases").json["leases"])} == {"shop"}
    assert {row["namespace"]["segments"][0] for row in reader.get("/namespaces").json["namespaces"]} == {"shop"}
    assert "vault" in {row["namespace"]["segments"][0] for row in as_(site, "ops").get("/namespaces").json["namespaces"]}
    for path, body in CHANGES:
        for namespace in ("shop.seen", "vault"):
            assert reader.post(path, in_(namespace, body)).status == 403, (path, namespace)
    assert reader.get("/audit?namespace=shop.seen").status == 403 and reader.get("/audit").status == 403
    assert site.scope("shop.seen", "k") == "held"
    rights = {r["right"]: r["namespaces"] for r in reader.get("/session").json["rights"]}
    assert rights == {"RIGHT_READ": [{"segments": ["shop"]}], "RIGHT_LEASE": [], "RIGHT_GUARD": [], "RIGHT_ADMIN": []}


@pytest.mark.parametrize("name", ["stranger", "nobody"])
def test_a_caller_without_rights_gets_nothing(site, name):
    caller = as_(site, name)
    for path in (*READS, "/audit", "/daemons", "/leases", "/events", "/policies", "/failures?include_children=true"):
        assert caller.get(path.format("shop")).status == 403, path
    for path, body in CHANGES:
        assert caller.post(path, in_("shop", body)).status == 403, path
    session = caller.get("/session").json
    assert session["principal"] == ("token:stranger" if name == "stranger" else "anonymous") and session["authorization"]
    assert all(right["namespaces"] == [] for right in session["rights"])


def test_what_is_no_token_is_refused(site):
    for token in ("lht_nothing", site.tokens["ops"][:-1] + "x"):
        refused = Console(site.daemon.admin_port, token).get("/leases")
        assert (refused.status, refused.error["code"]) == (401, "UNAUTHENTICATED")


def test_a_certificate_is_who_calls(cluster, start, authority, server):
    client = authority.issue("console-ops", "DNS:ops.example.org")
    database = cluster.create_database()
    daemon = start(*flags(server, authority), "--authorization", "yes", "--admin-principals", "dns:ops.example.org", database=cluster.url(database))
    someone = Console(daemon.admin_port, tls=trusting(authority))
    known = Console(daemon.admin_port, tls=trusting(authority, client), host="any.name.example")
    assert someone.request("GET", "/healthz").status == 200
    wait_until(lambda: someone.get("/leases").status == 403, 60, "rules")
    assert someone.get("/session").json["principal"] == "anonymous"
    session = known.get("/session").json
    assert session["principal"] == "dns:ops.example.org" and session["rights"][3]["namespaces"] == [{"segments": []}]
    wait_until(lambda: known.post("/policy", {"namespace": "a", "frozen": True}).status == 200, 60, "the database")
    assert known.get("/audit?namespace=a").json["entries"][0]["principal"] == "dns:ops.example.org"
    # A page of another site would come with the certificate, but from there.
    assert known.post("/policy", {"namespace": "a", "frozen": None}, Origin="https://evil.example").status == 403
    token = cluster.psql("select token from leasehold.token_create('phone')", database)
    signed = wait_until(lambda: (answer := someone.sign_in(token)).status == 200 and answer, 60, "the token")
    assert "Secure" in [part.strip() for part in signed.headers["Set-Cookie"].split(";")]
    assert someone.get("/session").json["principal"] == "token:phone"


def test_without_authorization_anonymous_may_do_everything(cluster, start):
    daemon = start(database=cluster.url(cluster.create_database(migrated=True)))
    console = Console(daemon.admin_port)
    assert console.get("/session").json == {
        "principal": "anonymous", "authorization": False, "signed_in": False, "csrf_token": "",
        "rights": [{"right": "RIGHT_" + r, "namespaces": [{"segments": []}]} for r in ("READ", "LEASE", "GUARD", "ADMIN")]}
    wait_until(lambda: console.post("/policy", {"namespace": "a", "frozen": True}).status == 200, 60, "the database")
    # A proxy in front passes on what it asked its user for.
    password = {"Authorization": "Basic dXNlcjpwYXNz"}
    assert console.get("/session", **password).json["principal"] == "anonymous"
    assert console.post("/policy", {"namespace": "a", "frozen": True}, **password).status == 200


# --- signing in ---


def test_the_password_of_a_proxy_in_front_is_beside_the_session(site):
    password = {"Authorization": "Basic dXNlcjpwYXNz"}
    browser = as_(site, "nobody")
    assert browser.post("/sign-in", {"token": site.tokens["ops"]}, **password).status == 200
    assert browser.sign_in(site.tokens["ops"]).status == 200
    assert browser.get("/session", **password).json["principal"] == "token:ops"
    assert browser.post("/policy", {"namespace": "of-a-proxy", "frozen": False}, **password).status == 200
    browser.csrf = None
    assert browser.post("/policy", {"namespace": "of-a-proxy", "frozen": False}, **password).status == 403


def test_a_session_stands_for_its_token(site):
    browser = as_(site, "nobody")
    answer = browser.sign_in(site.tokens["ops"])
    assert answer.status == 200 and answer.json["principal"] == "token:ops" and answer.json["signed_in"]
    attributes = [part.strip() for part in answer.headers["Set-Cookie"].split(";")]
    assert {"HttpOnly", "SameSite=Strict", "Path=/", "Max-Age=43200"} <= set(attributes) and "Secure" not in attributes
    assert site.tokens["ops"] not in answer.text + answer.headers["Set-Cookie"]
    assert browser.get("/session").json["csrf_token"] == browser.csrf
    body = {"namespace": "shop.session", "frozen": True}
    for csrf in (None, "", "x" * 43, browser.csrf[:-1]):
        refused = browser.post("/policy", body, **({"X-CSRF-Token": csrf} if csrf is not None else {"X-CSRF-Token": ""}))
        assert refused.status == 403 and "X-CSRF-Token" in refused.error["message"]
    assert as_(site, "ops").get("/policies?namespace=shop.session").json["own"].get("frozen") is None
    assert browser.post("/policy", body).status == 200
    assert browser.post("/sign-out", {}).cookie == ""
    assert browser.get("/leases").status == 401


def test_a_post_without_the_csrf_header_is_refused(site):
    browser = as_(site, "nobody")
    browser.sign_in(site.tokens["ops"])
    browser.csrf = None
    for path, body in (*CHANGES, ("/sign-out", {})):
        assert browser.post(path, in_("shop", body)).status == 403, path


def test_a_revoked_token_ends_its_session_and_its_events(site):
    token, identity = site.token("leaver")
    site.grant("token:leaver", "shop", "read")
    browser = as_(site, "nobody")
    wait_until(lambda: browser.sign_in(token).status == 200, 60, "the token")
    wait_until(lambda: browser.get("/leases?namespace=shop").status == 200, 60, "the rule")
    events = Events(browser, "/events?namespace=shop&include_children=true")
    assert events.next() == ("synced", {})
    site.psql(f"select leasehold.token_revoke('{identity}')")
    name, data = events.next()
    while name != "end":
        name, data = events.next()
    assert data["error"]["code"] == "UNAUTHENTICATED" and events.next() is None
    ended = wait_until(lambda: (answer := browser.get("/leases?namespace=shop")).status == 401 and answer, 60, "401")
    assert ended.cookie == ""


def test_attempts_to_sign_in_are_bounded(cluster, start):
    daemon = start(database=cluster.url(cluster.create_database(migrated=True)))
    console = Console(daemon.admin_port)
    wait_until(lambda: Console(daemon.admin_port, "lht_wrong").get("/session").status == 401, 60, "tokens")
    seen = [console.sign_in("lht_wrong").status for _ in range(200)]
    assert set(seen) == {401, 429} and seen[:10] == [401] * 10
    assert console.post("/sign-in", {"token": "lht_wrong\nX: y"}).status in (400, 429)


# --- other sites ---


@pytest.mark.parametrize("host,status", [
    ("127.0.0.1:7421", 200), ("localhost", 200), ("[::1]:7421", 200), ("console.example.org:7421", 200), ("OTHER.example.org", 200),
    ("evil.example", 421), ("evil.example:7421", 421), ("127.0.0.1.evil.example", 421), ("localhost.evil.example", 421), ("", 421)])
def test_a_name_that_is_not_ours_is_refused(site, host, status):
    console = as_(site, "ops", host=host)
    for path in ("/", "/api/v1/session"):
        assert console.request("GET", path, headers={"Host": host}).status == status
    assert console.request("GET", "/healthz", headers={"Host": host}).status == 200


def test_another_site_is_refused(site):
    ops = as_(site, "ops")
    port = site.daemon.admin_port
    body = {"namespace": "shop.sites", "frozen": None}
    assert ops.post("/policy", body, Origin=f"http://127.0.0.1:{port}").status == 200
    for origin in ("http://evil.example", "null", f"http://127.0.0.1:{port + 1}", f"http://127.0.0.1:{port}.evil.example"):
        assert ops.post("/policy", body, Origin=origin).status == 403, origin
    assert ops.get("/leases", **{"Sec-Fetch-Site": "cross-site"}).status == 403
    # A form needs no leave of the browser's to send text.
    for kind in ("text/plain", "application/x-www-form-urlencoded", None):
        refused = ops.request("POST", "/api/v1/policy", headers={"Content-Type": kind} if kind else {}, raw=json.dumps(body))
        assert refused.status == 415
