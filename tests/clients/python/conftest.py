"""Places to hold leases in, for each transport and both clients, and the lines that tests/clients/run counts."""
import functools
import os
import pathlib
import signal
import subprocess
import sys
import threading

import pytest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
for each in (ROOT / "tests/integration", ROOT / "tests/lib", HERE.parent, HERE):
    sys.path.append(str(each))
import leasehold  # noqa: E402, F401  (the installed one, before harness looks for its own stubs)
import harness  # noqa: E402
from apis import APIS  # noqa: E402
from commit_proxy import CommitProxy  # noqa: E402
from flaky_proxy import FlakyProxy  # noqa: E402
from harness import wait_until  # noqa: E402
from lying_server import LyingServer  # noqa: E402
from pgbouncer import PgBouncer  # noqa: E402
from secure import SecureDaemon  # noqa: E402
from sessions import Sessions  # noqa: E402
from standby import Standby  # noqa: E402
from triggers import TRIGGERS  # noqa: E402

NAMESPACE = "cases"


class Site:
    """One cluster with two databases: one that a daemon serves, one without a daemon."""

    def __init__(self):
        self.cluster = harness.Cluster(migrated=True)
        self.sessions = Sessions(self.cluster)
        self.service = harness.Service(self.cluster)
        self.database = self.cluster.create_database(migrated=True)
        # What cron does where there is no daemon; before the first time nothing expires.
        self.cluster.psql("select leasehold.reap()", self.database)
        self.cluster.psql(TRIGGERS, self.database)
        self.pooler = PgBouncer(self.cluster.sockets, self.database, "transaction")

    @functools.cached_property
    def secured(self):
        return SecureDaemon(self.cluster, self.service.database)

    @functools.cached_property
    def standby(self):
        return Standby(self.cluster, 5432)

    def close(self):
        if "standby" in vars(self):
            self.standby.close()
        if "secured" in vars(self):
            self.secured.close()
        self.pooler.close()
        self.sessions.close()
        self.service.close()
        self.cluster.destroy()


@pytest.fixture(scope="session")
def site():
    site = Site()
    yield site
    site.close()


