"""Through nginx, HAProxy and Caddy before two daemons, with the configurations of deploy/examples/proxies: leaders of each package, streams of
stock clients. LEASEHOLD_CADDY names another Caddy than PyPI's, such as Debian's or that of tests/interop/caddy.

A leader says when its work did its last step. Whatever happens to proxies, daemons and leaders, no two leaders of a key work at once.

    LEASEHOLD_PROXIES_IDLE=180 pytest -k quiet tests/interop/test_proxies.py

leaves the proxies' time-outs as they are, and waits for three minutes.
"""
import collections
import os
import pathlib
import signal
import socket
import subprocess
import sys
import threading
import time

import grpc
import pytest

HERE = pathlib.Path(__file__).resolve().parent
for each in (HERE.parent / "fault", HERE / "proxied"):
    sys.path.insert(0, str(each))
from flood import DATA, END_HEADERS, HEADERS, LEASE, NO_WINDOW, RST_STREAM, frame, headers, message  # noqa: E402
from place import BOUND, Place, harness, metric  # noqa: E402
from proxies import KINDS, free_port  # noqa: E402
from harness import Client, Failure, acquire_request, health_pb2, health_pb2_grpc, pb, wait_until  # noqa: E402
from streams import Stream, granted_event  # noqa: E402
from test_node import node_modules  # noqa: E402, F401
from test_rolling_restart import GO  # noqa: E402

IDLE_S = int(os.environ.get("LEASEHOLD_PROXIES_IDLE", 0))
SHORT_IDLE_S = 20  # of the proxies: more than the 15 s that a stream is quiet at the most
STREAMS = 200
DURATIONS = (5, 60, 600) if IDLE_S else (10, 60, 600)

Term = collections.namedtuple("Term", "token begin end")  # end: None while it leads
Site = collections.namedtuple("Site", "place daemons proxies commands")


def python_leader(request):
    return ["/usr/bin/python3", "-B", HERE / "proxied/lead.py"], {"PYTHONPATH": str(harness.ROOT / "src/python")}


def node_leader(request):
    directory = request.getfixturevalue("node_modules")
    return ["node", HERE / "proxied/lead.js", harness.ROOT / "src/node"], {"NODE_PATH": str(directory / "node_modules")}


def go_leader(request):
    program = harness.BUILD / "lead-go"
    done = subprocess.run([GO, "build", "-o", program, "./lead"], cwd=HERE / "rolling/go", stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, env={**os.environ, "GOFLAGS": "-mod=readonly -buildvcs=false", "GOWORK": "off"})
    assert done.returncode == 0, done.stdout
    return [program], {}


class Leader:
    """A process that stands for election under several keys."""

    def __init__(self, command, target, durations):
        words, environment = command
        self.durations, self.lines = durations, []
        self.terms = collections.defaultdict(list)
        self.reasons = collections.defaultdict(list)
        self.process = subprocess.Popen([*map(str, words), target, *(f"{key}:{seconds}" for key, seconds in durations.items())], text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env={**os.environ, **environment})
        self.reader = threading.Thread(target=self.read)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            words = line.split()
            if words[:1] == ["leading"]:
                self.terms[words[1]].append(Term(int(words[2]), int(words[3]), None))
            elif words[:1] == ["over"]:
                self.terms[words[1]].append(self.terms[words[1]].pop()._replace(end=int(words[3])))
                self.reasons[words[1]].append(words[2])
            else:
                self.lines.append(line)

    def leads(self, key):
        return bool(self.terms[key]) and self.terms[key][-1].end is None

    def wait_until_it_leads(self):
        wait_until(lambda: all(map(self.leads, self.durations)) or self.process.poll() is not None, BOUND, f"a leader of each of {self.durations}")
        assert self.process.poll() is None, self.lines[-20:]

    def kill(self):
        """What it worked is over by then."""
        self.process.kill()
        self.process.wait(30)
        self.reader.join()
        for terms in (self.terms[key] for key in self.durations if self.leads(key)):
            terms.append(terms.pop()._replace(end=time.clock_gettime_ns(time.CLOCK_BOOTTIME)))

    def close(self):
        self.process.send_signal(signal.SIGCONT)
        self.process.kill()
        self.process.wait(30)
        self.reader.join()


def overlaps(leaders):
    """Of each key, terms of which a later one began before the last step of an earlier one."""
    terms = collections.defaultdict(list)
    for leader in leaders:
        for key, each in leader.terms.items():
            terms[key] += each
    found = []
    for key, each in terms.items():
        each.sort()
        found += [(key, one, two) for one, two in zip(each, each[1:]) if one.end is None or one.end > two.begin]
    return found


