"""Schedules whose workers, daemon and database are killed, while the database's clock is stepped and those of the workers are up to 90 s apart: each instant
ran once or is reported, and no tick ran twice under one token.

LEASEHOLD_TICKS=100000 tries so many: on two busy cores it took half an hour. 54,080 were done, in 54,347 runs, 31,799 skipped, 14,121 missed, while 1,734
workers died.
"""
import collections
import os
import pathlib
import random
import subprocess
import sys
import time
from typing import NamedTuple

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "integration"))
import harness  # noqa: E402
from place import SteppedCluster  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
TICKS = int(os.environ.get("LEASEHOLD_TICKS", "900"))
SCHEDULES = max(6, TICKS // 1000)
EACH = TICKS // SCHEDULES
WORKERS = 8
ENDED = {"done", "dead", "missed", "skipped"}


class Tick(NamedTuple):
    """A row of leasehold.tick; `at` in seconds since the schedule's first instant."""
    schedule: str
    at: int
    instants: int
    state: str
    attempts: int
    token: int | None


class Ran(NamedTuple):
    schedule: str
    at: int
    token: int
    attempt: int


def judge(ticks, ran, names, each):
    """What is wrong, in words."""
    runs = collections.defaultdict(list)
    for row in ran:
        runs[row.schedule, row.at].append(row)
    for name in names:
        covered = collections.Counter(at for tick in ticks if tick.schedule == name for at in range(tick.at, tick.at + tick.instants))
        yield from (f"{name} {at}: no tick" for at in range(each) if not covered[at])
        yield from (f"{name} {at}: {count} ticks" for at, count in covered.items() if count > 1 or not 0 <= at < each)
    known = {(tick.schedule, tick.at): tick for tick in ticks if tick.instants == 1}
    yield from (f"{key}: ran, and is no tick" for key in runs if key not in known)
    for key, tick in known.items():
        tokens = [row.token for row in sorted(runs[key], key=lambda row: row.attempt)]
        if tick.state not in ENDED:
            yield f"{key}: is still {tick.state}"
        if len(set(tokens)) < len(tokens):
            yield f"{key}: ran twice under one token, of {tokens}"
        if tokens != sorted(tokens):
            yield f"{key}: a token went back: {tokens}"
        if len(tokens) > tick.attempts:
            yield f"{key}: ran {len(tokens)} times in {tick.attempts} attempts"
        if tick.state == "done" and tick.token not in tokens:
            yield f"{key}: is done under the token {tick.token}, and ran under {tokens}"
        if tick.schedule.endswith("once") and len(tokens) != (tick.state == "done"):
            yield f"{key}: is {tick.state}, and its run was committed {len(tokens)} times"


GOOD = ([Tick("a.once", 0, 1, "done", 2, 7), Tick("a.once", 1, 2, "missed", 0, None), Tick("b", 0, 1, "done", 2, 9), Tick("b", 1, 1, "dead", 1, 8),
         Tick("b", 2, 1, "skipped", 0, None)],
        [Ran("a.once", 0, 7, 2), Ran("b", 0, 5, 1), Ran("b", 0, 9, 2)])


@pytest.mark.parametrize("words, ticks, ran", [
    ("a.once 1: no tick", {1: None}, {}),
    ("a.once 2: 2 ticks", {2: Tick("a.once", 2, 1, "missed", 0, None)}, {}),
    ("still running", {3: Tick("b", 1, 1, "running", 1, 8)}, {}),
    ("ran twice under one token", {}, {1: Ran("b", 0, 9, 1)}),
    ("a token went back", {}, {1: Ran("b", 0, 11, 1)}),
    ("ran 2 times in 1 attempts", {2: Tick("b", 0, 1, "done", 1, 9)}, {}),
    ("is done under the token 9, and ran under [5]", {}, {2: None}),
    ("committed 0 times", {}, {0: None}),
    ("committed 1 times", {0: Tick("a.once", 0, 1, "dead", 2, 7)}, {}),
    ("is no tick", {}, {0: Ran("a.once", 3, 7, 1)}),
])
def test_the_judge_finds_what_is_wrong(words, ticks, ran):
    def changed(rows, changes):
        return list(filter(None, (changes.get(number, row) for number, row in enumerate(rows))))
    assert not list(judge(*GOOD, ("a.once", "b"), 3))
    found = list(judge(changed(GOOD[0], ticks), changed(GOOD[1], ran), ("a.once", "b"), 3))
    assert any(words in line for line in found), found


class Workers:
    def __init__(self, cluster, database, names, seed, log):
        self.cluster, self.dsn, self.names, self.seed, self.log, self.all, self.started = cluster, cluster.url(database), names, seed, log, [], 0

    def fill_up(self):
        """Those that died are replaced."""
        self.all = [worker for worker in self.all if worker.poll() is None]
        while len(self.all) < WORKERS:
            self.started += 1
            with open(self.log, "a") as log:
                self.all.append(subprocess.Popen(["/usr/bin/python3", "-B", HERE / "tick_worker.py", self.dsn, str(self.seed + self.started), *self.names],
                                                 stdout=log, stderr=log, env={**os.environ, **self.cluster.clock_ahead(self.started * 15 % 105 - 45)}))

    def kill_one(self, dice):
        dice.choice(self.all).kill()

    def end(self):
        for worker in self.all:
            worker.kill()
            worker.wait(30)


class World:
    """A database with schedules of a tick a second, a daemon, workers, and how far the clock was stepped."""

    def __init__(self, directory, seed):
        self.dice, self.total = random.Random(seed), 0
        self.cluster = SteppedCluster(("max_connections = 100",))
        self.database = self.cluster.create_database(migrated=True)
        self.names = [f"ticks.s{number}{'.once' if number % 2 else ''}" for number in range(SCHEDULES)]
        self.psql("create table ran (schedule text, at timestamptz, token bigint, attempt integer);"
                  "select leasehold.set_policy('ticks', min_duration => '100 ms', grace => '200 ms', free_retention => '0 s')")
        self.daemon = harness.Daemon(database=self.cluster.url(self.database))
        self.begin = self.psql(f"select date_trunc('second', clock_timestamp() + interval '{5 + SCHEDULES / 2} s')")
        self.psql("".join(self.schedule(number, name) for number, name in enumerate(self.names)))
        assert self.psql(f"select count(*), max(created_at) < '{self.begin}' from leasehold.schedule") == f"{SCHEDULES}|t", "the machine is too slow for this"
        self.workers = Workers(self.cluster, self.database, self.names, seed * 1000, directory / "workers")

    def schedule(self, number, name):
        catch_up, deadline = ("all", "all", "last")[number % 3], "'60 s'" if number % 5 == 4 else "null"
        return (f"select leasehold.set_schedule('{name}', 'every 1 s', starts_at => '{self.begin}', ends_at => '{self.begin}'::timestamptz + interval '{EACH - 1} s', "
                f"catch_up => '{catch_up}', catch_up_max => 1000, tick_deadline => {deadline}, "
                f"overlap => {1 + number % 4}, attempts => 20, backoff => '100 ms');")

    def psql(self, sql):
        return self.cluster.psql(sql, self.database)

    def step(self, seconds):
        self.total += seconds
        self.cluster.step(self.total)

    def fault(self):
        what = self.dice.choice(("forward", "forward", "back", "crash", "daemon", "worker"))
        if what == "forward":
            self.step(self.dice.uniform(5, EACH / 6))
        elif what == "back":
            self.step(-self.dice.uniform(1, 8))
        elif what == "crash":
            self.cluster.stop("immediate")
            time.sleep(self.dice.uniform(0, 1))
            self.cluster.start()
        elif what == "daemon":
            self.daemon.kill()
            time.sleep(3)  # three ticks
            self.daemon.start(wait=False)
        else:
            self.workers.kill_one(self.dice)

    def is_over(self):
        return self.psql(f"select clock_timestamp() > '{self.begin}'::timestamptz + interval '{EACH} s'") == "t"

    def rest(self):
        return int(self.psql("select count(*) from leasehold.tick where state in ('due', 'failed', 'running')") or 0) + int(
            self.psql("select count(*) from leasehold.schedule where next_at is not null"))

    def rows(self, kind, sql):
        return [kind(name, int(at), *(int(word) if word.lstrip("-").isdigit() else word or None for word in words))
                for name, at, *words in (line.split("|") for line in self.psql(sql).splitlines())]

    def history(self):
        at = f"round(extract(epoch from at - '{self.begin}'::timestamptz))"
        return (self.rows(Tick, f"select schedule, {at}, instants, state, attempts, token from leasehold.tick where not by_hand"),
                self.rows(Ran, f"select schedule, {at}, token, attempt from ran"))

    def close(self):
        self.workers.end()
        self.daemon.destroy()
        self.cluster.destroy()


def test_each_instant_runs_once_or_is_reported(tmp_path):
    seed = int(os.environ.get("LEASEHOLD_SEED", "1"))
    world = World(tmp_path, seed)
    try:
        while not world.is_over():
            world.workers.fill_up()
            time.sleep(world.dice.uniform(0.5, 1.5))
            world.fault()
        left, until = None, time.monotonic() + 60
        while (rest := world.rest()) and time.monotonic() < until:
            if rest != left:
                left, until = rest, time.monotonic() + 60
            world.workers.fill_up()
            time.sleep(0.2)
        world.workers.end()
        ticks, ran = world.history()
    finally:
        world.close()
    states = collections.Counter(tick.state for tick in ticks)
    print(f"seed {seed}: {sum(tick.instants for tick in ticks)} instants, {dict(states)}, {len(ran)} runs, {world.workers.started - WORKERS} workers died")
    wrong = list(judge(ticks, ran, world.names, EACH))
    assert not wrong, wrong[:20]
    said = (tmp_path / "workers").read_text()
    assert not said, said
    assert states["done"] > TICKS / 10 and len(ran) >= states["done"] and world.workers.started > WORKERS
    assert any(tick.attempts > 1 for tick in ticks), "no tick had a second attempt"
