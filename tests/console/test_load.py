"""10,000 leases and 1,000 changes a second: the page answers a click, and its memory stays level. `--load-seconds 60` is the whole test; the
gate's is shorter. The bound on a click is generous here, because other work shares the machine; the figure is printed."""
import threading
import time
import uuid

import pytest

import harness
from browser import BOUND, Page
from harness import acquire_request, release_request

LEASES = 10000
SPACES = 20
CHANGES_A_SECOND = 1000
ROUNDS_A_SECOND = 4
CLICK_BOUND_MS = 5000
HEAP_GROWTH = 1.6


@pytest.fixture
def open_site(cluster):
    """A daemon without access rules: who comes is anonymous and may do everything."""
    site = harness.Service(cluster)
    yield site
    site.close()


def acquire(stub, names, owner):
    """Leases of these (namespace, key), asked for at once."""
    calls = [stub.Acquire.future(acquire_request(*name, 3600, owner=owner), timeout=BOUND) for name in names]
    return [call.result().lease for call in calls]


def fill(site):
    for first in range(0, LEASES, 500):
        acquire(site.client.lease, [(f"load.n{i % SPACES}", f"key-{i:05}") for i in range(first, first + 500)], f"worker-{first // 500}")


class Changes(threading.Thread):
    """Other clients of the daemon: in each round they acquire leases and release those of the round before."""

    def __init__(self, site, seconds):
        super().__init__(daemon=True)
        self.stub, self.seconds, self.done, self.error = site.client.lease, seconds, 0, None

    def run(self):
        try:
            self.change()
        except Exception as error:  # The test looks at it.
            self.error = error

    def change(self):
        each, held = CHANGES_A_SECOND // ROUNDS_A_SECOND // 2, []
        begun = time.monotonic()
        while time.monotonic() < begun + self.seconds:
            if held:
                self.stub.Release(release_request(*held), timeout=BOUND)
                self.done += each
            held = acquire(self.stub, [(f"load.n{i % SPACES}", f"key-{uuid.uuid4().hex[:8]}") for i in range(each)], "changing")
            self.done += each
            time.sleep(max(0, begun + self.done / CHANGES_A_SECOND - time.monotonic()))
        self.took = time.monotonic() - begun


CLICK = """
    const [css, text, done] = arguments, from = performance.now();
    [...document.querySelectorAll(css)].find((e) => e.textContent.includes(text)).click();
    requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now() - from)))"""


def test_10000_leases_and_1000_changes_a_second(open_site, driver, request):
    own, page, seconds = open_site, Page(driver, f"http://127.0.0.1:{open_site.daemon.admin_port}"), request.config.getoption("--load-seconds")
    fill(own)
    page.open("#/leases")
    page.until(lambda: page.find(".tile", "10,000") and page.find(".list .mute", "10,000 leases"), "10,000 leases")
    # Only the rows on the screen are elements.
    assert len(page.driver.find_elements("css selector", ".lease")) < 60
    page.run("window.longest = 0; new PerformanceObserver((l) => l.getEntries().forEach((e) => { longest = Math.max(longest, e.duration); })).observe({type: 'longtask'})")
    changes = Changes(own, seconds)
    changes.start()
    page.until(lambda: changes.done > 0 or changes.error, "changes")
    clicks, heaps = [], []
    while changes.is_alive():
        for css, text in ((".tile", "Held too long"), (".tile", "Held too long"), (".tree a", "n7"), (".tree a", "All namespaces")):
            clicks.append(page.driver.execute_async_script(CLICK, css, text))
        page.run("scrollTo(0, Math.random() * document.documentElement.scrollHeight)")
        heaps.append(page.heap_bytes())
    changes.join(BOUND)
    assert changes.error is None
    clicks.sort()
    print(f"{changes.done / changes.took:.0f} changes/s for {changes.took:.0f} s; a click: median {clicks[len(clicks) // 2]:.0f} ms, longest {clicks[-1]:.0f} ms of {len(clicks)}; "
          f"longest task {page.run('return longest'):.0f} ms; heap {heaps[0] / 1e6:.1f} to {heaps[-1] / 1e6:.1f} MB, most {max(heaps) / 1e6:.1f} MB; {len(page.driver.find_elements('css selector', '.lease'))} rows")
    assert clicks[-1] < CLICK_BOUND_MS
    settled = heaps[len(heaps) // 4:]
    assert settled[-1] < HEAP_GROWTH * settled[0] + 4e6, heaps
    # And it is right: what the database has is what the page has.
    held = own.psql("select count(*) from leasehold.scope where state = 'held' and namespace like 'load.%'")
    page.click(".tree a", "load")
    page.until(lambda: page.find(".list .mute", f"{int(held):,} lease"), f"{held} leases in the list")
    page.until(lambda: page.run("return document.querySelector('[aria-rowcount]').getAttribute('aria-rowcount')") == str(int(held) + 1), "the count of rows")
