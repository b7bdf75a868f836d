"""The directory of a run of tests. What its programs make is in it, and goes with it.

    rundir.mkdtemp('lh-pg-')     a new directory there

The run is that of tests/run, else of the first program that asks, and of the programs that it starts: LEASEHOLD_TEST_PLACE names the directory.
A run that is killed removes nothing. The next one does: the file `owner` names a process by its number, the time of its start and what numbers it;
where that process is gone, what it started ends, which the same variable in its environment shows, and the directory is removed.
"""
import atexit
import contextlib
import glob
import os
import shutil
import signal
import tempfile
import time

NAME = 'LEASEHOLD_TEST_PLACE'
PREFIX = os.path.join('/tmp', 'lh-run-')  # short, for sockets; not below TMPDIR: the user postgres must be able to enter it
END_LIMIT_S = 5


def start_of(pid):
    """In ticks of the kernel's clock since it started; None where there is no such process."""
    try:
        with open('/proc/%s/stat' % pid, encoding='utf-8', errors='replace') as file:
            return file.read().rsplit(')', 1)[1].split()[19]
    except (FileNotFoundError, ProcessLookupError):
        return None


def here():
    """In another container, or after another start of the machine, a number names another process."""
    with open('/proc/sys/kernel/random/boot_id', encoding='ascii') as file:
        return file.read().strip(), os.readlink('/proc/self/ns/pid')


def make_place():
    """For the caller, who removes it, and the programs that it starts."""
    for place in glob.glob(PREFIX + '*'):
        if is_dead(place):
            remove(place)
    place = os.environ[NAME] = tempfile.mkdtemp(prefix=os.path.basename(PREFIX), dir=os.path.dirname(PREFIX))
    os.chmod(place, 0o1777)  # initdb runs as postgres
    with open(os.path.join(place, 'owner'), 'w', encoding='ascii') as file:
        file.write(' '.join((str(os.getpid()), start_of('self'), *here())))
    return place


def is_dead(place):
    """Only what is certain: `owner` is whole, and of this machine."""
    try:
        with open(os.path.join(place, 'owner'), encoding='ascii') as file:
            pid, start, *where = file.read().split()
    except (OSError, ValueError):
        return False
    boot, numbers = here()
    if len(where) != 2 or where[0] == boot and where[1] != numbers:
        return False
    return where[0] != boot or start_of(pid) != start


def find_place():
    place = os.environ.get(NAME)
    if not place:
        place = make_place()
        owner = os.getpid()
        atexit.register(lambda: os.getpid() != owner or remove(place))
    return place


def mkdtemp(prefix):
    return tempfile.mkdtemp(prefix=prefix, dir=find_place())


def children(place):
    """The processes that a run started, and that did not end; but this one."""
    word = ('%s=%s' % (NAME, place)).encode()
    for pid in filter(str.isdigit, os.listdir('/proc')):
        with contextlib.suppress(OSError), open('/proc/%s/environ' % pid, 'rb') as file:
            if word in file.read().split(b'\0') and int(pid) != os.getpid():
                yield int(pid)


def end(place, *numbers):
    for pid in children(place):
        for number in numbers:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)
    limit = time.monotonic() + END_LIMIT_S
    while any(children(place)) and time.monotonic() < limit:
        time.sleep(0.02)


def remove(place):
    end(place, signal.SIGQUIT, signal.SIGCONT)  # with its shared memory, which PostgreSQL leaves at SIGKILL
    end(place, signal.SIGKILL)
    shutil.rmtree(place, ignore_errors=True)
