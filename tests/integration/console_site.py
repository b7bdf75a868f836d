"""What the tests of the console's API stand on: a daemon with an administrator, a reader, a stranger and a worker."""
import pytest

from access_site import Site, bearer
from console import Console
from harness import acquire_request, wait_until

NAMES = "<img src=x onerror=alert(1)>", "\"><script>alert(1)</script>", "'-alert(1)-'"
READS = ("/leases?namespace={0}", "/namespaces?namespace={0}", "/scope?namespace={0}&key=k", "/queue?namespace={0}", "/queue?namespace={0}&key=k",
         "/history?namespace={0}&key=k", "/failures?namespace={0}", "/policies?namespace={0}", "/schedules?namespace={0}",
         "/schedule-days?namespace={0}", "/ticks?namespace={0}")


@pytest.fixture(scope="module")
def site(cluster):
    """`ops` is administrator of all, `reader` may read shop, `stranger` has a token and no rule."""
    site = Site(cluster, "--admin-hosts", "console.example.org,other.example.org", "--watch-buffer", "64MiB")
    site.grant("token:ops", "", "admin")
    site.grant("token:reader", "shop", "read")
    site.grant("token:worker", "shop", "lease")
    site.tokens = {name: site.token(name)[0] for name in ("ops", "reader", "stranger", "worker")}
    site.waits_for("OK", "shop.first", bearer(site.tokens["worker"]))
    yield site
    site.close()


def as_(site, name, **more):
    return Console(site.daemon.admin_port, site.tokens.get(name), **more)


def hold(site, namespace, key, name="worker", **fields):
    return site.client.lease.Acquire(
        acquire_request(namespace, key, fields.pop("seconds", 30), **fields), metadata=bearer(site.tokens[name]), timeout=60).lease


def allowed(site, name, path):
    """Once rules have reached the daemon."""
    return wait_until(lambda: (answer := as_(site, name).get(path)).status == 200 and answer, 60, f"{name} may {path}").json


def keys_in(leases):
    return {(".".join(lease["scope"]["namespace"]), lease["scope"]["key"]) for lease in leases}
