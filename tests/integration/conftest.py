import re
import uuid

import pytest

import harness
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
