"""Shared leases by the command line: acquire, run, downgrade, and what the other commands show of them."""
import json
import os
import re
import subprocess

import pytest

from commandline import SOME_KEY, cli, ends
from harness import wait_until


@pytest.fixture
def query(service, cluster):
    """A command against the database."""
    return lambda *args: cli(*args, "--database", cluster.url(service.database))


def rows(text):
    """Dictionaries of a table's lines. Its cells are where two columns of nothing but spaces end."""
    lines = [line.ljust(max(map(len, text.splitlines()))) for line in text.splitlines()]
    blank = "".join(" " if all(line[at] == " " for line in lines) else "x" for at in range(len(lines[0])))
    spans = [match.span() for match in re.finditer(r"x(?: ?x)*", blank)]
    head, *body = [[line[start:end].strip() for start, end in spans] for line in lines]
    return [dict(zip(head, cells)) for cells in body]


def card(text):
    """The rows "name  value" of a card, as far as the first empty line."""
    return dict(re.split(r" {2,}", line.strip(), maxsplit=1) for line in text.split("\n\n")[0].splitlines() if "  " in line.strip())


# --- acquire ---


def test_readers_share_and_a_writer_waits_for_all_of_them(shell, ns):
    first, second = (shell.acquire(ns, "k", "--shared", "--owner", f"reader {n}") for n in (1, 2))
    assert [lease["mode"] for lease in (first, second)] == ["MODE_SHARED"] * 2
    assert [(lease["units"], lease["slots"]) for lease in (first, second)] == [(1, [])] * 2
    refused = shell("acquire", ns, "k")
    assert refused.returncode == 3 and re.search(r"^ +mode +shared, 1 unit$", refused.stderr, re.M)
    assert re.search(r"^ +holders +2, of which this is the oldest$", refused.stderr, re.M)
    writer = shell.start("acquire", ns, "k", "--wait", "5m", "-o", "json")
    shell.is_waiting(ns, "k")
    assert shell("acquire", ns, "k", "--shared").returncode == 3  # no reader overtakes the writer
    shell.done("release", ns, "k", first["lease_key"])
    assert writer.poll() is None
    shell.done("release", ns, "k", second["lease_key"])
    assert ends(writer) == 0, writer.stderr_text
    granted = json.loads(writer.stdout_text)
    assert granted["mode"] == "MODE_EXCLUSIVE" and granted["units"] == 0 and int(granted["token"]) > int(second["token"])
    assert shell("acquire", ns, "k", "--shared").returncode == 3


def test_a_capacity_bounds_units_and_gives_slots(shell, ns):
    assert re.search(r"^capacity +5 ", shell.done("policy", "set", ns, "capacity=5").stdout + shell.done("policy", "show", ns).stdout, re.M)
    two = shell.acquire(ns, "k", "--shared=2")
    one = shell.acquire(ns, "k", "--shared=1")
    assert (two["slots"], one["slots"]) == ([1, 2], [3])
    assert shell("acquire", ns, "k", "--shared=3").returncode == 3
    shell.done("release", ns, "k", two["lease_key"])
    assert shell.acquire(ns, "k", "--shared=4")["slots"] == [1, 2, 4, 5]
    refused = shell("acquire", ns, "k", "--shared=6")
    assert refused.returncode == 2 and "units" in refused.stderr and "5" in refused.stderr


def test_the_environment_has_the_slots(shell, ns):
    shell.done("policy", "set", ns, "capacity=3")
    said = shell.done("acquire", ns, "k", "--shared=2", "-o", "env").stdout
    assert re.search(r"^LEASEHOLD_SLOT=1\nLEASEHOLD_SLOTS=1,2$", said, re.M)
    said = shell.done("acquire", ns, "exclusive", "-o", "env").stdout
    script = f"set -eu; {said} echo ${{LEASEHOLD_SLOT-none}} ${{LEASEHOLD_SLOTS-none}} ${{LEASEHOLD_TOKENS-none}} $LEASEHOLD_KEY"
    of_older = os.environ | {"LEASEHOLD_SLOT": "7", "LEASEHOLD_SLOTS": "7,8", "LEASEHOLD_TOKENS": "7,8"}
    assert subprocess.run(["sh", "-c", script], env=of_older, capture_output=True, text=True, check=True).stdout == "none none none exclusive\n"


