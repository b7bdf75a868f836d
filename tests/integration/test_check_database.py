"""What `leasehold check-database` finds: a sound database, and each kind of trouble, made for real."""
import contextlib
import json
import os
import pwd
import shutil
import socket
import subprocess
import sys

import psycopg
import pytest

from commandline import cli

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import pgtest  # noqa: E402
from ports import free_port  # noqa: E402
import rundir  # noqa: E402
from waiting import wait_until  # noqa: E402

SETTINGS = {"fsync": "on", "wal_level": "logical", "max_prepared_transactions": "5", "idle_in_transaction_session_timeout": "60s",
            "synchronous_commit": "on", "listen_addresses": "''", "archive_mode": "on",
            "max_wal_size": "32MB"}


@pytest.fixture(scope="module")
def site():
    """A cluster that is sound, with the schema in database `leases` and the role `app`, which serves."""
    with pgtest.Cluster(schema=False, settings=SETTINGS) as cluster:
        cluster.psql("postgres", "alter system set archive_command = 'true'; select pg_reload_conf()")
        cluster.psql("postgres", "create database leases; create database bare; create role app login; create role nobody login")
        cluster.url = lambda database="leases", user="app": f"postgresql:///{database}?host={cluster.socket}&user={user}"
        done = cli("migrate", "--database", cluster.url(user="postgres"))
        assert done.returncode == 0, done.stderr
        cluster.psql("leases", "grant leasehold_coordinator to app")
        yield cluster


def look(url, status=None, *options):
    """{check: [(level, found, advice)]}"""
    said = cli("check-database", "--database", url, "--json", *options)
    assert said.stdout, said.stderr
    report = json.loads(said.stdout)
    found = {}
    for each in report["findings"]:
        found.setdefault(each["check"], []).append((each["level"], each["found"], each["advice"]))
    levels = [each["level"] for each in report["findings"]]
    assert report["failed"] == levels.count("failed") and report["warnings"] == levels.count("warning")
    assert report["can_serve"] == ("failed" not in levels) and said.returncode == (0 if report["can_serve"] else 1)
    assert not [each for each in report["findings"] if each["level"] != "ok" and each["found"].startswith("not known") and each["check"] != "wal"], report
    return found


def levels_of(found, but=()):
    return {name: rows[0][0] for name, rows in found.items() if rows[0][0] not in ("ok", "note") and name not in but}


def test_a_sound_database_has_no_warning(site):
    found = look(site.url())
    assert levels_of(found) == {}
    assert found["pooler"] == [("ok", "the connection is direct", "")]
    assert found["listen"][0][1].startswith("a notification came after ")
    assert found["latency"][0][1].startswith("a question takes ") and found["schema"][0][0] == "ok"
    text = cli("check-database", "--database", site.url())
    assert text.returncode == 0 and text.stdout.endswith("this database can carry leases\n")


def test_a_database_without_the_schema_is_judged_too(site):
    found = look(site.url("bare"))
    assert found["schema"][0][:2] == ("note", "the schema leasehold is not installed")
    assert "lacks create on this database and createrole" in found["installer"][0][1]
    assert "installer" not in look(site.url("bare", "postgres"))


def test_a_role_that_may_do_nothing_is_told_what_to_ask_for(site):
    level, words, advice = look(site.url(user="nobody"))["role"][0]
    assert level == "failed" and "neither a member" in words and advice.startswith("grant leasehold_coordinator to nobody")
    site.psql("leases", "create role client login in role leasehold_client")
    assert look(site.url(user="client"))["role"][0][0] == "note"