@pytest.fixture
def site(request):
    place = Place()
    daemons = [place.daemon("--admin", f"127.0.0.1:{free_port()}") for _ in range(2)]  # the same after a restart: HAProxy asks there
    idle_s = getattr(request, "param", None)
    site = Site(place, daemons, {kind.name: kind(daemons, idle_s) for kind in KINDS},
                {"python": python_leader(request), "node": node_leader(request), "go": go_leader(request)})
    closing = []
    site.commands["later"] = closing.append
    yield site
    while closing:
        closing.pop()()
    for proxy in site.proxies.values():
        proxy.close()
    place.close()


def start(site, proxy, package, durations):
    leader = Leader(site.commands[package], proxy.target if proxy is not None else site.daemons[0].target, durations)
    site.commands["later"](leader.close)
    return leader


def pairs(site):
    return [(proxy, package) for proxy in site.proxies.values() for package in ("python", "node", "go")]


def queued(site):
    return int(site.place.psql("select count(*) from leasehold.queue"))


def waiting(site, count):
    wait_until(lambda: queued(site) == count, BOUND, f"{count} waiters")


def command(site, proxy, key, seconds):
    """`leasehold run`: libleasehold, whose KeepAlive streams say nothing between renewals."""
    run = subprocess.Popen([harness.CLI, "run", "run", key, "--server", proxy.target, "--duration", f"{seconds}s", "--", "sleep", "1h"])
    site.commands["later"](run.wait)
    site.commands["later"](run.terminate)
    wait_until(lambda: site.place.psql(f"select 1 from leasehold.lease where namespace = 'run' and key = '{key}'") == "1", BOUND, f"{key} to run")
    return run


def candidate(site, key):
    """A stock client that waits for the key without a proxy; granted() is the time of its grant."""
    client = Client(site.daemons[0].target)
    stream = Stream(client.lease.AcquireStream, unary=acquire_request("proxied", key, 3600, wait_forever=True, owner="next"))
    site.commands["later"](client.close)
    site.commands["later"](stream.close)
    stream.next()
    return stream


def granted(stream):
    stream.until(granted_event)
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


@pytest.mark.parametrize("site", [None if IDLE_S else SHORT_IDLE_S], indirect=True)
def test_quiet_streams_live(site):
    """Leaders with each duration, candidates behind them, watches, waiters and a command's lease: nothing happens, for longer than the
    proxies' time-outs."""
    leaders, watches, waiters, healths, runs = [], {}, {}, {}, {}
    for proxy, package in pairs(site):
        keys = {f"{proxy.name}-{package}-{seconds}": seconds for seconds in DURATIONS}
        leaders.append(start(site, proxy, package, keys))
    for leader in leaders:
        leader.wait_until_it_leads()
    for proxy, package in pairs(site):
        start(site, proxy, package, {f"{proxy.name}-{package}-{seconds}": seconds for seconds in DURATIONS})
    for proxy in site.proxies.values():
        client = Client(proxy.target)
        site.commands["later"](client.close)
        watches[proxy.name] = Stream(client.lease.WatchLeases, unary=pb.WatchLeasesRequest(namespace=["quiet"], alive=True))
        client.lease.Acquire(acquire_request("waited", proxy.name, 3600))
        waiters[proxy.name] = Stream(client.lease.AcquireStream, unary=acquire_request("waited", proxy.name, 60, wait_forever=True))
        healths[proxy.name] = Stream(health_pb2_grpc.HealthStub(client.channel).Watch, unary=health_pb2.HealthCheckRequest())
        for stream in (watches[proxy.name], waiters[proxy.name], healths[proxy.name]):
            site.commands["later"](stream.close)
        runs[proxy.name] = command(site, proxy, f"run-{proxy.name}", 60)
    waiting(site, len(leaders) * len(DURATIONS) + len(waiters))
    tickets = site.place.psql("select array_agg(ticket order by ticket) from leasehold.waiter")
    tokens = site.place.psql("select array_agg(token order by token) from leasehold.lease where namespace = 'run'")
    time.sleep(IDLE_S or 70)  # more than the 60 s of Caddy, which has no setting for it
    assert [dict(each.reasons) for each in leaders if each.reasons] == []
    assert all(leader.leads(key) for leader in leaders for key in leader.durations)
    assert site.place.psql("select array_agg(ticket order by ticket) from leasehold.waiter") == tickets  # no wait was begun anew
    assert [run.poll() for run in runs.values()] == [None] * len(runs)
    assert site.place.psql("select array_agg(token order by token) from leasehold.lease where namespace = 'run'") == tokens
    for name, health in healths.items():
        assert health.next().status == health.next().status == health_pb2.HealthCheckResponse.SERVING, name
        assert health.call.is_active(), name
    for name, watch in watches.items():
        site.place.psql(f"select from leasehold.acquire('quiet', '{name}', '1 h')")
        assert watch.until(lambda event: event.type == pb.LeaseEvent.TYPE_ACQUIRED, name).lease.scope.key
        assert pb.LeaseEvent.TYPE_ALIVE in {event.type for event in watch.seen}, name
    for name, waiter in waiters.items():
        site.place.psql(f"select leasehold.force_release('waited', '{name}', 'a test')")
        waiter.until(granted_event, name)


