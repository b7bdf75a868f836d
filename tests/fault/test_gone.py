"""Clients that die, are stopped or cut off while they are queued or hold: nobody waits for them, and they never hold."""
import os
import signal
import subprocess
import time
import types
import uuid

import grpc
import pytest

from harness import acquire_request, pb_grpc, release_request, wait_until
from place import BOUND, client_command, metric
from record import RECORD


# Promise 6.
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_a_client_that_is_gone_while_queued_never_holds(place, how):
    # A machine that is busy starts the client's process in seconds, and the client beside it answers its pings late.
    place.daemon("--keepalive", "1s", "--keepalive-timeout", "5s")
    place.psql(RECORD)
    client = place.clients[0]
    held = client.lease.Acquire(acquire_request("jobs", "k", 60, owner="first")).lease
    request = acquire_request("jobs", "k", 60, wait_forever=True, owner="gone", lease_key=str(uuid.uuid4()))
    process = subprocess.Popen(client_command(place.daemons[0].target, request), stdout=subprocess.PIPE, text=True)
    try:
        wait_until(lambda: place.waiters("k") == 1, BOUND)
        behind = place.queued_call(client, "k", "behind")
        process.send_signal(how)
        wait_until(lambda: place.waiters("k") == 1, BOUND, "the place to be given up")
        assert place.psql("select owner from leasehold.waiter") == "behind"
        client.lease.Release(release_request(held))
        last = behind.result(BOUND).lease
        assert last.owner == "behind"
        client.lease.Release(release_request(last))
        if how == signal.SIGSTOP:
            process.send_signal(signal.SIGCONT)
            assert process.communicate(timeout=BOUND)[0].strip() != "granted"
        assert place.psql("select lease from record.event where kind = 'grant'") == last.lease_key
    finally:
        process.kill()
        process.wait()


def unread(port):
    """Bytes that came to this port and were not read."""
    rows = [line.split() for line in open("/proc/net/tcp").readlines()[1:]]
    return sum(int(row[4].split(":")[1], 16) for row in rows if int(row[1].split(":")[1], 16) == port)


