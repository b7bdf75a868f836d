"""tests/lib/suites.py: which suite runs when."""
import argparse
import os
import sys
import threading
import time

import pytest

import harness  # noqa: F401  (the way to tests/lib)
import second_try
import suites

BOUND_S = 30


@pytest.fixture
def run(monkeypatch):
    """run(name=function, ...): suites of these names, in the order and the lanes of tests/run; their results."""
    def run(**functions):
        made = tuple(suites.Suite(name.replace("_", "-"), lambda suite, options, function=function: function() or (1, 0), BOUND_S) for name, function in functions.items())
        monkeypatch.setattr(suites, "SUITES", made)
        monkeypatch.setenv(second_try.NAME, "")
        results = {}
        suites.run_all(made, argparse.Namespace(), results, [])
        return results
    return run


def met(barrier):
    return lambda: barrier.wait(BOUND_S) and None


def test_a_lane_that_has_ended_goes_on_with_the_other(run):
    both = threading.Barrier(2)
    assert run(interop=met(both), console=met(both)) == {"interop": (1, 0), "console": (1, 0)}
    both = threading.Barrier(2)
    assert run(isolation=met(both), soak=met(both)) == {"isolation": (1, 0), "soak": (1, 0)}


def test_quiet_suites_come_last_and_those_of_a_group_together(run):
    order, all_three = [], threading.Barrier(3)
    names = ("fault", "interop", "soak", "packages")
    results = run(**{name: lambda name=name: order.append(name) for name in names}, ha=met(all_three), ha_newest=met(all_three), ha_async=met(all_three))
    assert set(results.values()) == {(1, 0)} and order[2:] == ["packages", "fault"] and sorted(order[:2]) == ["interop", "soak"]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_suite_whose_runner_breaks_has_failed_and_keeps_nobody(run):
    def breaks():
        raise OSError("no such program")
    assert run(build=breaks, unit=lambda: None, soak=lambda: None) == {"build": (0, 1), "unit": (0, 1), "soak": (1, 0)}


def test_a_second_try_comes_last_and_keeps_no_lane(run):
    order = []

    def tried_twice():
        order.append("first")
        with suites.alone():
            order.append("second")
    results = run(interop=tried_twice, **{name: lambda name=name: order.append(name) for name in ("console", "soak", "fuzz", "fault")})
    assert set(results.values()) == {(1, 0)} and order.index("first") < order.index("console") and order[-1] == "second"


PROGRAM = """import sys
sys.path.insert(0, sys.argv[1])
import second_try
with second_try.alone():
    open(sys.argv[2], "x").close()
"""


def test_a_program_of_a_suite_waits_too(run, tmp_path):
    begun, is_there = tmp_path / "begun", []
    program = [sys.executable, "-c", PROGRAM, os.path.dirname(suites.__file__), str(begun)]
    # The next suite gives it the time that it would take.
    run(clients_go=lambda: suites.execute(program, BOUND_S) and None, clients_node=lambda: is_there.append(any(begun.exists() or time.sleep(0.1) for _ in range(10))))
    assert is_there == [False] and begun.exists()


def test_second_tries_go_one_by_one(run):
    at_work = threading.Lock()

    def tried_twice():
        with suites.alone():
            assert at_work.acquire(blocking=False)
            time.sleep(0.1)
            at_work.release()
    assert set(run(interop=tried_twice, soak=tried_twice, clients_go=tried_twice).values()) == {(1, 0)}
