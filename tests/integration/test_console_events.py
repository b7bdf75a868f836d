"""The console's API: events, and streams that are not read."""
import socket
import threading

from access_site import bearer
from console import Events
from console_site import allowed, as_, hold, site  # noqa: F401
from harness import Client, acquire_request, lease_ref, pb, wait_until


# --- events ---


def collect(events, wanted):
    """The types by key, until those are there."""
    seen = {}
    while not wanted <= set(seen.items()):
        name, data = events.next()
        assert name == "changes", (name, data)
        for event in data["events"]:
            assert "lease_key" not in event["lease"]
            seen[event["lease"]["scope"]["key"]] = event["type"]
    return seen


def test_events_tell_what_changes_to_those_who_may_read_it(site):
    allowed(site, "reader", "/leases?namespace=shop")
    streams = {name: Events(as_(site, name), "/events?namespace=&include_children=true") for name in ("ops", "reader")}
    assert all(stream.next() == ("synced", {}) for stream in streams.values())
    hold(site, "vault.events", "hidden", name="ops")
    lease = hold(site, "shop.events", "seen")
    assert collect(streams["ops"], {("hidden", "TYPE_ACQUIRED"), ("seen", "TYPE_ACQUIRED")})
    assert "hidden" not in collect(streams["reader"], {("seen", "TYPE_ACQUIRED")})
    site.client.lease.Release(pb.ReleaseRequest(items=[pb.ReleaseItem(lease=lease_ref(lease))]), metadata=bearer(site.tokens["worker"]), timeout=60)
    assert "hidden" not in collect(streams["reader"], {("seen", "TYPE_RELEASED")})
    assert streams["reader"].reply.headers["Content-Type"] == "text/event-stream"
    for stream in streams.values():
        stream.close()


def test_streams_are_bounded_and_a_place_is_given_back(site):
    ops = as_(site, "ops")
    streams = []
    for _ in range(24):
        streams.append(Events(ops))
        assert streams[-1].next() == ("synced", {})
    refused = ops.get("/events")
    assert refused.status == 429 and ops.get("/leases?page_size=1").status == 200
    streams.pop().close()

    def opened():
        stream = Events(ops)
        streams.append(stream)
        return stream.status == 200
    wait_until(opened, 60, "a place")
    for stream in streams:
        stream.close()


def test_a_stream_that_is_not_read_is_cut_and_others_go_on(site):
    """The small buffers are soon full; what waits in the daemon is bounded."""
    readers = [Events(as_(site, "ops"), "/events?namespace=shop.slow")]
    assert readers[0].next() == ("synced", {})
    slow = socket.socket()
    slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    slow.connect(("127.0.0.1", site.daemon.admin_port))
    slow.sendall(f"GET /api/v1/events?namespace=shop.slow HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {site.tokens['ops']}\r\n\r\n".encode())
    stop = threading.Event()

    def change():
        """Each event carries 8 KiB."""
        client = Client(site.daemon.target)
        while not stop.is_set():
            for i in range(60):
                lease = client.lease.Acquire(acquire_request("shop.slow", f"k{i}", 30), metadata=bearer(site.tokens["worker"]), timeout=60).lease
                item = pb.ReleaseItem(lease=lease_ref(lease), failure="x" * 8000)
                client.lease.Release(pb.ReleaseRequest(items=[item]), metadata=bearer(site.tokens["worker"]), timeout=60)
        client.close()

    changer = threading.Thread(target=change, daemon=True)
    changer.start()

    def one_is_cut():
        """On a machine that has no time for it the other one may be cut too: it comes back."""
        if readers[-1].next() is None:
            readers.append(Events(as_(site, "ops"), "/events?namespace=shop.slow"))
        return "leasehold_console_streams_cut_total 0" not in as_(site, "ops").request("GET", "/metrics").text
    wait_until(one_is_cut, 120, "the cut")
    slow.settimeout(60)
    while slow.recv(1 << 20):
        pass
    stop.set()
    changer.join(60)
    slow.close()
    for reader in readers:
        reader.close()
