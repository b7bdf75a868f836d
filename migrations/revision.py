#!/usr/bin/python3
"""The revision of the SQL functions: a number that grows with each change of one, so that an older program never replaces newer
functions, whatever its version says. functions/revision.txt holds it, and the checksum of the functions that it is for.

    migrations/revision.py          after a change: count up, once for all changes since main's (or the last) revision
    migrations/revision.py --check  fail where a function has changed since

After a merge conflict in revision.txt: keep the higher number and run it again.
"""
import hashlib
import pathlib
import re
import sys

FUNCTIONS = pathlib.Path(__file__).resolve().parent / "functions"
REVISION = FUNCTIONS / "revision.txt"


def checksum():
    whole = hashlib.sha256()
    for path in sorted(FUNCTIONS.glob("*.sql")) + [FUNCTIONS / "columns.txt", FUNCTIONS / "order.txt"]:
        whole.update(path.name.encode() + b"\n" + path.read_bytes())
    return whole.hexdigest()


def main():
    # Of a conflict both sides are here: the highest counts.
    lines = re.findall(r"^(\d+) ([0-9a-f]{64})$", REVISION.read_text(encoding="ascii"), re.MULTILINE)
    revision = max((int(number) for number, _ in lines), default=0)
    if len(lines) == 1 and lines[0][1] == checksum():
        print("revision: 1 passed, 0 failed")
        return
    if "--check" in sys.argv[1:]:
        sys.exit("a SQL function has changed, and its revision has not: run migrations/revision.py")
    REVISION.write_text(f"{revision + 1} {checksum()}\n", encoding="ascii")
    print(f"revision {revision + 1}")


main()
