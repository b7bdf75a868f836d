"""docs/use/moving.md: its statements, in their order, in one database; its commands are understood."""
import re
import shlex
import subprocess

import pytest
import yaml

import harness
from commandline import environment

PAGE = (harness.ROOT / "docs/use/moving.md").read_text()


def blocks(section):
    text = PAGE.split(f"\n## {section}\n")[1].split("\n## ")[0]
    return re.findall(r"```sql\n(.*?)```", text, re.S)


@pytest.fixture
def psql(cluster):
    database = cluster.create_database()
    done = subprocess.run([harness.CLI, "migrate", "--database", cluster.url(database)], env=environment(), capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return lambda sql: cluster.psql(sql, database)


def held(psql):
    return psql("select string_agg(key || '/' || owner, ' ' order by key) from leasehold.lease where namespace = 'jobs'")


def test_a_lock_table_is_carried_over(psql):
    table, both, carried = blocks("A lock table")
    psql(table)
    psql(both)
    assert held(psql) == "reports/worker-2"
    assert psql("select count(*) from app_lock") == "2"
    assert psql(carried).split("|")[0] == "invoices"
    assert held(psql) == "invoices/worker-1 reports/worker-2"


def test_shedlocks_table_is_carried_over_with_the_time_that_is_left(psql):
    table, carried = blocks("ShedLock's table")
    psql(table)
    assert psql(carried).split("|")[0] == "nightly"
    assert held(psql) == "nightly/host-1"
    assert psql("select remaining between interval '4 min' and interval '5 min' from leasehold.lease") == "t"


def test_an_advisory_lock_is_taken_beside_the_lease(psql):
    both, who = blocks("Advisory locks")
    assert psql(both + who).splitlines()[1].startswith("t")
    assert psql("select count(*) from leasehold.lease where key = 'cleanup'") == "1"


def test_the_commands_are_understood():
    commands = re.findall(r"`(leasehold run [^`]+)`", PAGE)
    (beside,) = re.findall(r"```sh\netcdctl lock k (leasehold run .*)\n", PAGE)
    (job,) = [yaml.safe_load(text) for text in re.findall(r"```yaml\n(.*?)```", PAGE, re.S)]
    (container,) = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    rows = [shlex.split(command) for command in [*commands, beside] if "--" in command] + [container["command"]]
    assert len(rows) >= 5
    for words in rows:
        said = subprocess.run([harness.CLI, *words[1:words.index("--")], "--help"], capture_output=True, text=True, env=environment(), timeout=60)
        assert said.returncode == 0, (words, said.stderr)
