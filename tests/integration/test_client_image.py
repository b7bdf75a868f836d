"""What the container file's target client holds: the command line and its libraries, in a root that has nothing else."""
import os
import pathlib
import re
import shutil
import subprocess

import pytest

import harness
import rundir

CONTAINER = harness.ROOT / "deploy/container"


@pytest.fixture(scope="module")
def root():
    assert os.geteuid() == 0, "chroot needs root"
    directory = pathlib.Path(rundir.mkdtemp("leasehold-client-"))
    subprocess.run([CONTAINER / "closure", harness.BUILD / "src/cli/leasehold", directory / "leasehold"], check=True)
    (directory / "proc").mkdir()
    yield directory
    shutil.rmtree(directory)


def entry_point():
    """As the container file starts it."""
    return re.findall(r'"([^"]+)"', re.search(r"AS client\n.*?ENTRYPOINT \[(.*?)\]", (CONTAINER / "Containerfile").read_text(), re.S)[1])


def run(root, *arguments, **environment):
    # A container has /proc; the mount ends with the command.
    inside = 'mount --rbind /proc "$0/proc" && exec env -i {} /usr/sbin/chroot "$0" "$@"'.format(" ".join(f"{name}={value}" for name, value in environment.items()))
    return subprocess.run(["unshare", "--mount", "sh", "-c", inside, root, *entry_point(), *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=120)


def test_the_command_line_runs_where_nothing_else_is(root):
    done = run(root, "--version")
    assert done.returncode == 0 and done.stdout.startswith("leasehold "), done
    assert sorted(path.name for path in root.iterdir()) == ["leasehold", "proc"]


def test_a_command_runs_under_a_lease_there(root, service):
    """The command has no shell, and no library path of ours."""
    key = "image-" + os.urandom(4).hex()
    server = {"LEASEHOLD_SERVER": service.daemon.target}
    done = run(root, "run", "images", key, "--", *entry_point(), "-o", "json", "show", "images", key, **server)
    assert done.returncode == 0 and f'"{key}"' in done.stdout, done
    done = run(root, "run", "images", key, "--", "/no/such/command", **server)
    assert done.returncode != 0 and "/no/such/command" in done.stderr, done
