"""docs/run/extension.md: its SQL by roles that are no superusers, a daemon that notices, what steps aside, dumps, and where meson installs.

The extension is a real one: Debian's PostgreSQL looks for it below `extension_destdir`, so nothing is put into the system's directories.
"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import threading
import urllib.request

import pytest

import harness
from commandline import cli
from harness import acquire_request, heartbeat, pb, release_request, wait_until
import rundir

PAGE = (harness.ROOT / "docs/run/extension.md").read_text()
ROLES = ("leasehold_owner", "leasehold_client", "leasehold_reader", "leasehold_coordinator", "leasehold_admin")
SOON_S = 10


def block(language, word):
    found = [text for text in re.findall(rf"```{language}\n(.*?)```", PAGE, re.S) if word in text]
    assert len(found) == 1, word
    return found[0]


CREATE, DROP, UPDATE = block("sql", "create extension"), block("sql", "drop extension"), block("sql", "alter extension")
TROUBLE, REVOKE = block("sql", "trouble()"), block("sql", "revoke usage")
FUNCTIONS = """create schema leasehold_core;
create function leasehold_core.acquire_items() returns int language sql as 'select 1';
create function leasehold_core.heartbeat_batch() returns int language sql as 'select 1';
create function leasehold_core.release_batch() returns int language sql as 'select 1';
create function leasehold_core.trouble() returns text language sql as 'select ''foreign code''';
grant usage on schema leasehold_core to public;"""


class Site:
    """A cluster with the extension's files, a database that an ordinary role has installed, and roles as the pages say."""

    def __init__(self):
        self.destination = pathlib.Path(rundir.mkdtemp("lh-dest-"))
        self.destination.chmod(0o755)
        self.module = self.place("--pkglibdir") / "leasehold_core.so"
        self.cluster = harness.Cluster([f"extension_destdir = '{self.destination}'", "track_functions = 'all'"])
        self.put_module()
        for name in ("leasehold_core.control", "leasehold_core--1.sql"):
            shutil.copy(harness.ROOT / "src/extension" / name, self.place("--sharedir", "extension"))
        self.cluster.psql("create role installer login createrole; create role mallory login", "postgres")

    def place(self, option, *more):
        directory = subprocess.run([os.path.join(harness._pg_bin(), "pg_config"), option], stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
        path = self.destination.joinpath(directory.lstrip("/"), *more)
        path.mkdir(parents=True, exist_ok=True)
        return path

    def put_module(self):
        major = re.search(r" (\d+)", self.cluster._run("postgres", "--version").stdout)[1]
        # A build with sanitizers has none: a server does not start with them.
        found = [path for build in (harness.BUILD, harness.ROOT / "build") for path in build.glob(f"src/extension/leasehold_core-{major}.so")]
        assert found, f"no leasehold_core-{major}.so is built: are the headers of the server installed?"
        fresh = self.module.with_suffix(".new")
        shutil.copy(found[0], fresh)
        fresh.rename(self.module)

    def database(self):
        name = self.cluster.create_database()
        self.cluster.psql(f"alter database {name} owner to installer", "postgres")
        return name

    def install(self):
        name = self.database()
        done = cli("migrate", "--database", self.cluster.url(name, "installer"))
        assert done.returncode == 0, done.stderr
        self.cluster.psql("do $$ begin create role lease_daemon login in role leasehold_coordinator; exception when duplicate_object then null; end $$", name)
        return name

    def psql(self, sql, database, user="installer", **more):
        return self.cluster.psql(sql, database, user=user, **more)

    def daemon(self, database):
        return harness.Daemon("--migrate", "no", database=self.cluster.url(database, "lease_daemon"))


@pytest.fixture(scope="module")
def site():
    site = Site()
    yield site
    site.cluster.destroy()
    shutil.rmtree(site.destination)


@pytest.fixture
def place(site):
    """(site, a fresh database, a daemon on it)"""
    database = site.install()
    daemon = site.daemon(database)
    yield site, database, daemon
    assert daemon.stop() == 0, daemon.log()
    daemon.destroy()


def common_path(daemon):
    """Empty while a daemon that has just started has not reached its database."""
    return "".join(re.findall(r"^common path +(.+)$", cli("status", LEASEHOLD_SERVER=daemon.target).stdout, re.M))


def becomes(daemon, pattern):
    """`leasehold status` says so within seconds, and the log has the same words."""
    wait_until(lambda: re.fullmatch(pattern, common_path(daemon)), SOON_S, f"the common path {pattern!r}, {common_path(daemon)!r} now,")
    assert re.search(f"common path: {pattern}$", daemon.log(), re.M)


def metric(daemon):
    with urllib.request.urlopen(f"http://127.0.0.1:{daemon.admin_port}/metrics", timeout=30) as answer:
        return re.search(r"^leasehold_core_used\S* (\d)$", answer.read().decode(), re.M)[1]


def pair(client, key):
    lease = client.lease.Acquire(acquire_request("page", key)).lease
    assert heartbeat(client, lease).outcome == pb.OUTCOME_OK, key
    client.lease.Release(release_request(lease))


class Load:
    """Acquire, heartbeat, release in a loop; any error ends it, and is raised at the end of the block."""

    def __init__(self, daemon):
        self.client = harness.Client(daemon.target)
        self.count, self.error, self.is_over = 0, None, False
        self.thread = threading.Thread(target=self.run)

    def run(self):
        try:
            while not self.is_over:
                pair(self.client, f"k{self.count % 5}")
                self.count += 1
        except Exception as error:
            self.error = error

    def goes_on(self):
        before = self.count
        wait_until(lambda: self.error or self.count > before + 20, 30, "the load goes on")

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *unused):
        self.is_over = True
        self.thread.join(60)
        self.client.close()
        assert self.error is None, self.error


