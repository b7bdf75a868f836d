"""Two clusters that share the keys of one namespace: each loses its primary, then keys move between them while a primary dies.

Each cluster has clients of keys that stay in it; others have keys that move. While the primary of one cluster is away, the keys of the other must be
granted. A move that hears an error is called again.
"""
import hashlib
import itertools
import os
import pathlib
import random
import subprocess
import time

from faults import DAEMONS, NODES, SECOND, SITE, TARGETS, Place, database
from leasehold.runtime import clock as now
from leasehold.verify import history
from leasehold.verify.load import LINE, Load, Site
from rounds import judge, new_promotions, one_round, report

NAMESPACE = "ha"
MOVE = SITE.parents[2] / "move-namespace"
DATABASE = {"home": database(NODES), "eu": database(SECOND), "us": database(SECOND, "leasehold2")}
BEFORE, AFTER = ("home", "eu"), ("home", "eu", "us")
FAULTS = ("kill", "kill-postgres")
# From, to, the sections that say where keys belong afterwards, and whose primary dies.
MOVES = (("home", "us", AFTER, NODES), ("us", "home", BEFORE, NODES), ("home", "us", AFTER, SECOND), ("eu", "us", AFTER, SECOND),
         ("us", "home", BEFORE, SECOND), ("us", "eu", BEFORE, SECOND))
# In place of psql: the node of a primary is killed before one of the statements.
KILLER = """#!/bin/bash
echo >> "$HA_DIR/count"
[ "$(wc -l < "$HA_DIR/count")" != "$HA_AT" ] || { $HA_KILL; touch "$HA_DIR/killed"; }
exec /usr/bin/psql "$@"
"""


def place_of(key, names):
    """Where src/service/places/spread.h says."""
    slot = int(hashlib.sha256(key.encode()).hexdigest()[:3], 16)
    return max(names, key=lambda name: hashlib.sha256(f"{name} {slot}".encode()).digest())


class Keys(Load):
    """Takes keys only that are in one database before the moves, and in another one, or the same, after them."""

    def __init__(self, before, after, kept_s):
        super().__init__(Site(TARGETS, f"{NAMESPACE}.{before}-{after}", database=DATABASE[before] if before == after else None), kept_s)
        self.places = before, after

    def at(self, key):
        if "~" in key:
            return key
        names = (f"{key}~{number}" for number in itertools.count())
        return next(name for name in names if (place_of(name, BEFORE), place_of(name, AFTER)) == self.places)

    def request(self, key, length_s, **fields):
        return super().request(self.at(key), length_s, **fields)

    def note(self, key, *rest):
        super().note(self.at(key), *rest)

    def write_guarded(self, key, token):
        super().write_guarded(self.at(key), token)


