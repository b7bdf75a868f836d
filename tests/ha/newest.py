"""Newer programs than Debian's, for a site: Patroni from PyPI, etcd from its Go module. They come into a directory that goes before PATH.

Patroni's wheel has no dependencies beside those of Debian's package, but its `ydiff` (only `patronictl edit-config` and the like show
differences with it). Nodes run as the account postgres, which must reach the programs: so they are copied to the site's place.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT / "tests/lib"))
import pypi  # pylint: disable=wrong-import-position

PROGRAMS = {"patroni": ("patroni.__main__", "main"), "patronictl": ("patroni.ctl", "ctl")}
ETCD = ROOT / "tests/bench/etcd"


def etcd_program():
    """Where etcd of the version in go.mod is, or will be: tests/bench/run has it there, too."""
    return ROOT / f"build/bench/etcd-{re.search(r'etcd/server/v3 v([0-9.]+)', (ETCD / 'go.mod').read_text(encoding='utf-8')).group(1)}"


def fetch(patroni, etcd):
    """Before the network namespaces: afterwards there is no network."""
    if patroni:
        pypi.wheel(HERE / "patroni.txt")
    if etcd and not etcd_program().exists():
        print(f"building {etcd_program().name}: some minutes", flush=True)
        subprocess.run([ROOT / "tests/lib/build_go", ETCD, etcd_program()], check=True)


def install(directory, patroni, etcd):
    """What was fetched, below this directory; PATH begins with it."""
    programs = pathlib.Path(directory, "programs")
    programs.mkdir()
    if patroni:
        library = programs / "lib"
        with zipfile.ZipFile(pypi.wheel(HERE / "patroni.txt")) as archive:
            archive.extractall(library)
        for name, (module, function) in PROGRAMS.items():
            program = programs / name
            # Patroni spawns processes that import its main program again.
            program.write_text(f"#!/usr/bin/python3\nimport sys\nsys.path.insert(0, {str(library)!r})\nfrom {module} import {function}\n"
                               f"if __name__ == '__main__':\n    sys.exit({function}())\n", encoding="utf-8")
            program.chmod(0o755)
    if etcd:
        shutil.copy(etcd_program(), programs / "etcd")
    os.environ["PATH"] = f"{programs}:{os.environ['PATH']}"