class Program:
    """program.py, running; the lines that it prints."""

    def __init__(self, *arguments):
        self.process = subprocess.Popen([sys.executable, "-B", str(HERE / "program.py"), *map(str, arguments)], stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT, text=True)
        self.lines = []
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self):
        for line in self.process.stdout:
            self.lines.append(line.strip())

    def find(self, word):
        return next((line for line in self.lines if line.startswith(word)), None)

    def wait_for(self, word):
        wait_until(lambda: self.find(word) or self.process.poll() is not None, 60, f"a line of {word}")
        if self.process.poll() is not None:
            self.reader.join(10)
        assert self.find(word), self.lines[-20:]
        return self.find(word)

    def end(self):
        status = self.process.wait(60)
        self.reader.join(10)
        return status

    def kill(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
        self.end()


class Place:
    """Where a case runs: a transport, and a kind of client."""

    namespace = NAMESPACE

    def __init__(self, site, transport, api):
        self.site, self.transport, self.api = site, transport, api
        self.database = site.service.database if transport == "grpc" else site.database
        self.closing = []

    def target(self):
        """What a client is made with: a server, or a database."""
        return {"grpc": self.site.service.daemon.target, "sql": self.site.cluster.url(self.site.database),
                "pooler": self.site.pooler.url}[self.transport]

    def client(self, target=None, **options):
        if target is None:  # nothing is in its way: it has the time that a busy machine takes
            target, options = self.target(), {"timeout": 20, **options}
        client = self.api(target if self.transport == "grpc" else None, database=None if self.transport == "grpc" else target, **options)
        self.closing.append(client.finish)
        return client

    def sql_client(self):
        client = self.api(database=self.site.cluster.url(self.database), timeout=20)
        self.closing.append(client.finish)
        return client

    def secure_client(self, *, token=None, **tls):
        """Of the daemon with TLS. `token`: one of its names; the rest goes to leasehold.TLS, as names of its facts."""
        facts = self.site.secured.facts
        tls = {"ca_file": facts["ca"], **{name: facts.get(value, value) for name, value in tls.items()}}
        return self.client(facts["target"], timeout=10, tls=leasehold.TLS(**tls), token_file=token and facts[token])

    def program(self, mode, key, duration, target=None):
        program = Program(self.api.name, self.transport, target or self.target(), self.namespace, key, mode, duration)
        self.closing.append(program.kill)
        return program

    def proxy(self):
        proxy = FlakyProxy(self.site.service.daemon.target)
        self.closing.append(proxy.close)
        return proxy

    def liar(self):
        liar = LyingServer()
        self.closing.append(liar.close)
        return liar

    def application(self):
        """Where the application's own connections lead."""
        return self.target() if self.transport == "pooler" else self.site.cluster.url(self.database)

    def commit_proxy(self, mode):
        """The application's, that loses a COMMIT or its answer."""
        return self.behind(CommitProxy(self.socket, mode))

    @property
    def socket(self):
        """Of PostgreSQL."""
        return os.path.join(self.site.cluster.sockets, ".s.PGSQL.5432")

    def behind(self, proxy):
        """A proxy before PostgreSQL, as a database; it ends with the case."""
        self.closing.append(proxy.close)
        return f"host=127.0.0.1 port={proxy.port} dbname={self.database} user=postgres sslmode=disable gssencmode=disable"

    def daemon(self):
        daemon = harness.Daemon(database=self.site.cluster.url(self.database))
        self.closing.append(daemon.destroy)
        return daemon

    def psql(self, sql):
        return self.site.sessions.psql(sql, self.database)

    def session(self):
        session = self.site.cluster.session(self.database)
        self.closing.append(session.close)
        return session

    def row(self, key, columns):
        return self.psql(f"select {columns} from leasehold.scope where namespace = '{self.namespace}' and key = '{key}'")

    def waiting(self, key):
        return int(self.psql(f"select count(*) from leasehold.queue where namespace = '{self.namespace}' and key = '{key}'"))

    def force(self, key):
        self.psql(f"select leasehold.force_release('{self.namespace}', '{key}', 'a test')")

    def heartbeats(self, key):
        return int(self.row(key, "heartbeats") or 0)

    def shares(self, key):
        """Token and units of each holder."""
        return self.psql(f"select token, units from leasehold.lease where namespace = '{self.namespace}' and key = '{key}' order by token")

    def beats_of(self, lease):
        return int(self.psql(f"select heartbeats from leasehold.lease where token = {lease.token}") or 0)

    def close(self):
        while self.closing:
            self.closing.pop()()
        wait_until(lambda: not self.connections(), 30, "the end of all connections")

    def connections(self):
        """Of this package's clients, to PostgreSQL."""
        return self.psql("select pid from pg_stat_activity where application_name = 'leasehold'")


@pytest.fixture
def place(request, site):
    name, transport, api = request.node.callspec.id.split("-")
    place = Place(site, transport, APIS[api])
    yield place
    place.close()


# -- the lines

outcomes = {}


def pytest_runtest_logreport(report):
    file, name = report.nodeid.split("::", 1)
    name = f"{pathlib.PurePath(file).name}::{name}"
    if report.when == "call" or not report.passed:
        outcomes[name] = outcomes.get(name, True) and report.passed


def pytest_sessionfinish(session):
    if os.environ.get("PYTEST_XDIST_WORKER"):
        return
    if "LEASEHOLD_FAILED" in os.environ:
        pathlib.Path(os.environ["LEASEHOLD_FAILED"]).write_text("".join(f"{name.removesuffix('@testing')}\n" for name, is_good in outcomes.items() if not is_good))
    lines = {}
    for name, is_good in outcomes.items():
        name = name.split("::", 1)[1]
        if name.startswith("test_case["):
            case, transport, _ = name[len("test_case["):-1].split("-")
            name = f"case {case} on {transport}"
        else:
            name = f"test {name.replace(' ', '_')}"
        lines[name] = lines.get(name, True) and is_good
    print()
    for name, is_good in lines.items():
        print(name, "passed" if is_good else "failed")