@pytest.mark.parametrize("value", ["0", "abc", "", "-1", "1000001", "1.5"])
@pytest.mark.parametrize("command", [["acquire"], ["run"]])
def test_units_that_cannot_be_are_refused_with_their_bound(shell, ns, command, value):
    refused = shell(*command, ns, "k", f"--shared={value}", "--", *(["true"] if command == ["run"] else []))
    assert refused.returncode == 2 and f"shared '{value}' is out of bounds; it takes a whole number from 1 to 1000000" in refused.stderr


@pytest.mark.parametrize("args, words", [
    (["acquire", "--shared", "--at-least", "5s"], "--shared and --at-least cannot be combined: a shared lease has no minimum hold"),
    (["run", "--shared", "-x", "-c", "true"], "--exclusive and --shared cannot be combined"),
    (["run", "--shared", "--terraform", "-c", "true"], "--terraform and --shared cannot be combined: a state has one writer"),
])
def test_what_excludes_shared_is_refused(shell, ns, args, words):
    refused = shell(args[0], ns, "k", *args[1:])
    assert refused.returncode == 2 and words in refused.stderr


def test_a_lease_key_keeps_its_mode_and_units(shell, ns):
    lease = shell.acquire(ns, "k", "--shared=2")
    again = shell.acquire(ns, "k", "--shared=2", "--lease-key", lease["lease_key"])
    assert again["token"] == lease["token"]
    for other in (["--shared"], []):
        refused = shell("acquire", ns, "k", *other, "--lease-key", lease["lease_key"])
        assert refused.returncode == 2, refused.stderr


# --- run ---


def test_each_run_has_a_slot_of_its_own(shell, service, ns, tmp_path):
    shell.done("policy", "set", ns, "capacity=3")
    script = f'echo "$LEASEHOLD_SLOT $LEASEHOLD_SLOTS" > {tmp_path}/$1; while [ ! -e {tmp_path}/end ]; do sleep 0.05; done'
    words = lambda name: (tmp_path / name).read_text().split() if (tmp_path / name).exists() else []
    runs = []
    for name, units in (("a", "--shared"), ("b", "--shared=2"), ("c", "--shared")):
        runs.append(shell.start("run", ns, "k", units, "--wait", "5m", "--", "sh", "-c", script, "sh", name))
        if name != "c":
            wait_until(lambda: len(words(name)) == 2, 60)
    shell.is_waiting(ns, "k")
    assert words("a") == ["1", "1"] and words("b") == ["2", "2,3"] and words("c") == []
    (tmp_path / "end").touch()
    assert [ends(run) for run in runs] == [0, 0, 0]
    assert words("c")[0] in ("1", "2")  # the lowest that was free
    assert service.psql(f"select count(*) from leasehold.lease where namespace = '{ns}'") == "0"


def test_a_run_without_slots_has_none_in_its_environment(shell, ns):
    for options in ([], ["--shared"]):  # there is no capacity
        done = shell.done("run", ns, "k", *options, "--", "sh", "-c", 'echo "${LEASEHOLD_SLOT-none} ${LEASEHOLD_SLOTS-none}"',
                          LEASEHOLD_SLOT="7", LEASEHOLD_SLOTS="7,8")
        assert done.stdout == "none none\n"


def test_slots_that_fit_no_environment_are_left_out(shell, ns):
    shell.done("policy", "set", ns, "capacity=30000")
    done = shell.done("run", ns, "k", "--shared=30000", "--", "sh", "-c", 'echo "$LEASEHOLD_SLOT ${LEASEHOLD_SLOTS-none}"')
    assert done.stdout == "1 none\n" and "30000 slots do not fit in an environment variable: LEASEHOLD_SLOTS is not set" in done.stderr


# --- run --also ---


