import os
import pathlib
import re
import shutil
import signal
import uuid

import pytest

import certificates
import harness
import library
import reaping
import rundir
import running
import streams
from commandline import Shell


def pytest_configure(config):
    config.addinivalue_line("markers", "release_build: about the build itself, which sanitizers change; the suite integration-release runs it")


@pytest.fixture(scope="session")
def cluster():
    return harness.Cluster(migrated=True)


@pytest.fixture(scope="module")
def service(cluster):
    """One daemon on a fresh database, for all tests of a module."""
    service = harness.Service(cluster)
    yield service
    service.close()


@pytest.fixture(autouse=True)
def sessions():
    """What a failed test leaves open would keep the next one waiting."""
    yield
    harness.Session.close_all()


@pytest.fixture
def database(cluster):
    """With the schema; a test of the migrations begins with one of cluster.create_database()."""
    return cluster.create_database(migrated=True)


@pytest.fixture
def place():
    """A directory that the daemon's and the database's user can enter. Below pytest's own they cannot: each pytest that starts
    takes the way to these from others."""
    directory = pathlib.Path(rundir.mkdtemp("lh-place-"))
    directory.chmod(0o755)
    yield directory
    shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture
def start():
    """Daemons that are gone when the test is over."""
    daemons = []

    def start(*args, **more):
        daemons.append(harness.Daemon(*args, **more))
        return daemons[-1]

    yield start
    for daemon in daemons:
        daemon.destroy()


@pytest.fixture
def shell(service):
    return Shell(service)


@pytest.fixture
def drive(service):
    drivers = []

    def start(mode="thread", endpoints=None, **options):
        options.setdefault("flush_ms", 300)
        driver = library.Driver(mode, endpoints or service.daemon.target, **options)
        drivers.append(driver)
        assert driver.hear("ready|create") == "ready"
        return driver

    yield start
    for driver in drivers:
        driver.close()


@pytest.fixture
def ns(request):
    """A namespace of the test's own."""
    return "cli." + re.sub(r"\W", "-", request.node.name)[:40] + "-" + uuid.uuid4().hex[:6]


@pytest.fixture
def stream():
    """Streams that are closed with the test."""
    opened = []

    def open_stream(*args, **more):
        opened.append(streams.Stream(*args, **more))
        return opened[-1]

    yield open_stream
    for each in opened:
        each.close()


@pytest.fixture
def process(service):
    """A client in a process of its own, to be killed and stopped."""
    started = []

    def start(method, request):
        started.append(streams.start_client(service.daemon.target, method, request))
        return started[-1]

    yield start
    for each in started:
        each.kill()
        each.wait()


@pytest.fixture
def own(request):
    """A cluster and a daemon of this test alone, for outages and shutdowns."""
    own = harness.Service(harness.Cluster(migrated=True), *getattr(request, "param", ()))
    yield own
    own.client.close()
    own.daemon.destroy()
    own.cluster.destroy()


@pytest.fixture(scope="session")
def stage_template(cluster):
    return reaping.Stage(cluster).build()


@pytest.fixture
def stage(cluster, stage_template):
    """A database without a daemon."""
    return reaping.Stage(cluster, stage_template)


@pytest.fixture(scope="session")
def plugin(tmp_path_factory):
    return reaping.compile_plugin(tmp_path_factory.mktemp("plugin"), pathlib.Path(__file__).parent / "reap_plugin.c")


@pytest.fixture(scope="session")
def authority():
    """One that both sides believe; the daemons' user may read its directory."""
    directory = pathlib.Path(rundir.mkdtemp("lh-tls-"))
    yield certificates.Authority(directory)
    shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(scope="session")
def other_authority(authority):
    return certificates.Authority(authority.dir, "other-ca")


@pytest.fixture(scope="session")
def server(authority):
    return authority.issue("server", certificates.SERVER_NAMES)


@pytest.fixture(scope="session")
def worker(authority):
    return authority.issue("worker", "DNS:worker-1.example")


@pytest.fixture
def runs(service):
    """Starts runs against the module's daemon; whatever a failed test leaves is killed."""
    started = []

    def start(namespace, key, script, *options, server=None, **more):
        run = running.Run(server or service.daemon.target, namespace, key, script, *options, **more)
        started.append(run)
        return run

    yield start
    for run in started:
        for pid in running.marked(run.mark):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        if run.process.poll() is None:
            run.process.kill()
        run.process.wait(60)