# (what is wrong, how it is made, how it is undone, the check, the level, words of what was found)
TROUBLE = [
    ("read only", "alter role app set default_transaction_read_only = on", "alter role app reset default_transaction_read_only",
     "writable", "failed", "default_transaction_read_only"),
    ("hidden control file", "revoke execute on function pg_control_system() from public",
     "grant execute on function pg_control_system() to public", "life", "failed", "permission denied for function pg_control_system"),
    ("hidden timeline", "revoke execute on function pg_walfile_name(pg_lsn) from public",
     "grant execute on function pg_walfile_name(pg_lsn) to public", "life", "failed", "permission denied for function pg_walfile_name"),
    ("another source of the life", "select leasehold.set_life_source('epoch')", "select leasehold.set_life_source('wal')",
     "life", "note", "source epoch: epoch 1"),
    ("full pages", "alter system set full_page_writes = off; select pg_reload_conf()",
     "alter system reset full_page_writes; select pg_reload_conf()", "crash safety", "warning", "full_page_writes is off"),
    ("commits that do not wait", "alter role app set synchronous_commit = off", "alter role app reset synchronous_commit",
     "commits", "warning", "synchronous_commit is off"),
    ("idle sessions are cut", "alter role app set idle_session_timeout = '1min'", "alter role app reset idle_session_timeout",
     "time-outs", "warning", "idle_session_timeout is 60000 ms"),
    ("transactions that may stay open", "alter role app set idle_in_transaction_session_timeout = 0",
     "alter role app reset idle_in_transaction_session_timeout", "open transactions", "note", "is not set"),
    ("few connections for the role", "alter role app connection limit 4", "alter role app connection limit -1",
     "connections", "failed", " connections are free for this role"),
    ("few connections for the database", "alter database leases connection limit 10", "alter database leases connection limit -1",
     "connections", "warning", " connections are free for this role"),
    ("a publication of everything", "create publication everything for all tables", "drop publication everything",
     "publication", "warning", "publication everything is for all tables"),
    ("an event trigger", "create function watch() returns event_trigger language plpgsql as 'begin end'; "
     "create event trigger nosy on ddl_command_end execute function watch()", "drop event trigger nosy; drop function watch()",
     "event triggers", "warning", "event trigger nosy (ddl_command_end) runs watch"),
    ("a slot without a reader", "select pg_create_logical_replication_slot('old', 'pgoutput')", "select pg_drop_replication_slot('old')",
     "slots", "warning", "replication slot old is not in use and keeps dead rows"),
    ("a table that updates of fail", "alter table leasehold.scope replica identity nothing; create publication everything for all tables",
     "drop publication everything; alter table leasehold.scope replica identity default",
     "publication", "warning", "have no replica identity, so that updates and deletes fail: leasehold.scope"),
    ("commits that no standby has", "alter role app set synchronous_commit = local; alter system set synchronous_standby_names = 'far'; select pg_reload_conf()",
     "alter system reset synchronous_standby_names; select pg_reload_conf(); alter role app reset synchronous_commit",
     "commits", "warning", "synchronous_commit is local"),
    ("slow commits", "alter role app set commit_delay = 50000; alter role app set commit_siblings = 0",
     "alter role app reset commit_delay; alter role app reset commit_siblings", "latency", "warning", "a commit "),
    ("an archive that fails", "alter system set archive_command = 'false'; select pg_reload_conf(); select pg_switch_wal()",
     "alter system set archive_command = 'true'; select pg_reload_conf()", "disk", "warning", "WAL is not archived since "),
    ("slots without a bound", "select pg_create_physical_replication_slot('bare')", "select pg_drop_replication_slot('bare')",
     "slots", "note", "max_slot_wal_keep_size is -1"),
    ("no vacuum", "alter system set autovacuum = off; select pg_reload_conf()", "alter system reset autovacuum; select pg_reload_conf()",
     "vacuum", "warning", "autovacuum is off"),
    ("an older schema", "update leasehold.migration set checksum = 'another' where number = 1",
     None, "schema", "failed", "0001"),
]


@pytest.mark.parametrize("make, undo, check, level, words", [row[1:] for row in TROUBLE], ids=[row[0] for row in TROUBLE])
def test_trouble_is_found(site, make, undo, check, level, words):
    database = "leases"
    if undo is None:  # this one is not mended again
        database = "spoiled"
        site.psql("postgres", "create database spoiled template leases")
    site.psql(database, make)
    try:
        def hits():
            return [row for row in look(site.url(database)).get(check, []) if row[0] == level and words in row[1]]

        # A reloaded setting reaches new sessions a moment later.
        assert wait_until(hits, what=f"{check}: {level}, {words}")[0][2], "a finding without advice"
    finally:
        site.psql(*((database, undo) if undo else ("postgres", "drop database spoiled with (force)")))


@pytest.mark.parametrize("name, value", [("statement_timeout", 200), ("lock_timeout", 1), ("idle_in_transaction_session_timeout", 10),
                                         ("idle_session_timeout", 100)])
def test_a_timeout_that_cuts_clients_is_found(site, name, value):
    # The command line sets its own, as a daemon does: those of the role are reported, and do not cut it.
    site.psql("leases", f"alter role app set {name} = '{value}ms'")
    try:
        found = look(site.url())
        assert [row[:2] for row in found["time-outs"]] == [("warning", f"{name} is {value} ms")] and found["time-outs"][0][2]
        assert set(levels_of(found)) == {"time-outs"}
    finally:
        site.psql("leases", f"alter role app reset {name}")


@contextlib.contextmanager
def disguised(site, sql):
    """What the role app sees before PostgreSQL's own: the schema `guise`. So a server can be older, and a transaction too."""
    site.psql("leases", f"create schema guise; grant usage on schema guise to app; {sql}; grant select, usage on all sequences in schema guise to app; "
                        "grant select on all tables in schema guise to app; alter role app set search_path = guise, pg_catalog")
    try:
        yield
    finally:
        site.psql("leases", "alter role app reset search_path; drop schema guise cascade")


