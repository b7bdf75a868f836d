"""docs/run/managed.md: its SQL by roles of which none is a superuser, but for pg_cron's, which the services let their administrators do; and deploy/try-engine."""
import os
import re
import subprocess
import sys

import pytest

import harness
from commandline import cli, environment

PAGE = (harness.ROOT / "docs/run/managed.md").read_text()


def block(word):
    found = [text for text in re.findall(r"```sql\n(.*?)```", PAGE, re.S) if word in text]
    assert len(found) == 1, word
    return found[0]


@pytest.fixture(scope="module")
def service():
    cluster = harness.Cluster(["fsync = on", "shared_preload_libraries = 'pg_cron'", "cron.database_name = 'postgres'"])
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


HIDDEN = "revoke execute on function pg_control_system(), pg_walfile_name(pg_lsn), pg_current_wal_lsn() from public"


@pytest.fixture
def engine(service, place):
    """A database of its own, of an ordinary role, and deploy/try-engine on it: (status, what it says)."""
    verify = place / "leasehold-verify"
    verify.write_text(f'#!/bin/sh\nPYTHONPATH={harness.ROOT / "src/python"} exec {sys.executable} -B -m leasehold.verify "$@"\n')
    verify.chmod(0o755)
    path = ":".join([str(place), str(harness.DAEMON.parent), str(harness.CLI.parent), os.environ["PATH"]])
    run(service, "administrator", "postgres", "create database engine")

    def attempt(*source):
        done = subprocess.run([harness.ROOT / "deploy/try-engine", service.url("engine", user="administrator"), *source], stdin=subprocess.DEVNULL, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              env={**environment(), "PATH": path, "LEASEHOLD_TRY_SECONDS": "8"})
        return done.returncode, done.stdout

    yield attempt
    run(service, "administrator", "postgres", "drop database engine with (force)")


def test_an_engine_is_tried_with_each_source(service, engine):
    service.psql(HIDDEN, "engine")
    status, told = engine()
    assert status == 1 and "permission denied for function pg_" in told and told.endswith("try-engine: the source wal cannot be read\n"), told
    status, told = engine("epoch")
    assert status == 0 and "ok   " in told and "source epoch: epoch 1" in told and told.endswith("try-engine: nothing was wrong\n"), told
    run(service, "administrator", "engine", "create function public.life() returns text language sql as $$select 'a'$$")
    status, told = engine("engine", "public.life()")
    assert status == 0 and "source engine: public.life() says a text" in told and told.endswith("try-engine: nothing was wrong\n"), told


def test_an_engine_that_breaks_a_promise_is_found(service, engine):
    status, told = engine()
    assert status == 0 and "ok two holders at once: 0\n" in told and told.endswith("try-engine: nothing was wrong\n"), told
    service.psql("alter sequence leasehold.token increment -1 minvalue 1 start 1", "engine")
    status, told = engine()
    assert status == 1 and "not ok tokens that went back" in told and told.endswith("try-engine: the engine does not keep what Leasehold promises\n"), told
