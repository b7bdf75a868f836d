"""How leaseholdd is built and confined: compiler flags, the unit, the user that it becomes, what others can see of it."""
import json
import os
import pathlib
import pwd
import re
import socket
import stat
import subprocess

import pytest

import harness
from harness import wait_until
from test_daemon import acquire, run

UNIT = harness.ROOT / "deploy/systemd/leaseholdd.service"
BUILD = harness.DAEMON.parent.parent.parent


def as_root(test):
    """Only root can become another user: for others there is nothing to test."""
    return test if os.geteuid() == 0 else None


# --- the build ---


def readelf(*args):
    return subprocess.run(["readelf", "-W", *args], stdout=subprocess.PIPE, text=True, check=True).stdout


@pytest.mark.release_build
@pytest.mark.parametrize("program", [harness.DAEMON, harness.CLI], ids=lambda path: path.name)
def test_the_programs_are_hardened(program):
    assert re.search(r"Type:\s+DYN \(Position-Independent", readelf("-h", program))
    segments = readelf("-l", program)
    assert "GNU_RELRO" in segments
    assert re.search(r"GNU_STACK.* RW +0x", segments), "no code on the stack"
    assert not re.search(r"LOAD.* RWE ", segments)
    dynamic = readelf("-d", program)
    assert "BIND_NOW" in dynamic and re.search(r"FLAGS_1.*\bNOW\b.*\bPIE\b", dynamic)
    symbols = readelf("--dyn-syms", program)
    assert "__stack_chk_fail" in symbols
    assert re.search(r"__\w+_chk@", symbols.replace("__stack_chk_fail", "")), "_FORTIFY_SOURCE"
    main = subprocess.run(["objdump", "-d", "--disassemble=main", program], stdout=subprocess.PIPE, text=True, check=True).stdout
    if os.uname().machine == "x86_64":
        assert "endbr64" in main, "-fcf-protection"


@pytest.mark.release_build
def test_every_file_is_compiled_with_the_flags():
    commands = json.loads((BUILD / "compile_commands.json").read_text())
    ours = [each["command"] for each in commands if "/src/" in each["file"] or each["file"].startswith("../src/")]
    assert ours
    for command in ours:
        for flag in ("-fstack-protector-strong", "-fstack-clash-protection", "-fcf-protection", "-D_FORTIFY_SOURCE=2",
                     "-ftrivial-auto-var-init=zero"):
            assert flag in command, command


# --- the unit ---


def unit_settings():
    settings = {}
    for line in UNIT.read_text().splitlines():
        if "=" in line and not line.startswith("#"):
            name, _, value = line.partition("=")
            settings.setdefault(name, []).append(value)
    return settings


def test_the_unit_is_sound_and_confines_the_daemon(tmp_path):
    unit = tmp_path / "leaseholdd.service"
    unit.write_text(UNIT.read_text().replace("/usr/bin/leaseholdd", str(harness.DAEMON)))
    said = subprocess.run(["systemd-analyze", "verify", "--man=no", unit], capture_output=True, text=True)
    assert said.returncode == 0 and "leaseholdd" not in said.stderr, said.stderr
    safe = subprocess.run(["systemd-analyze", "security", "--offline=true", "--threshold=20", unit], capture_output=True, text=True)
    assert safe.returncode == 0, safe.stdout
    settings = unit_settings()
    assert settings["ProtectProc"] == ["invisible"]
    assert settings["MemoryDenyWriteExecute"] == settings["RemoveIPC"] == ["yes"]
    assert "~@privileged @resources" in settings["SystemCallFilter"]
    assert settings["MemoryMax"]
    # RemoveIPC takes what other processes of the same user share, a PostgreSQL of postgres for one.
    assert settings["User"] == ["leasehold"]


