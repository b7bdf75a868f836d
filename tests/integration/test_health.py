"""Health tells the truth: what keeps a daemon from serving is said in the log, at /readyz, in gRPC health, in each call and by
`leasehold status`, and no call hangs."""
import contextlib

import grpc
import pytest

import harness
from commandline import cli
from harness import acquire_request, fails, health, readyz, wait_until

CHANGE = "until an administrator changes something"


@pytest.fixture(scope="module")
def guarded():
    """A cluster that asks the role `keeper` for its password."""
    cluster = harness.Cluster()
    set_hba(cluster)
    cluster.psql("create role keeper login password 'right'", "postgres")
    yield cluster
    cluster.destroy()


def set_hba(cluster, *lines):
    (cluster.data / "pg_hba.conf").write_text("\n".join([*lines, "local all keeper scram-sha-256", "local all all trust", ""]))
    reload(cluster)


def reload(cluster):
    cluster.psql("select pg_reload_conf()", "postgres")


def url(cluster, database, user="keeper", password="right"):
    return f"{cluster.url(database, user=user)} password={password}"


def prepare(cluster):
    """A database with the schema, for keeper to serve."""
    database = cluster.create_database()
    said = cli("migrate", "--database", cluster.url(database))
    assert said.returncode == 0, said.stderr
    cluster.psql("grant leasehold_coordinator to keeper", database)
    return database


@contextlib.contextmanager
def daemon_of(*args, **options):
    daemon = harness.Daemon(*args, **options)
    client = harness.Client(daemon.target)
    try:
        yield daemon, client
    finally:
        client.close()
        assert daemon.stop() == 0, daemon.log()
        daemon.destroy()


def expect_trouble(daemon, client, words, cause):
    """`words` are for those who run it, `cause` is for clients."""
    wait_until(lambda: words in daemon.log(), what=f"{words} in the log")
    code, said = wait_until(lambda: words in readyz(daemon)[1] and readyz(daemon), what=f"{words} at /readyz")
    assert code == 503 and said.startswith("not ready: ")
    wait_until(lambda: health(client) == "NOT_SERVING", what="gRPC health")
    for wait in (None, 3600):  # a call that hung would end at its own deadline, with another code
        with fails() as failure:
            client.lease.Acquire(acquire_request("jobs", "k", wait=wait), timeout=60)
        assert failure.value.code == grpc.StatusCode.UNAVAILABLE and failure.value.reason == "DATABASE_UNAVAILABLE"
        assert cause in failure.value.message and failure.value.retry is not None
        assert "keeper" not in failure.value.message and "/tmp" not in failure.value.message
    said = cli("status", "--server", daemon.target)
    assert said.returncode == 5 and "not serving" in said.stdout
    assert f"does not serve: {cause}" in said.stderr
    assert client.admin.GetStatus(harness.pb.GetStatusRequest()).trouble


def expect_service(daemon, client):
    wait_until(lambda: health(client) == "SERVING", 60, "service")
    assert wait_until(lambda: readyz(daemon)[0] == 200 and readyz(daemon)[1], what="/readyz").startswith("ready server=")
    client.lease.Release(harness.release_request(client.lease.Acquire(acquire_request("jobs", "k"), timeout=30).lease))
    said = cli("status", "--server", daemon.target)
    assert said.returncode == 0 and "not serving" not in said.stdout and said.stderr == ""


# --- from the start ---

STARTS = {
    "password": ("password=wrong", 'password authentication failed for user "keeper"', "PostgreSQL refuses the daemon's password", True),
    "role": ("user=stranger", 'role "stranger" does not exist', "PostgreSQL does not let the daemon's role in", True),
    "database": ("dbname=nowhere", 'database "nowhere" does not exist', "the database that the daemon is configured for does not exist", True),
    "schema": ("", "the database has no schema leasehold: run leasehold migrate", "the database has no schema leasehold", False),
}


@pytest.mark.parametrize("change, words, cause, is_permanent", STARTS.values(), ids=STARTS)
def test_what_keeps_a_daemon_from_starting_is_said_everywhere(guarded, change, words, cause, is_permanent):
    database = guarded.create_database()
    with daemon_of("--migrate=no", database=f"{url(guarded, database)} {change}", wait="listening") as (daemon, client):
        expect_trouble(daemon, client, words, cause)
        assert (CHANGE in daemon.log()) == is_permanent
        assert daemon.log().count("not serving yet") == 1
        assert "serving grpc=" not in daemon.log()


def test_a_role_that_may_not_register_is_said_everywhere(guarded):
    database = prepare(guarded)
    guarded.psql("revoke execute on function leasehold_internal.coordinator_register from leasehold_coordinator", database)
    with daemon_of("--migrate=no", database=url(guarded, database), wait="listening") as (daemon, client):
        words = "permission denied for function coordinator_register"
        expect_trouble(daemon, client, words, words)
        assert daemon.log().count("coordinator is not registered") == 1
        assert "serving grpc=" not in daemon.log()
        guarded.psql("grant execute on function leasehold_internal.coordinator_register to leasehold_coordinator", database)
        expect_service(daemon, client)
        wait_until(lambda: "serving grpc=" in daemon.log(), what="the announcement")


# --- while it runs ---


def end_sessions(cluster):
    cluster.psql("select pg_terminate_backend(pid) from pg_stat_activity where usename = 'keeper'", "postgres")


def change_password(cluster, database):
    cluster.psql("alter role keeper password 'new'", "postgres")
    end_sessions(cluster)
    yield
    cluster.psql("alter role keeper password 'right'", "postgres")


def refuse_in_hba(cluster, database):
    set_hba(cluster, "local all keeper reject")
    end_sessions(cluster)
    yield
    set_hba(cluster)


def rename_database(cluster, database):
    cluster.psql(f"alter database {database} connection limit 0", "postgres")
    wait_until(lambda: end_sessions(cluster) or cluster.psql(
        f"alter database {database} rename to {database}_away", "postgres", check=False).returncode == 0)
    yield
    cluster.psql(f"alter database {database}_away rename to {database}; alter database {database} connection limit -1", "postgres")


def make_read_only(cluster, database):
    cluster.psql(f"alter database {database} set default_transaction_read_only = on", "postgres")
    end_sessions(cluster)
    yield
    cluster.psql(f"alter database {database} reset default_transaction_read_only", "postgres")


def stop_server(cluster, database):
    cluster.stop()
    yield
    cluster.start()


CHANGES = {
    "password": (change_password, 'password authentication failed for user "keeper"', "PostgreSQL refuses the daemon's password"),
    "pg_hba": (refuse_in_hba, "pg_hba.conf rejects connection", "PostgreSQL does not let the daemon's role in"),
    "renamed": (rename_database, "does not exist", "the database that the daemon is configured for does not exist"),
    "read_only": (make_read_only, "it takes no writes: default_transaction_read_only is on", "the server takes no writes"),
    "stopped": (stop_server, "No such file or directory", "the database is unavailable"),
}


@pytest.mark.parametrize("change, words, cause", CHANGES.values(), ids=CHANGES)
def test_a_running_daemon_says_why_it_cannot_reconnect(guarded, change, words, cause):
    database = prepare(guarded)
    with daemon_of("--migrate=no", database=url(guarded, database)) as (daemon, client):
        expect_service(daemon, client)
        changed = change(guarded, database)
        next(changed)
        try:
            expect_trouble(daemon, client, words, cause)
            # Once, and not for each of its connections and attempts.
            assert len([line for line in daemon.log().splitlines() if " database server=" in line and words in line]) == 1
        finally:
            next(changed, None)
        expect_service(daemon, client)
