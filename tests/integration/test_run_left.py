"""What a command of `leasehold run` leaves behind when it ends, and what has become another user: told, ended, or kept on purpose."""
import contextlib
import os
import pathlib
import pwd
import shutil
import signal
import tempfile

import pytest

from running import is_up, marked, scope


@pytest.fixture
def left(runs):
    """Ends what a test keeps."""
    made = []

    def start(*args, **more):
        made.append(runs(*args, **more))
        return made[-1]

    yield start
    for run in made:
        for pid in marked(run.mark):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


SERVICE = "setsid sh -c 'echo $$ > detached; exec sleep 1000' > log 2>&1 & sleep 1001 > log 2>&1 & until [ -s detached ]; do sleep 0.02; done; "


def test_what_is_left_behind_is_named_and_ended(service, left, ns, tmp_path):
    run = left(ns, "k", SERVICE, cwd=tmp_path)
    assert run.ends() == 0 and scope(service, ns) == "free|ok"
    assert "the command left 2 processes behind, to be ended: " in run.err and "sleep (" in run.err, run.err
    assert "--keep-detached" in run.err
    run.nothing_is_left()


def test_a_command_that_leaves_nothing_is_silent(left, ns):
    run = left(ns, "k", "sleep 0.1 & wait; true | cat")
    assert run.ends() == 0 and run.err == ""


def test_what_was_detached_on_purpose_is_kept(service, left, ns, tmp_path):
    run = left(ns, "k", SERVICE, "--keep-detached", cwd=tmp_path)
    assert run.ends() == 0 and scope(service, ns) == "free|ok"
    assert "the command left 1 process behind, to be ended: sleep (" in run.err
    detached = int((tmp_path / "detached").read_text())
    assert run.inside() == [detached]
    assert left(ns, "k", "true").ends() == 0  # its lease is another's now
    assert run.inside() == [detached]


@pytest.mark.parametrize("option", [(), ("--keep-detached",)], ids=["", "--keep-detached"])
def test_a_lost_lease_keeps_nothing(service, left, ns, tmp_path, option):
    run = left(ns, "k", SERVICE + "touch up; sleep 1000", "-d", "3s", *option, cwd=tmp_path)
    is_up(tmp_path / "up")
    service.psql(f"select leasehold.force_release('{ns}', 'k', 'maintenance')")
    assert run.ends() == 4 and "behind" not in run.err
    run.nothing_is_left()


# --- another user ---


def as_root(test):
    """Only root can make a program that becomes another user."""
    return test if os.geteuid() == 0 else None


@pytest.fixture
def place():
    """A directory that any user may read."""
    place = pathlib.Path(tempfile.mkdtemp())
    place.chmod(0o777)
    yield place
    shutil.rmtree(place)


@as_root
def test_a_process_that_becomes_another_user_is_told_at_once(service, left, ns, place):
    """As sudo does. The lease is not given back before that process has ended."""
    become = shutil.copy(shutil.which("setpriv"), place / "become")
    os.chmod(become, 0o4755)
    run = left(ns, "k", f"exec {become} --reuid=0 --regid=0 --clear-groups sleep 1000", user=pwd.getpwnam("nobody").pw_uid, group=65534,
               extra_groups=[], cwd=place)
    said = run.process.stderr.readline()
    assert "1 process of the command cannot be ended, another user owns it: sleep (" in said
    pid = int(said.split("sleep (")[1].split(")")[0])
    run.process.terminate()
    assert scope(service, ns, "state") == "held"
    os.kill(pid, signal.SIGTERM)
    assert run.ends() == 128 + signal.SIGTERM and scope(service, ns, "state") == "free"
