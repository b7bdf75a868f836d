"""What the database shows of leases, waiters, holds and daemons: by the command line, without a daemon in between."""
import json
import re

import pytest

from commandline import cli
from harness import wait_until


@pytest.fixture
def query(service, cluster):
    url = cluster.url(service.database)

    def run(*args, status=0):
        said = cli(*args, "--database", url)
        assert said.returncode == status, said.stderr
        return said

    run.json = lambda *args: json.loads(run(*args, "-o", "json").stdout)
    return run


def rows(said):
    return [re.split(r" {2,}", line.strip()) for line in said.stdout.splitlines()]


def test_leases_are_listed_from_the_database_as_from_the_server(shell, query, ns):
    for namespace, key in ((ns, "b"), (ns, "a"), (ns + ".child", "c")):
        shell.acquire(namespace, key, "--owner", f"owner of {key}", "--label", "n=v")
    assert [row[1] for row in rows(query("list", ns))] == ["KEY", "a", "b"]
    assert [row[1] for row in rows(query("list", ns, "--children"))] == ["KEY", "a", "b", "c"]
    assert [row[1] for row in rows(query("list", ns, "--children", "--owner", "owner of c"))] == ["KEY", "c"]
    theirs = json.loads(shell.done("list", ns, "--children", "-o", "json").stdout)
    ours = query.json("list", ns, "--children")
    for each in (*ours["leases"], *theirs["leases"]):
        assert each.pop("remaining").endswith("s") and each.pop("lease_key", "") == ""
    assert ours == theirs
    assert query("list", ns + ".none").stderr == "no lease is held\n"
    assert len(query.json("list", ".")["leases"]) >= 3


def test_the_queue_is_in_order(shell, query, ns):
    shell.acquire(ns, "k")
    waiters = []
    for n in (1, 2):
        waiters.append(shell.start("acquire", ns, "k", "--wait", "1m", "--owner", f"waiter {n}"))
        shell.is_waiting(ns, "k", n)
    try:
        table = rows(query("queue", ns, "k"))
        assert table[0] == ["NAMESPACE", "KEY", "POSITION", "OWNER", "PRINCIPAL", "WAITING", "AWAY", "MODE", "UNITS", "SCOPES"]
        assert [(row[2], row[3], row[4], row[6]) for row in table[1:]] == [
            ("1", "waiter 1", "anonymous", "no"), ("2", "waiter 2", "anonymous", "no")]
        queue = query.json("queue", ns)["queue"]
        assert [(w["position"], w["owner"], w["away"], w["duration"]) for w in queue] == [
            (1, "waiter 1", False, "30s"), (2, "waiter 2", False, "30s")]
        assert int(queue[0]["ticket"]) < int(queue[1]["ticket"]) and queue[0]["waiting"].endswith("s")
        assert [w["owner"] for w in query.json("queue", ns.rsplit(".", 1)[0], "--children")["queue"]][:1] == ["waiter 1"]
        assert query.json("queue", ns, "--max", "1")["queue"] == queue[:1] or len(query.json("queue", ns, "--max", "1")["queue"]) == 1
        assert query("queue", ns, "other").stderr == "no waiters\n"
    finally:
        for waiter in waiters:
            waiter.kill()
            waiter.communicate(timeout=60)


def test_a_slash_in_a_namespace_cannot_be_taken_for_the_one_before_the_key(service, query, ns):
    service.psql(f"select leasehold.acquire('{ns}/b', 'k', '30 s', owner => 'one'), leasehold.acquire('{ns}', 'b/k', '30 s', owner => 'two')")
    assert [row[:2] for row in rows(query("list", f"{ns}/b"))[1:]] == [[f'"{ns}/b"', "k"]]
    assert [row[:2] for row in rows(query("list", ns))[1:]] == [[ns, "b/k"]]
    assert [query.json("explain", *names)["holder"] for names in ((f"{ns}/b", "k"), (ns, "b/k"))] == ["one", "two"]