DISGUISES = [
    ("a server of another time", "create function guise.current_setting(text) returns text language sql as $$ select case $1 when 'server_version_num' "
     "then '120022' else pg_catalog.current_setting($1) end $$", "version", "failed", "PostgreSQL 15"),
    ("a database near its last transaction", "create view guise.pg_database as select d.oid, d.datname, d.encoding, d.datconnlimit, "
     "(4294967296 + txid_current() - 1900000000)::text::xid as datfrozenxid from pg_catalog.pg_database d", "vacuum", "failed", "transactions old"),
    ("a clock that is ahead", "create function guise.clock_timestamp() returns timestamptz language sql as "
     "$$ select pg_catalog.clock_timestamp() + interval '1 hour' $$", "clock", "note", "s ahead of the one here"),
    ("a clock that steps", "create sequence guise.calls; create function guise.clock_timestamp() returns timestamptz language sql as "
     "$$ select pg_catalog.clock_timestamp() - interval '7 s' * (nextval('guise.calls') > 1)::integer $$", "clock", "warning", "the server's clock moved by -7.0 s"),
    ("an extension that is available", "create view guise.pg_available_extensions as select 'leasehold_core' as name, '2' as default_version, "
     "null as installed_version", "extension", "note", "leasehold_core is available and not installed"),
    ("an older extension", "create view guise.pg_available_extensions as select 'leasehold_core' as name, '2' as default_version, '1' as installed_version",
     "extension", "note", "leasehold_core 1 is installed"),
]


@pytest.mark.parametrize("sql, check, level, words", [row[1:] for row in DISGUISES], ids=[row[0] for row in DISGUISES])
def test_what_takes_another_server_or_time_is_found(site, sql, check, level, words):
    with disguised(site, sql):
        found = [row for row in look(site.url())[check] if row[0] == level and words in row[1]]
        assert found and found[0][2]


def test_transactions_that_hold_back_vacuum_are_named(site):
    aged = ("create view guise.pg_prepared_xacts as select gid, owner, database, prepared - interval '1 hour' as prepared from pg_catalog.pg_prepared_xacts; "
            "create view guise.pg_stat_activity as select datid, datname, usename, pid, backend_type, xact_start - interval '1 hour' as xact_start "
            "from pg_catalog.pg_stat_activity")
    site.psql("leases", "begin; create table public.held (); prepare transaction 'forgotten'")
    try:
        with psycopg.connect(site.url()) as session:
            session.execute("select 1")
            pid = session.info.backend_pid
            young = look(site.url())
            assert "prepared transactions" not in young and f"(pid {pid})" not in str(young)
            with disguised(site, aged):
                old = look(site.url())
    finally:
        site.psql("leases", "rollback prepared 'forgotten'")
    assert [row[:2] for row in old["prepared transactions"] if row[1].startswith("prepared transaction 'forgotten' of postgres has been open for 01:00")][0][0] == "warning"
    assert any(row[0] == "warning" and row[1].startswith("a transaction of app has been open for 01:00") and row[1].endswith(f"(pid {pid})")
               for row in old["open transactions"])


def test_tables_that_a_subscription_fills_are_found(site):
    site.psql("postgres", "create database publisher template leases; create database subscriber template leases")
    site.psql("publisher", "create publication scopes for table leasehold.scope; select pg_create_logical_replication_slot('scopes', 'pgoutput')")
    site.psql("subscriber", f"create subscription scopes connection 'host={site.socket} dbname=publisher user=postgres' publication scopes "
                            "with (create_slot = false, enabled = false, copy_data = false)")
    try:
        assert look(site.url("subscriber"))["subscription"][0][:2] == ("failed", "1 tables of the schema leasehold are filled by a subscription")
    finally:
        site.psql("subscriber", "alter subscription scopes set (slot_name = none); drop subscription scopes")
        site.psql("publisher", "select pg_drop_replication_slot('scopes')")
        site.psql("postgres", "drop database subscriber; drop database publisher")


def test_disk_and_wal_are_told_to_those_who_may_know(site):
    found = look(site.url())
    assert found["disk"][0][1].startswith("the database takes ") and "how much of the disk is free" in found["disk"][0][2]
    assert found["wal"][0][:2] == ("note", "not known: permission denied for function pg_ls_waldir") and "pg_monitor" in found["wal"][0][2]
    site.psql("postgres", "select pg_create_physical_replication_slot('kept', true)")
    try:
        for _ in range(6):
            site.psql("postgres", "select pg_logical_emit_message(true, 'test', 'x'); select pg_switch_wal()")
        level, words, advice = look(site.url(user="postgres"))["wal"][0]
        assert level == "warning" and words.startswith("pg_wal takes ") and words.endswith(", max_wal_size is 32 MB") and advice
    finally:
        site.psql("postgres", "select pg_drop_replication_slot('kept')")


