"""What the tests with real programs stand on: a PostgreSQL cluster, daemons, and stubs of the stock Python client.

    LEASEHOLD_TEST_BUILD   the meson build directory (default: build, beside this tree's meson.build)
    LEASEHOLD_PGBIN        the directory of PostgreSQL's programs (default: Debian's newest)

Everything lives in temporary directories and is stopped at exit. PostgreSQL refuses to run as root, so as root it runs as
the user postgres.
"""
import atexit
import contextlib
import functools
import glob
import os
import pathlib
import pwd
import re
import shutil
import signal
import subprocess
import sys
import urllib.error
import urllib.request
import uuid

try:
    import psycopg
except ImportError:  # in an environment of a client that does without
    psycopg = None

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/lib"))
import prepared  # noqa: E402
from ports import free_port  # noqa: E402
import rundir  # noqa: E402
from waiting import freeze, wait_until  # noqa: E402

BUILD = pathlib.Path(os.environ.get("LEASEHOLD_TEST_BUILD", ROOT / "build")).resolve()
DAEMON = BUILD / "src/daemon/leaseholdd"
CLI = BUILD / "src/cli/leasehold"


def _pg_bin():
    """The programs of LEASEHOLD_PGBIN, or Debian's newest."""
    if os.environ.get("LEASEHOLD_PGBIN"):
        return os.environ["LEASEHOLD_PGBIN"]
    found = sorted(glob.glob("/usr/lib/postgresql/*/bin"), key=lambda p: int(p.split("/")[4]))
    if not found:
        raise RuntimeError("no PostgreSQL server programs under /usr/lib/postgresql: install postgresql-15")
    return found[-1]


@functools.cache
def _version(programs):
    done = subprocess.run([os.path.join(programs, "postgres"), "--version"], stdout=subprocess.PIPE, text=True, check=True)
    return int(re.search(r"\) (\d+)", done.stdout)[1])


def _as_postgres():
    if os.geteuid() != 0:
        return {}
    user = pwd.getpwnam("postgres")
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": [user.pw_gid]}


def is_statement(sql):
    """Whether it is one, without a command of psql."""
    return psycopg and ";" not in sql.strip().rstrip(";") and "\\" not in sql and not sql.lower().lstrip().startswith("copy")


@contextlib.contextmanager
def _said(sql):
    try:
        yield
    except psycopg.Error as error:
        said = error.pgresult.error_message if error.pgresult else str(error).encode()
        raise AssertionError(f"psql: {said.decode()}\n{sql}") from None


def connect(url, sql):
    """A session as psql's, for execute(). It prepares no statement: a test may change the tables."""
    with _said(sql):
        return psycopg.connect(url, autocommit=True, fallback_application_name="psql", prepare_threshold=None)


def execute(session, sql):
    """What psql prints of one statement."""
    with _said(sql):
        rows = session.execute(sql).pgresult
    return "\n".join("|".join((rows.get_value(row, column) or b"").decode() for column in range(rows.nfields)) for row in range(rows.ntuples)).strip()


TEMPLATE = "leasehold_template"
# In a connection string: PostgreSQL may take that long on a busy machine to let somebody in, or to answer a daemon's question whether it is there. Tests of a
# server that is silent go without.
PATIENCE = "connect_timeout=60 "