def test_a_run_holds_several_leases_and_knows_their_tokens(shell, service, ns, tmp_path):
    shell.done("policy", "set", ns, "capacity=3")
    script = f'echo "$LEASEHOLD_TOKEN $LEASEHOLD_TOKENS ${{LEASEHOLD_SLOTS-none}}" > {tmp_path}/on; while [ ! -e {tmp_path}/end ]; do sleep 0.05; done'
    held = lambda: service.psql(f"select namespace, key, token, mode, units, heartbeats from leasehold.lease where namespace like '{ns}%' order by token")
    run = shell.start("run", ns, "c", "--also", f"{ns}:b:with:colons", "--also", f"{ns}.a:a", "--shared=2", "-d", "15s", "--", "sh", "-c", script)
    wait_until(lambda: (tmp_path / "on").exists() and (tmp_path / "on").read_text().endswith("\n"), 60)
    rows = [line.split("|") for line in held().splitlines()]
    tokens = {(row[0], row[1]): row[2] for row in rows}
    first = tokens[ns, "c"]
    assert (tmp_path / "on").read_text().split() == [first, f"{first},{tokens[ns, 'b:with:colons']},{tokens[ns + '.a', 'a']}", "1,2"]
    assert [row[3:5] for row in rows] == [["shared", "2"]] * 3
    wait_until(lambda: min(int(line.split("|")[5]) for line in held().splitlines()) >= 1, 60)  # each is renewed
    (tmp_path / "end").touch()
    assert ends(run) == 0 and held() == ""


def test_a_run_waits_for_several_without_holding_any(shell, service, ns):
    holder = shell.acquire(ns, "b", "-d", "10m")
    run = shell.start("run", ns, "a", "--also", f"{ns}:b", "--wait", "5m", "--", "true")
    shell.is_waiting(ns, "a")
    shell.is_waiting(ns, "b")
    assert service.psql(f"select key from leasehold.lease where namespace = '{ns}'") == "b"
    shell.done("release", ns, "b", holder["lease_key"])
    assert ends(run) == 0
    shell.acquire(ns, "b", "-d", "10m")
    refused = shell("run", ns, "a", "--also", f"{ns}:b", "--", "true")
    assert refused.returncode == 3 and f"{ns}/b" in refused.stderr


def test_a_run_ends_when_one_of_its_leases_is_lost_and_releases_the_others(shell, service, ns, tmp_path):
    run = shell.start("run", ns, "a", "--also", f"{ns}:b", "-d", "15s", "--", "sh", "-c", f"echo > {tmp_path}/on; sleep 600")
    wait_until((tmp_path / "on").exists, 60)
    shell.done("force-release", ns, "b", "--reason", "a test")
    assert ends(run) == 4
    assert f"the lease {ns}/b is lost (forced): " in run.stderr_text and "the command was ended" in run.stderr_text
    assert service.psql(f"select count(*) from leasehold.lease where namespace = '{ns}'") == "0"


def test_the_leases_of_a_run_that_is_killed_are_released(shell, service, ns, tmp_path):
    run = shell.start("run", ns, "a", "--also", f"{ns}:b", "-d", "10m", "--", "sh", "-c", f"echo > {tmp_path}/on; sleep 600")
    wait_until((tmp_path / "on").exists, 60)
    run.kill()
    ends(run)
    wait_until(lambda: service.psql(f"select count(*) from leasehold.lease where namespace = '{ns}'") == "0", 60)


def test_a_run_of_one_lease_has_no_tokens_in_its_environment(shell, ns):
    done = shell.done("run", ns, "k", "--", "sh", "-c", 'echo "${LEASEHOLD_TOKENS-none}"', LEASEHOLD_TOKENS="7,8")
    assert done.stdout == "none\n"


@pytest.mark.parametrize("options, words", [
    (["--also", "k2"], "also 'k2' has no colon; it must be of the form NS:KEY"),
    (["--also", ":k2"], "namespace"),
    (["--also", "a:"], "key"),
    (["--also", "a:k", "--also", "a:k"], "also 'a:k' names a key that was named before"),
    (["--also", "a:k", "--wait", "alive"], "--also and --wait alive cannot be combined; use a duration, or forever"),
    (["--also", "a:k", "--terraform"], "--terraform and --also cannot be combined: a state has one lease"),
    ([word for i in range(100) for word in ("--also", f"a:{i}")], "--also is given more than 99 times; a command holds at most 100 leases"),
])
def test_scopes_that_cannot_be_are_refused(shell, ns, options, words):
    refused = shell("run", ns, "k", *options, "--", "true")
    assert refused.returncode == 2 and words in refused.stderr, refused.stderr


