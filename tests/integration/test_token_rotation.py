"""A bearer token is replaced while leases are held: the library goes on renewing with the new one."""
import json
import os
import pwd

import pytest

from commandline import cli
from harness import Client, pb, scope, wait_until
from streams import keys
from library import Driver

ME = "user:" + pwd.getpwuid(os.geteuid()).pw_name


@pytest.fixture
def site(cluster, database, start):
    """A daemon with authorization, whose administrator is the user of these tests, by its unix socket."""
    socket = cluster.sockets / ("s-" + keys())
    daemon = start("--listen", f"127.0.0.1:0,unix:{socket}", "--authorization", "yes", "--admin-principals", ME, database=cluster.url(database))

    def admin(*args):
        done = cli(*args, "--server", f"unix:{socket}")
        assert done.returncode == 0, done.stderr
        return done.stdout

    admin("access", "list")  # which is repeated until the daemon has read the rules
    daemon.admin_by, daemon.admin_socket = admin, f"unix:{socket}"
    return daemon


def replace(file, text):
    file.with_suffix(".new").write_text(text)
    os.rename(file.with_suffix(".new"), file)


def test_a_lease_outlives_the_token_that_it_was_taken_with(site, tmp_path, monkeypatch):
    name, file = keys(), tmp_path / "token"
    old = json.loads(site.admin_by("token", "create", name, "-o", "json"))
    site.admin_by("access", "grant", f"token:{name}", "rotated", "lease", "read")
    replace(file, old["token"] + "\n")
    monkeypatch.setenv("LEASEHOLD_TOKEN_FILE", str(file))
    admin = Client(site.admin_socket)
    lease = lambda: admin.lease.GetLease(pb.GetLeaseRequest(scope=scope("rotated", "k"))).lease
    driver = Driver("thread", site.target, flush_ms=300)
    try:
        driver.declare(namespace="rotated", duration_ms=9000)
        wait_until(lambda: driver.ask("acquire a d k").startswith("acquire a OK"), what="the right")
        taken = lease()
        assert taken.principal == f"token:{name}"
        wait_until(lambda: lease().heartbeats > 0, what="a renewal")
        replace(file, json.loads(site.admin_by("token", "create", name, "-o", "json"))["token"])
        site.admin_by("token", "revoke", old["id"])
        seen = lease().heartbeats
        wait_until(lambda: lease().heartbeats >= seen + 4, 60, "renewals with the new token, for longer than the lease lives")
        assert "held=1" in driver.ask("show a") and lease().token == taken.token
        assert driver.ask("release a") == "release a OK"
        assert not any("lht_" in line for line in driver.log)
    finally:
        driver.close()
        admin.close()


def test_a_token_that_was_revoked_is_refused_with_words(site, tmp_path):
    name, file = keys(), tmp_path / "token"
    made = json.loads(site.admin_by("token", "create", name, "-o", "json"))
    site.admin_by("access", "grant", f"token:{name}", "refused", "lease")
    replace(file, made["token"])
    ask = lambda *args: cli("--server", site.target, "--token-file", file, *args)
    wait_until(lambda: ask("acquire", "refused", keys()).returncode == 0, what="the right")
    other = ask("acquire", "elsewhere", "k")
    assert other.returncode == 1 and f"token:{name}" in other.stderr and "leasehold access grant" in other.stderr, other.stderr
    denied = ask("access", "grant", f"token:{name}", ".", "admin")
    assert denied.returncode == 1 and "admin" in denied.stderr
    site.admin_by("token", "revoke", name)
    wait_until(lambda: ask("acquire", "refused", keys()).returncode == 1, what="the end of the token")
    gone = ask("run", "refused", keys(), "--wait", "60s", "--", "true")
    assert gone.returncode == 1 and "token" in gone.stderr and made["token"] not in gone.stderr, gone.stderr
