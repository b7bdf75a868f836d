"""One more database for a spread namespace, as docs/run/daemon.md tells it: keys move with no lease held, and tokens only grow. And one fewer."""
from google.protobuf.wrappers_pb2 import BoolValue

import harness
from databases import listed
from harness import fails, pb, release_request, wait_until
from streams import BOUND
from test_spread import KEYS, NAMES, clean, namespace, other, place, site, start, write_spread  # noqa: F401

MORE = (*NAMES, "us")


def freeze(site, is_frozen):
    request = pb.SetPolicyRequest(policy=pb.Policy(namespace=namespace("jobs"), frozen=BoolValue(value=is_frozen)))
    request.update_mask.paths.append("frozen")
    site.client.admin.SetPolicy(request, timeout=BOUND)


def restart(site, sections):
    """All daemons of the site: it has one."""
    site.close()
    site.sections = sections
    site.daemon = harness.Daemon("--config", write_spread(site.path, site))
    site.client = harness.Client(site.daemon.target)
    for name in (section[0] for section in sections):
        wait_until(lambda: harness.health(site.client, f"database/{name}") == "SERVING", BOUND, f"{name} being ready")


def move(site, sections):
    """Freeze; wait until nothing is held; new sections for all daemons; raise the tokens; thaw."""
    freeze(site, True)
    with fails() as failure:
        site.acquire("jobs", KEYS[0])
    assert failure.value.reason == "NAMESPACE_FROZEN"
    assert not listed(site, "jobs")
    restart(site, sections)
    freeze(site, True)
    for name in (section[0] for section in sections):
        site.psql(name, "select leasehold.bump_epoch()")
    freeze(site, False)


def tokens(site):
    leases = [site.acquire("jobs", key) for key in KEYS]
    site.client.lease.Release(release_request(*leases))
    return {lease.scope.key: lease.token for lease in leases}


def test_keys_move_to_one_more_database_and_back(cluster, other, tmp_path):  # noqa: F811
    site = start(cluster, other, tmp_path / "leasehold.ini")  # noqa: F811
    site.clusters["us"] = other
    site.databases["us"] = other.create_database(migrated=True)
    two, three = site.sections, [*site.sections, ("us", site.url("us"), "", "no")]
    before = tokens(site)
    move(site, three)
    between = tokens(site)
    moved = [key for key in KEYS if place(key, MORE) == "us"]
    assert 2 < len(moved) < len(KEYS) / 2
    assert site.psql("us", "select array_agg(key order by key) from leasehold.scope") == "{" + ",".join(moved) + "}"
    move(site, two)
    after = tokens(site)
    assert all(before[key] < between[key] < after[key] for key in KEYS), (before, between, after)
    site.close()
