"""The command leasehold-verify."""
from __future__ import annotations

import argparse
import json
import pathlib
import signal
import sys
import time
from typing import Any, Sequence

from .. import tls
from ..errors import LeaseholdError
from ..runtime import clock as now
from . import history, report
from .load import LINE, Load, Site

DESCRIPTION = """\
Clients take, renew, wait for and watch leases of your site, while you break it: kill daemons, fail the database over, cut networks. Then a
judge reads what they saw. Two holders at once, a token that went back, a lease that was lost before its deadline, a waiter that was overtaken
or forgotten, an event that came twice or never: each is told, with the leases that show it.

    leasehold-verify --server host1:7420,host2:7420 --seconds 600 --report verify.html

Name each daemon, not a balancer before them: waiters of a daemon that hangs may be passed over, and the judge must know whose they were.
LEASEHOLD_CA, LEASEHOLD_CERT, LEASEHOLD_TLS_KEY and LEASEHOLD_SERVER_NAME are as for all clients. Clients are this one process: what a holder
believes is tried, not what a host's clock does."""
EPILOG = """The exit status is 0 when nothing was wrong, 1 when something was, 2 when nothing was proven: wrong arguments, or no lease was granted."""
FIRST_GRANT_S = 30


def parse(words: Sequence[str] | None) -> argparse.Namespace:
    def seconds(text: str) -> float:
        if not 1 <= float(text) <= 7 * 86400:
            raise argparse.ArgumentTypeError(f"must be from 1 to 604800 seconds, is {text}")
        return float(text)

    parser = argparse.ArgumentParser("leasehold-verify", description=DESCRIPTION, epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", default="127.0.0.1:7420", metavar="HOST:PORT,...", help="each daemon; default 127.0.0.1:7420")
    parser.add_argument("--namespace", default="verify", help="of its own, which nobody else uses; default verify")
    parser.add_argument("--seconds", type=seconds, default=60, help="how long the clients ask for leases; Ctrl-C ends it earlier; default 60")
    parser.add_argument("--kept", type=seconds, default=60, metavar="SECONDS", help="duration of the leases that must outlive every fault; default 60")
    parser.add_argument("--token-file", metavar="FILE", help="the access token, as one line")
    parser.add_argument("--database", metavar="CONNINFO", help="also write behind leasehold.guard(), into a table that is made here and dropped at the end")
    parser.add_argument("--history", metavar="FILE", help="all that was seen, as JSON")
    parser.add_argument("--report", metavar="FILE", help="a page with the grants over time, and a picture of each lease that failed")
    return parser.parse_args(words)


def watch_over(load: Load, length_s: float) -> None:
    """Until the time is over or somebody stops it, with a line each ten seconds."""
    begun = now()
    told = begun
    while (passed := now() - begun) < length_s and not load.stop.wait(0.2):
        grants = list(load.grants)
        if not grants:
            return
        if now() - told >= 10:
            told = now()
            silent = told - (grants[-1].at if grants else begun)
            print(f"  {passed:5.0f} s: {len(grants)} grants, {len(load.losses)} leases lost" + (f", no grant for {silent:.1f} s" if silent > 2 else ""),
                  flush=True)


def verdict(load: Load, forgotten: Sequence[Any], guarded: Sequence[tuple[str, int]]) -> dict[str, Sequence[Any]]:
    found = history.judge(load, forgotten)
    found["stale writes past the fence"] = [None] * history.stale_writes(load.register.fenced)
    found["stale writes behind guard()"] = [None] * history.stale_writes(guarded)
    return found


def summary(load: Load, begun: float, guarded: Sequence[Any]) -> str:
    in_line = sum(waiter.scope == LINE and waiter.token is not None for waiter in load.waiters)
    events = sum(len(session.events) for session in load.sessions)
    return (f"{len(load.holds)} holds, {in_line} of them after a wait in line, {load.renewals} renewals, {events} events in {len(load.sessions)} watches; "
            f"{len(load.register.fenced)} writes with fencing, {load.register.refused} refused, {len(guarded)} behind guard(); without fencing "
            f"{history.stale_writes(load.register.unfenced)} would have been stale; longest time without a grant "
            f"{history.longest_silence(load.grants, begun, now()):.1f} s")


def verify(options: argparse.Namespace) -> int:
    site = Site(options.server, options.namespace, tls.from_environment(), options.token_file, options.database)
    site.metadata()
    if site.database is not None:
        site.prepare()
    load = Load(site, options.kept)
    signal.signal(signal.SIGINT, lambda *_: load.stop.set())
    signal.signal(signal.SIGTERM, lambda *_: load.stop.set())
    begun, started = now(), time.time()
    load.start(min(FIRST_GRANT_S, options.seconds))
    if load.grants:
        print(f"{len(site.servers)} daemons, namespace {site.namespace}, {options.seconds:.0f} s: break the site now; Ctrl-C ends it", flush=True)
    watch_over(load, options.seconds)
    print("no more requests; the line is served", flush=True)
    forgotten = load.end(max(60, options.kept) if load.grants else 0)
    guarded: list[tuple[str, int]] = []
    if site.database is not None:
        guarded = site.guarded()
        site.clean()
    found = verdict(load, forgotten, guarded)
    print(summary(load, begun, guarded))
    for words_of_rule, things in found.items():
        print(f"{'not ok' if things else 'ok'} {words_of_rule}: {len(things)}", *(f"    {report.tell(thing, begun)}" for thing in things[:3] if thing), sep="\n")
    if options.history:
        pathlib.Path(options.history).write_text(json.dumps(load.history(), indent=1), encoding="utf-8")
    if options.report:
        pathlib.Path(options.report).write_text(report.page(load, found, summary(load, begun, guarded), begun, started), encoding="utf-8")
    failed = sum(bool(things) for things in found.values())
    print(f"verify: {len(found) - failed} passed, {failed} failed")
    if not load.grants:
        print("leasehold-verify: no lease was granted: nothing is proven. Is the address right, and may this client acquire in the namespace?",
              *sorted(set(load.errors))[:3], sep="\n    ", file=sys.stderr)
        return 2
    return 1 if failed else 0


def main(words: Sequence[str] | None = None) -> int:
    try:
        return verify(parse(words))
    except (LeaseholdError, OSError) as error:
        print(f"leasehold-verify: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