# --- downgrade ---


def test_a_downgrade_lets_the_readers_in_and_keeps_the_lease_key(shell, ns):
    shell.done("policy", "set", ns, "capacity=4")
    writer = shell.acquire(ns, "k", "--duration", "10m")
    reader = shell.start("acquire", ns, "k", "--shared", "--wait", "5m", "-o", "json")
    shell.is_waiting(ns, "k")
    shared = json.loads(shell.done("downgrade", ns, "k", writer["lease_key"], "--units", "3", "-o", "json").stdout)
    assert shared["lease_key"] == writer["lease_key"] and int(shared["token"]) > int(writer["token"])
    assert (shared["mode"], shared["units"], shared["slots"]) == ("MODE_SHARED", 3, [1, 2, 3])
    assert shared["acquired_at"] == writer["acquired_at"]
    assert ends(reader) == 0 and json.loads(reader.stdout_text)["slots"] == [4]
    again = json.loads(shell.done("downgrade", ns, "k", writer["lease_key"], "--units", "3", "-o", "json").stdout)
    assert again["token"] == shared["token"]
    fewer = card(shell.done("downgrade", ns, "k", LEASEHOLD_LEASE_KEY=writer["lease_key"]).stdout)  # one unit, by default
    assert fewer["mode"] == "shared, 1 unit" and fewer["slots"] == "1"
    shell.done("heartbeat", ns, "k", writer["lease_key"])
    shell.done("release", ns, "k", writer["lease_key"])


def test_a_downgrade_that_cannot_be_is_refused(shell, ns):
    shell.done("policy", "set", ns, "capacity=4")
    assert shell("downgrade", ns, "k", SOME_KEY).returncode == 4
    lease = shell.acquire(ns, "k")
    for units, words in (("0", "a whole number from 1 to 1000000"), ("x", "a whole number from 1 to 1000000")):
        refused = shell("downgrade", ns, "k", lease["lease_key"], "--units", units)
        assert refused.returncode == 2 and words in refused.stderr
    refused = shell("downgrade", ns, "k", lease["lease_key"], "--units", "5")
    assert refused.returncode == 2 and "units" in refused.stderr
    shell.done("downgrade", ns, "k", lease["lease_key"], "--units", "2")
    assert shell("downgrade", ns, "k", lease["lease_key"], "--units", "3").returncode == 2  # more than it has
    shell.done("release", ns, "k", lease["lease_key"])
    assert shell("downgrade", ns, "k", lease["lease_key"]).returncode == 4


# --- what is shown ---


def test_show_lists_all_holders(shell, ns):
    shell.done("policy", "set", ns, "capacity=5")
    one = shell.acquire(ns, "k", "--shared=2", "--owner", "first")
    shown = card(shell.done("show", ns, "k").stdout)
    assert (shown["mode"], shown["slots"], shown["units free"], shown["owner"]) == ("shared, 2 units", "1,2", "3", "first")
    shell.acquire(ns, "k", "--shared", "--owner", "second")
    said = shell.done("show", ns, "k").stdout
    shown = card(said)
    assert shown["state"] == "shared by 2 holders" and shown["units free"] == "2"
    table = rows(said.split("\n\n")[1])
    assert [(row["OWNER"], row["MODE"], row["UNITS"], row["SLOTS"]) for row in table] == [("first", "shared", "2", "1,2"), ("second", "shared", "1", "3")]
    answer = json.loads(shell.done("show", ns, "k", "-o", "json").stdout)
    assert answer["lease"]["token"] == one["token"] and answer["holder_count"] == 2
    assert [lease["slots"] for lease in answer["holders"]] == [[1, 2], [3]]
    shell.acquire(ns, "exclusive")
    assert card(shell.done("show", ns, "exclusive").stdout)["mode"] == "exclusive"