def test_stopped_leaders_and_candidates_are_followed(site):
    leaders, candidates, holds = [], [], {}
    holder = Client(site.daemons[0].target)
    site.commands["later"](holder.close)
    for proxy, package in pairs(site):
        led, waited = f"led-{proxy.name}-{package}", f"waited-{proxy.name}-{package}"
        holds[waited] = holder.lease.Acquire(acquire_request("proxied", waited, 3600)).lease
        leaders.append(start(site, proxy, package, {led: 5}))
        candidates.append(start(site, proxy, package, {waited: 5}))
    for leader in leaders:
        leader.wait_until_it_leads()
    waiting(site, len(candidates))
    behind = {key: candidate(site, key) for each in (*leaders, *candidates) for key in each.durations}
    for each in (*leaders, *candidates):
        each.process.send_signal(signal.SIGSTOP)
    for lease in holds.values():
        holder.lease.Release(harness.release_request(lease))
    times = {key: granted(stream) for key, stream in behind.items()}
    for each in (*leaders, *candidates):
        each.process.send_signal(signal.SIGCONT)
    for leader in leaders:
        (key,) = leader.durations
        wait_until(lambda leader=leader, key=key: leader.reasons[key], BOUND, f"{key} to hear of its loss")
        assert leader.terms[key][0].end < times[key], key
    assert [each.durations for each in candidates if any(each.terms.values())] == []  # they never led


def test_proxies_that_die_while_leaders_are_elected_cost_nothing(site):
    """Between the daemon's commit and what the leader hears of it, or before, or after."""
    holder = Client(site.daemons[0].target)
    site.commands["later"](holder.close)
    names = [[f"{proxy.name}-{package}-{n}" for n in range(6)] for proxy, package in pairs(site)]
    holds = [holder.lease.Acquire(acquire_request("proxied", key, 3600)).lease for each in zip(*names) for key in each]
    leaders = [start(site, proxy, package, dict.fromkeys(keys, 5)) for (proxy, package), keys in zip(pairs(site), names)]
    waiting(site, len(holds))
    other = start(site, None, "python", {lease.scope.key: 5 for lease in holds})
    waiting(site, 2 * len(holds))
    killers = [threading.Timer(0.005 * n, proxy.kill) for n, proxy in enumerate(site.proxies.values(), 1)]
    for killer in killers:
        killer.start()
    for lease in holds:
        holder.lease.Release(harness.release_request(lease))
    for killer in killers:
        killer.join()
    for proxy in site.proxies.values():
        proxy.start()
    wait_until(lambda: all(any(each.leads(lease.scope.key) for each in (*leaders, other)) for lease in holds), BOUND, "a leader of each key")
    for leader in leaders:
        leader.kill()
    other.wait_until_it_leads()
    assert overlaps([*leaders, other]) == []


def test_a_stream_that_breaks_in_a_message_is_no_release(site):
    """HAProxy makes a half-close of a client's reset: of a leader that was saying `alive` when its connection broke."""
    for proxy in site.proxies.values():
        request = pb.HoldRequest(acquire=acquire_request("proxied", proxy.name, 60)).SerializeToString()
        with socket.create_connection(proxy.target.rsplit(":", 1)) as client:
            client.sendall(NO_WINDOW + frame(HEADERS, END_HEADERS, 1, headers(LEASE + "Hold", proxy.target)) + frame(DATA, 0, 1, message(request)))
            token = wait_until(lambda proxy=proxy: site.place.psql(f"select token from leasehold.lease where key = '{proxy.name}'"), BOUND, proxy.name)
            client.sendall(frame(DATA, 0, 1, message(b"alive")[:5]) + frame(RST_STREAM, 0, 1, bytes(4)))
            wait_until(lambda: sum(metric(daemon, "leasehold_rpc_calls_open") for daemon in site.daemons) == 0, BOUND, "the end of the stream")
        assert site.place.psql(f"select token from leasehold.lease where key = '{proxy.name}'") == token


