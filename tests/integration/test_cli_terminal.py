"""What `leasehold list` prints on a terminal: lines that fit, and colours; and what a pipe gets."""
import fcntl
import os
import pty
import re
import struct
import subprocess
import termios

import pytest

import harness
from commandline import cli, environment

COLUMNS = "NAMESPACE KEY STATE HELD REMAINING TOKEN OWNER PRINCIPAL HEARTBEATS MODE".split()


@pytest.fixture
def held(service, ns):
    target = service.daemon.target
    for key in ("k", "a-key-" + "long-" * 30, "ключ" * 20):
        assert cli("acquire", ns, key, "-d", "1h", "--owner", "somebody@" + "host." * 12, "--server", target).returncode == 0
    return ns


def on_terminal(service, ns, columns, **variables):
    """The lines that a terminal of so many columns gets."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    env = {name: value for name, value in environment().items() if name not in ("NO_COLOR", "TERM")}
    process = subprocess.Popen([harness.CLI, "list", ns, "--server", service.daemon.target], stdout=theirs, stdin=subprocess.DEVNULL,
                               env={**env, "TERM": "xterm", **variables})
    os.close(theirs)
    shown = b""
    try:
        while piece := os.read(ours, 65536):
            shown += piece
    except OSError:  # Linux: the last of them has closed it
        pass
    os.close(ours)
    assert process.wait(30) == 0
    return shown.decode().splitlines()


def plain(line):
    return re.sub(r"\x1b\[[0-9;]*m", "", line)


@pytest.mark.parametrize("columns", [30, 60, 80, 100, 140])
def test_a_list_fits_the_terminal(service, held, columns):
    lines = [plain(line) for line in on_terminal(service, held, columns)]
    assert len(lines) == 4 and max(map(len, lines)) <= columns, lines
    assert lines[0].split() == [name for name in COLUMNS if name in lines[0].split()] or columns == 30, lines[0]
    assert columns == 30 or {"NAMESPACE", "KEY", "STATE", "OWNER"} <= set(lines[0].split())
    assert "…" in lines[1] and (columns < 100 or "TOKEN" in lines[0])


def test_a_wide_terminal_gets_all_that_has_a_value(service, held):
    lines = [plain(line) for line in on_terminal(service, held, 500)]
    assert lines[0].split() == [column for column in COLUMNS if column in lines[0].split()] and "HEARTBEATS" in lines[0]
    assert "…" not in "".join(lines) and "a-key-" + "long-" * 30 in lines[1]


def test_colours_are_for_terminals_that_want_them(service, held):
    shown = "\n".join(on_terminal(service, held, 100))
    assert shown.count("\x1b[32malive\x1b[0m") == 3 and shown.count("\x1b[") == 6
    for variables in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
        assert "\x1b" not in "".join(on_terminal(service, held, 100, **variables))
    assert "\x1b[32m" in "".join(on_terminal(service, held, 100, NO_COLOR="")), "an empty NO_COLOR says nothing"


def test_a_pipe_gets_all_columns_whole(service, held):
    said = cli("list", held, "--server", service.daemon.target)
    assert said.stdout.splitlines()[0].split() == COLUMNS + ["UNITS", "SLOTS"]
    assert "a-key-" + "long-" * 30 in said.stdout and "\x1b" not in said.stdout


# --- what an error advises ---


def test_advice_names_the_namespace_that_was_given(service, ns):
    target = service.daemon.target
    service.psql(f"select leasehold.set_policy('{ns}', frozen => true)")
    said = cli("acquire", ns, "k", "--server", target)
    assert said.returncode == 1 and f"leasehold policy set {ns} frozen=false" in said.stderr
    service.psql(f"select leasehold.set_policy('{ns}', frozen => false, max_leases => 0)")
    said = cli("acquire", ns, "k", "--server", target)
    assert said.returncode == 1 and f"the limits: leasehold policy show {ns}\n" in said.stderr
