"""A daemon with namespaces on two PostgreSQL clusters, and what its tests ask it."""
import harness
from harness import acquire_request, health, pb, wait_until
from streams import BOUND

AGE = """update leasehold.scope set deadline = deadline - interval '1 h', heartbeat_at = heartbeat_at - interval '1 h',
                                  acquired_at = acquired_at - interval '1 h'"""


def write_settings(path, sections, **settings):
    """A file of settings; each section is (name, connection string, namespaces, is it the default)."""
    lines = ["[leasehold]", *(f"{name} = {value}" for name, value in settings.items())]
    for name, url, namespaces, is_default in sections:
        lines += [f"[database {name}]", f"database = {url}", f"namespaces = {namespaces}", f"default = {is_default}"]
    path.write_text("\n".join(lines) + "\n")
    path.chmod(0o644)
    return str(path)


class Site:
    """Two clusters; `home` has all that `eu` has not, which has orders, shop.eu and what is below them."""

    def __init__(self, home, eu, path, sections=None, **settings):
        self.clusters = {"home": home, "eu": eu}
        self.databases = {name: cluster.create_database(migrated=True) for name, cluster in self.clusters.items()}
        self.path = path
        self.sections = sections or [("home", self.url("home"), "", "yes"), ("eu", self.url("eu"), "orders, shop.eu", "no")]
        self.daemon = harness.Daemon("--config", write_settings(path, self.sections, **settings))
        self.client = harness.Client(self.daemon.target)
        self.wait()

    def wait(self):
        for name in self.databases:
            wait_until(lambda: health(self.client, f"database/{name}") == "SERVING", BOUND, f"{name} being ready")

    def url(self, name):
        return self.clusters[name].url(self.databases[name])

    def psql(self, name, sql):
        return self.clusters[name].psql(sql, self.databases[name])

    def acquire(self, namespace, key, **more):
        return self.client.lease.Acquire(acquire_request(namespace, key, **more), timeout=BOUND).lease

    def close(self):
        self.client.close()
        assert self.daemon.stop() == 0, self.daemon.log()
        self.daemon.destroy()


def name(lease):
    return ".".join(lease.scope.namespace) + "/" + lease.scope.key


def listed(site, namespace="", page_size=1000, **more):
    leases, page_token = [], ""
    while True:
        page = site.client.lease.ListLeases(pb.ListLeasesRequest(
            namespace=namespace.split(".") if namespace else [], page_size=page_size, page_token=page_token, **more))
        leases += page.leases
        page_token = page.next_page_token
        if not page_token:
            return leases


def rows(site, database):
    return site.psql(database, "select namespace || '/' || key from leasehold.scope where state = 'held' order by 1").split()