def refusal(call, request):
    """Of Caddy's some come as UNKNOWN, "Stream removed", which clients repeat."""
    while True:
        with pytest.raises(grpc.RpcError) as error:
            call(request)
        if error.value.code() != grpc.StatusCode.UNKNOWN:
            return Failure(error.value)


def test_refusals_have_their_details(site):
    """Trailers of some KiB, as they are without a proxy."""
    holder = Client(site.daemons[0].target)
    site.commands["later"](holder.close)
    ns, key = ".".join(["n" * 63] * 3 + ["m" * 50]), "k" * 1024
    holder.lease.Acquire(acquire_request(ns, key, 60, owner="o" * 255))
    for proxy in site.proxies.values():
        client = Client(proxy.target)
        site.commands["later"](client.close)
        failures = []
        for request in (acquire_request(ns, key), pb.AcquireRequest(labels={"x" * 64: "y" * 300}, owner="o" * 256)):
            for call in (client.lease.Acquire, lambda request: list(client.lease.AcquireStream(request))):
                failures.append(refusal(call, request))
        assert [each.reason for each in failures] == ["LEASE_HELD"] * 2 + ["INVALID_ARGUMENT"] * 2, proxy.name
        assert all(each.contention.holder.owner == "o" * 255 for each in failures[:2]), proxy.name
        assert all(len(each.bad_request.field_violations) >= 3 for each in failures[2:]), proxy.name


def test_many_streams_of_one_client_leave_room_for_renewals(site):
    """A client's calls share one connection: above a proxy's limit of streams they wait for one that may never end."""
    for proxy in site.proxies.values():
        client = Client(proxy.target)
        site.commands["later"](client.close)
        lease = client.lease.Acquire(acquire_request("many", proxy.name, 60)).lease
        calls = [client.lease.AcquireStream(acquire_request("many", proxy.name, 60, wait_forever=True)) for _ in range(STREAMS)]
        wait_until(lambda: queued(site) == STREAMS or any(call.done() for call in calls), BOUND, f"{STREAMS} waiters through {proxy.name}")
        assert [(call.code(), call.details()) for call in calls if call.done()] == [], proxy.name
        assert client.lease.Heartbeat(harness.pb.HeartbeatRequest(leases=[harness.lease_ref(lease)]), timeout=BOUND).results[0].outcome == pb.OUTCOME_OK
        for call in calls:
            call.cancel()
        waiting(site, 0)


def heartbeats(site):
    rows = site.place.psql("select key, heartbeats from leasehold.lease where namespace = 'proxied'").splitlines()
    return {key: int(count) for key, count in (row.split("|") for row in rows)}


def test_restarts_cost_no_lease_and_a_dead_leader_is_followed(site):
    """The proxies read their configuration again, are killed and started, and the daemons are restarted one by one."""
    leaders = [start(site, proxy, package, {f"{proxy.name}-{package}": 30}) for proxy, package in pairs(site)]
    for leader in leaders:
        leader.wait_until_it_leads()
    other = start(site, None, "python", {key: 30 for leader in leaders for key in leader.durations})
    waiting(site, len(leaders))

    def goes_on(what):
        before = heartbeats(site)
        wait_until(lambda: any(each.reasons for each in leaders) or all(count > before[key] for key, count in heartbeats(site).items()),
                   BOUND, f"renewals after {what}, {before}")
        assert [dict(each.reasons) for each in leaders if each.reasons] == [], what

    for proxy in site.proxies.values():
        if hasattr(proxy, "reload"):  # Caddy has no admin API here
            proxy.reload()
    goes_on("a reload")
    for proxy in site.proxies.values():
        proxy.kill()
        proxy.start()
    goes_on("a restart of the proxies")
    for daemon in reversed(site.daemons):
        assert daemon.stop() == 0, daemon.log()
        daemon.start()
        goes_on("a restart of a daemon")
    for leader in leaders:
        leader.kill()
    other.wait_until_it_leads()
    assert overlaps([*leaders, other]) == []