def test_a_daemon_notices_that_it_comes_and_goes(place):
    site, database, daemon = place
    calls = "select coalesce(sum(calls), 0) from pg_stat_user_functions where schemaname = 'leasehold_core' and funcname <> 'trouble'"
    with Load(daemon) as load:
        becomes(daemon, "SQL functions")
        load.goes_on()
        assert (metric(daemon), site.psql(calls, database)) == ("0", "0")
        site.psql(CREATE, database)
        becomes(daemon, "leasehold_core")
        load.goes_on()
        assert metric(daemon) == "1"
        assert site.psql(TROUBLE, database) == ""
        site.psql(REVOKE, database)
        becomes(daemon, "SQL functions, not leasehold_core: the role lease_daemon may not use it")
        load.goes_on()
        site.psql(REVOKE.replace("revoke", "grant").replace(" from ", " to "), database)
        becomes(daemon, "leasehold_core")
        site.psql(UPDATE, database)
        load.goes_on()
        site.psql(DROP, database)
        becomes(daemon, "SQL functions")
        load.goes_on()
        # The schema stays, and is used again.
        site.psql(CREATE, database)
        becomes(daemon, "leasehold_core")
        load.goes_on()
    wait_until(lambda: int(site.psql(calls, database)) > 0, what="calls of the extension are counted")


def test_it_needs_the_roles_and_grants_to_them_alone(site):
    other = harness.Cluster([f"extension_destdir = '{site.destination}'"])
    try:
        said = other.psql(CREATE, "postgres", check=False)
        assert "the role leasehold_owner is missing" in said.stderr and "leasehold migrate" in said.stderr
    finally:
        other.destroy()
    database = site.install()
    site.psql(CREATE, database)
    site.psql("create role dba login in role leasehold_admin", database, user="postgres")
    assert "no daemon has noticed yet" in site.psql(TROUBLE, database, user="dba")
    assert "permission denied for schema" in site.psql(TROUBLE, database, user="mallory", check=False).stderr
    assert site.psql("select rolsuper from pg_roles where rolname = 'installer'", database) == "f"


def test_without_the_module_sql_functions_serve(place):
    site, database, daemon = place
    site.psql(CREATE, database)
    becomes(daemon, "leasehold_core")

    def serves(key):
        client = harness.Client(daemon.target)
        pair(client, key)
        client.close()

    try:
        site.module.unlink()
        serves("loaded")
        daemon.stop()
        daemon.start()
        becomes(daemon, r"SQL functions, not leasehold_core: could not access file .*leasehold_core.*")
        serves("gone")
        # Of another build, or another PostgreSQL.
        subprocess.run(["cc", "-shared", "-o", site.module, "-xc", "/dev/null"], check=True)
        site.module.chmod(0o755)
        becomes(daemon, r"SQL functions, not leasehold_core: incompatible library .*")
        serves("incompatible")
        daemon.stop()
        daemon.start()
        serves("incompatible from the start")
    finally:
        site.put_module()
    becomes(daemon, "leasehold_core")
    serves("back")


