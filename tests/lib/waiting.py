"""A test waits for a condition with a bound, never for a time to pass."""
import os
import pathlib
import signal
import time


def wait_until(condition, seconds=60, what="the condition"):
    """Poll until `condition()` is true; its value. A bound, not a measurement."""
    begun = time.monotonic()
    while True:
        asked = time.monotonic()
        value = condition()
        if value:
            return value
        now = time.monotonic()
        if now > begun + seconds:
            raise AssertionError(f"{what} did not come true within {seconds} s")
        # What takes long is asked for less often: a condition that starts a program would keep a processor busy.
        time.sleep(max(min((now - begun) / 10, 0.05), 0.01, min(now - asked, 1)))


def freeze(pid):
    """Stop a process, and wait until each of its threads stands: one goes on until another one of them takes the signal."""
    os.kill(pid, signal.SIGSTOP)
    states = [path / "stat" for path in pathlib.Path(f"/proc/{pid}/task").iterdir()]
    wait_until(lambda: all(path.read_text().rpartition(")")[2].split()[0] == "T" for path in states), what=f"process {pid} to stand still")
