"""The command line as a stranger uses it: the real program against a real daemon and a real PostgreSQL."""
import json
import os
import re
import signal
import subprocess
import uuid

import pytest
from google.protobuf import json_format

import harness
from commandline import SOME_KEY, Shell, cli, ends, environment, start
from harness import pb, wait_until

UUID = re.compile(r"^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$")


# --- one lease from its beginning to its end ---


def test_a_lease_from_acquire_to_release(shell, ns):
    lease = shell.acquire(ns, "k", "--duration", "20s", "--owner", "worker-3", "--label", "team=red", "-l", "x=a=b")
    parsed = json_format.Parse(json.dumps(lease), pb.Lease())
    assert UUID.match(lease["lease_key"]) and int(lease["token"]) > 0 and isinstance(lease["token"], str)
    assert list(parsed.scope.namespace) == ns.split(".") and parsed.scope.key == "k" and parsed.owner == "worker-3"
    assert lease["duration"] == "20s" and dict(parsed.labels) == {"team": "red", "x": "a=b"}
    assert 0 < parsed.remaining.ToTimedelta().total_seconds() <= 20

    said = shell.done("heartbeat", ns, "k", lease["lease_key"])
    assert re.fullmatch(r"renewed: deadline in \S+ s", said.stdout.split(",")[0])
    assert said.stdout.rstrip().endswith("; heartbeat 1")
    again = json.loads(shell.done("heartbeat", ns, "k", lease["lease_key"].upper(), "-o", "json").stdout)
    assert again["outcome"] == "OUTCOME_OK" and again["heartbeats"] == "2"

    card = shell.done("show", ns, "k").stdout
    assert re.search(rf"^lease +{re.escape(ns)}/k$", card, re.M) and re.search(r"^owner +worker-3$", card, re.M)
    assert re.search(r"^state +alive$", card, re.M) and re.search(r"^heartbeats +2, the last ", card, re.M)
    assert re.search(r"^waiters +0$", card, re.M) and lease["lease_key"] not in card

    said = shell.done("release", ns, "k", lease["lease_key"], "--result", '{"rows": 12}')
    assert said.stdout == "released\n"
    said = shell("show", ns, "k")
    assert said.returncode == 4 and re.search(r"^state +free$", said.stdout, re.M)
    assert re.search(rf"^last hold +worker-3, token {lease['token']}, released, ", said.stdout, re.M)
    assert json.loads(re.search(r"^result +(.*)$", said.stdout, re.M).group(1)) == {"rows": 12}


def test_acquire_prints_text_for_people(shell, ns):
    card = shell.done("acquire", ns, "k", "--wait", "5s").stdout
    for line in (rf"lease +{re.escape(ns)}/k", r"lease key +\S{36}", r"token +\d+", r"owner +\S+@\S+",
                 r"duration +30 s", r"deadline +in (29|30) s, \d{4}-.* UTC"):
        assert re.search(rf"^{line}$", card, re.M), card


def test_acquire_prints_env_for_eval(shell, ns):
    key, owner = "it's $HOME `x` \"2\"", "a b\nc"
    said = shell.done("acquire", ns, key, "-o", "env", "--owner", owner)
    script = said.stdout + '\nprintf "%s\\n" "$LEASEHOLD_NAMESPACE" "$LEASEHOLD_KEY" "$LEASEHOLD_LEASE_KEY" ' \
                           '"$LEASEHOLD_TOKEN" "$LEASEHOLD_OWNER"'
    values = subprocess.run(["/bin/sh", "-c", script], check=True, stdout=subprocess.PIPE, text=True).stdout.split("\n")
    assert values[0] == ns and values[1] == key and UUID.match(values[2]) and int(values[3]) > 0
    assert values[4:6] == ["a b", "c"]
    shell.done("release", ns, key, values[2])


def test_release_with_an_error_is_kept(shell, ns):
    lease = shell.acquire(ns, "k")
    assert shell.done("release", ns, "k", lease["lease_key"], "--fail", "bank is closed").stdout == "released, as failed\n"
    said = shell("show", ns, "k", "-o", "json")
    last = json.loads(said.stdout)["last"]
    assert said.returncode == 4 and last["error"] == "bank is closed" and last["end_reason"] == "END_REASON_FAILED"