def test_explain_says_state_and_advice(shell, query, ns):
    free = query.json("explain", ns, "k")
    assert free["state"] == "free" and free["holder"] is None and free["advice"] and free["policy"]["grace"]
    lease = shell.acquire(ns, "k", "--owner", "worker-3")
    held = query.json("explain", ns, "k")
    assert (held["state"], held["holder"], held["token"], held["liveness"]) == ("held", "worker-3", lease["token"], "alive")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", held["expires_at"])
    card = query("explain", ns, "k").stdout
    assert re.search(r"^holder +worker-3$", card, re.M) and re.search(r"^advice +\S", card, re.M) and "policy" not in card


def test_history_is_newest_first(shell, query, ns):
    shell.done("policy", "set", ns, "history=true")
    first = shell.acquire(ns, "k", "--owner", "one")
    shell.done("release", ns, "k", first["lease_key"], "--result", '{"rows": 12}')
    second = shell.acquire(ns, "k", "--owner", "two")
    shell.done("release", ns, "k", second["lease_key"], "--fail", "the bank is closed")
    table = rows(query("history", ns))
    assert [row[4:8] for row in table[1:]] == [["failed", second["token"], "two", "anonymous"], ["ok", first["token"], "one", "anonymous"]]
    holds = query.json("history", ns, "k")["history"]
    assert [hold["outcome"] for hold in holds] == ["failed", "ok"]
    assert holds[1]["result"] == {"rows": 12} and holds[0]["error"] == "the bank is closed" and holds[0]["result"] is None
    assert [hold["token"] for hold in query.json("history", ns, "--max", "1")["history"]] == [second["token"]]
    assert "history=true" in query("history", ns + ".none").stderr


def test_daemons_are_listed(service, query):
    daemons = query.json("daemons")["daemons"]
    assert [(daemon["pid"], daemon["live"]) for daemon in daemons] == [(service.daemon.process.pid, True)]
    wait_until(lambda: rows(query("daemons"))[1][1] == str(service.daemon.process.pid), what="the daemon in the table")


def test_the_environment_names_the_database(service, cluster):
    said = cli("daemons", LEASEHOLD_DATABASE=cluster.url(service.database))
    assert said.returncode == 0 and str(service.daemon.process.pid) in said.stdout
    for command in (["hook", "list", "a"], ["migrate"]):
        said = cli(*command)
        assert said.returncode == 2 and "works on a database: --database URL, or LEASEHOLD_DATABASE" in said.stderr


def test_a_reader_may_see_all_of_it(service, cluster, query, ns):
    service.psql("do $$ begin create role cli_reader login; exception when duplicate_object then null; end $$;"
                 "grant leasehold_reader to cli_reader")
    url = cluster.url(service.database, user="cli_reader")
    for command in (["list"], ["queue"], ["history"], ["daemons"]):
        said = cli(*command, "--database", url)
        assert said.returncode == 0, said.stderr


# --- the daemon gives the answers that the database gives ---

MOVES = {"remaining", "lease_key", "waiting", "seen", "last_heartbeat_at", "expires_at", "heartbeat_at", "deadline", "heartbeats"}


def still(answer):
    """Without what moves from one moment to the next."""
    if isinstance(answer, dict):
        return {name: still(value) for name, value in answer.items() if name not in MOVES}
    return [still(each) for each in answer] if isinstance(answer, list) else answer


