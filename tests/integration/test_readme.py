"""The examples of the README and of the pages beside it are taken out and run."""
import json
import os
import re
import shlex
import subprocess
import sys

import pytest

import harness

# The pages whose blocks a reader copies and runs.
README = "\n".join((harness.ROOT / page).read_text() for page in
                   ("README.md", "docs/use/clients.md", "docs/use/policies.md", "docs/run/dba.md"))

def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", README, re.S)


def block_with(language, text):
    found = [block for block in blocks(language) if text in block]
    assert len(found) == 1, f"{len(found)} {language} blocks with {text!r}"
    return found[0]


@pytest.fixture
def shell(service, cluster):
    """Runs a script with `leasehold` on the PATH, the test's daemon as its server and the test's database for postgresql:///app."""

    def run(script, cwd=harness.ROOT, **environment):
        env = {**os.environ, "PATH": f"{harness.CLI.parent}:{os.environ['PATH']}", "LEASEHOLD_SERVER": service.daemon.target,
               "HOSTNAME": "stranger", **environment}
        script = script.replace("postgresql:///app", shlex.quote(cluster.url(service.database)))
        done = subprocess.run(["bash", "-e", "-c", script], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env,
                              cwd=cwd, timeout=120)
        assert done.returncode == 0, done.stdout
        return done.stdout

    return run


@pytest.fixture
def compile_and_run(shell, tmp_path):
    """A C program of the README, built by the line of the README, as if the library of the build directory were installed."""

    def run(source, file, line, words=""):
        options = json.loads(subprocess.run(["meson", "introspect", str(harness.BUILD), "--buildoptions"], check=True,
                                            stdout=subprocess.PIPE, text=True).stdout)
        sanitize = next(option["value"] for option in options if option["name"] == "b_sanitize")
        (tmp_path / file).write_text(source)
        environment = {"PKG_CONFIG_PATH": str(harness.BUILD / "meson-uninstalled"), "LD_LIBRARY_PATH": str(harness.BUILD / "src/library")}
        more = "-Wall -Werror" + (f" -fsanitize={sanitize}" if sanitize != "none" else "")
        assert line.startswith("cc ")
        shell(line.replace("cc ", f"cc {more} ", 1), cwd=tmp_path, **environment)
        return shell(f"./{file.removesuffix('.c')} {words}", cwd=tmp_path, **environment)

    return run


def let_pass(service, namespace, key):
    service.psql("update leasehold.scope set acquired_at = acquired_at - interval '1 hour', heartbeat_at = heartbeat_at - interval '1 hour', "
                 f"deadline = deadline - interval '1 hour', check_at = check_at - interval '1 hour' where namespace = '{namespace}' and key = '{key}'")


def test_the_first_lease_from_the_command_line(service, shell):
    script = block_with("sh", "leasehold acquire payments invoice-42 --duration")
    lines = script.strip().splitlines()
    out = shell(lines[0])
    key = re.search(r"[0-9a-f]{8}-[0-9a-f-]{27}", out).group(0)
    out = shell("\n".join(lines[1:]).replace("LEASE_KEY", key))
    assert "stranger" in out and "invoice-42" in out
    assert service.psql("select state, heartbeats, last_result ->> 'rows' from leasehold.scope where key = 'invoice-42'") == "free|1|3"
    assert re.search(r"token \d+", shell(block_with("sh", "-o env")))
    assert service.psql("select state, last_outcome from leasehold.scope where key = 'invoice-42'") == "free|ok"
    shell(lines[0])
    assert "invoice-42" in shell(block_with("sh", "leasehold force-release"))
    assert service.psql("select state, last_outcome, last_error from leasehold.scope where key = 'invoice-42'") == "free|forced|worker-3 is gone"
    service.psql("delete from leasehold.scope where key = 'invoice-42'")


def test_a_lease_around_a_command(service, shell):
    out = shell(block_with("sh", "leasehold run"))
    assert re.search(r"report made under token \d+\n", out) and "one deployment at a time" in out and "one of many readers" in out
    assert service.psql("select key, state, last_outcome from leasehold.scope where namespace in ('cron', 'deploy') order by key") == (
        "nightly|free|ok\nproduction|free|ok")


