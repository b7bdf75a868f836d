"""Runs seeds of unit/simulation, or of unit/lease_random."""
import os
import re
import subprocess

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PROGRAM = 'tests/unit/test_simulation'


def default_build():
    return os.environ.get('LEASEHOLD_TEST_BUILD', os.path.join(ROOT, 'build'))


def play(program, first, seeds):
    """The first seed that failed and what was wrong, or None."""
    environment = dict(os.environ, LH_FIRST=str(first), LH_SEEDS=str(seeds), CK_FORK='no')
    for name in ('LH_SEED', 'LH_TRACE'):
        environment.pop(name, None)
    run = subprocess.run([program], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    if run.returncode == 0:
        return None
    lines = [line for line in run.stdout.decode('utf-8', 'replace').split('\n') if line]
    found = [int(seed) for line in lines for seed in re.findall(r'^seed (\d+) (?:at|ends by signal)', line)]
    words = [line for line in lines if re.match(r'seed \d+ at |.*Assertion', line)]
    return found[-1] if found else first, words[-1] if words else ' '.join(lines[-2:])
