"""What campaigns have in common: one round, from whole to whole, and what is said at the end."""
import glob
import json
import os
import shutil
import subprocess
import time

from faults import FAULTS
from leasehold.runtime import clock as now
from leasehold.verify import history


def new_promotions(load, place):
    wall, clock, known = time.time(), now(), {promotion.timeline for promotion in load.promotions}
    return [history.Promotion(timeline, at - wall + clock, history.first_token(at)) for timeline, at in sorted(place.promotions().items()) if timeline not in known]


def one_round(load, name, place, settle_s):
    place.wait_for(place.is_whole, "three nodes and two daemons")
    time.sleep(settle_s)
    begin, primary = now(), place.primary()
    fault = FAULTS[name][1](place)
    next(fault)
    broken = now()
    place.wait_for(lambda: any(grant.at > broken for grant in list(load.grants)), "a grant after the fault")
    time.sleep(settle_s)
    next(fault, None)
    place.wait_for(place.is_whole, "three nodes and two daemons after the fault")
    mended = now()
    place.wait_for(lambda: any(grant.at > mended for grant in list(load.grants)), "a grant at the end")
    place.wait_for(lambda: min(load.watched.values()) > mended, "an event for the watchers of both daemons")
    promoted = new_promotions(load, place)
    if not promoted and place.primary() not in (None, primary):
        raise RuntimeError(f"{name}: {place.primary()} replaced {primary}, and no promotion was seen")
    load.promotions += promoted
    silence = history.longest_silence(list(load.grants), begin, now())
    served = [seconds for promotion, seconds in history.seconds_until_served(load.promotions, list(load.grants)).items() if promotion in promoted]
    print(f"  {time.strftime('%H:%M:%S')} {name}: no grant for {silence:.1f} s" +
          "".join(f", the new primary served after {seconds:.1f} s" for seconds in served) + f"; load {os.getloadavg()[0]:.0f}", flush=True)
    return f"{silence:.1f}", f"{max(served):.1f}" if served else "-"


def judge(load, forgotten, guarded):
    """[(what, how many, some of them)]"""
    counts = [(what, len(things), things[:3]) for what, things in history.judge(load, forgotten).items()]
    return [*counts, ("stale writes past the fence", history.stale_writes(load.register.fenced), []),
            ("stale writes behind guard()", history.stale_writes(guarded), [])]


def report(checks, seen, directory, path):
    """Of [(whether it is good, words, examples)]; `seen` is written to the path, or below /tmp when something is bad. Returns how many are."""
    for is_good, words, some in checks:
        print(f"{'ok' if is_good else 'not ok'} {words}", *(f"    {thing}" for thing in some), sep="\n")
    failed = sum(not is_good for is_good, *_ in checks)
    if path or failed:
        path = path or f"/tmp/leasehold-ha-{int(time.time())}.json"
        with open(path, "w", encoding="utf-8") as file:
            json.dump(seen, file, indent=1)
        print(f"the history: {path}")
    if failed:
        logs = f"{path.removesuffix('.json')}.logs"
        os.makedirs(logs, exist_ok=True)
        for log in glob.glob(f"{directory}/*.log"):
            shutil.copy(log, logs)
        print(f"the logs of nodes and daemons: {logs}", subprocess.run(["df", "--output=target,size,avail", *glob.glob(f"{directory}/[nm]?")],
              stdout=subprocess.PIPE, encoding="utf-8", check=False).stdout, sep="\n")
    print(f"ha: {len(checks) - failed} passed, {failed} failed", flush=True)
    return failed
