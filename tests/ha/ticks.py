"""Workers of a schedule with a tick a second, on the database that is broken, and the judge of what they saw: a tick of which a worker heard that it is done
runs no second time.

A worker claims, writes that it ran behind guard(), and releases. What it heard counts, not what it sent.
"""
import collections
import logging
import threading
import time
from typing import NamedTuple

import psycopg

logging.getLogger("psycopg").setLevel(logging.ERROR)  # it warns of each connection that breaks
NAME = "ha-ticks"
WORKERS = 4
SCHEDULE = ("select leasehold.set_schedule(%s, 'every 1 s', ends_at => {}, catch_up => 'all', catch_up_max => 1000, tick_deadline => '1 day', overlap => 4,"
            " attempts => 1000, backoff => '100 ms')")
CLAIM = "select at, (lease).key, (lease).lease_key, (lease).token from leasehold.claim_tick(%s, duration => '5 s')"
ROWS = "select at, state, token, instants from leasehold.tick where schedule = %s order by at"


class Heard(NamedTuple):
    at: object
    token: int


class Ticks:
    def __init__(self, database):
        self.database, self.claimed, self.done, self.stop, self.rows = database, [], [], threading.Event(), []

    def connect(self):
        return psycopg.connect(self.database + " tcp_user_timeout=5000 keepalives_idle=2 keepalives_interval=1", autocommit=True)

    def start(self):
        with self.connect() as connection:
            connection.execute("create table ha_ran (at timestamptz, token bigint)")
            connection.execute(SCHEDULE.format("null"), (NAME,))
        for _ in range(WORKERS):
            threading.Thread(target=self.work, daemon=True).start()

    def work(self):
        while not self.stop.is_set():
            try:
                with self.connect() as connection:
                    while not self.stop.is_set():
                        if not self.run(connection):
                            time.sleep(0.1)
            except psycopg.Error:
                time.sleep(0.2)

    def run(self, connection):
        claimed = connection.execute(CLAIM, (NAME,)).fetchone()
        if claimed is None:
            return False
        at, key, lease_key, token = claimed
        self.claimed.append(Heard(at, token))
        with connection.transaction():
            connection.execute("select leasehold.guard(%s, %s, %s)", (NAME, key, token))
            connection.execute("insert into ha_ran values (%s, %s)", (at, token))
        if connection.execute("select leasehold.release_ok(%s, %s, %s)", (NAME, key, lease_key)).fetchone()[0]:
            self.done.append(Heard(at, token))
        return True

    def end(self, limit_s):
        """No further tick; returns once those that are there have ended, or when the time is over."""
        until, is_ended = time.monotonic() + limit_s, False
        while time.monotonic() < until:
            try:
                with self.connect() as connection:
                    if not is_ended:
                        connection.execute(SCHEDULE.format("clock_timestamp()"), (NAME,))
                        is_ended = True
                    self.rows = connection.execute(ROWS, (NAME,)).fetchall()
                    if not any(state in ("due", "failed", "running") for _, state, *_ in self.rows):
                        break
            except psycopg.Error:
                pass
            time.sleep(0.5)
        self.stop.set()


def judge(claimed, done, rows):
    """{what: the ticks}"""
    tokens, ends = collections.Counter(claimed), collections.Counter(heard.at for heard in done)
    states = {at: (state, token) for at, state, token, _ in rows}
    instants = [at for at, _, _, count in rows for at in [at.timestamp() + second for second in range(count)]]
    return {
        "ticks that ran twice under one token": [heard for heard, count in tokens.items() if count > 1],
        "ticks that were done, and ran again": [at for at, count in ends.items() if count > 1],
        "ticks that were done, and are not": [heard for heard in done if states.get(heard.at) != ("done", heard.token)],
        "ticks that have not ended": [at for at, (state, _) in states.items() if state in ("due", "failed", "running")],
        "seconds without a tick": sorted(set(range(int(min(instants)), int(max(instants)) + 1)) - set(map(int, instants))) if instants else ["all"],
    }


# With asynchronous standbys a new primary may lack the last commits.
OF_LOST_COMMITS = ("ticks that were done, and ran again", "ticks that were done, and are not", "seconds without a tick")
