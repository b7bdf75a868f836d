"""What a command of `leasehold run` leaves behind when it ends, and what has become another user: told, ended, or kept on purpose."""
import contextlib
import os
import pathlib
import pwd
import shutil
import signal
import subprocess
import tempfile

import pytest

from harness import wait_until
from running import is_up, marked, scope, state_and_parent


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
    run = left(ns, "k", SERVICE + "touch up; sleep 1000", "-d", "9s", *option, cwd=tmp_path)
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


# --- a cgroup of its own ---


def own_cgroup():
    """The directory of this process's cgroup of version 2; None where there is none."""
    mounts = [line.split()[4] for line in pathlib.Path("/proc/self/mountinfo").read_text().splitlines() if " - cgroup2 " in line]
    path = [line[3:] for line in pathlib.Path("/proc/self/cgroup").read_text().splitlines() if line.startswith("0::")]
    return pathlib.Path(mounts[0] + path[0].rstrip("/")) if mounts and path else None


@contextlib.contextmanager
def inside_cgroup(uid, mark):
    """This process is in a cgroup that belongs to a user, or has the mark of a delegated one; whoever it starts stays in it."""
    own = own_cgroup()
    made = own / f"test-{os.getpid()}"
    made.mkdir()
    try:
        for path in (made, made / "cgroup.procs", made / "cgroup.subtree_control", made / "cgroup.threads"):
            os.chown(path, uid, -1)
        if mark:
            os.setxattr(made, "user.delegate", b"1")
        (made / "cgroup.procs").write_text(str(os.getpid()))
        yield made
    finally:
        (own / "cgroup.procs").write_text(str(os.getpid()))
        wait_until(lambda: not (made / "cgroup.procs").read_text(), what="the end of what was started in the cgroup")
        made.rmdir()


def with_cgroups(test):
    """Only root can delegate a cgroup, where they may be written and can be ended whole."""
    own = own_cgroup()
    return test if os.geteuid() == 0 and own and os.access(own, os.W_OK) and os.statvfs(own).f_flag & os.ST_RDONLY == 0 else None


@with_cgroups
def test_in_a_delegated_cgroup_a_process_of_another_user_is_ended_with_the_lease(service, left, ns, place):
    become = shutil.copy(shutil.which("setpriv"), place / "become")
    os.chmod(become, 0o4755)
    nobody = pwd.getpwnam("nobody").pw_uid
    with inside_cgroup(nobody, False) as cgroup:
        run = left(ns, "k", f"exec {become} --reuid=0 --regid=0 --clear-groups sh -c 'echo there > up; sleep 1000'", "-d", "9s", user=nobody, group=65534,
                   extra_groups=[], cwd=place)
        is_up(place / "up")
        assert [path.name for path in cgroup.glob("leasehold-*")] == [f"leasehold-{run.process.pid}"]
        service.psql(f"select leasehold.force_release('{ns}', 'k', 'maintenance')")
        assert run.ends() == 4 and "cannot be ended" not in run.err, run.err
        run.nothing_is_left()
        assert not list(cgroup.glob("leasehold-*"))


@with_cgroups
@pytest.mark.parametrize("mark", [True, False])
def test_root_makes_a_cgroup_only_where_one_is_delegated(left, ns, tmp_path, mark):
    with inside_cgroup(0, mark) as cgroup:
        run = left(ns, "k", "cat /proc/self/cgroup > where; touch up; read line", stdin=subprocess.PIPE, cwd=tmp_path)
        is_up(tmp_path / "up")
        assert (f"/leasehold-{run.process.pid}\n" in (tmp_path / "where").read_text()) == mark
        run.process.stdin.write("\n")
        run.process.stdin.flush()
        assert run.ends() == 0
        assert not list(cgroup.glob("leasehold-*"))


@with_cgroups
@pytest.mark.parametrize("who", ["outer", "supervisor"])
def test_the_cgroup_goes_when_a_process_of_leasehold_run_is_killed(left, ns, tmp_path, who):
    with inside_cgroup(0, True) as cgroup:
        run = left(ns, "k", "touch up; sleep 1000", "-d", "9s", cwd=tmp_path)
        is_up(tmp_path / "up")
        parents = {pid: state_and_parent(pid)[1] for pid in run.inside()}
        supervisor = next(pid for pid, parent in parents.items() if parent == run.process.pid)
        os.kill(run.process.pid if who == "outer" else supervisor, signal.SIGKILL)
        run.ends()
        run.nothing_is_left()
        wait_until(lambda: not list(cgroup.glob("leasehold-*")), what="the end of the cgroup")
