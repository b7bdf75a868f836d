"""A worker of schedules: it claims ticks of any of them, writes that it ran into table ran, and releases. Often it fails, hangs, or dies at the worst place.

    tick_worker.py DSN SEED SCHEDULE...

A schedule whose name ends in `once` has the run and the release in one transaction, another one first the run, behind guard(), and then the release.
"""
import logging
import os
import random
import signal
import sys
import time

import psycopg

CLAIM = "select at, attempt, (lease).namespace, (lease).key, (lease).lease_key, (lease).token from leasehold.claim_tick(%s, owner => %s, duration => '1 s')"


logging.getLogger("psycopg").setLevel(logging.CRITICAL)  # it warns of each rollback that a killed server does not answer


class Failed(Exception):
    pass


def die_at_times(dice, share=0.01):
    if dice.random() < share:
        os.kill(os.getpid(), signal.SIGKILL)


def release(connection, lease):
    if not connection.execute("select leasehold.release_ok(%s, %s, %s)", lease[:3]).fetchone()[0]:
        raise Failed("the lease is gone")


def run(connection, dice, schedule):
    claimed = connection.execute(CLAIM, (schedule, f"pid {os.getpid()}")).fetchone()
    if claimed is None:
        return False
    at, attempt, *lease = claimed
    die_at_times(dice)
    if dice.random() < 0.01:
        time.sleep(dice.uniform(1, 3))  # late: guard() refuses it when another worker has the tick, or may have it soon
    if dice.random() < 0.05:
        connection.execute("select leasehold.release_fail(%s, %s, %s, 'no luck')", lease[:3])
        return True
    try:
        with connection.transaction():
            connection.execute("select leasehold.guard(%s, %s, %s)", (lease[0], lease[1], lease[3]))
            connection.execute("insert into ran (schedule, at, token, attempt) values (%s, %s, %s, %s)", (schedule, at, lease[3], attempt))
            if schedule.endswith("once"):
                release(connection, lease)
            die_at_times(dice)
        die_at_times(dice)
        if not schedule.endswith("once"):
            release(connection, lease)
    except Failed:
        pass
    return True


def main():
    dsn, seed, *schedules = sys.argv[1:]
    dice = random.Random(int(seed))
    while True:
        try:
            with psycopg.connect(dsn, autocommit=True) as connection:
                while True:
                    if not run(connection, dice, dice.choice(schedules)):
                        time.sleep(dice.uniform(0.01, 0.05))
        except psycopg.Error as error:
            if not isinstance(error, psycopg.OperationalError) and (error.sqlstate or "LH")[:2] not in ("LH", "40", "57", "55"):
                print(f"{error.sqlstate} {error}", flush=True)  # the test looks at it
            time.sleep(dice.uniform(0.05, 0.2))


main()