def test_options_go_before_and_after_the_command(service, ns):
    said = cli("-ojson", "--server", service.daemon.target, "acquire", ns, "-d", "5s", "--", "-k")
    assert said.returncode == 0 and json.loads(said.stdout)["scope"]["key"] == "-k"
    assert cli("show", "--server=" + service.daemon.target, ns, "--", "-k").returncode == 0


def test_a_lease_that_cannot_be_printed_is_given_back(shell, ns):
    with open("/dev/full", "w") as full:
        done = subprocess.run([harness.CLI, "acquire", ns, "k"], stdout=full, stderr=subprocess.PIPE, text=True,
                              env=environment(**shell.env), timeout=60)
    assert done.returncode == 1 and "cannot write the output" in done.stderr
    assert shell("show", ns, "k").returncode == 4


# --- exit statuses ---


def test_held_says_who_holds_it(shell, ns):
    lease = shell.acquire(ns, "k", "--owner", "worker-3\x1b[2J")
    shell.done("heartbeat", ns, "k", lease["lease_key"])
    said = shell("acquire", ns, "k")
    assert said.returncode == 3 and said.stdout == ""
    assert "is held by worker-3" in said.stderr and "use --wait 30s to queue for it" in said.stderr
    assert "\x1b" not in said.stderr
    for line in (rf"  holder +worker-3\S+, alive, token {lease['token']}", r"  held +for .*, since .* UTC",
                 r"  heartbeats +1, the last .* ago", r"  waiters +0 ahead"):
        assert re.search(rf"^{line}$", said.stderr, re.M), said.stderr


def test_a_wait_that_passes_is_held(shell, ns):
    shell.acquire(ns, "k")
    said = shell("acquire", ns, "k", "--wait", "300ms")
    assert said.returncode == 3 and "alive" in said.stderr
    shell.is_waiting(ns, "k", 0)


def test_the_same_lease_key_renews(shell, ns):
    first = shell.acquire(ns, "k", "--duration", "10s")
    second = shell.acquire(ns, "k", "--duration", "40s", "--lease-key", first["lease_key"], "--owner", "another")
    assert second["token"] == first["token"] and second["duration"] == "40s" and second["owner"] == "another"


def test_lost_and_ended_leases(shell, ns):
    lease = shell.acquire(ns, "k")
    said = shell("heartbeat", ns, "k", SOME_KEY)
    assert said.returncode == 4 and "this lease key does not hold the lease" in said.stderr
    said = shell("release", ns, "k", SOME_KEY)
    assert said.returncode == 4 and "this lease key does not hold the lease" in said.stderr
    shell.done("release", ns, "k", lease["lease_key"])
    said = shell("release", ns, "k", lease["lease_key"])
    assert said.returncode == 4 and "already released (released)" in said.stderr
    said = shell("heartbeat", ns, "k", lease["lease_key"], "-o", "json")
    assert said.returncode == 4 and json.loads(said.stdout)["end_reason"] == "END_REASON_RELEASED"
    said = shell("acquire", ns, "k", "--lease-key", lease["lease_key"])
    assert said.returncode == 4 and "use a new one, or none" in said.stderr
    assert shell("show", ns, "never-heard-of").returncode == 4


def test_an_expired_lease_is_lost(shell, ns):
    lease = shell.acquire(ns, "k", "--duration", "1s")
    wait_until(lambda: shell("show", ns, "k").returncode == 4, what="the reaper")
    said = shell("heartbeat", ns, "k", lease["lease_key"])
    assert said.returncode == 4 and "(expired)" in said.stderr


def test_a_frozen_namespace_and_a_used_up_quota_fail(shell, ns):
    shell.done("policy", "set", ns, "frozen=true")
    said = shell("acquire", ns, "k")
    assert said.returncode == 1 and "frozen" in said.stderr and "frozen=false" in said.stderr
    shell.done("policy", "set", ns, "frozen=no", "max_leases=1")
    shell.acquire(ns, "k")
    said = shell("acquire", ns, "k2")
    assert said.returncode == 1 and "policy show" in said.stderr


def test_bounds_of_the_policy_are_wrong_usage(shell, ns):
    said = shell("acquire", ns, "k", "--duration", "2d")
    assert said.returncode == 2 and "duration" in said.stderr
    said = shell("policy", "set", ns, "min_duration=1ms")
    assert said.returncode == 2 and "min_duration" in said.stderr


# --- waiting ---


