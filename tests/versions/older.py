#!/usr/bin/python3
"""An older daemon, for upgrades on which it goes on running. older.tar.xz has its sources: those of the last build before shared leases.

    older.daemon()                        its program, built at the first call; afterwards from ~/.cache/leasehold/older
    tests/versions/older.py --pack HASH   puts the sources of another commit there (needs git)
"""
import argparse
import contextlib
import hashlib
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), 'lib'))
import pgtest  # noqa: E402

SOURCES = os.path.join(HERE, 'older.tar.xz')
PROGRAM = 'src/daemon/leaseholdd'
BUILD_LIMIT_S = 900
# What the daemon is not made of.
LEFT_OUT = ('client', 'embed', 'library', 'cli', 'python', 'go', 'node', 'java')


def run(*command, cwd):
    done = subprocess.run(command, cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, errors='replace',
                          universal_newlines=True, timeout=BUILD_LIMIT_S, check=False)
    if done.returncode != 0:
        raise pgtest.Failure('the older daemon cannot be built: %s:\n%s' % (' '.join(command), done.stdout[-4000:]))


def daemon():
    """The path of the program. Its directory has the name of the sources; half a build has another name."""
    with open(SOURCES, 'rb') as file:
        name = hashlib.sha256(file.read()).hexdigest()[:16]
    parent = os.path.join(os.environ.get('XDG_CACHE_HOME') or os.path.expanduser('~/.cache'), 'leasehold', 'older')
    program = os.path.join(parent, name, 'leaseholdd')
    if os.path.exists(program):
        return program
    os.makedirs(parent, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix='build-', dir=parent) as fresh:
        with tarfile.open(SOURCES) as sources:
            sources.extractall(fresh)
        run('meson', 'setup', 'build', '-Dtests=false', '-Doptimization=0', '-Dwerror=false', cwd=fresh)
        run('ninja', '-C', 'build', PROGRAM, cwd=fresh)
        os.mkdir(os.path.join(fresh, 'done'))
        shutil.move(os.path.join(fresh, 'build', PROGRAM), os.path.join(fresh, 'done', 'leaseholdd'))
        with contextlib.suppress(OSError):  # another run was as fast
            os.rename(os.path.join(fresh, 'done'), os.path.join(parent, name))
    return program


def pack(commit):
    listed = subprocess.run(['git', 'ls-tree', '--name-only', commit, 'src/'], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout
    parts = [path for path in listed.split() if os.path.basename(path) not in LEFT_OUT]
    archive = subprocess.run(['git', 'archive', commit, 'meson.build', 'meson_options.txt', 'proto', 'migrations', *parts], cwd=ROOT,
                             stdout=subprocess.PIPE, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as source, tarfile.open(SOURCES, 'w:xz', preset=9) as target:
        for member in source:
            data = source.extractfile(member).read() if member.isfile() else b''
            if member.name == 'meson.build':
                data = re.sub(r"^subdir\('(src/(%s)|deploy)'\)\n" % '|'.join(LEFT_OUT), '', data.decode(), flags=re.M).encode()
            member.size = len(data)
            target.addfile(member, io.BytesIO(data))


if __name__ == '__main__':
    parser = argparse.ArgumentParser(prog='tests/versions/older.py')
    parser.add_argument('--pack', metavar='HASH')
    options = parser.parse_args()
    if options.pack:
        pack(options.pack)
    print(daemon())