def test_the_unit_leaves_the_choice_of_the_database_to_its_file(place):
    """What the unit starts, on a file that names a database: not another one without a word."""
    (place / "leasehold.ini").write_text("[leasehold]\ndatabase = host=db\n")
    (command,) = unit_settings()["ExecStart"]
    arguments = command.replace("/etc/leasehold/leasehold.ini", str(place / "leasehold.ini")).split()[1:]
    done = subprocess.run([harness.DAEMON, *arguments, "--check-config"], capture_output=True, text=True,
                          env={**os.environ, "STATE_DIRECTORY": "/var/lib/leasehold"}, timeout=60)
    assert done.returncode == 0 and "database = host=db" in done.stdout and "embedded" not in done.stdout
    (place / "leasehold.ini").write_text("[leasehold]\n")
    done = subprocess.run([harness.DAEMON, *arguments, "--check-config"], capture_output=True, text=True,
                          env={**os.environ, "STATE_DIRECTORY": "/var/lib/leasehold"}, timeout=60)
    assert "embedded = /var/lib/leasehold" in done.stdout


# --- root ---


def uids(pid):
    return set(re.search(r"^Uid:\t(.*)$", pathlib.Path(f"/proc/{pid}/status").read_text(), re.M).group(1).split())


def gids(pid):
    return set(re.search(r"^Gid:\t(.*)$", pathlib.Path(f"/proc/{pid}/status").read_text(), re.M).group(1).split())


@as_root
def test_a_daemon_of_root_becomes_postgres(cluster, database, start):
    daemon = start(database=cluster.url(database))
    postgres = pwd.getpwnam("postgres")
    assert uids(daemon.process.pid) == {str(postgres.pw_uid)}
    assert gids(daemon.process.pid) == {str(postgres.pw_gid)}
    acquire(daemon, "mine")
    assert daemon.stop() == 0


@as_root
def test_a_daemon_of_root_becomes_the_user_that_is_set(cluster, database, start):
    daemon = start("--user", "nobody", database=cluster.url(database))
    assert uids(daemon.process.pid) == {str(pwd.getpwnam("nobody").pw_uid)}
    assert "started by root, goes on as user nobody" in daemon.log()
    assert daemon.stop() == 0


@as_root
def test_an_embedded_cluster_and_its_daemon_are_one_user(start, place):
    daemon = start(embedded=place / "state")
    postmaster = (place / "state/data/postmaster.pid").read_text().split()[0]
    assert uids(daemon.process.pid) == uids(postmaster) == {str(pwd.getpwnam("postgres").pw_uid)}
    assert daemon.stop() == 0
    refused = run("--embedded", place / "state", "--user", "nobody", "--admin", "none", "--listen", "127.0.0.1:0")
    assert refused.returncode == 1
    assert "user = nobody, but the data belongs to another user" in refused.stderr


@as_root
def test_what_needs_root_is_done_before(cluster, database, place):
    """A privileged port, a socket and a pid file in directories of root; they are gone with the daemon."""
    place.chmod(0o755)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
    process = subprocess.Popen(
        [harness.DAEMON, "--database", cluster.url(database), "--listen", f"127.0.0.1:879,unix:{place}/s.sock", "--socket-mode",
         "0660", "--admin", f"unix:{place}/admin.sock", "--pid-file", place / "pid", "--port-file", place / "port"],
        stderr=subprocess.PIPE, text=True, cwd="/")
    try:
        wait_until(lambda: process.poll() is not None or (place / "port").read_text() if (place / "port").exists() else None,
                   what="the daemon")
        assert (place / "port").read_text() == f"127.0.0.1:879\nunix:{place}/admin.sock\n", process.stderr
        assert "0" not in uids(process.pid)
        found = (place / "s.sock").stat()
        assert stat.S_ISSOCK(found.st_mode) and stat.S_IMODE(found.st_mode) == 0o660
        assert found.st_uid == pwd.getpwnam("postgres").pw_uid
        process.terminate()
        assert process.wait(30) == 0
        assert sorted(path.name for path in place.iterdir()) == ["port"]
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


