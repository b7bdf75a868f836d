"""docs/use/sharing.md: its examples, run as a reader would."""
import os
import re
import subprocess

import pytest

import harness

PAGE = (harness.ROOT / "docs/use/sharing.md").read_text()


def block(language, word):
    found = [text for text in re.findall(rf"```{language}\n(.*?)```", PAGE, re.S) if word in text]
    assert len(found) == 1, word
    return found[0]


@pytest.fixture
def shell(service):
    def run(script):
        env = {**os.environ, "PATH": f"{harness.CLI.parent}:{os.environ['PATH']}", "LEASEHOLD_SERVER": service.daemon.target}
        done = subprocess.run(["bash", "-e", "-c", script], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env, timeout=120)
        assert done.returncode == 0, done.stdout
        return done.stdout

    return run


def test_readers_and_a_writer(shell):
    assert shell(block("sh", "reading, beside")).splitlines() == ["reading, beside any number of other readers", "writing, alone"]
    assert re.search(r"^mode +shared, 1 unit$", shell(block("sh", "leasehold downgrade")), re.M)


def test_five_users_of_an_api(shell):
    held = 'leasehold run apis search --shared=3 --owner long -- sleep 600 & until leasehold show apis search >/dev/null 2>&1; do sleep 0.1; done\n'
    out = shell(held + block("sh", "capacity=5") + "kill %1")
    assert "one of five callers\ncounts for two\n" in out
    assert re.search(r"^mode +shared, 3 units$", out, re.M) and re.search(r"^units free +2$", out, re.M)


def test_gpus_by_slot(shell):
    out = shell(block("sh", "capacity=8"))
    assert out.endswith("training on GPU 0\ntraining on two GPUs: 1,2\n")


def test_three_accounts_at_once(shell, service):
    forward = block("sh", "--also")
    first, second = "alice --also accounts:bob", "bob --also accounts:alice"
    assert first in forward
    loop = lambda script: f"for i in $(seq 8); do\n{script}done\n"
    out = shell(f"( {loop(forward)} ) & ( {loop(forward.replace(first, second).replace('alice pays', 'bob pays'))} ); wait $!")
    assert len(re.findall(r"^alice pays bob and carol, tokens (\d+),(\d+),(\d+)$", out, re.M)) == 8
    assert len(re.findall(r"^bob pays bob and carol, tokens \d+,\d+,\d+$", out, re.M)) == 8
    assert service.psql("select count(*) from leasehold.lease where namespace = 'accounts'") == "0"


def test_three_accounts_at_once_in_sql(service):
    acquired, released = block("sql", "acquire_all").strip().splitlines()
    assert [line.split("|")[0] for line in service.psql(acquired).splitlines()] == ["alice", "bob", "carol"]
    assert service.psql(acquired.replace("c56ea1f0", "d56ea1f0")) == ""
    assert service.psql(released).split() == ["t", "t", "t"]


def test_the_same_in_sql(service):
    service.psql("select leasehold.set_policy('gpus', capacity => 8)")
    shared, exclusive, downgraded = (service.psql(line).split("|") for line in block("sql", "downgrade").strip().splitlines())
    assert shared[1:] == ["2", "{1,2}"]
    assert exclusive[1] == "exclusive" and downgraded[1] == "shared" and int(downgraded[0]) > int(exclusive[0])
    service.psql("select leasehold.force_release('reports', 'sales', 'the end'), leasehold.force_release('gpus', 'host-7', 'the end')")


def test_the_same_in_c(tmp_path):
    """It compiles: what it calls is tested elsewhere."""
    (tmp_path / "page.c").write_text(
        '#include <leasehold.h>\nvoid train(const int32_t *slots, size_t count);\n'
        'void page(struct lh_declared *gpus);\nvoid page(struct lh_declared *gpus)\n{\nstruct lh_error error;\n'
        + block("c", "lh_lease_slots") + "}\n"
        + "void transfer(struct lh_lease **leases);\nvoid accounts_page(struct lh_declared *accounts);\n"
        + "void accounts_page(struct lh_declared *accounts)\n{\nstruct lh_error error;\n" + block("c", "lh_acquire_all") + "}\n")
    subprocess.run(["cc", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", f"-I{harness.ROOT}/src", tmp_path / "page.c"], check=True)


def test_every_block_is_run():
    assert len(re.findall(r"^```\w+$", PAGE, re.M)) == 9