class Campaign:
    def __init__(self, directory, options):
        self.directory, self.settle_s = directory, options.settle
        self.places = {nodes: Place(directory, True, 150, nodes) for nodes in (NODES, SECOND)}
        self.stay = {NODES: Keys("home", "home", 60), SECOND: Keys("eu", "eu", 60)}
        self.loads = {"home": self.stay[NODES], "eu": self.stay[SECOND], "home to us": Keys("home", "us", 60), "eu to us": Keys("eu", "us", 60)}
        self.dice = random.Random(int(time.time()))
        self.checks = []

    def others_go_on(self, words, nodes, begin):
        """In the longest time without a grant of this cluster's keys, those of the other were granted."""
        (other,) = (load for of, load in self.stay.items() if of != nodes)
        times = [begin, *sorted(grant.at for grant in list(self.stay[nodes].grants) if grant.at > begin), now()]
        start, end = max(zip(times, times[1:]), key=lambda pair: pair[1] - pair[0])
        count = sum(start < grant.at < end for grant in list(other.grants))
        self.checks.append((count > 0, f"{words}: {count} grants of the other cluster's keys in {end - start:.1f} s without one of its own; "
                                       f"the longest time without one of the other: {history.longest_silence(list(other.grants), begin, now()):.1f} s", []))

    def fault(self, name, nodes):
        begin = now()
        one_round(self.stay[nodes], name, self.places[nodes], self.settle_s)
        self.others_go_on(f"{name} of {nodes[0]}'s cluster", nodes, begin)

    def add_section(self):
        """In both daemons, whose rows then wait for keys."""
        primary = self.places[SECOND].primary()
        subprocess.run(["psql", "-X", "-q", database([primary], "postgres"), "-c", "create database leasehold2 owner leasehold"], check=True)
        for daemon in DAEMONS:
            path = pathlib.Path(self.directory, f"{daemon}.ini")
            url = DATABASE["us"].replace("user=postgres", "user=leasehold").split(" target_session_attrs")[0]
            path.write_text(f"{path.read_text()}[database us]\ndatabase = {url}\nspread = {NAMESPACE}\n")
            subprocess.run(["kill", "-HUP", pathlib.Path(self.directory, f"{daemon}.pid").read_text().strip()], check=True)
        self.places[SECOND].wait_for(lambda: subprocess.run(["psql", "-X", "-q", DATABASE["us"], "-c", "select from leasehold.spread"],
                                     stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=False).returncode == 0, "the schema of us")

    def move(self, source, target, names, nodes):
        place, begin = self.places[nodes], now()
        for each in self.places.values():
            each.wait_for(each.is_whole, "three nodes and two daemons")
        node, work, at = place.primary(), pathlib.Path(self.directory, f"move-{len(self.checks)}"), self.dice.randrange(5, 40)
        work.mkdir()
        (work / "psql").write_text(KILLER)
        (work / "psql").chmod(0o755)
        kill = {"PATH": f"{work}:{os.environ['PATH']}", "HA_DIR": work, "HA_AT": str(at), "HA_KILL": f"{SITE} kill {self.directory} {node}"}
        said, tries, until = [], 0, time.monotonic() + place.limit_s
        while True:
            tries += 1
            done = subprocess.run([MOVE, "keys", NAMESPACE, DATABASE[source], DATABASE[target], target, ",".join(names)], env={**os.environ, **kill},
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, timeout=place.limit_s)
            said.append(done.stdout)
            if done.returncode == 0:
                break
            if time.monotonic() > until:
                raise RuntimeError(f"the move from {source} to {target} does not end: {said[-1]}")
            time.sleep(1)
        words = f"move from {source} to {target}, {nodes[0]}'s primary killed before statement {at}"
        if not (work / "killed").exists():
            place.site("kill", node)
            words += ", which is after its end"
        place.another_primary(node)
        place.site("start", node)
        place.wait_for(place.is_whole, "three nodes and two daemons after the fault")
        mended = now()
        for name, load in self.loads.items():
            place.wait_for(lambda load=load: any(grant.at > mended for grant in list(load.grants)), f"a grant of {name} after the move")
        self.stay[nodes].promotions += new_promotions(self.stay[nodes], place)
        print(f"  {time.strftime('%H:%M:%S')} {words}: {tries} calls; load {os.getloadavg()[0]:.0f}", flush=True)
        for text in said[:1] if tries > 1 else []:
            print("    " + text.strip().replace("\n", "\n    "), flush=True)
        self.others_go_on(words, nodes, begin)

    def end(self):
        for name, load in self.loads.items():
            load.stop.set()
        for name, load in self.loads.items():
            forgotten = load.end(150)
            guarded = load.site.guarded() if load.site.database else []
            moves = name not in BEFORE
            self.checks += [(not count or moves and "overtaken" in what, f"{name}: {what}: {count}" + (" (a move ends their places)" if moves and "overtaken" in what else ""), some)
                            for what, count, some in judge(load, forgotten, guarded)]
            stale = history.stale_writes(load.register.unfenced)
            in_line = sum(waiter.token is not None and waiter.queued is not None for waiter in load.waiters)
            self.checks.append((stale > 0 and in_line > 0 and load.renewals > 0 and any(session.events for session in load.sessions) and bool(guarded or moves),
                                f"{name}: {len(load.holds)} holds, {in_line} after a wait in {LINE}, {load.renewals} renewals, {len(load.losses)} losses, "
                                f"{sum(len(session.events) for session in load.sessions)} events in {len(load.sessions)} watches, {len(guarded)} writes behind guard(), "
                                f"{stale} stale ones without fencing", []))
            slow = history.slow_promotions(load.promotions, load.grants)
            self.checks.append((not slow, f"{name}: of {len(load.promotions)} new primaries {len(slow)} served late", slow))


def campaign(directory, options):
    this = Campaign(directory, options)
    print(this.places[NODES].site("up", "--clusters", "2", "--mode", options.mode, "--disk", f"{600 * options.rounds}m",
                                  *(["--failsafe"] if options.failsafe else [])), flush=True)
    for load in this.loads.values():
        if load.site.database:
            load.site.prepare()
        load.start(150)
    trouble = None
    try:
        for turn in range(options.rounds):
            for name in options.fault or FAULTS:
                for nodes in this.places:
                    this.fault(name, nodes)
            if turn == 0:
                this.add_section()
            for move in MOVES:
                this.move(*move)
    except (RuntimeError, subprocess.SubprocessError) as error:
        trouble = str(error)
        print(f"  {trouble}", flush=True)
    this.end()
    this.checks.append((trouble is None, f"all faults were tried: {trouble or 'yes'}", []))
    return report(this.checks, {name: load.history() for name, load in this.loads.items()}, directory, options.history)