@pytest.fixture
def full(shell, service, ns):
    """Holders, waiters, ended holds and leases to look at, exclusive and shared; two waiters."""
    shell.done("policy", "set", ns, "history=true", "capacity=4")
    for n, how in enumerate((["--result", '{"rows": 1}'], ["--fail", "why"], [])):
        lease = shell.acquire(ns, "k", "--owner", f"owner {n}" if n else "")
        shell.done("release", ns, "k", lease["lease_key"], *how)
    shared = shell.acquire(ns + ".b", "ended", "--shared=2")
    shell.done("release", ns + ".b", "ended", shared["lease_key"])
    shell.acquire(ns, "k", "--owner", "holder", "--duration", "10m", "--at-least", "5m", "--label", "n=v")
    shell.acquire(ns, "s", "--shared=3", "--owner", "sharer", "--duration", "10m")
    waiters = [shell.start("acquire", ns, "k", "--wait", "1m", "--owner", "waiter"), None]
    shell.is_waiting(ns, "k", 1)
    waiters[1] = shell.start("acquire", ns, "s", "--wait", "1m", "--shared=2")
    shell.is_waiting(ns, "s", 1)
    for key, ago in (("quiet", "5 min"), ("late", "10 min"), ("fine", "0 s"), ("gone", "1 h")):
        shell.acquire(ns + ".watched", key, "--duration", "10m")
        service.psql(f"select leasehold.set_policy('{ns}.watched', expiry => 'reap', reaper => 'external', grace => '30 min', max_hold => '1 h', dead_after => '4 min');"
                     "update leasehold.scope set heartbeat_at = heartbeat_at - interval '{0}', deadline = deadline - interval '{0}', check_at = 'infinity'"
                     " where namespace = '{1}.watched' and key = '{2}'".format(ago, ns, key))
    service.psql(f"update leasehold.scope set acquired_at = acquired_at - interval '2 h' where namespace = '{ns}.watched' and key in ('fine', 'late')")
    yield
    for waiter in waiters:
        waiter.kill()
        waiter.communicate(timeout=60)


COMMANDS = [["list", "{}", "--children"], *[["list", "{}", "--children", "--state", state] for state in ("overdue", "silent", "held-too-long", "expired")],
            ["list", "{}.watched", "--longer-than", "1h"], ["list", "{}.watched", "--longer-than", "1h", "--state", "overdue"],
            ["queue", "{}"], ["queue", "{}", "--children", "--max", "1"], ["queue", "{}", "k"], ["queue", "{}", "s"], ["queue", "{}.none"],
            ["explain", "{}", "k"], ["explain", "{}", "s"], ["explain", "{}", "free"], ["explain", "{}.watched", "gone"],
            ["history", "{}"], ["history", "{}", "--children"], ["history", "{}", "k"], ["history", "{}", "--children", "--max", "2"], ["daemons"]]


def test_the_daemon_and_the_database_answer_alike(shell, query, full, ns):
    for command in COMMANDS:
        words = [word.format(ns) for word in command]
        ours, theirs = query.json(*words), json.loads(shell.done(*words, "-o", "json").stdout)
        for answer in (ours, theirs):
            if "advice" in answer:
                answer["advice"] = re.sub(r"\d[\d.]* (ms|s|min|m|h)\b( \d+ s)?", "N", answer["advice"])
        assert still(ours) == still(theirs), words
        text, other = query(*words), shell.done(*words)
        assert text.stderr == other.stderr and [row[0] for row in rows(text)] == [row[0] for row in rows(other)], words
    assert [lease["scope"]["key"] for lease in query.json("list", ns, "--children", "--state", "overdue")["leases"]] == ["late"]
    assert [lease["scope"]["key"] for lease in query.json("list", ns, "--children", "--state", "silent")["leases"]] == ["late", "quiet"]
    assert [lease["scope"]["key"] for lease in query.json("list", ns, "--children", "--state", "held-too-long")["leases"]] == ["fine", "late"]
    assert [lease["scope"]["key"] for lease in query.json("list", ns, "--children", "--state", "expired")["leases"]] == ["gone"]
    assert len(query.json("history", ns, "--children")["history"]) == 4


def test_an_unknown_state_names_those_that_there_are():
    for where in ([], ["--database", "postgresql:///none"]):
        said = cli("list", "--state", "overdeu", *where)
        assert said.returncode == 2 and "unknown state: overdeu; use overdue, silent, held-too-long or expired; did you mean overdue?" in said.stderr
        said = cli("list", "--longer-than", "ten", *where)
        assert said.returncode == 2 and "longer-than 'ten' is not a duration; it takes a number and a unit" in said.stderr
