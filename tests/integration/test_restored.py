"""A dump that is restored without owners and rights, as managed servers ask for: everybody may call everything, everything is the restorer's.
Daemon and command line say so, and `leasehold migrate --repair` puts it right."""
import subprocess
import urllib.request

import pytest

import harness
from commandline import cli
from harness import acquire_request, wait_until

# Everything that the two schemas have, with its owner and its rights.
CATALOG = """
select string_agg(x, E'\\n' order by x) from (
  select format('%s %s %s %s', kind, name, pg_get_userbyid(owner),
                (select string_agg(format('%s:%s by %s%s', coalesce(g.rolname, 'public'), a.privilege_type, pg_get_userbyid(a.grantor),
                                          case when a.is_grantable then '*' end), ' '
                                   order by g.rolname, a.privilege_type)
                   from aclexplode(acl) a left join pg_roles g on g.oid = a.grantee))
    from (select 'schema' as kind, nspname::text as name, nspowner as owner, nspacl as acl from pg_namespace where nspname ~ '^leasehold'
          union all
          select 'function', p.oid::regprocedure::text, proowner, proacl from pg_proc p where pronamespace::regnamespace::text ~ '^leasehold'
          union all
          select c.relkind::text, c.oid::regclass::text, relowner, coalesce(relacl, acldefault(case relkind when 'S' then 's' else 'r' end::"char", relowner)) from pg_class c
           where relnamespace::regnamespace::text ~ '^leasehold' and relname !~ '_[0-9]{8}'
          union all
          select 'column', attrelid::regclass || '.' || attname, relowner, attacl from pg_attribute t join pg_class c on c.oid = attrelid
           where relnamespace::regnamespace::text ~ '^leasehold' and attacl is not null
          union all
          select 'type', t.oid::regtype::text, typowner, typacl from pg_type t
           where typnamespace::regnamespace::text ~ '^leasehold' and typname !~ '_[0-9]{8}') o) y (x)"""


def migrate(cluster, database, *more):
    return cli("migrate", *more, "--database", cluster.url(database))


@pytest.fixture
def restored(cluster):
    """(a fresh installation, the same restored without owners and rights)"""
    fresh, restored = cluster.create_database(), cluster.create_database()
    assert migrate(cluster, fresh).returncode == 0
    cluster.psql("select leasehold.set_policy('kept', history => true); select leasehold.acquire('kept', 'k', '1 h', owner => 'w')", fresh)
    dump = subprocess.run([harness._pg_bin() + "/pg_dump", "--no-owner", "--no-privileges", "-d", cluster.url(fresh)],
                          stdout=subprocess.PIPE, text=True, check=True).stdout
    cluster.psql(dump, restored)
    return fresh, restored


def readyz(daemon):
    with urllib.request.urlopen(f"http://127.0.0.1:{daemon.admin_port}/readyz", timeout=10) as answer:
        return answer.read().decode()


def metric(daemon, name):
    with urllib.request.urlopen(f"http://127.0.0.1:{daemon.admin_port}/metrics", timeout=10) as answer:
        return next(line.split()[-1] for line in answer.read().decode().splitlines() if line.startswith(name + " "))


def test_a_restore_without_owners_and_rights_is_told_and_put_right(cluster, restored):
    fresh, database = restored
    assert cluster.psql(CATALOG, database) != cluster.psql(CATALOG, fresh)
    told = migrate(cluster, database)
    assert told.returncode == 0 and "owners and rights in the schema are not as Leasehold made them" in told.stdout, told.stdout
    assert "run leasehold migrate --repair" in migrate(cluster, database, "--status").stdout
    daemon = harness.Daemon(database=cluster.url(database))
    try:
        assert "are not as Leasehold made them" in daemon.log()
        wait_until(lambda: "\nwarning: " in readyz(daemon), what="a warning in /readyz")
        assert readyz(daemon).startswith("ready ") and "run leasehold migrate --repair" in readyz(daemon)
        status = cli("status", "--server", daemon.target)
        assert status.returncode == 0 and "are not as Leasehold made them" in status.stdout, status.stdout
        assert metric(daemon, "leasehold_database_privileges_wrong") == "1"

        done = migrate(cluster, database, "--repair")
        assert done.returncode == 0 and "owners and rights were put right" in done.stdout, done.stderr
        wait_until(lambda: "warning" not in readyz(daemon), 60, what="a warning that is over")
        assert metric(daemon, "leasehold_database_privileges_wrong") == "0"
        assert "warning" not in cli("status", "--server", daemon.target).stdout
    finally:
        daemon.stop()
        daemon.destroy()
    assert cluster.psql(CATALOG, database) == cluster.psql(CATALOG, fresh)
    assert migrate(cluster, database).stdout == "the schema is up to date\n"
    assert migrate(cluster, database, "--repair").stdout == "0 owners and rights were put right\n"
    assert cluster.psql("select owner from leasehold.lease", database) == "w"


def test_a_role_of_a_daemon_hears_why_it_may_do_nothing(cluster, restored):
    fresh, database = restored
    cluster.psql(f"create role served login; grant leasehold_coordinator to served; grant connect on database {database} to served", database)
    said = cli("migrate", "--status", "--database", cluster.url(database, user="served"))
    assert said.returncode == 1 and "permission denied" in said.stderr and "run leasehold migrate --repair" in said.stderr, said.stderr


def test_rights_of_a_sites_own_roles_are_left_alone(cluster, restored):
    fresh, database = restored
    assert migrate(cluster, database, "--repair").returncode == 0
    cluster.psql("create role dashboard login; grant usage on schema leasehold to dashboard; grant select on leasehold.coordinator to dashboard", database)
    assert migrate(cluster, database).stdout == "the schema is up to date\n"
    assert migrate(cluster, database, "--repair").stdout == "0 owners and rights were put right\n"
    assert cluster.psql("select count(*) from leasehold.coordinator", database, user="dashboard") == "0"
    # But not one of ours too many, nor one too few.
    cluster.psql("grant execute on function leasehold.reap(text[], boolean, integer) to leasehold_client; revoke select on leasehold.history from leasehold_reader", database)
    assert "2 owners and rights in the schema are not as Leasehold made them (leasehold_client should not have the right execute on function leasehold.reap" in migrate(cluster, database).stdout
    assert migrate(cluster, database, "--repair").stdout == "2 owners and rights were put right\n"


def test_the_repair_is_for_nothing_else(cluster, restored):
    said = migrate(cluster, restored[1], "--repair", "--status")
    assert said.returncode == 2 and "cannot be combined" in said.stderr
