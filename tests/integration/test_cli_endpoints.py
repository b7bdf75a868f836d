"""Where the command line sends its calls, what it keeps secret, and mistakes with both."""
import json
import pathlib
import subprocess

import pytest

import harness
from commandline import NOWHERE, SOME_KEY, cli, ends, environment, start
from harness import wait_until


# --- servers ---


def test_every_command_takes_several_servers(service, ns):
    servers = f"{NOWHERE},unix:/nonexistent,{service.daemon.target}"
    several = lambda *args: cli("--server", servers, *args)
    lease = json.loads(several("acquire", ns, "k", "-o", "json").stdout)
    for args in (["heartbeat", ns, "k", lease["lease_key"]], ["show", ns, "k"], ["list", ns], ["status"], ["policy", "show", ns],
                 ["policy", "show"], ["reap", ns], ["acquire", ns, "k", "--lease-key", lease["lease_key"]],
                 ["release", ns, "k", lease["lease_key"]], ["run", ns, "k", "--", "true"]):
        said = several(*args)
        assert said.returncode == 0, f"{args}: {said.stderr}"
    lease = json.loads(cli("acquire", ns, "k", "-o", "json", LEASEHOLD_SERVER=servers).stdout)
    assert several("force-release", ns, "k", "--reason", "x", "--token", lease["token"]).returncode == 0
    watch = start("watch", ns, "--server", servers)
    try:
        assert "synced" in watch.stdout.readline()
    finally:
        watch.terminate()
        ends(watch)


def test_a_call_whose_server_stops_goes_to_the_next(service, ns, start):
    first = start(database=service.cluster.url(service.database))
    holder = json.loads(cli("acquire", ns, "k", "-o", "json", "-d", "60s", "--server", service.daemon.target).stdout)
    waiter = subprocess.Popen([harness.CLI, "acquire", ns, "k", "--wait", "50s", "--server", f"{first.target},{service.daemon.target}"],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment())
    count = lambda: service.psql(f"select count(*) from leasehold.waiter where namespace = '{ns}' and away_until is null")
    wait_until(lambda: count() == "1", what="the waiter")
    first.stop()
    assert cli("release", ns, "k", holder["lease_key"], "--server", service.daemon.target).returncode == 0
    assert ends(waiter) == 0, waiter.stderr_text


def test_several_servers_are_checked_one_by_one():
    for servers, wrong in (("a:1,b", "b"), (",a:1", ""), ("a:1,", "")):
        said = cli("list", "--server", servers)
        assert said.returncode == 2 and f"'{wrong}' is not an address of a server" in said.stderr


def test_the_admin_port_is_recognized(service, ns):
    admin = f"127.0.0.1:{service.daemon.admin_port}"
    for args in (["list"], ["acquire", ns, "k"]):
        said = cli(*args, "--server", admin)
        assert said.returncode == 5
        assert f"{admin} answers, but not in HTTP/2, which gRPC needs: it may be the admin port" in said.stderr


def test_a_unix_socket_that_is_not_there_is_named(tmp_path):
    said = cli("status", "--server", f"unix:{tmp_path}/no.sock")
    assert said.returncode == 5 and f"cannot connect to unix:{tmp_path}/no.sock: No such file" in said.stderr


# --- values that a server refuses, and namespaces that look like another ---


@pytest.mark.parametrize("command", [["acquire"], ["run"]])
def test_a_duration_out_of_bounds_says_value_bound_and_policy(shell, ns, command):
    said = shell(*command, ns, "k", "-d", "2d", *(["--", "true"] if command == ["run"] else []))
    assert said.returncode == 2
    assert "duration 2d: " in said.stderr and "1 to 86400 s" in said.stderr
    assert f"leasehold policy show {ns};" in said.stderr and f"leasehold policy set {ns} max_duration=" in said.stderr


def test_a_number_without_a_unit_is_seconds_and_help_says_so(shell, ns):
    assert json.loads(shell.done("acquire", ns, "k", "-d", "30", "-o", "json").stdout)["duration"] == "30s"
    assert "a number without a unit is seconds" in shell("--help").stdout


def test_a_namespace_with_a_slash_is_shown_in_quotes(shell, service, ns):
    service.psql(f"select leasehold.acquire('{ns}/b', 'k', '1 min', owner => 'w')")
    assert f'"{ns}/b"/k' in shell("show", f"{ns}/b", "k").stdout
    assert f'"{ns}/b"  k ' in shell("list", f"{ns}/b").stdout
    said = shell("force-release", f"{ns}/b", "k", "--reason", "x")
    assert said.stdout.startswith(f'ended the lease "{ns}/b"/k of w, token ')
    assert f'lease released by an administrator scope="{ns}/b"/k token=' in service.daemon.log()
    assert f'"{ns}/b"/k' in shell("show", f"{ns}/b", "k").stdout
    for command in (["show"], ["force-release", "--reason", "x"], ["downgrade", SOME_KEY]):
        said = shell(command[0], f"{ns}/b", "none", *command[1:])
        assert said.returncode == 4 and said.stderr.startswith(f'leasehold: lease "{ns}/b"/none is not held')


