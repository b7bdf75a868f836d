"""A second try of what has failed: tests/run keeps it waiting until all of its suites have had their first, and the second tries go one by one.

    with second_try.later():         tests/run, around the first tries
    with second_try.alone(told):     a suite, around a second try; told(WAITS), then told(BEGINS). By itself no suite waits

A suite that waits has printed WAITS, so that the next one begins; its time goes on at BEGINS.
"""
import contextlib
import fcntl
import os
import tempfile

import rundir

NAME = 'LEASEHOLD_SECOND_TRY'  # a file that is locked until then
WAITS = 'the second try waits until nothing else runs'
BEGINS = 'the second try begins'


@contextlib.contextmanager
def locked(path):
    with open(path, encoding='ascii') as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def later():
    with tempfile.NamedTemporaryFile(dir=rundir.find_place(), delete=False) as file:
        os.environ[NAME] = file.name
    with locked(file.name):
        yield


@contextlib.contextmanager
def alone(told=lambda line: print(line, flush=True)):
    path = os.environ.get(NAME)
    if not path:
        yield
        return
    told(WAITS)
    with locked(path):
        told(BEGINS)
        yield
