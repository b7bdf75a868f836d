import pytest

from place import Place, harness


@pytest.fixture
def cluster():
    cluster = harness.Cluster(migrated=True)
    yield cluster
    cluster.destroy()


@pytest.fixture
def place():
    place = Place()
    yield place
    place.close()