def test_a_user_that_is_not_there_is_refused(cluster, database):
    done = run("--database", cluster.url(database), "--admin", "none", "--listen", "127.0.0.1:0", "--user", "no-such-user")
    assert done.returncode == 1
    assert "there is no user no-such-user on this machine" in done.stderr


# --- sockets ---


def test_a_plain_file_is_not_taken_for_a_socket(cluster, database, place):
    (place / "precious").write_text("data")
    for option in ("--listen", "--admin"):
        done = run("--database", cluster.url(database), "--listen", "127.0.0.1:0", "--admin", "none", option,
                   f"unix:{place}/precious")
        assert done.returncode == 1
        assert f"cannot listen on unix:{place}/precious: the file there is not a socket" in done.stderr
        assert (place / "precious").read_text() == "data"


def test_a_socket_that_is_served_is_not_taken(cluster, database, start, place):
    with socket.socket(socket.AF_UNIX) as served:
        served.bind(str(place / "s.sock"))
        served.listen()
        done = run("--database", cluster.url(database), "--admin", "none", "--listen", f"unix:{place}/s.sock")
        assert done.returncode == 1 and "another process serves it" in done.stderr
    daemon = start("--listen", f"unix:{place}/s.sock", database=cluster.url(database), wait=False)  # it is stale now
    wait_until(lambda: "serving grpc=unix:" in daemon.log(), what="serving")
    assert stat.S_IMODE((place / "s.sock").stat().st_mode) == 0o666
    assert daemon.stop() == 0
    assert not (place / "s.sock").exists()


# --- passwords ---


def test_a_password_is_not_in_the_command_line_that_others_see(cluster, database, start):
    url = cluster.url(database) + " password=s3cret"
    for args in (["--database", url], ["--database=" + url]):
        process = subprocess.Popen([harness.DAEMON, *args, "--admin", "none", "--listen", "127.0.0.1:0", "--user", "root"],
                                   stderr=subprocess.PIPE, text=True, cwd="/")
        try:
            for line in process.stderr:
                assert "s3cret" not in line
                if "serving" in line:
                    break
            assert b"--listen" in pathlib.Path(f"/proc/{process.pid}/cmdline").read_bytes()
            assert b"s3cret" not in pathlib.Path(f"/proc/{process.pid}/cmdline").read_bytes()
        finally:
            process.terminate()
            process.communicate(timeout=30)


def test_postgres_inherits_no_password(start, place, monkeypatch):
    monkeypatch.setenv("PGPASSWORD", "s3cret")
    daemon = start(embedded=place / "state")
    postmaster = (place / "state/data/postmaster.pid").read_text().split()[0]
    assert b"s3cret" not in pathlib.Path(f"/proc/{postmaster}/environ").read_bytes()
    assert daemon.stop() == 0


@pytest.mark.parametrize("database, words", [
    ("host=db bogus=1", 'invalid connection option "bogus"'),
    ("postgresql://db/x?bogus=1", 'invalid URI query parameter: "bogus"'),
    ("host=db target_session_attrs=nonsense", "target_session_attrs = nonsense: expected any|read-write|primary"),
    ("host=db target_session_attrs=standby", "target_session_attrs = standby: expected any|read-write|primary"),
    ("host=db sslmode=on", "sslmode = on: expected disable|allow"),
    ("host=db port=abc", "port = abc: expected a whole number"),
    ("mysql://root:s3cret@db/x", "a URL of PostgreSQL begins with postgresql://"),
    ("host=db password=s3 cret", "a value with blanks stands in quotes"),
])
def test_check_config_reads_the_database_as_libpq_does(database, words, place):
    config = place / "leasehold.ini"
    config.write_text(f"[leasehold]\ndatabase = {database}\n")
    done = run("--config", config, "--check-config")
    assert done.returncode == 2
    assert f"{config}:2: database = " in done.stderr and words in done.stderr
    assert "s3" not in done.stderr.replace(str(config), "")