def test_a_module_that_only_loaded_sessions_have_is_let_be(place):
    """The control connection has loaded it, and says at each tick that it is there; the lanes come back and find no file."""
    site, database, daemon = place
    site.psql(CREATE, database)
    becomes(daemon, "leasehold_core")
    lanes = "pid in (select pid from pg_stat_activity where usename = 'lease_daemon' and datname = current_database() and query not like '%coordinator_tick%')"
    ticks = lambda: site.psql("select max(seen_at) from leasehold.coordinator", database, user="postgres")
    client = harness.Client(daemon.target)
    try:
        first = ticks()
        wait_until(lambda: ticks() != first, what="a tick")
        site.module.unlink()
        site.psql(f"select pg_terminate_backend(pid) from pg_stat_activity where {lanes}", database, user="postgres")
        wait_until(lambda: pair(client, "k") or common_path(daemon) != "leasehold_core", what="a lane finds that it is gone")
        told = daemon.log().count("common path:")
        for _ in range(3):
            before = ticks()
            wait_until(lambda: pair(client, "k") or ticks() != before, what="a tick")
        assert daemon.log().count("common path:") == told and "could not access file" in common_path(daemon)
    finally:
        site.put_module()
        client.close()


def test_a_schema_of_a_stranger_is_left_alone(place):
    site, database, daemon = place
    site.cluster.psql(f"grant create on database {database} to mallory", "postgres")
    site.psql(FUNCTIONS, database, user="mallory")
    becomes(daemon, "SQL functions, not leasehold_core: its schema belongs to the role mallory, which is no member of leasehold_owner")
    client = harness.Client(daemon.target)
    pair(client, "k")
    client.close()


ASIDE = (
    ("begin isolation level repeatable read", "not READ COMMITTED"),
    ("begin read only", "read-only"),
    ("begin; set local synchronous_commit = off", "synchronous_commit is off"),
    ("begin; create trigger t before update on leasehold.scope for each row execute function suppress_redundant_updates_trigger()",
     "leasehold.scope has triggers"),
    ("begin; create rule r as on delete to leasehold.scope do also select 1", "leasehold.scope has rules"),
    ("begin; alter table leasehold.scope enable row level security", "leasehold.scope has row security"),
    ("begin; create table leasehold.child () inherits (leasehold.scope)", "leasehold.scope has children or parents"),
    ("begin; alter table leasehold.scope add column more text", "leasehold.scope has other columns"),
    ("begin; alter table leasehold.scope drop constraint scope_pkey cascade; alter table leasehold.scope add constraint scope_pkey primary key (key, namespace)",
     "leasehold.scope has another primary key"),
    ("begin; alter table leasehold.scope set unlogged", "leasehold.scope is not logged"),
    ("begin; alter table leasehold.waiter add column more text", "leasehold.waiter has other columns"),
    ("begin; alter table leasehold.coordinator enable row level security", "leasehold.coordinator has row security"),
    ("begin; alter table leasehold.turn enable row level security", "leasehold.turn has row security"),
    ("begin; alter table leasehold.creation enable row level security", "leasehold.creation has row security"),
    ("begin; drop index leasehold.waiter_sql_user", "is missing, or is of another version"),
    ("begin; update leasehold.incarnation set postmaster_start = postmaster_start - interval '1 day'", "new life"),
    ("begin; do $$ begin execute regexp_replace(pg_get_functiondef('leasehold_internal.core_life()'::regprocedure), ', [0-9]+ from', ', 99 from'); end $$",
     "of another contract"),
)


def test_it_steps_aside_where_the_page_says(place):
    site, database, daemon = place
    site.psql(CREATE, database)
    becomes(daemon, "leasehold_core")
    for before, reason in ASIDE:
        said = site.psql(f"{before};\n{TROUBLE}", database, user="postgres")
        assert reason in said, (before, said)
    assert site.psql(TROUBLE, database) == ""


def restore(cluster, database, script, check=True):
    done = subprocess.run([cluster.psql_program, "-Xq", *(["-1", "-v", "ON_ERROR_STOP=1"] if check else []), "-d", cluster.url(database, "installer")],
                          input=script, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=120)
    assert not check or done.returncode == 0, done.stderr
    return done.stderr


