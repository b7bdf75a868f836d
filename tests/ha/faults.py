"""The place of a campaign, and what is done to it.

A fault is a generator: it breaks something, waits for what must come of it, yields, and mends after that.
"""
import json
import math
import pathlib
import subprocess
import time
import urllib.error
import urllib.request

SITE = pathlib.Path(__file__).resolve().parents[2] / "deploy/examples/patroni/site"
NODES, DAEMONS = ("n1", "n2", "n3"), ("d1", "d2")
SECOND = ("m1", "m2", "m3")  # of the second cluster, if there is one
TARGETS = ",".join(f"10.77.0.2{name[1]}:7420" for name in DAEMONS)
SYNCHRONOUS = {"sync_standby", "quorum_standby"}


def address(node):
    return f"10.77.0.{1 if node[0] == 'n' else 3}{node[1]}"


def database(nodes, name="leasehold"):
    return f"host={','.join(map(address, nodes))} dbname={name} user=postgres password=example target_session_attrs=read-write connect_timeout=3"


DATABASE = database(NODES)


def answer(url):
    try:
        with urllib.request.urlopen(url, timeout=2) as reply:
            return reply.read()
    except (urllib.error.URLError, OSError, ValueError):
        return None


class Place:
    def __init__(self, directory, is_synchronous, limit_s, nodes=NODES):
        self.directory = directory
        self.nodes = nodes
        self.is_synchronous = is_synchronous
        self.limit_s = limit_s

    def site(self, command, *words):
        done = subprocess.run([SITE, command, self.directory, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        if done.returncode and command != "switchover":
            raise RuntimeError(f"site {command}: {done.stdout}")
        return done.stdout

    def wait_for(self, condition, what):
        until = time.monotonic() + self.limit_s
        while not condition():
            if time.monotonic() > until:
                raise RuntimeError(f"{what}: not within {self.limit_s} s\n{self.site('status')}")
            time.sleep(0.2)

    def primary(self, nodes=None):
        return next((node for node in nodes or self.nodes if answer(f"http://{address(node)}:8008/primary") is not None), None)

    def standby(self):
        """A synchronous one, if there is one: its loss is felt."""
        members = {member["name"]: member["role"] for member in self.members(self.primary() or self.nodes[0])}
        return next((name for name, role in members.items() if role in SYNCHRONOUS), None) or next(
            name for name, role in members.items() if role == "replica")

    def another_primary(self, node):
        self.wait_for(lambda: self.primary([other for other in self.nodes if other != node]), f"another primary than {node}")

    def promotions(self):
        """{timeline: when, on the wall clock}: a standby that is promoted writes the history of its timeline; other standbys get a copy later."""
        found = {}
        for file in pathlib.Path(self.directory).glob(f"{self.nodes[0][0]}?/data/pg_wal/*.history"):
            timeline = int(file.stem, 16)
            found[timeline] = min(file.stat().st_mtime, found.get(timeline, math.inf))
        return found

    def members(self, node):
        text = answer(f"http://{address(node)}:8008/cluster")
        return json.loads(text).get("members", []) if text else []

    def is_whole(self):
        """Seen from each node: one that was cut off shows the members of then for a while, all of them well."""
        def is_good(members):
            roles = [member["role"] for member in members if member["state"] in ("running", "streaming")]
            return len(roles) == 3 and "leader" in roles and (not self.is_synchronous or SYNCHRONOUS.intersection(roles))
        views = [self.members(node) for node in self.nodes]
        timelines = {member.get("timeline") for members in views for member in members}
        return all(map(is_good, views)) and len(timelines) == 1 and all(answer(f"http://10.77.0.2{name[1]}:9420/readyz") for name in DAEMONS)

    def cut(self, host, others=None, ways="both"):
        others = [other for other in others or {*self.nodes, *NODES, *DAEMONS, "clients"} if other != host]
        if ways in ("both", "out"):
            self.site("cut", host, *others)
        if ways in ("both", "in"):
            for other in others:
                self.site("cut", other, host)


def the_primary(place):
    return place.primary()


def the_standby(place):
    return place.standby()


def broken(command, mend, choose, *program, is_replaced=False, for_s=0):
    """Until somebody else is the primary (`is_replaced`), or for some seconds."""
    def fault(place):
        host = choose if isinstance(choose, str) else choose(place)
        place.site(command, host, *program)
        if is_replaced:
            place.another_primary(host)
        time.sleep(for_s)
        yield
        place.site(mend, host, *program)
    return fault


def paused(choose, for_s):
    def fault(place):
        host = choose(place)
        place.site("freeze", host)
        time.sleep(for_s)
        place.site("thaw", host)
        yield
    return fault


def cut(choose, others=None, ways="both", is_replaced=False, for_s=0):
    def fault(place):
        host = choose if isinstance(choose, str) else choose(place)
        place.cut(host, others, ways)
        if is_replaced:
            place.another_primary(host)
        time.sleep(for_s)
        yield
        place.site("heal")
    return fault


def kill_ahead(place):
    """The primary is cut off from its standbys, which so lack its last commits, and dies. It comes back with another history: see pg_rewind."""
    node = place.primary()
    place.cut(node, place.nodes)
    time.sleep(4)
    place.site("kill", node)
    place.site("heal")
    place.another_primary(node)
    yield
    place.site("start", node)


def kill_patroni(place):
    """PostgreSQL goes on without it, and so does whoever is connected. Patroni finds it when it comes back."""
    node = place.primary()
    place.site("kill", node, "patroni")
    place.another_primary(node)
    yield
    place.site("start", node)


def kill_postgres(place):
    """Patroni starts it again."""
    place.site("kill", place.primary(), "postgres")
    yield


def stop_etcd(place):
    """With failsafe mode nobody notices. Without, the primary steps down when its time is over, and no other one can be made."""
    for node in NODES:
        place.site("freeze", node, "etcd")
    time.sleep(30)
    for node in NODES:
        place.site("thaw", node, "etcd")
    yield


def switchover(place):
    before = place.primary()
    for _ in range(10):
        place.site("switchover", place.nodes[0])
        time.sleep(1)
        if place.primary() not in (None, before):
            break
    place.another_primary(before)
    yield


def disk_full(place):
    """The write-ahead log grows until PostgreSQL stops, and cannot come back. By small records: see "Traps" in docs/run/ha.md."""
    node = place.primary()
    place.site("fill", node)
    filling = subprocess.run(["psql", "-X", "-q", database([node]), "-c",
                              "select count(pg_logical_emit_message(false, 'full', repeat('x', 1000))) from generate_series(1, 4000) a, generate_series(1, 400) b"],
                             stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, encoding="utf-8", timeout=120, check=False)
    if filling.returncode != 2:
        raise RuntimeError(f"PostgreSQL did not stop for want of room: {filling.stderr}")
    time.sleep(15)
    place.site("drain", node)
    yield


def all_daemons(command, mend, for_s=0):
    def fault(place):
        for daemon in DAEMONS:
            place.site(command, daemon)
        time.sleep(for_s)
        for daemon in DAEMONS:
            place.site(mend, daemon)
        yield
    return fault


def cut_daemons(place):
    for daemon in DAEMONS:
        place.cut(daemon, NODES)
    time.sleep(10)
    place.site("heal")
    yield


# In words, and what does it.
FAULTS = {
    "kill": ("primary: PostgreSQL and Patroni killed", broken("kill", "start", the_primary, is_replaced=True)),
    "kill-ahead": ("primary: cut off from the standbys for 4 s, then killed", kill_ahead),
    "freeze": ("primary: PostgreSQL and Patroni stopped until after they are replaced", broken("freeze", "thaw", the_primary, is_replaced=True)),
    "pause": ("primary: the same stopped for 8 s", paused(the_primary, 8)),
    "kill-postgres": ("primary: PostgreSQL alone killed", kill_postgres),
    "kill-patroni": ("primary: Patroni alone killed", kill_patroni),
    "freeze-patroni": ("primary: Patroni alone stopped until after it is replaced", broken("freeze", "thaw", the_primary, "patroni", is_replaced=True)),
    "isolate": ("primary: cut off from everybody", cut(the_primary, is_replaced=True)),
    "isolate-out": ("primary: what it sends is lost", cut(the_primary, ways="out", is_replaced=True)),
    "isolate-in": ("primary: what is sent to it is lost", cut(the_primary, ways="in", is_replaced=True)),
    "isolate-peers": ("primary: cut off from the other nodes, not from the daemons", cut(the_primary, NODES, is_replaced=True)),
    "stop-etcd": ("etcd stopped on all nodes for 30 s", stop_etcd),
    "switchover": ("another primary by `patronictl switchover`", switchover),
    "disk-full": ("primary: its disk is full for 15 s", disk_full),
    "kill-standby": ("standby killed", broken("kill", "start", the_standby, for_s=10)),
    "freeze-standby": ("standby stopped for 10 s", broken("freeze", "thaw", the_standby, for_s=10)),
    "pause-standby": ("standby stopped for 3 s", paused(the_standby, 3)),
    "isolate-standby": ("standby cut off from everybody", cut(the_standby, for_s=10)),
    "isolate-standby-out": ("standby: what it sends is lost", cut(the_standby, ways="out", for_s=10)),
    "kill-daemon": ("a daemon killed", broken("kill", "start", "d1", for_s=5)),
    "stop-daemon": ("a daemon stopped", broken("freeze", "thaw", "d1", for_s=10)),
    "cut-daemon": ("a daemon cut off from everybody", cut("d1", for_s=10)),
    "cut-daemon-out": ("a daemon: what it sends to the database is lost", cut("d1", NODES, "out", for_s=10)),
    "cut-daemon-in": ("a daemon: what the database sends to it is lost", cut("d1", NODES, "in", for_s=10)),
    "cut-daemon-clients": ("a daemon cut off from the clients", cut("d1", ("clients",), for_s=10)),
    "kill-daemons": ("both daemons killed and started at once", all_daemons("kill", "start")),
    "stop-daemons": ("both daemons stopped for 8 s", all_daemons("freeze", "thaw", 8)),
    "cut-daemons": ("both daemons cut off from the database for 10 s", cut_daemons),
}
SHORT = ("kill", "freeze", "switchover")
# PostgreSQL goes on without Patroni. In quorum mode the standby that is not promoted confirms its commits until it follows the new primary, and they are lost.
HUNG = ("kill-patroni", "freeze-patroni")
