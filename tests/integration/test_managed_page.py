"""docs/run/managed.md: its SQL by roles of which none is a superuser, but for pg_cron's, which the services let their administrators do."""
import re
import subprocess

import pytest

import harness
from commandline import cli

PAGE = (harness.ROOT / "docs/run/managed.md").read_text()


def block(word):
    found = [text for text in re.findall(r"```sql\n(.*?)```", PAGE, re.S) if word in text]
    assert len(found) == 1, word
    return found[0]


@pytest.fixture(scope="module")
def service():
    cluster = harness.Cluster(["shared_preload_libraries = 'pg_cron'", "cron.database_name = 'postgres'"])
    cluster.psql("create role administrator login createrole createdb", "postgres")
    yield cluster
    cluster.destroy()


def run(cluster, user, database, sql):
    done = subprocess.run(["psql", "-XAtq", "-v", "ON_ERROR_STOP=1", "-d", cluster.url(database, user=user)], input=sql, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert done.returncode == 0, done.stdout
    return done.stdout.strip()


def test_the_page_is_true_for_an_ordinary_owner(service):
    run(service, "administrator", "postgres", "create database app")
    assert re.match(r"[0-9A-F]{24}\|", run(service, "administrator", "app", block("pg_control_system")))
    run(service, "administrator", "app", block("createrole"))
    assert service.psql("select count(*) from pg_roles where rolsuper and rolname <> 'postgres'", "app") == "0"
    script = cli("migrate", "--print")
    assert script.returncode == 0, script.stderr
    for _ in range(2):
        run(service, "lease_installer", "app", "begin;\n" + script.stdout + "\ncommit;")
    run(service, "lease_installer", "app", block("in role leasehold_client"))
    run(service, "lease_reaper", "app", "select leasehold.reap()")  # before the first one nothing expires
    out = run(service, "lease_app", "app", block("leasehold.acquire("))
    assert re.match(r"\d+\|[0-9a-f-]{36}\nheld\|worker-1\|", out), out
    service.psql(block("schedule_in_database"), "postgres")
    command, database, user = service.psql("select command, database, username from cron.job", "postgres").split("|")
    assert (database, user) == ("app", "lease_reaper")
    service.psql("update leasehold.scope set deadline = deadline - interval '1 h', heartbeat_at = heartbeat_at - interval '1 h', check_at = now()", "app")
    run(service, user, database, command)
    assert service.psql("select state, last_outcome from leasehold.scope", "app") == "free|expired"


def test_a_daemon_serves_as_an_ordinary_role(service):
    daemon = harness.Daemon("--migrate", "no", database=service.url("app", user="lease_daemon"))
    lease = harness.Client(daemon.target).lease.Acquire(harness.acquire_request("managed", "k")).lease
    assert lease.token > 0
    assert daemon.stop() == 0, daemon.log()
    daemon.destroy()