def test_the_first_lease_from_python(service, tmp_path):
    page = (harness.ROOT / "src/python/README.md").read_text()
    for block in (block_with("python", "leasehold.Client("), re.search(r"```python\n(.*?)```", page, re.S).group(1)):
        program = tmp_path / "first.py"
        program.write_text(block.replace("127.0.0.1:7420", service.daemon.target))
        done = subprocess.run([sys.executable, "-B", program], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120,
                              env={**os.environ, "PYTHONPATH": str(harness.ROOT / "src/python")})
        assert done.returncode == 0 and re.fullmatch(r"token \d+\n", done.stdout), done.stdout
        key = re.search(r'lease\("payments", "([^"]+)"', block).group(1)
        assert service.psql(f"select state, last_outcome from leasehold.scope where key = '{key}'") == "free|ok"
        service.psql(f"delete from leasehold.scope where key = '{key}'")


def test_the_first_lease_from_c(service, compile_and_run):
    out = compile_and_run(block_with("c", "lh_client_create"), "first.c", block_with("sh", "cc -o first ").strip())
    assert re.fullmatch(r"token \d+\n", out)
    assert service.psql("select last_outcome, last_result ->> 'rows' from leasehold.scope where key = 'invoice-42'") == "ok|3"
    service.psql("delete from leasehold.scope where key = 'invoice-42'")


def test_the_first_lease_over_a_connection(service, cluster, compile_and_run):
    out = compile_and_run(block_with("c", "lh_embed_acquire"), "embedded.c", block_with("sh", "cc -o embedded ").strip(),
                          shlex.quote(cluster.url(service.database)))
    assert re.fullmatch(r"token \d+\n", out)
    assert service.psql("select last_outcome, last_result ->> 'rows' from leasehold.scope where key = 'invoice-42'") == "ok|3"
    service.psql("delete from leasehold.scope where key = 'invoice-42'")


def test_the_first_lease_from_psql(service, cluster):
    script = block_with("sql", "leasehold.guard(")
    service.psql("create table invoice (id integer, state text); insert into invoice values (43, 'new')")
    acquire, rest = script.split("\n", 1)
    token = service.psql(acquire).split("|")[0]
    out = service.psql(rest.replace("4711", token))
    assert "invoice-43" in out and "psql" in out
    assert service.psql("select state from invoice") == "sent"
    refused = service.psql(rest, check=False)
    assert refused.returncode != 0 and "lease_lost" in refused.stderr
    service.psql("delete from leasehold.scope where key = 'invoice-43'")

    for _ in range(2):  # the second ends the lease; the first whatever another example left of it
        service.psql("select from leasehold.force_release('cron', 'nightly', 'an example of the page')")
        assert int(service.psql(block_with("sql", "at_least =>"))) > 0
    service.psql("select from leasehold.force_release('cron', 'nightly', 'an example of the page')")

    service.psql(block_with("sql", "create role worker"))
    try:
        assert service.psql("select owner from leasehold.acquire('payments', 'invoice-45', '30 s', 'w')", user="worker") == "w"
        assert service.psql("show idle_in_transaction_session_timeout", user="worker") == "1min"
    finally:
        service.psql("drop role worker")


@pytest.fixture
def database(cluster):
    """Without the schema."""
    return cluster.create_database()


def test_a_database_without_a_daemon_gets_the_schema(cluster, shell, database):
    shell(block_with("sh", "leasehold migrate").replace("postgresql:///app", shlex.quote(cluster.url(database))))
    assert cluster.psql("select owner from leasehold.acquire('payments', 'invoice-42', '30 s', 'w')", database) == "w"


def test_a_hook_puts_a_call_back(service):
    service.psql(block_with("sql", "leasehold.add_hook"))
    service.psql("insert into app.call values ('c-1', 'running'), ('c-2', 'running');"
                 "select from leasehold.acquire('calls', 'c-1', '30 s') a, leasehold.acquire('calls', 'c-2', '30 s') b")
    let_pass(service, "calls", "c-1")
    harness.wait_until(lambda: service.psql("select state from app.call where id = 'c-1'") == "queued")
    assert service.psql("select state, last_outcome from leasehold.scope where namespace = 'calls' and key = 'c-1'") == "free|expired"
    assert service.psql("select state from app.call where id = 'c-2'") == "running"


def test_a_program_is_run_for_who_is_gone(service, shell):
    policy, reap = block_with("sh", "--exec").strip().splitlines()
    shell(policy)
    service.psql("select from leasehold.acquire('runners', 'r-1', '30 s')")
    let_pass(service, "runners", "r-1")
    assert "runner r-1 is gone" in shell(reap)
    assert service.psql("select state, last_outcome from leasehold.scope where namespace = 'runners'") == "free|expired"


