"""A test waits for a condition with a bound, never for a time to pass."""
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
