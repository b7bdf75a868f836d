"""No superuser anywhere: an ordinary owner installs, a member of leasehold_coordinator serves, and a dump is restored."""
import re
import subprocess
import urllib.request

import pytest

import harness
from commandline import cli
from harness import acquire_request, release_request, wait_until

OWNED = ("select count(*) from (select relowner from pg_class where relnamespace = 'leasehold'::regnamespace"
         " union all select proowner from pg_proc where pronamespace in ('leasehold'::regnamespace, 'leasehold_internal'::regnamespace)"
         " union all select nspowner from pg_namespace where nspname = 'leasehold') o (owner)"
         " where owner <> 'leasehold_owner'::regrole")

ACCESS = ("select string_agg(x, ' ' order by x) from (select r::text from leasehold.access_rule r union all select t::text from leasehold.access_token t"
          " union all select a::text from leasehold.audit a union all select s::text from leasehold.access_state s"
          " union all select polname || polrelid::regclass from pg_policy) as x (x)")


@pytest.fixture(scope="module")
def ordinary():
    """A cluster in which nobody but the tests' own look-ups is a superuser."""
    cluster = harness.Cluster()
    cluster.psql("create role installer login createrole; create role server login; create role visitor login", "postgres")
    yield cluster
    cluster.destroy()


def make_database(cluster):
    database = cluster.create_database()
    cluster.psql(f"grant create on database {database} to installer", "postgres")
    return database


def migrate(cluster, database, user="installer", *more):
    return cli("migrate", *more, "--database", cluster.url(database, user=user))


@pytest.mark.parametrize("by", ["migrate", "script"])
def test_a_database_that_allows_no_files_of_its_sessions_is_installed(ordinary, by):
    database = make_database(ordinary)
    ordinary.psql(f"alter database {database} set work_mem = '64kB'; alter database {database} set temp_file_limit = 0", "postgres")
    if by == "migrate":
        said = migrate(ordinary, database)
        assert said.returncode == 0, said.stderr
    else:
        ordinary.psql(cli("migrate", "--print").stdout, database, user="installer")
    assert ordinary.psql("select count(*) > 1 from leasehold.creation", database) == "t"


def test_an_ordinary_owner_installs_serves_dumps_and_restores(ordinary):
    database = make_database(ordinary)
    said = migrate(ordinary, database)
    assert said.returncode == 0, said.stderr
    assert migrate(ordinary, database).stdout == "the schema is up to date\n"
    assert ordinary.psql(OWNED, database) == "0"
    assert ordinary.psql("select rolsuper or rolcanlogin from pg_roles where rolname = 'leasehold_owner'", database) == "f"
    ordinary.psql("grant leasehold_coordinator to server", database, user="installer")
    daemon = harness.Daemon(database=ordinary.url(database, user="server"))
    try:
        client = harness.Client(daemon.target)
        lease = client.lease.Acquire(acquire_request("roles", "k", 30, owner="w")).lease
        done = client.lease.Acquire(acquire_request("roles", "done", 30)).lease
        client.lease.Release(release_request(done))
        ordinary.psql("select leasehold.access_grant('role:visitor', 'roles', 'read'); select leasehold.token_create('ci'); grant leasehold_client to visitor", database)
        kept = ordinary.psql(ACCESS, database)
        dump = subprocess.run([harness._pg_bin() + "/pg_dump", "-d", ordinary.url(database, user="installer")],
                              stdout=subprocess.PIPE, text=True, check=True).stdout
    finally:
        assert daemon.stop() == 0, daemon.log()
        daemon.destroy()
    restored = make_database(ordinary)
    # As pg_restore does: what a member of leasehold_owner may not is an error.
    ordinary.psql(dump, restored, user="installer")
    assert ordinary.psql(OWNED, restored) == "0"
    assert migrate(ordinary, restored).stdout == "the schema is up to date\n"
    assert ordinary.psql(ACCESS, restored) == kept and "token_create" in kept
    assert ordinary.psql("select key from leasehold.lease", restored, user="visitor") == "k"
    said = ordinary.psql("select leasehold.acquire('roles', 'new', '30 s')", restored, user="visitor", check=False)
    assert "access_denied: role:visitor needs the right lease in roles or above" in said.stderr
    daemon = harness.Daemon(database=ordinary.url(restored, user="server"))
    try:
        client = harness.Client(daemon.target)
        again = client.lease.Acquire(acquire_request("roles", "other", 30)).lease
        assert again.token > lease.token
        assert ordinary.psql("select owner from leasehold.lease where key = 'k'", restored) == "w"
    finally:
        assert daemon.stop() == 0, daemon.log()
        daemon.destroy()