def test_lists_have_a_row_for_each_holder_from_server_and_database(shell, query, ns):
    shell.done("policy", "set", ns, "capacity=5")
    shell.acquire(ns, "a")
    for units in (2, 1):
        shell.acquire(ns, "b", f"--shared={units}")
    by_server, by_database = (rows(said.stdout) for said in (shell("list", ns), query("list", ns)))
    assert [(row["KEY"], row["MODE"], row["UNITS"], row["SLOTS"]) for row in by_server] == [
        ("a", "exclusive", "", ""), ("b", "shared", "2", "1,2"), ("b", "shared", "1", "3")]
    assert [row["TOKEN"] for row in by_server] == [row["TOKEN"] for row in by_database]
    theirs, ours = (json.loads(said.stdout)["leases"] for said in (shell("list", ns, "-o", "json"), query("list", ns, "-o", "json")))
    for lease in (*theirs, *ours):
        lease.pop("remaining")
    assert ours == theirs


def test_queue_explain_and_history_tell_modes(shell, query, ns):
    shell.done("policy", "set", ns, "capacity=5", "history=yes")
    exclusive = shell.acquire(ns, "k", "--owner", "writer")
    waiting = shell.start("acquire", ns, "k", "--shared=2", "--wait", "5m", "-o", "json")
    shell.is_waiting(ns, "k")
    assert [(row["MODE"], row["UNITS"]) for row in rows(query("queue", ns).stdout)] == [("shared", "2")]
    assert card(query("explain", ns, "k").stdout)["mode"] == "exclusive"
    shell.done("downgrade", ns, "k", exclusive["lease_key"])
    assert ends(waiting) == 0
    told = card(query("explain", ns, "k").stdout)
    assert (told["state"], told["mode"], told["units taken"], told["holders"]) == ("shared", "shared", "3", "2")
    assert json.loads(query("explain", ns, "k", "-o", "json").stdout)["units"] == 3
    shell.done("release", ns, "k", json.loads(waiting.stdout_text)["lease_key"])
    ended = rows(query("history", ns).stdout)
    assert [(row["OUTCOME"], row["MODE"], row["UNITS"], row["SLOTS"]) for row in ended] == [("ok", "shared", "2", "2,3"), ("downgraded", "exclusive", "", "")]
    assert [row["slots"] for row in json.loads(query("history", ns, "-o", "json").stdout)["history"]] == [[2, 3], None]


def test_watch_prints_modes_and_downgrades(shell, ns):
    shell.done("policy", "set", ns, "capacity=5")
    watch = shell.start("watch", ns)
    while "synced" not in watch.stdout.readline():
        pass
    lease = shell.acquire(ns, "k")
    shell.done("downgrade", ns, "k", lease["lease_key"], "--units", "2")
    shell.done("release", ns, "k", lease["lease_key"])
    lines = [watch.stdout.readline() for _ in range(3)]
    watch.terminate()
    ends(watch)
    assert " acquired " in lines[0] and "shared" not in lines[0]
    assert " downgraded " in lines[1] and "  shared 2  slots 1,2" in lines[1]
    assert " released " in lines[2] and "  shared 2  slots 1,2" in lines[2]


@pytest.mark.parametrize("by", ["server", "database"])
def test_force_release_names_one_holder_or_all(shell, query, ns, by):
    run = shell if by == "server" else query
    leases = [shell.acquire(ns, "k", "--shared", "--owner", f"reader {n}") for n in range(3)]
    refused = run("force-release", ns, "k", "--reason", "r")
    assert refused.returncode == 2 and "token" in refused.stderr and len(json.loads(shell("list", ns, "-o", "json").stdout)["leases"]) == 3
    assert run("force-release", ns, "k", "--reason", "r", "--token", "1", "--all").returncode == 2
    one = run("force-release", ns, "k", "--reason", "r", "--token", leases[1]["token"])
    assert one.returncode == 0 and one.stdout == f"ended the lease {ns}/k of reader 1, token {leases[1]['token']}\n", one.stderr
    rest = json.loads(run("force-release", ns, "k", "--reason", "r", "--all", "-o", "json").stdout)
    assert [lease["owner"] for lease in rest["leases"]] == ["reader 0", "reader 2"] and rest["lease"] == rest["leases"][0]
    assert run("force-release", ns, "k", "--reason", "r", "--all").returncode == 4