def test_a_waiter_gets_the_lease_when_it_is_released(shell, ns):
    first = shell.acquire(ns, "k")
    waiter = shell.start("acquire", ns, "k", "--wait", "1m", "-o", "json")
    shell.is_waiting(ns, "k")
    assert re.search(r"^waiters +1$", shell.done("show", ns, "k").stdout, re.M)
    shell.done("release", ns, "k", first["lease_key"])
    assert ends(waiter) == 0
    second = json.loads(waiter.stdout_text)
    assert int(second["token"]) > int(first["token"])
    shell.done("heartbeat", ns, "k", second["lease_key"])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("wait", ["forever", "1h", "alive"])
def test_a_signal_leaves_the_queue(shell, ns, number, wait):
    shell.acquire(ns, "k")
    waiter = shell.start("acquire", ns, "k", "--wait", wait)
    shell.is_waiting(ns, "k")
    waiter.send_signal(number)
    assert ends(waiter) == 128 + number
    assert waiter.stdout_text == "" and "left the queue" in waiter.stderr_text
    shell.is_waiting(ns, "k", 0)


def test_a_wait_while_the_holder_is_alive_ends_when_it_falls_silent(shell, ns):
    shell.done("policy", "set", ns, "dead_after=500ms")
    shell.acquire(ns, "k", "--duration", "1h")
    said = shell("acquire", ns, "k", "--wait", "alive")
    assert said.returncode == 3 and "suspected dead" in said.stderr


def test_a_wait_outlasts_the_servers_blocking_limit(cluster, service, ns):
    daemon = harness.Daemon("--max-block", "300ms", database=cluster.url(service.database))
    try:
        shell = Shell(service)
        shell.env = {"LEASEHOLD_SERVER": daemon.target}
        first = shell.acquire(ns, "k", "--duration", "1m")
        waiter = shell.start("acquire", ns, "k", "--wait", "forever")
        brief = shell("acquire", ns, "k", "--wait", "1s")
        assert brief.returncode == 3 and "blocking limit" not in brief.stderr
        shell.is_waiting(ns, "k")
        assert waiter.poll() is None
        shell.done("release", ns, "k", first["lease_key"])
        assert ends(waiter) == 0
    finally:
        daemon.destroy()


def test_a_wait_outlives_its_daemon(cluster, service, ns):
    """The daemon is killed while somebody waits, and comes back on the same port."""
    daemon = harness.Daemon(database=cluster.url(service.database))
    try:
        shell = Shell(service)
        first = shell.acquire(ns, "k", "--duration", "10m")
        waiter = start("acquire", ns, "k", "--wait", "2m", "-o", "json", LEASEHOLD_SERVER=daemon.target)
        shell.is_waiting(ns, "k")
        daemon.kill()
        line = waiter.stderr.readline()
        assert daemon.target in line and "still waiting" in line
        daemon.start()
        shell.done("release", ns, "k", first["lease_key"])
        assert ends(waiter) == 0
        lease = json.loads(waiter.stdout_text)
        shell.done("heartbeat", ns, "k", lease["lease_key"])
    finally:
        daemon.destroy()


# --- list ---


def test_list_is_an_aligned_table(shell, ns):
    shell.acquire(ns + ".b", "second", "--owner", "für-2")
    shell.acquire(ns, "first", "--owner", "worker-1")
    lines = shell.done("list", ns, "--children").stdout.splitlines()
    assert lines[0].split() == "NAMESPACE KEY STATE HELD REMAINING TOKEN OWNER PRINCIPAL HEARTBEATS MODE UNITS SLOTS".split()
    assert [line.split()[1] for line in lines[1:]] == ["first", "second"]
    column = lines[0].index("STATE")
    assert all(line[column:].startswith("alive") for line in lines[1:])
    assert [line.split()[1] for line in shell.done("list", ns).stdout.splitlines()[1:]] == ["first"]
    mine = json.loads(shell.done("list", "--owner", "für-2", "-o", "json").stdout)
    assert [lease["scope"]["key"] for lease in mine["leases"]] == ["second"] and mine["next_page_token"] == ""
    assert mine["leases"][0]["lease_key"] == ""


def test_list_of_nothing_is_done(shell, ns):
    said = shell.done("list", ns)
    assert said.stdout == "" and said.stderr == "no lease is held\n"
    assert json.loads(shell.done("list", ns, "-o", "json").stdout) == {"leases": [], "next_page_token": "", "partial": False}


