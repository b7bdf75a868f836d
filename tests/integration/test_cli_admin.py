"""Administration by the command line: by the server and by the database alone."""
import json
import re
import signal

import pytest
from google.protobuf import json_format

from commandline import NOWHERE, cli, ends, start
from harness import pb, wait_until


@pytest.fixture(params=["server", "database", "environment"])
def admin(request, shell, service, cluster):
    """Runs a command of an administrator: by the daemon, by --database, by LEASEHOLD_DATABASE."""
    url = cluster.url(service.database)

    def run(*args):
        if request.param == "server":
            return shell(*args)
        if request.param == "database":
            return shell(*args, "--database", url, LEASEHOLD_SERVER=NOWHERE)
        return cli(*args, LEASEHOLD_DATABASE=url)

    return run


def test_policy_set_show_and_reset(admin, ns):
    said = admin("policy", "set", ns, "grace=5s", "expiry=reap", "frozen=no", "max_leases=7", "max_reap_failures=3")
    assert said.returncode == 0, said.stderr
    assert f"{ns}: grace is now 5.0 s\n" in said.stdout and f"{ns}: expiry is now reap\n" in said.stdout
    table = {line.split()[0]: line for line in admin("policy", "show", ns + ".child").stdout.splitlines()}
    assert list(table)[:3] == ["SETTING", "min_duration", "max_duration"]
    assert re.fullmatch(rf"grace +5.0 s +{re.escape(ns)}", table["grace"])
    assert re.fullmatch(r"min_duration +1.0 s +\(root\)", table["min_duration"])
    assert re.fullmatch(rf"max_leases +7 +{re.escape(ns)}", table["max_leases"])
    assert re.fullmatch(r"dead_after +2/3 of the duration +\(default\)", table["dead_after"])

    shown = json_format.Parse(admin("policy", "show", ns, "-o", "json").stdout, pb.GetPolicyResponse())
    assert shown.own.grace.seconds == 5 and shown.own.expiry == pb.Policy.EXPIRY_REAP and shown.own.max_leases.value == 7
    assert shown.own.HasField("frozen") and not shown.own.frozen.value and not shown.own.HasField("min_duration")
    assert shown.effective.min_duration.seconds == 1 and shown.source["grace"] == ns and shown.source["min_duration"] == ""
    assert list(shown.own.namespace.segments) == ns.split(".")

    listed = admin("policy", "show")
    assert listed.returncode == 0
    assert re.search(rf"^{re.escape(ns)} +grace +5.0 s$", listed.stdout, re.M)
    assert re.search(r"^\(root\) +grace +1.0 s$", listed.stdout, re.M)

    assert admin("policy", "reset", ns, "grace").stdout == f"{ns}: grace is now 1.0 s\n"
    shown = json.loads(admin("policy", "show", ns, "-o", "json").stdout)
    assert "grace" not in shown["own"] and shown["own"]["max_leases"] == "7"
    assert admin("policy", "reset", ns).returncode == 0
    assert not re.search(rf"^{re.escape(ns)} ", admin("policy", "show").stdout, re.M)
    assert admin("policy", "show", ".").returncode == 0
    assert admin("policy", "show", "").stdout == admin("policy", "show", ".").stdout


def test_a_policy_that_the_database_refuses_is_wrong_usage(admin, ns):
    said = admin("policy", "set", ns, "min_duration=1ms")
    assert said.returncode == 2 and "min_duration" in said.stderr
    assert not re.search(rf"^{re.escape(ns)} ", admin("policy", "show").stdout, re.M)


def test_force_release(admin, shell, ns):
    lease = shell.acquire(ns, "k", "--owner", "worker-3")
    said = admin("force-release", ns, "k", "--reason", "gone", "--token", int(lease["token"]) + 1)
    assert said.returncode == 4, said.stderr
    said = admin("force-release", ns, "k", "--reason", "gone", "--token", lease["token"])
    assert said.returncode == 0, said.stderr
    assert said.stdout == f"ended the lease {ns}/k of worker-3, token {lease['token']}\n"
    said = shell("heartbeat", ns, "k", lease["lease_key"])
    assert said.returncode == 4 and "(forced)" in said.stderr
    assert admin("force-release", ns, "k", "--reason", "gone").returncode == 4
    second = shell.acquire(ns, "k")
    ended = json.loads(admin("force-release", ns, "k", "--reason", "gone", "-o", "json").stdout)["lease"]
    assert ended["token"] == second["token"] and ended["scope"]["key"] == "k"


def test_force_release_refuses_under_a_superusers_guard(admin, shell, service, ns):
    lease = shell.acquire(ns, "k")
    session = service.session()
    try:
        session.run(f"begin; select leasehold.guard('{ns}', 'k', {lease['token']})")
        said = admin("force-release", ns, "k", "--reason", "gone")
        assert said.returncode == 1 and "it is a superuser's session" in said.stderr, said.stderr
        session.run("rollback")
    finally:
        session.close()
    assert shell("heartbeat", ns, "k", lease["lease_key"]).returncode == 0


def test_reap_goes_on_until_nothing_is_due(admin, shell, service, ns):
    assert shell("policy", "set", ns, "reaper=external", "expiry=reap", "grace=0").returncode == 0
    service.psql(f"select count(*) from generate_series(1, 25) n, leasehold.acquire('{ns}.child', 'k' || n, '1 s')")
    held = lambda: int(service.psql(f"select count(*) from leasehold.scope where namespace = '{ns}.child' and state = 'held'"))
    expired = lambda: int(service.psql(f"select count(*) from leasehold.lease where namespace = '{ns}.child' "
                                       "and liveness = 'expired'"))
    wait_until(lambda: expired() == 25, what="the leases' expiry")
    assert admin("reap", ns).stdout == "reaped 0 leases\n" and held() == 25
    said = admin("reap", ns, "--children", "--max", "10", "-o", "json")
    assert said.returncode == 0, said.stderr
    assert json.loads(said.stdout) == {"reaped": 25, "failures": [], "more": False}
    assert held() == 0
    assert admin("reap", ns, "--children", "--once").stdout == "reaped 0 leases\n"


def test_reap_again_and_again_until_told_to_stop(admin, shell, service, cluster, ns):
    assert shell("policy", "set", ns, "reaper=external", "expiry=reap", "grace=0").returncode == 0
    reaper = start("reap", ns, "--every", "100ms", LEASEHOLD_DATABASE=cluster.url(service.database))
    try:
        for key in ("first", "second"):
            shell.acquire(ns, key, "--duration", "1s")
            assert reaper.stdout.readline() == "reaped 1 lease\n"
            assert shell("show", ns, key).returncode == 4
        assert reaper.poll() is None
    finally:
        reaper.terminate()
    assert ends(reaper) == -signal.SIGTERM
    assert reaper.stdout_text == ""


def test_a_role_without_the_right_is_denied(cluster, service, ns):
    service.psql("do $$ begin create role cli_nobody login; exception when duplicate_object then null; end $$")
    url = cluster.url(service.database, user="cli_nobody")
    for args in (["reap"], ["policy", "set", ns, "grace=1s"], ["force-release", ns, "k", "--reason", "x"]):
        said = cli(*args, "--database", url)
        assert said.returncode == 1 and "leasehold_admin" in said.stderr, said.stderr