def test_dump_and_restore_with_the_module_and_without(place):
    site, database, daemon = place
    site.psql(CREATE, database)
    becomes(daemon, "leasehold_core")
    client = harness.Client(daemon.target)
    lease = client.lease.Acquire(acquire_request("page", "held", 600)).lease
    client.close()

    def dump(*options):
        return subprocess.run([os.path.join(site.cluster.programs, "pg_dump"), *options, "-d", site.cluster.url(database, "installer")],
                              stdout=subprocess.PIPE, text=True, check=True, timeout=120).stdout

    whole = dump()
    assert whole.count("CREATE EXTENSION") == 1 and "CREATE FUNCTION leasehold_core." not in whole
    restored = site.database()
    restore(site.cluster, restored, whole)
    second = site.daemon(restored)
    becomes(second, "leasehold_core")
    client = harness.Client(second.target)
    assert heartbeat(client, lease).outcome == pb.OUTCOME_OK
    assert client.lease.Acquire(acquire_request("page", "new")).lease.token > lease.token
    client.close()
    assert second.stop() == 0, second.log()
    second.destroy()

    bare = harness.Cluster()
    try:
        bare.psql("".join(f"create role {role};" for role in ROLES) + "create role installer login createrole; grant leasehold_owner to installer", "postgres")

        def fresh():
            name = bare.create_database()
            bare.psql(f"alter database {name} owner to installer", "postgres")
            return name

        name = fresh()
        errors = [line for line in restore(bare, name, whole, check=False).splitlines() if "ERROR" in line]
        assert len(errors) == 2 and 'extension "leasehold_core" is not available' in errors[0], errors
        held = "select key from leasehold.lease"
        assert bare.psql(held, name) == "held"
        left_out = re.findall(r"`(?:pg_dump\s)?(--(?:(?:exclude-)?extension|schema)=\S+)`", PAGE)
        assert len(left_out) == 3
        version = int(re.search(r"(\d+)", subprocess.run(["pg_dump", "--version"], stdout=subprocess.PIPE, text=True, check=True).stdout)[1])
        for option in left_out:
            if version >= 17 or "--exclude-extension" not in option:
                name = fresh()
                restore(bare, name, dump(option.replace("'", "")))
                assert bare.psql(held, name) == "held" and bare.psql("select leasehold_internal.core_state()", name) == ""
    finally:
        bare.destroy()


@pytest.mark.release_build
def test_meson_installs_below_its_prefix_unless_told_where(tmp_path):
    """Set up, and not built: it is about places, and about machines without the server's headers."""
    server = subprocess.run(["pg_config", "--pkglibdir"], stdout=subprocess.PIPE, text=True, check=True).stdout.strip()

    def installed(*options, path=""):
        build = tempfile.mkdtemp(dir=tmp_path)
        done = subprocess.run(["meson", "setup", "-Dtests=false", *options, build, harness.ROOT], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, timeout=240, env={**os.environ, "PATH": f"{path}:{os.environ['PATH']}"})
        places = subprocess.run(["meson", "introspect", "--installed", build], stdout=subprocess.PIPE, text=True)
        return done.stdout, list(json.loads(places.stdout).values()) if done.returncode == 0 else None

    home = str(tmp_path / "home")
    places = installed(f"--prefix={home}")[1]
    assert all(place.startswith(home + "/") for place in places)
    assert [place for place in places if "leasehold_core" in place] == [f"{home}/lib/leasehold/leasehold_core-15.so"]
    places = installed(f"--prefix={home}", "-Dpostgresql=pg_config")[1]
    assert f"{server}/leasehold_core.so" in places and len([place for place in places if "leasehold_core" in place]) == 4
    # Debian's pg_config of libpq-dev, on a machine without a server's headers.
    bare = tmp_path / "bin"
    bare.mkdir()
    (bare / "pg_config").write_text('#!/bin/sh\ncase "$1" in\n--includedir-server) echo /nonexistent ;;\n*) exec ' + shutil.which("pg_config") + ' "$@" ;;\nesac\n')
    (bare / "pg_config").chmod(0o755)
    said, places = installed(path=bare)
    assert re.search(r"leasehold_core for PostgreSQL: +none", said) and not [place for place in places if "leasehold_core" in place]
    assert "which has no postgres.h: install them" in installed(f"-Dpostgresql={bare}/pg_config")[0]


def test_every_block_is_run():
    """But for those that install: tests/packages does it with the package."""
    assert len(re.findall(r"^```sql$", PAGE, re.M)) == 5
    assert len(re.findall(r"^```sh$", PAGE, re.M)) == 2
