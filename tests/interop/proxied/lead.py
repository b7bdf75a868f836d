"""Leaders of the Python package: lead.py TARGET [KEY:SECONDS]... It prints `leading KEY TOKEN NANOSECONDS` when it is elected, and `over KEY
REASON NANOSECONDS` with the time of the last step of its work (CLOCK_BOOTTIME, which all processes share). See test_proxies.py."""
import sys
import threading
import time

import leasehold


def now():
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def say(*words):
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


def stand(client, key, seconds):
    for leadership in client.lead("proxied", key, duration=seconds, owner="python"):
        step = None
        while leadership.is_held():
            if step is None:
                say("leading", key, leadership.token, now())
            step = now()
            time.sleep(0.02)
        if step is not None:  # else its grant was read too late
            say("over", key, leadership.lost, step)


server = leasehold.Client(sys.argv[1])
for each in sys.argv[2:]:
    name, duration = each.split(":")
    threading.Thread(target=stand, args=(server, name, float(duration)), daemon=True).start()
sys.stdin.read()
