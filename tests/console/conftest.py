import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "integration"))
import harness  # noqa: E402

from browser import Page, start_driver  # noqa: E402
from site_of_tests import Site  # noqa: E402


def pytest_addoption(parser):
    parser.addoption("--load-seconds", type=int, default=8, help="how long test_load changes 1,000 leases a second; default 8")


@pytest.fixture(scope="session")
def cluster():
    cluster = harness.Cluster(migrated=True)
    yield cluster
    cluster.destroy()


@pytest.fixture(scope="session")
def driver():
    driver = start_driver()
    yield driver
    driver.quit()


@pytest.fixture(scope="session")
def filled(cluster):
    """One daemon with data, for all tests that leave it as it is."""
    site = Site(cluster).fill()
    yield site
    site.close()


@pytest.fixture
def own(cluster):
    """A daemon of this test alone."""
    site = Site(cluster)
    yield site
    site.close()


@pytest.fixture
def page(driver, filled):
    """An administrator looks at the site with data."""
    page = Page(driver, filled.base)
    page.sign_in(filled.tokens["ops"])
    page.site = filled
    yield page
    assert page.complaints() == []


@pytest.fixture
def own_page(driver, own):
    """An administrator looks at the daemon of this test."""
    page = Page(driver, own.base)
    page.sign_in(own.tokens["ops"])
    yield page
    assert page.complaints() == []
