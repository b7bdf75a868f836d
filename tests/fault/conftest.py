import pytest

from place import Place


@pytest.fixture
def place():
    place = Place()
    yield place
    place.close()