def test_what_is_missing_is_said_and_nothing_is_left_behind(ordinary):
    database = ordinary.create_database()
    said = migrate(ordinary, database, "visitor")
    assert said.returncode == 1 and "leasehold_owner" in said.stderr and "leasehold_admin" not in said.stderr, said.stderr
    said = migrate(ordinary, database)
    assert said.returncode == 1 and f"grant create on database {database} to installer" in said.stderr, said.stderr
    assert ordinary.psql("select to_regnamespace('leasehold') is null", database) == "t"


def test_roles_that_are_there_are_enough(ordinary):
    database = make_database(ordinary)
    assert migrate(ordinary, database).returncode == 0  # the roles
    other = ordinary.create_database()
    ordinary.psql(f"grant leasehold_owner to visitor; grant create on database {other} to visitor", "postgres")
    said = migrate(ordinary, other, "visitor")
    assert said.returncode == 0, said.stderr
    assert ordinary.psql(OWNED, other) == "0"
    ordinary.psql("revoke leasehold_owner from visitor", "postgres")


def notifications(daemon):
    text = urllib.request.urlopen(f"http://127.0.0.1:{daemon.admin_port}/metrics", timeout=30).read().decode()
    return int(re.search(r"^leasehold_notifications_total (\d+)$", text, re.M).group(1))


def test_a_role_that_may_only_connect_changes_nothing(ordinary):
    database = make_database(ordinary)
    assert migrate(ordinary, database).returncode == 0
    ordinary.psql("create role stranger login", "postgres")
    ordinary.psql("grant leasehold_coordinator to server", database, user="installer")
    daemon = harness.Daemon(database=ordinary.url(database, user="server"))
    try:
        client = harness.Client(daemon.target)
        lease = client.lease.Acquire(acquire_request("roles", "k", 60)).lease
        waiting = client.lease.Acquire.future(acquire_request("roles", "k", 60, wait_forever=True))
        wait_until(lambda: ordinary.psql("select count(*) from leasehold.waiter", database) == "1", what="a waiter")
        channel = ordinary.psql("select leasehold_internal.channel_of(id, null) from leasehold.coordinator", database)
        stranger = ordinary.session(database, "stranger")
        stranger.run("begin; select pg_advisory_lock(n), pg_advisory_lock(n, n) from generate_series(0, 99) n;"
                     " select pg_advisory_lock(hashtextextended(n, s)), pg_advisory_lock(hashtext(n)) from unnest(array['leasehold', 'leasehold.epoch',"
                     " 'leasehold.watch', 'leasehold.migration', E'roles\\nk', E'roles\\nnew']) n, unnest(array[0, 1818585960]) s")
        for relation in ("scope", "turn", "guard_session", "migration", "lease"):
            assert "permission denied" in stranger.run(f"savepoint s; lock table leasehold.{relation} in access share mode; rollback to s")
        told = ordinary.session(database, "stranger")
        told.run("set leasehold.hooks = 'on'; set leasehold.hook_tokens = ',1,'; set leasehold.ended_by = 'postgres'; set leasehold.lazy = 'on'")
        before = notifications(daemon)
        # Chosen by whoever knows the channel, which only members of our roles can read.
        told.run(f"select pg_notify('{channel}', m || chr(10) || n) from generate_series(1, 200) n, unnest(array[E'roles\\nk', 'roles', '', 'watch', repeat('x', 5000)]) m;"
                 f" select pg_notify('{channel}', m) from unnest(array[E'roles\\nk', 'watch', '', chr(10), 'roles']) m")
        wait_until(lambda: notifications(daemon) >= before + 1005, what="the notifications")
        assert harness.heartbeat(client, lease).outcome == harness.pb.OUTCOME_OK
        assert client.lease.Acquire(acquire_request("roles", "new", 30), timeout=30).lease.token > lease.token
        watch = client.lease.WatchLeases(harness.pb.WatchLeasesRequest(namespace=["roles"]), timeout=60)
        watch.initial_metadata()
        assert migrate(ordinary, database).returncode == 0
        assert not waiting.done()
        client.lease.Release(release_request(lease))
        assert waiting.result(timeout=60).lease.token > lease.token
        assert next(watch).lease.scope.key == "k"
        client.close()
    finally:
        assert daemon.stop() == 0, daemon.log()
        daemon.destroy()


