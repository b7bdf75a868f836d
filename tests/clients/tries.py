"""The second try of a suite: what has failed runs once more, alone (tests/lib/second_try.py), with servers of its own. It may have been in a hurry on a busy machine.

    failures = [(program, names)]                   what the programs said in tell() that failed; none: that one ended badly and named nothing
    good = second(failures, attempt)                attempt(site, program, names): whether these passed, and its names

Names are those of the lines that tests/clients/run reads: `case NAME on TRANSPORT`, `test NAME`.
"""
import re
import sys

import control
import second_try

LINE = re.compile(r"^(case \w+ on \w+|test \S+) (passed|failed)$")
MOST = 5  # more failures are no bad luck


def tell(lines, is_first=True):
    """Prints them, at the first try with `failed once`; returns what failed."""
    failed = []
    for line in lines:
        found = LINE.match(line)
        if found and found[2] == "failed":
            failed.append(found[1])
            line = f"{found[1]} failed{' once' * is_first}\n"
        sys.stdout.write(line)
        sys.stdout.flush()
    return failed


def names_of(failed):
    """Without the transport."""
    return [name.split(" ")[1] for name in failed]


def second(failures, attempt, servers=control.Control):
    """Whether all passed."""
    if not failures:
        return True
    count = sum(len(names) for _, names in failures)
    if count > MOST or not all(names for _, names in failures):
        print(f"{count} failed, too many for a second try" if count > MOST else "a program ended badly, without a word of what failed", flush=True)
        return False
    good = True
    with second_try.alone(), servers() as site:
        for program, names in failures:
            is_good, failed = attempt(site, program, names)
            good &= is_good
            for name in set(names) - set(failed) if is_good or failed else ():
                print(f"unsteady: {name}", flush=True)
    return good