def test_policies_are_inherited_and_kept_holds_are_shown(service, shell):
    lines = block_with("sh", "leasehold policy show").strip().splitlines()
    out = shell("\n".join(lines[:3]))
    assert re.search(r"^grace +5\.0 s +payments$", out, re.M), out
    assert re.search(r"^max_duration +10 min 0 s +payments\.invoices$", out, re.M), out
    assert re.search(r"^hook_timeout +5\.0 s +\(root\)$", out, re.M), out
    # The table of settings names each.
    cells = re.findall(r"^\| (`[^|]*`) \| [^|]* \| [^|]* \|$", README.split("# Policies")[1].split("\n# ")[0], re.M)
    assert {name for cell in cells for name in re.findall(r"`(\w+)`", cell)} == set(re.findall(r"^([a-z_]+) ", out, re.M))

    service.psql("select leasehold.release_ok(namespace, key, lease_key, '{\"rows\": 3}')"
                 "  from leasehold.acquire('payments', 'invoice-44', '30 s', owner => 'psql')")
    service.psql("create role looker login in role leasehold_reader")
    try:
        out = service.psql(block_with("sql", "leasehold.history"), user="looker")
    finally:
        service.psql("drop role looker")
    assert re.search(r'^invoice-44\|\d+\|psql\|.*\|ok\|{"rows": 3}\|\|$', out, re.M), out
    shell(lines[3])
    assert service.psql("select max_duration from leasehold.policy where namespace = 'payments.invoices'") == ""
    service.psql("select leasehold.reset_policy('payments')")


def test_the_command_line_shows_what_goes_on(service, shell):
    service.psql("select from leasehold.acquire('payments', 'invoice-42', '30 s', owner => 'worker-3')")
    out = shell(block_with("sh", "leasehold daemons"))
    assert re.search(r"^payments +invoice-42 +alive ", out, re.M) and re.search("no waiters|POSITION", out)
    assert re.search("no history|OUTCOME", out)
    assert re.search(r"^holder +worker-3$", out, re.M) and str(service.daemon.process.pid) in out
    service.psql("select leasehold.force_release('payments', 'invoice-42', 'end of the test')")


def test_the_audit_says_who_did_what_and_its_owner_how_long(service):
    service.psql("select leasehold.acquire('audited', 'k', '30 s'), leasehold.force_release('audited', 'k', 'end of the test');"
                 "create role auditor login in role leasehold_reader; create role owning login in role leasehold_owner")
    try:
        out = service.psql(block_with("sql", "leasehold.audit"), user="auditor")
        service.psql(block_with("sql", "set_audit_retention"), user="owning")
    finally:
        service.psql("drop role auditor; drop role owning")
    assert re.search(r"^[^|]+\|role:postgres\|\|force_release\|audited\|k\|\d+\|end of the test\|done\|1$", out, re.M), out
    assert service.psql("select retention from leasehold.keeping where name = 'audit'") == "3 years"


def test_every_command_of_the_pages_is_run():
    """Each block that a reader is meant to type is one that some test above has taken out."""
    source = open(__file__, encoding="utf-8").read()
    needles = re.findall(r'block_with\("(\w+)", "((?:[^"\\]|\\.)*)"', source)
    for language in ("sh", "sql", "python", "c"):
        for block in blocks(language):
            is_run = any(language == of and needle in block for of, needle in needles)
            # The first block is what the suite quickstart runs, and what runs this.
            assert is_run or block.startswith("deploy/quickstart"), f"nothing runs:\n{block}"


def test_the_table_of_examples_is_complete():
    text = (harness.ROOT / "deploy/README.md").read_text()
    for path in sorted((harness.ROOT / "deploy/examples").iterdir()):
        assert path.name == "meson.build" or re.search(rf"`(examples/)?{re.escape(path.name)}`", text), path.name


def test_the_map_of_contributing_is_complete():
    text = (harness.ROOT / "CONTRIBUTING.md").read_text()
    suites = subprocess.run([sys.executable, harness.ROOT / "tests/lib/suites.py", "--list"], check=True, stdout=subprocess.PIPE, text=True).stdout.split()
    table = text.split("| suite |")[1].split("\n\n")[0]
    named = {name for row in re.findall(r"^\| ([^|]*) \|", table, re.M) for name in row.split(", ")}
    assert named - {"---"} == set(suites)
    directories = {f"{top}/{path.name}/" for top in ("src", "tests") for path in (harness.ROOT / top).iterdir()
                   if path.is_dir() and path.name != "__pycache__"}
    assert {directory for directory in directories if directory not in text} == set()