def test_list_goes_through_all_pages(shell, service, ns):
    for first in range(0, 1002, 334):
        service.psql(f"select count(*) from generate_series({first}, {first + 333}) n, "
                     f"leasehold.acquire('{ns}', 'k' || lpad(n::text, 5, '0'), '1 h')")
    listed = json.loads(shell.done("list", ns, "-o", "json").stdout)["leases"]
    assert [lease["scope"]["key"] for lease in listed] == [f"k{n:05}" for n in range(1002)]
    assert len(shell.done("list", ns).stdout.splitlines()) == 1003


# --- status and migrate ---


def test_status_tells_about_the_daemon(shell, service):
    said = shell.done("status").stdout
    assert re.search(rf"^server +{service.daemon.target}$", said, re.M) and re.search(r"^version +0\.", said, re.M)
    status = json.loads(shell.done("status", "-o", "json").stdout)
    assert status["schema_version"] >= 1 and status["max_block"] == "20s" and int(status["timeline"]) >= 1
    assert uuid.UUID(status["coordinator_id"]) and isinstance(status["waiters"], str)


@pytest.fixture
def database(cluster):
    """Without the schema."""
    return cluster.create_database()


def test_migrate_brings_a_schema_up(cluster, database):
    url = cluster.url(database)
    said = cli("reap", "--database", url)
    assert said.returncode == 1 and "leasehold migrate" in said.stderr
    pending = cli("migrate", "--status", "--database", url)
    assert pending.returncode == 0 and "pending" in pending.stdout
    assert cluster.psql("select count(*) from pg_namespace where nspname = 'leasehold'", database) == "0"
    assert cli("migrate", LEASEHOLD_DATABASE=url).returncode == 0
    assert "pending" not in cli("migrate", "--status", "--database", url).stdout
    assert cli("reap", "--database", url).stdout == "reaped 0 leases\n"
    assert cli("migrate", "--database", url).stdout == "the schema is up to date\n"


@pytest.mark.parametrize("rights", ["createrole", "nocreaterole"])
def test_migrate_prints_a_script_for_psql(cluster, database, tmp_path, rights):
    """The owner of a database needs CREATEROLE, or the roles and a membership in leasehold_owner; never a superuser. Again: no harm."""
    script = tmp_path / "leasehold.sql"
    script.write_text(cli("migrate", "--print").stdout)
    installer = "installer_" + rights
    cluster.psql(f"create role {installer} login {rights}; alter database {database} owner to {installer}", "postgres")
    if rights == "nocreaterole":
        cluster.psql(f"do $$ begin create role leasehold_owner; exception when duplicate_object then null; end $$;"
                     f"grant leasehold_owner to {installer}", "postgres")
        for name in ("client", "reader", "coordinator", "admin"):
            cluster.psql(f"do $$ begin create role leasehold_{name}; exception when duplicate_object then null; end $$", "postgres")

    def install(*options, settings="", then="select 1"):
        done = subprocess.run(["psql", "-XAtq", "-v", "ON_ERROR_STOP=1", *options, "-f", script, "-c", then, "-d", cluster.url(database, installer)],
                              capture_output=True, text=True, env={**os.environ, "PGOPTIONS": settings})
        return done.returncode, done.stdout.strip(), done.stderr

    code, _, words = install(settings="-c default_transaction_isolation=serializable")
    assert code == 3 and "cannot be installed in a transaction that is SERIALIZABLE" in words
    code, _, words = install("-1", then="select 1 / 0")  # the script does not end the transaction of psql
    assert code == 1 and "division by zero" in words
    assert cluster.psql("select count(*) from pg_namespace where nspname ~ 'leasehold'", database) == "0"
    settings = "select session_user = current_user, current_setting('search_path'), current_setting('work_mem'), current_setting('client_min_messages')"
    assert install("-1", then=settings) == (0, "t|\"$user\", public|4MB|notice", "")  # psql prints nothing, and all is set as before
    lease = cluster.psql("select lease_key from leasehold.acquire('payments', 'invoice-42', '30 s')", database)
    before = cluster.psql("select array_agg(m order by number) from leasehold.migration m", database)
    assert install("-1") == install() == (0, "1", "")
    assert cluster.psql("select array_agg(m order by number) from leasehold.migration m", database) == before
    assert cluster.psql("select lease_key from leasehold.lease", database) == lease
    assert "pending" not in cli("migrate", "--status", "--database", cluster.url(database)).stdout
    cluster.psql(f"alter database {database} owner to postgres; grant leasehold_owner to postgres", "postgres")
    cluster.psql(f"drop role {installer}", "postgres")