def test_a_reset_prints_the_settings_that_it_removed(shell, ns):
    shell.done("policy", "set", ns, "grace=5s")
    assert shell.done("policy", "reset", ns).stdout == f"{ns}: grace is now 1.0 s\n"
    again = shell.done("policy", "reset", ns)
    assert again.stdout == "" and again.stderr == f"{ns} has no settings of its own\n"


# --- secrets ---


def test_a_lease_key_comes_from_stdin_or_the_environment(shell, ns):
    lease = shell.acquire(ns, "k")
    piped = lambda *args: subprocess.run([harness.CLI, *args], input=lease["lease_key"] + "\n", text=True, capture_output=True,
                                         timeout=60, env=environment(**shell.env))
    assert piped("heartbeat", ns, "k", "-").returncode == 0
    assert shell("heartbeat", ns, "k", LEASEHOLD_LEASE_KEY=lease["lease_key"]).returncode == 0
    assert shell("heartbeat", ns, "k", SOME_KEY, LEASEHOLD_LEASE_KEY=lease["lease_key"]).returncode == 4
    assert shell("release", ns, "k", LEASEHOLD_LEASE_KEY="nonsense").returncode == 2
    assert shell("release", ns, "k", "-").returncode == 2  # an empty stdin
    assert piped("release", ns, "k", "-").stdout == "released\n"
    lease = shell.acquire(ns, "k")
    assert shell("release", ns, "k", LEASEHOLD_LEASE_KEY=lease["lease_key"]).stdout == "released\n"


def test_the_url_of_the_database_does_not_reach_a_command(stage, shell, ns):
    url = {"LEASEHOLD_DATABASE": stage.url}
    said = shell("run", ns, "k", "--", "sh", "-c", 'echo "<$LEASEHOLD_DATABASE><$LEASEHOLD_KEY>"', **url)
    assert said.stdout == "<><k>\n"
    stage.expire(1)
    said = cli("reap", "--exec", 'echo "<$LEASEHOLD_DATABASE><$LEASEHOLD_KEY>"', **url)
    assert said.returncode == 0 and "<><k1>" in said.stderr


@pytest.mark.parametrize("form", ["--database=postgresql://postgres:hush-hush@/{name}?host={host}",
                                  "--database=host={host} dbname={name} user=postgres password=hush-hush"])
def test_ps_does_not_show_the_password_of_the_database(stage, form):
    stage.expire(1)
    reaper = start("reap", "--every", "100ms", form.format(name=stage.name, host=stage.cluster.sockets))
    try:
        wait_until(lambda: stage.held() == 0, what="the reaper at work")
        shown = pathlib.Path(f"/proc/{reaper.pid}/cmdline").read_bytes()
        assert b"hush-hush" not in shown and b"reap\0--every\0" in shown
    finally:
        reaper.terminate()
        ends(reaper)


def test_what_writes_asks_for_a_server_that_takes_writes(stage):
    """Two hosts, the first of which is read-only, as a standby is."""
    other = harness.Cluster()
    try:
        other.psql(f"create database {stage.name}", "postgres")
        subprocess.run([harness.CLI, "migrate", "--database", other.url(stage.name)], check=True, capture_output=True)
        other.psql(f"alter database {stage.name} set default_transaction_read_only = on", "postgres")
        stage.expire(2)
        both = f"host={other.sockets},{stage.cluster.sockets} dbname={stage.name} user=postgres"
        said = cli("reap", "--database", both)
        assert said.returncode == 0 and said.stdout == "reaped 2 leases\n", said.stderr
        assert cli("policy", "set", "jobs", "grace=5s", "--database", both).returncode == 0
        assert cli("policy", "reset", "jobs", "grace", "--database", stage.url).stdout == "jobs: grace is now 1.0 s\n"
        # A fresh database: the one that takes writes gets the schema.
        for installs in ("migrate", "daemon"):
            fresh = stage.cluster.create_database()
            other.psql(f"create database {fresh}", "postgres")
            other.psql(f"alter database {fresh} set default_transaction_read_only = on", "postgres")
            both = f"host={other.sockets},{stage.cluster.sockets} dbname={fresh} user=postgres"
            if installs == "migrate":
                said = cli("migrate", "--database", both)
                assert said.returncode == 0, said.stderr
            else:
                daemon = harness.Daemon(database=both)
                assert daemon.stop() == 0
                daemon.destroy()
            assert stage.cluster.psql("select to_regnamespace('leasehold') is not null", fresh) == "t"
            assert other.psql("select to_regnamespace('leasehold') is null", fresh) == "t"
    finally:
        other.destroy()