def test_an_installation_of_its_owner_is_taken_over(ordinary):
    database = make_database(ordinary)
    assert migrate(ordinary, database).returncode == 0
    # As it was before there was leasehold_owner: everything belongs to the role that installed it.
    ordinary.psql("do $$ declare s text; begin alter schema leasehold owner to installer;"
                  " for s in select format('alter %s %s owner to installer', case relkind when 'v' then 'view' when 'S' then 'sequence'"
                  " when 'c' then 'type' else 'table' end, oid::regclass) from pg_class c where relnamespace = 'leasehold'::regnamespace"
                  " and relkind in ('r', 'p', 'v', 'S', 'c') and not exists (select from pg_depend d where d.objid = c.oid"
                  " and c.relkind = 'S' and d.deptype in ('a', 'i') and d.refclassid = 'pg_class'::regclass)"
                  " union all select format('alter routine %s owner to installer', oid::regprocedure) from pg_proc"
                  " where pronamespace in ('leasehold'::regnamespace, 'leasehold_internal'::regnamespace) loop execute s; end loop;"
                  " update leasehold.migration set checksum = 'older' where number = 0; end $$", database)
    said = migrate(ordinary, database)
    assert said.returncode == 0, said.stderr
    assert ordinary.psql(OWNED, database) == "0"


def test_a_daemon_that_may_not_migrate_waits_for_the_schema(ordinary):
    database = make_database(ordinary)
    daemon = harness.Daemon("--migrate=no", database=ordinary.url(database, user="installer"), wait=False)
    try:
        wait_until(lambda: "has no schema leasehold: run leasehold migrate" in daemon.log(), 30, "the words")
        assert "serving grpc=" not in daemon.log()
        assert migrate(ordinary, database).returncode == 0
        wait_until(lambda: "serving grpc=" in daemon.log(), 30, "serving")
    finally:
        daemon.stop()
        daemon.destroy()
    ordinary.psql("update leasehold.migration set oldest_daemon = '99.0' where number = 1", database)
    daemon = harness.Daemon("--migrate=no", database=ordinary.url(database, user="installer"), wait=False)
    try:
        wait_until(lambda: daemon.process.poll() is not None, 30, "its end")
        assert daemon.process.returncode == 1 and "the database needs version 99.0 or later" in daemon.log()
    finally:
        daemon.destroy()


def test_the_embedded_daemon_serves_with_a_role_of_its_own(place):
    directory = place / "embedded"
    daemon = harness.Daemon(embedded=directory)
    try:
        client = harness.Client(daemon.target)
        assert client.lease.Acquire(acquire_request("roles", "k", 30)).lease.token > 0

        def psql(sql):
            return subprocess.run(["psql", "-X", "-A", "-t", "-q", "-h", directory / "run", "-U", "leasehold", "-d", "leasehold", "-c", sql],
                                  stdout=subprocess.PIPE, text=True, check=True).stdout.strip()

        assert psql(OWNED) == "0"
        assert psql("select distinct usename from pg_stat_activity where application_name = 'leaseholdd'") == "leasehold_daemon"
        assert psql("select string_agg(roleid::regrole::text, ',') from pg_auth_members where member = 'leasehold_daemon'::regrole") == "leasehold_coordinator"
        assert psql("select pg_has_role('leasehold_owner', 'pg_signal_backend', 'member')") == "t", "it may end the sessions of long guards"
        assert psql("select rolsuper or rolcreaterole or rolcreatedb from pg_roles where rolname = 'leasehold_daemon'") == "f"
        assert psql("select oldest_us >= 0 or oldest_us is null from leasehold_internal.survey()") == "t"
    finally:
        assert daemon.stop(60) == 0, daemon.log()
        daemon.destroy()