def test_a_lease_is_measured_and_leaves_nothing(site):
    before = site.psql("leases", "select count(*) from leasehold.scope")
    assert look(site.url())["pair"][0][:2] == ("note", "this role cannot acquire a lease in SQL here, so that it was not measured")
    site.psql("leases", "grant leasehold_client to app")
    try:
        level, words, _ = look(site.url())["pair"][0]
        assert level == "ok" and words.startswith("an acquire and its release take ")
    finally:
        site.psql("leases", "revoke leasehold_client from app")
    assert site.psql("leases", "select count(*) from leasehold.scope") == before


def test_a_crash_would_lose_what_was_committed():
    with pgtest.Cluster(schema=False) as cluster:  # whose fsync is off
        found = look(f"postgresql:///postgres?host={cluster.socket}&user=postgres")
        assert found["crash safety"][0][:2] == ("failed", "fsync is off")


def test_a_database_of_another_encoding(site):
    site.psql("postgres", "create database ascii template template0 encoding 'SQL_ASCII'")
    assert look(site.url("ascii"))["encoding"][0][:2] == ("failed", "the database is encoded in SQL_ASCII")


def test_standbys_are_seen_from_both_sides(site):
    place = rundir.mkdtemp("leasehold-standby-")
    user = pwd.getpwnam("postgres")
    if os.geteuid() == 0:
        os.chown(place, user.pw_uid, user.pw_gid)
    data = os.path.join(place, "data")
    site._run_as_server(["pg_basebackup", "-h", site.socket, "-U", "postgres", "-D", data, "-R", "-X", "stream", "-c", "fast"])
    options = [part for name, value in site.settings.items() for part in ("-c", f"{name}={value.strip(chr(39))}")]
    with open(os.path.join(place, "log"), "wb") as log:
        server = subprocess.Popen(site._as_server(["postgres", "-D", data, "-k", place, *options]), stdout=log, stderr=log)
    try:
        wait_until(lambda: site.psql("postgres", "select count(*) from pg_stat_replication where state = 'streaming'") == "1" and subprocess.run(
            [os.path.join(site.bin, "pg_isready"), "-q", "-h", place], check=False).returncode == 0, 60, "the standby")
        level, words, _ = look(site.url())["standbys"][0]
        assert level == "warning" and "1 standbys are connected, synchronous_standby_names is empty" in words
        found = look(f"postgresql:///leases?host={place}&user=app")
        assert found["primary"][0][:2] == ("failed", "this server is a standby")
        assert found["listen"][0][0] == "failed" and "recovery" in found["listen"][0][1]
    finally:
        server.terminate()
        server.wait(60)
        shutil.rmtree(place)


@contextlib.contextmanager
def pooler(site, mode, size=20):
    port = free_port()
    place = rundir.mkdtemp("lh-pool-")
    os.chmod(place, 0o755)
    config = os.path.join(place, "pgbouncer.ini")
    with open(config, "w", encoding="ascii") as file:
        file.write(f"[databases]\nleases = user=app host={site.socket}\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\n"
                   f"unix_socket_dir =\nauth_type = any\npool_mode = {mode}\ndefault_pool_size = {size}\n"
                   "ignore_startup_parameters = extra_float_digits,options\n")
    user = pwd.getpwnam("postgres")
    account = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": [user.pw_gid]} if os.geteuid() == 0 else {}
    process = subprocess.Popen(["/usr/sbin/pgbouncer", "-q", config], cwd="/", **account)
    try:
        wait_until(lambda: socket.socket().connect_ex(("127.0.0.1", port)) == 0, 30, "PgBouncer")
        yield f"host=127.0.0.1 port={port} dbname=leases user=app"
    finally:
        process.terminate()
        process.wait(30)
        shutil.rmtree(place)


@pytest.mark.parametrize("mode, size, level, words", [
    ("session", 20, "ok", "a pooler is between, in session mode"),
    ("transaction", 20, "failed", "a pooler gives each transaction another session"),
    ("transaction", 1, "failed", "a second session waits while the first is in a transaction"),
])
def test_a_pooler_is_named_by_its_mode(site, mode, size, level, words):
    with pooler(site, mode, size) as url:
        found = look(url, None, "--timeout", "2s")
    assert found["pooler"][0][:2] == (level, words)
    assert (found["listen"][0][0] == "ok") == (mode == "session")


def test_no_database_and_no_server_are_told_apart_from_a_bad_one(site):
    assert cli("check-database").returncode == 2
    gone = cli("check-database", "--database", f"postgresql:///none?host={site.socket}&user=app")
    assert gone.returncode == 5 or gone.returncode == 1
    assert "none" in gone.stderr
    assert cli("check-database", "--database", "host=/nonexistent user=app").returncode == 5