class Cluster:
    """A private PostgreSQL on a unix socket. `migrated`: its first databases will be copies of one with the schema. `port`: it also listens there."""

    port = None

    def __init__(self, settings=(), migrated=False, port=None):
        self.port = port
        self.programs = _pg_bin()
        self.has_template = migrated
        self.dir = pathlib.Path(rundir.mkdtemp("lh-pg-"))
        self.dir.chmod(0o755)
        self.data = self.dir / "data"
        self.sockets = self.dir / "s"
        for path in (self.data, self.sockets):
            path.mkdir()
            if os.geteuid() == 0:
                user = pwd.getpwnam("postgres")
                os.chown(path, user.pw_uid, user.pw_gid)
        self.sockets.chmod(0o755)
        self._make_data(migrated)
        with open(self.data / "postgresql.conf", "a") as conf:
            conf.write(
                f"listen_addresses = ''\nunix_socket_directories = '{self.sockets}'\nmax_connections = 200\n"
                "shared_buffers = 64MB\nfsync = off\nlog_min_messages = warning\n"
                # A copy of a database is written to the WAL: with the usual 1 GB each cluster would keep that much of it.
                "max_wal_size = 128MB\nmin_wal_size = 32MB\n"
            )
            for line in [*settings, *(["listen_addresses = '127.0.0.1'", f"port = {port}"] if port else [])]:
                conf.write(line + "\n")
        atexit.register(self.destroy)
        self.start()

    def _make_data(self, migrated):
        key = re.sub(r"\W", "-", self.programs)
        make = (self._make_migrated, f"migrated{key}{re.sub(r'[^0-9A-Za-z]', '-', str(BUILD))}") if migrated else (self._make_bare, f"bare{key}")
        prepared.copy(make[1], make[0], self.data)

    def _make_bare(self, directory):
        self._run("initdb", "-D", directory, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")

    @staticmethod
    def _make_migrated(directory):
        cluster = Cluster()
        cluster.make_template()
        cluster.stop()
        (cluster.data / "log").unlink()
        os.rename(cluster.data, directory)
        cluster.destroy()

    @property
    def psql_program(self):
        """Not Debian's /usr/bin/psql, which is a Perl program that starts this one."""
        return os.path.join(self.programs, "psql")

    def _run(self, program, *args, check=True):
        return subprocess.run(
            [os.path.join(self.programs, program), *map(str, args)],
            cwd="/",
            check=check,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "LC_ALL": "C"},
            **_as_postgres(),
        )

    def start(self):
        self._run("pg_ctl", "-D", self.data, "-l", self.dir / "data" / "log", "-w", "-t", "60", "start")

    def stop(self, mode="fast"):
        self._run("pg_ctl", "-D", self.data, "-w", "-m", mode, "stop")

    def destroy(self):
        with contextlib.suppress(Exception):
            self._run("pg_ctl", "-D", self.data, "-w", "-m", "immediate", "stop", check=False)
        shutil.rmtree(self.dir, ignore_errors=True)

    def create_database(self, migrated=False):
        """Without the schema, so that a daemon begins with its migrations; or with it, as another daemon left it."""
        if migrated and not self.has_template:
            self.make_template()
        name = "t" + uuid.uuid4().hex[:12]
        # As files: through the WAL a copy takes twice the time of a processor. Versions before 15 know no other way.
        how = "strategy file_copy" if _version(self.programs) >= 15 else ""
        self.psql(f"create database {name}" + f" template {TEMPLATE} {how}" * migrated, database="postgres")
        return name

    def make_template(self):
        self.psql(f"create database {TEMPLATE}", database="postgres")
        subprocess.run([CLI, "migrate", "--database", self.url(TEMPLATE)], check=True, stdout=subprocess.DEVNULL)
        self.psql((ROOT / "tests/lib/row_checks.sql").read_text(), database=TEMPLATE)
        # Nobody is connected to it while it is copied.
        self.psql(f"alter database {TEMPLATE} allow_connections false", database="postgres")
        self.has_template = True

    def url(self, database, user="postgres"):
        return f"host={self.sockets} {PATIENCE}dbname={database} user={user}" + (f" port={self.port}" if self.port else "")

    def psql(self, sql, database, check=True, user="postgres"):
        """Run statements; unaligned rows joined by '|', one a line."""
        # That program would cost more than the statement does.
        if check and is_statement(sql):
            with connect(self.url(database, user), sql) as session:
                return execute(session, sql)
        done = subprocess.run(
            [self.psql_program, "-X", "-A", "-t", "-q", "-v", "ON_ERROR_STOP=1", "-d", self.url(database, user)],
            input=sql,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        if check and done.returncode != 0:
            raise AssertionError(f"psql: {done.stderr}\n{sql}")
        return done.stdout.strip() if check else done

    def session(self, database, user="postgres"):
        return Session(self, database, user)


class Session:
    """A psql that stays open, for transactions left open on purpose."""

    opened = []

    def __init__(self, cluster, database, user="postgres"):
        self.opened.append(self)
        self.process = subprocess.Popen(
            [cluster.psql_program, "-X", "-A", "-t", "-q", "-d", cluster.url(database, user)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            bufsize=1,
        )

    def run(self, sql):
        mark = "done-" + uuid.uuid4().hex
        self.process.stdin.write(f"{sql};\n\\echo {mark}\n")
        self.process.stdin.flush()
        lines = []
        for line in self.process.stdout:
            if line.strip() == mark:
                return "\n".join(lines)
            lines.append(line.rstrip("\n"))
        raise AssertionError("psql went away: " + "\n".join(lines))

    def close(self):
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.wait(30)

    @classmethod
    def close_all(cls):
        while cls.opened:
            cls.opened.pop().close()


class Daemon:
    """A leaseholdd with ports of its own. `wait`: until it serves, "listening" until it has its ports, or not at all."""

    def __init__(self, *args, database=None, embedded=None, wait=True):
        self.dir = pathlib.Path(rundir.mkdtemp("lh-d-"))
        self.dir.chmod(0o755)
        self.args = [str(DAEMON), "--listen", f"127.0.0.1:{free_port()}", "--admin", "127.0.0.1:0", *args]
        if database or embedded:  # else they are in a file of settings among `args`
            self.args += ["--database", database] if database else ["--embedded", str(embedded)]
        self.log_path = self.dir / "log"
        self.process = None
        self.port = None
        self.starts = 0
        atexit.register(self.destroy)
        self.start(wait)

    def start(self, wait=True):
        self.starts += 1
        port_file = self.dir / f"port-{self.starts}"
        with open(self.log_path, "a") as log:
            self.process = subprocess.Popen(
                [*self.args, "--port-file", str(port_file)], stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd="/"
            )
        if not wait:
            return

        def ports():
            if self.process.poll() is not None:
                raise AssertionError(f"leaseholdd exited with {self.process.returncode}:\n{self.log()}")
            if wait == "listening":
                said = re.findall(r" listening grpc=(\S+) admin=(\S+)", self.log())
                return len(said) == self.starts and said[-1]
            return port_file.exists() and len(port_file.read_text().splitlines()) >= 2 and port_file.read_text().splitlines()

        lines = wait_until(ports, 60, "leaseholdd serving")
        self.port = int(lines[0].rsplit(":", 1)[1])
        self.admin_port = int(lines[1].rsplit(":", 1)[1])

    @property
    def target(self):
        return f"127.0.0.1:{self.port}"

    def log(self):
        return self.log_path.read_text(errors="replace")

    def signal(self, number):
        self.process.send_signal(number)

    def kill(self):
        self.process.kill()
        self.process.wait(30)

    def stop(self, seconds=60):
        """A clean stop; its exit status."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.terminate()
        return self.process.wait(seconds)

    def destroy(self):
        with contextlib.suppress(Exception):
            self.stop(15)
        with contextlib.suppress(Exception):
            self.kill()
        shutil.rmtree(self.dir, ignore_errors=True)

    def memory_kib(self):
        """Resident memory of the daemon process itself."""
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+)", status).group(1))


def _generate_stubs():
    """Stock stubs by protoc with grpc_python_plugin. Health and reflection are compiled flat: a directory named grpc would
    hide the grpc package."""
    out = pathlib.Path(rundir.mkdtemp("lh-stubs-"))
    atexit.register(shutil.rmtree, out, ignore_errors=True)
    plugin = shutil.which("grpc_python_plugin")
    if plugin is None:
        raise RuntimeError("grpc_python_plugin is missing: install protobuf-compiler-grpc")
    proto = ROOT / "proto"

    def protoc(include, *files):
        subprocess.run(
            ["protoc", f"-I{include}", "-I/usr/include", f"--python_out={out}", f"--grpc_python_out={out}",
             f"--plugin=protoc-gen-grpc_python={plugin}", *files],
            check=True,
        )

    protoc(proto, "leasehold/v1/leasehold.proto", "leasehold/v1/console.proto", "leasehold/v1/schedule.proto", "google/rpc/status.proto", "google/rpc/error_details.proto")
    protoc(proto, *(str(file.relative_to(proto)) for file in proto.glob("opentelemetry/**/*.proto")))
    health = next(proto.rglob("health.proto"))
    protoc(health.parent, "health.proto")
    for reflection in proto.rglob("reflection.proto"):
        if "v1alpha" not in str(reflection):
            protoc(reflection.parent, "reflection.proto")
    return out


sys.path.insert(0, str(_generate_stubs()))
# google.rpc must be found beside Debian's google package.
import google  # noqa: E402

google.__path__.append(str(pathlib.Path(sys.path[0]) / "google"))

import grpc  # noqa: E402
import health_pb2  # noqa: E402
import health_pb2_grpc  # noqa: E402
from google.protobuf.duration_pb2 import Duration  # noqa: E402
from google.rpc import error_details_pb2, status_pb2  # noqa: E402
from leasehold.v1 import leasehold_pb2 as pb  # noqa: E402
from leasehold.v1 import leasehold_pb2_grpc as pb_grpc  # noqa: E402


def duration(seconds):
    value = Duration()
    value.FromNanoseconds(round(seconds * 1e9))
    return value


def scope(namespace, key):
    return pb.Scope(namespace=namespace.split("."), key=key)


def acquire_request(namespace, key, seconds=30, wait=None, **fields):
    request = pb.AcquireRequest(scope=scope(namespace, key), duration=duration(seconds), **fields)
    if wait is not None:
        request.wait.CopyFrom(duration(wait))
    return request


def lease_ref(lease):
    return pb.LeaseRef(scope=lease.scope, lease_key=lease.lease_key)


def heartbeat(client, lease):
    """What one heartbeat of one lease is answered."""
    return client.lease.Heartbeat(pb.HeartbeatRequest(leases=[lease_ref(lease)])).results[0]


def release_request(*leases, success=None, failure=None):
    items = []
    for lease in leases:
        item = pb.ReleaseItem(lease=lease_ref(lease))
        if success is not None:
            item.success = success
        if failure is not None:
            item.failure = failure
        items.append(item)
    return pb.ReleaseRequest(items=items)


class Failure:
    """What an RpcError carries: code, message, and the details of grpc-status-details-bin by type."""

    def __init__(self, error):
        self.code = error.code()
        self.message = error.details()
        self.reason = None
        self.metadata = {}
        self.contention = self.retry = self.bad_request = None
        for key, value in error.trailing_metadata() or ():
            if key == "grpc-status-details-bin":
                status = status_pb2.Status.FromString(value)
                assert status.code == self.code.value[0] and status.message == self.message
                for detail in status.details:
                    self._take(detail)

    def _take(self, detail):
        info = error_details_pb2.ErrorInfo()
        if detail.Unpack(info):
            assert info.domain == "leasehold"
            self.reason, self.metadata = info.reason, dict(info.metadata)
        for name, message in (
            ("contention", pb.Contention()),
            ("retry", error_details_pb2.RetryInfo()),
            ("bad_request", error_details_pb2.BadRequest()),
        ):
            if detail.Unpack(message):
                setattr(self, name, message)


@contextlib.contextmanager
def fails():
    """`with fails() as failure:` the body must end in an RpcError; failure.value then tells which."""

    class Holder:
        value = None

    holder = Holder()
    try:
        yield holder
    except grpc.RpcError as error:
        holder.value = Failure(error)
        return
    raise AssertionError("the call should have failed")


class Client:
    """A channel of its own, with both stubs; `tls`: grpc.ssl_channel_credentials."""

    def __init__(self, target, tls=None):
        options = [("grpc.use_local_subchannel_pool", 1), ("grpc.enable_retries", 0),
                   ("grpc.initial_reconnect_backoff_ms", 100), ("grpc.max_reconnect_backoff_ms", 500)]
        self.channel = (grpc.secure_channel(target, tls, options=options) if tls is not None else
                        grpc.insecure_channel(target, options=options))
        self.lease = pb_grpc.LeaseServiceStub(self.channel)
        self.admin = pb_grpc.AdminServiceStub(self.channel)

    def close(self):
        self.channel.close()


def readyz(daemon):
    """Status and body."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{daemon.admin_port}/readyz", timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def health(client, service=""):
    """What gRPC health says of a service, or of the whole server."""
    stub = health_pb2_grpc.HealthStub(client.channel)
    request = health_pb2.HealthCheckRequest(service=service)
    return health_pb2.HealthCheckResponse.ServingStatus.Name(stub.Check(request, timeout=30).status)


class Service:
    """A daemon on a fresh database of a cluster, and a client: what most tests stand on."""

    def __init__(self, cluster, *args):
        self.cluster = cluster
        self.database = cluster.create_database(migrated=True)
        self.daemon = Daemon(*args, database=cluster.url(self.database))
        self.client = Client(self.daemon.target)

    def psql(self, sql, **more):
        return self.cluster.psql(sql, self.database, **more)

    def session(self, user="postgres"):
        return self.cluster.session(self.database, user)

    def close(self):
        self.client.close()
        assert self.daemon.stop() == 0, self.daemon.log()
        self.daemon.destroy()