def test_after_a_pause_it_reads_who_has_gone_before_it_asks_for_anybody(place):
    """An acquire that came while the daemon stood still, of a client that has gone elsewhere and has had the lease since."""
    paused, other = place.daemon(), place.daemon()
    place.psql(RECORD)
    client = place.clients[1]
    held = client.lease.Acquire(acquire_request("jobs", "k", 60)).lease
    request = acquire_request("jobs", "k", 60, wait_forever=True, lease_key=str(uuid.uuid4()))
    process = subprocess.Popen(client_command(paused.target, request, "ready"), stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline().strip() == "ready"
        paused.signal(signal.SIGSTOP)
        before = unread(paused.port)
        process.stdin.write("\n")
        process.stdin.flush()
        wait_until(lambda: unread(paused.port) > before, BOUND, "the call to arrive")
        process.kill()
        process.wait()
        client.lease.Release(release_request(held))
        client.lease.Release(release_request(client.lease.Acquire(request).lease))
        time.sleep(0.3)  # a pause, not a hiccup
        for _ in range(9):  # the scope remembers eight
            client.lease.Release(release_request(client.lease.Acquire(acquire_request("jobs", "k", 60)).lease))
    finally:
        paused.signal(signal.SIGCONT)
        process.kill()
    wait_until(lambda: metric(paused, "leasehold_rpc_connections_accepted_total") == 1 and
               metric(paused, "leasehold_rpc_connections_open") == 0,
               BOUND, "the call to be read, and its end")
    wait_until(lambda: place.waiters("k") == 0, BOUND)
    assert client.lease.Acquire(acquire_request("jobs", "k", 60)).lease.token > held.token
    grants = place.psql(f"select count(*) from record.event where kind = 'grant' and lease = '{request.lease_key}'")
    assert grants == "1"


# --- a network that drops what is sent ---


class Cable:
    """A network namespace at the other end of a cable; unplugged, nothing that is sent arrives, and nobody is told."""

    count = 0

    def __init__(self):
        Cable.count += 1  # the kernel takes its time to remove one
        self.name = f"lh{os.getpid()}.{Cable.count}"
        self.here, there = (f"198.{18 + Cable.count % 2}.{os.getpid() % 256}.{host}" for host in (1, 2))  # for tests of networks (RFC 2544)
        self.processes = []
        self.ip("netns", "add", self.name)
        self.ip("link", "add", f"{self.name}a", "type", "veth", "peer", "name", "far", "netns", self.name)
        self.ip("address", "add", f"{self.here}/30", "dev", f"{self.name}a")
        self.ip("link", "set", f"{self.name}a", "up")
        self.ip("-n", self.name, "address", "add", f"{there}/30", "dev", "far")
        self.ip("-n", self.name, "link", "set", "far", "up")

    @staticmethod
    def ip(*args):
        done = subprocess.run(["ip", *args], stderr=subprocess.PIPE, text=True)
        if done.returncode != 0:
            raise PermissionError(f"ip {' '.join(args)}: {done.stderr.strip()}")

    def run(self, command):
        self.processes.append(subprocess.Popen(["ip", "netns", "exec", self.name, *command], stdin=subprocess.PIPE,
                                               stdout=subprocess.PIPE, text=True))
        return self.processes[-1]

    def unplug(self):
        self.ip("-n", self.name, "link", "set", "far", "down")

    def close(self):
        for process in self.processes:
            process.kill()
            process.wait()
        subprocess.run(["ip", "link", "del", f"{self.name}a"], check=False)
        subprocess.run(["ip", "netns", "del", self.name], check=False)


@pytest.fixture
def cable():
    if os.geteuid() != 0:
        pytest.skip("network namespaces need root: a client that is cut off was not tried")
    if subprocess.run(["ip", "netns", "add", "lh-probe"], stderr=subprocess.DEVNULL).returncode != 0:
        pytest.skip("network namespaces are not permitted here: a client that is cut off was not tried")
    subprocess.run(["ip", "netns", "del", "lh-probe"], check=True)
    cable = Cable()
    yield cable
    cable.close()


def reachable_daemon(place, cable):
    target = f"{cable.here}:7420"
    place.daemon("--listen", target, "--insecure", "yes", "--authorization", "no", "--keepalive", "1s", "--keepalive-timeout", "1s")
    # With grpc's own settings, for it does not answer PINGs while it has no call: it calls again after the GOAWAY.
    channel = grpc.insecure_channel(target, options=[("grpc.use_local_subchannel_pool", 1)])
    place.clients.append(types.SimpleNamespace(lease=pb_grpc.LeaseServiceStub(channel), close=channel.close))
    return target, place.clients[-1]


def says(process, what):
    for line in process.stdout:
        if line.strip() == what:
            return
    raise AssertionError(f"the client ended without {what}")


def test_a_client_that_is_cut_off_while_queued_leaves_the_queue(place, cable):
    target, client = reachable_daemon(place, cable)
    held = client.lease.Acquire(acquire_request("jobs", "k", 60, owner="first")).lease
    process = cable.run(client_command(target, acquire_request("jobs", "k", 60, wait_forever=True, owner="cut off")))
    wait_until(lambda: place.waiters("k") == 1, BOUND)
    behind = place.queued_call(client, "k", "behind")
    cable.unplug()
    wait_until(lambda: place.waiters("k") == 1, BOUND, "the place to be given up")
    assert place.psql("select owner from leasehold.waiter") == "behind"
    client.lease.Release(release_request(held))
    assert behind.result(BOUND).lease.owner == "behind"
    assert process.poll() is None  # it still waits: nobody told it


def test_the_lease_of_a_hold_that_is_cut_off_ends_by_its_deadline(place, cable):
    target, client = reachable_daemon(place, cable)
    place.psql(RECORD)
    client.lease.Release(release_request(client.lease.Acquire(acquire_request("jobs", "k", 60)).lease))
    process = cable.run(client_command(target, acquire_request("jobs", "k", 9, owner="cut off"), "hold"))
    says(process, "renewed")
    behind = place.queued_call(client, "k", "behind")
    cable.unplug()
    assert behind.result(BOUND).lease.owner == "behind"
    # It was renewed for as long as the daemon could believe in it, and then left to its expiry: it may still have been at work.
    assert place.psql("select g.at >= max(r.until), count(*) >= 2 from record.event g join record.event r on r.lease <> g.lease "
                      "where g.kind = 'grant' and r.kind in ('grant', 'renew') and g.number > r.number "
                      "group by g.number order by g.number desc limit 1") == "t|t"
    assert process.poll() is None
