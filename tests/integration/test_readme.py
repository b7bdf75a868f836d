"""The README's examples do what it says: they are taken out of it and run."""
import os
import re
import subprocess
import sys

import pytest

import harness

README = (harness.ROOT / "README.md").read_text()


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", README, re.S)


def block_with(language, text):
    found = [block for block in blocks(language) if text in block]
    assert len(found) == 1, f"{len(found)} {language} blocks with {text!r}"
    return found[0]


@pytest.fixture
def shell(service):
    """Runs a script with `leasehold` on the PATH and the test's daemon as its server."""

    def run(script):
        env = {**os.environ, "PATH": f"{harness.CLI.parent}:{os.environ['PATH']}", "LEASEHOLD_SERVER": service.daemon.target,
               "HOSTNAME": "stranger"}
        done = subprocess.run(["bash", "-e", "-c", script], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env,
                              cwd=harness.ROOT, timeout=120)
        assert done.returncode == 0, done.stdout
        return done.stdout

    return run


def test_the_first_lease_from_the_command_line(service, shell):
    script = block_with("sh", "leasehold acquire payments invoice-42 --duration")
    lines = script.strip().splitlines()
    out = shell(lines[0])
    key = re.search(r"[0-9a-f]{8}-[0-9a-f-]{27}", out).group(0)
    out = shell("\n".join(lines[1:]).replace("LEASE_KEY", key))
    assert "stranger" in out and "invoice-42" in out
    assert service.psql("select state, last_result ->> 'rows' from leasehold.scope where key = 'invoice-42'") == "free|3"
    assert re.search(r"token \d+", shell(block_with("sh", "-o env")))
    service.psql("delete from leasehold.scope where key = 'invoice-42'")


def test_the_first_lease_from_python(service, shell, tmp_path):
    shell(block_with("sh", "--grpc_python_out").replace("/tmp", str(tmp_path)))
    program = tmp_path / "first.py"
    program.write_text(block_with("python", "pb.AcquireRequest").replace("/tmp", str(tmp_path))
                       .replace("127.0.0.1:7420", service.daemon.target))
    done = subprocess.run([sys.executable, program], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120)
    assert done.returncode == 0, done.stdout
    assert service.psql("select owner, last_outcome from leasehold.scope where key = 'invoice-42'") == "worker-3|ok"
    service.psql("delete from leasehold.scope where key = 'invoice-42'")


def test_the_first_lease_from_psql(service):
    script = block_with("sql", "leasehold.acquire")
    service.psql("create table invoice (id integer, state text); insert into invoice values (42, 'new')")
    acquire, rest = script.split("\n", 1)
    token = service.psql(acquire).split("|")[0]
    out = service.psql(rest.replace("4711", token))
    assert "invoice-42" in out and "psql" in out
    assert service.psql("select state from invoice") == "sent"
    refused = service.psql(rest, check=False)
    assert refused.returncode != 0 and "lease_lost" in refused.stderr
