import re
import uuid

import pytest

import harness
import streams
from commandline import Shell


@pytest.fixture(scope="session")
def cluster():
    return harness.Cluster()


@pytest.fixture(scope="module")
def service(cluster):
    """One daemon on a fresh database, for all tests of a module."""

    class Service:
        pass

    service = Service()
    service.database = cluster.create_database()
    service.daemon = harness.Daemon(database=cluster.url(service.database))
    service.client = harness.Client(service.daemon.target)
    service.psql = lambda sql, **more: cluster.psql(sql, service.database, **more)
    service.session = lambda: cluster.session(service.database)
    yield service
    service.client.close()
    assert service.daemon.stop() == 0, service.daemon.log()
    service.daemon.destroy()


@pytest.fixture
def database(cluster):
    return cluster.create_database()


@pytest.fixture
def shell(service):
    return Shell(service)


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

    class Own:
        pass

    own = Own()
    own.cluster = harness.Cluster()
    database = own.cluster.create_database()
    own.daemon = harness.Daemon(*getattr(request, "param", ()), database=own.cluster.url(database))
    own.client = harness.Client(own.daemon.target)
    own.psql = lambda sql, **more: own.cluster.psql(sql, database, **more)
    yield own
    own.client.close()
    own.daemon.destroy()
    own.cluster.destroy()
