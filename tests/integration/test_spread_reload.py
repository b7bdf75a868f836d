"""HUP adds a section of a spread namespace, or removes one that has no keys, while the daemon serves: no lease is lost, tokens grow, waiters are
served. What it may not change is refused in words, and nothing of the reload is applied."""
import contextlib
import getpass
import pathlib
import re
import resource
import signal
import urllib.parse
import urllib.request

import grpc
import pytest

import harness
import rundir
from console import Console
from databases import listed, name, rows
from harness import acquire_request, health, pb, wait_until
from streams import BOUND, Reading
from test_move_keys import Load, Spread, check_places, watched
from test_spread import KEYS, NAMES, place

MORE = (*NAMES, "us")
GAP = "\n[database {name}]\ndatabase = {url}\nspread = jobs\n"


class Reloaded(Spread):
    """Both daemons begin with the sections home and eu."""

    def __init__(self, cluster):
        path = pathlib.Path(rundir.mkdtemp("lh-s-"))
        path.chmod(0o755)  # another user reads the file again
        self.path, self.clusters = path, dict.fromkeys(MORE, cluster)
        self.databases = {name: cluster.create_database(migrated=True) for name in MORE}
        self.daemons, self.clients = [], []
        self.first, self.second = self.start(NAMES), self.start(NAMES)
        self.wait(NAMES)
        self.files = [path / f"{number}.ini" for number in range(2)]
        self.was = [file.read_text() for file in self.files]
        self.client = self.first

    def hup(self, text, words, daemons=None):
        """Each daemon reads the file with this, or its own of these, behind what it began with; returns when the log says the words once more."""
        texts = [text] * 2 if isinstance(text, str) or callable(text) else text
        for daemon, file, was, text in list(zip(self.daemons, self.files, self.was, texts))[:daemons]:
            before = len(re.findall(words, daemon.log()))
            file.write_text(text(was) if callable(text) else was + text)
            daemon.signal(signal.SIGHUP)
            wait_until(lambda: len(re.findall(words, daemon.log())) > before, BOUND, words)

    def section(self, name="us", url=None):
        return GAP.format(name=name, url=url or self.url(name))

    def add(self):
        self.hup(self.section(), "reload: database us is added")
        for client in self.clients:
            wait_until(lambda: health(client, "database/us") == "SERVING", BOUND, "us being ready")

    def remove(self):
        self.hup("", "database us has been removed")

    def refused(self, text, *words):
        before = self.daemons[0].log().count("reload: nothing was changed")
        self.hup(text, "reload: nothing was changed", 1)
        assert before + 1 == self.daemons[0].log().count("reload: nothing was changed")
        for each in words:
            assert each in self.daemons[0].log(), each


@pytest.fixture
def spread(cluster):
    spread = Reloaded(cluster)
    yield spread
    spread.close()


def acquire(client, key, **more):
    return client.lease.Acquire(acquire_request("jobs", key, **more), timeout=BOUND).lease


def databases(client):
    return [database.name for database in client.admin.GetStatus(pb.GetStatusRequest()).databases]


def metrics(daemon):
    with urllib.request.urlopen(f"http://127.0.0.1:{daemon.admin_port}/metrics") as answer:
        return answer.read().decode()


def test_a_section_comes_and_goes_under_load(spread):
    with watched(spread.first, KEYS[8:]), Load(spread, KEYS[8:]) as load:
        spread.add()
        for source in NAMES:
            spread.moved(source, "us", MORE)
        load.go_on()
        assert [row for row in rows(spread, "us") if row.startswith("jobs/")]
        for target in NAMES:
            spread.moved("us", target, NAMES)
        assert spread.psql("us", "select count(*) from leasehold.spread, generate_series(0, 4095) n where get_bit(slots, n) = 1") == "0"
        spread.remove()
        load.go_on()
    check_places(spread, load, NAMES)
    assert all(daemon.starts == 1 and daemon.process.poll() is None for daemon in spread.daemons)


def test_what_looks_at_all_databases_follows(spread):
    console = Console(spread.daemons[0].admin_port)
    watch = harness.health_pb2_grpc.HealthStub(spread.first.channel).Watch(harness.health_pb2.HealthCheckRequest(service="database/us"))
    seen = (message.status for message in watch)
    assert next(seen) == harness.health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
    assert databases(spread.first) == list(NAMES)
    spread.add()
    assert next(status for status in seen if status == harness.health_pb2.HealthCheckResponse.SERVING)
    assert databases(spread.first) == list(MORE)
    assert 'database="us"' in metrics(spread.daemons[0])
    went = next(key for key in KEYS if place(key) == "home" and place(key, MORE) == "us")

    def force():
        spread.first.admin.ForceRelease(pb.ForceReleaseRequest(scope=acquire(spread.first, went).scope, reason="r"))

    force()
    for source in NAMES:
        spread.moved(source, "us", MORE)
    force()
    assert len(console.get(f"/audit?namespace=jobs&key={went}").json["entries"]) == 2  # one in each database
    leases = [acquire(spread.first, key, seconds=600) for key in KEYS]
    assert [name(lease) for lease in listed(spread)] == [f"jobs/{key}" for key in KEYS]
    assert len(console.get("/daemons").json["daemons"]) == 6
    waited = [lease for lease in leases if place(lease.scope.key, MORE) == "us"][:2]
    waiting = [spread.second.lease.Acquire.future(acquire_request("jobs", lease.scope.key, wait=BOUND)) for lease in waited]
    wait_until(lambda: spread.second.admin.GetStatus(pb.GetStatusRequest()).waiters == 2, BOUND, "the waiters")
    for target in NAMES:
        spread.moved("us", target, NAMES)
    spread.remove()
    for lease, call in zip(waited, waiting):
        with pytest.raises(grpc.RpcError) as failure:
            call.result(BOUND)
        assert harness.Failure(failure.value).reason in ("DATABASE_UNAVAILABLE", "BLOCKING_TIMEOUT")
        spread.first.lease.Release(harness.release_request(lease))
        assert acquire(spread.second, lease.scope.key, wait=BOUND).token > lease.token
    assert next(status for status in seen if status == harness.health_pb2.HealthCheckResponse.SERVICE_UNKNOWN) is not None
    assert databases(spread.first) == list(NAMES)
    assert 'database="us"' not in metrics(spread.daemons[0])
    assert len(console.get("/daemons").json["daemons"]) == 4
    spread.add()  # its place is taken again
    assert databases(spread.first) == list(MORE)
    assert [name(lease) for lease in listed(spread)] == [f"jobs/{key}" for key in KEYS]
    watch.cancel()


def test_a_page_that_goes_on_in_a_section_that_was_removed_is_refused(spread):
    def page(page_token=""):
        return Console(spread.daemons[0].admin_port).get(f"/queue?namespace=jobs&page_size=1&page_token={urllib.parse.quote(page_token)}")

    key = next(key for key in KEYS if place(key) == "home")
    lease = acquire(spread.first, key, seconds=600)
    waiting = spread.first.lease.Acquire.future(acquire_request("jobs", key, wait=BOUND))
    spread.add()
    wait_until(lambda: page().json["waiters"], BOUND, "the waiter")
    page_token = page().json["next_page_token"]
    assert page_token and not page(page_token).json["waiters"]  # of us
    spread.remove()
    assert page(page_token).status == 400
    assert "goes on in database us, which this daemon does not have" in page(page_token).error["message"]
    assert len(page().json["waiters"]) == 1 and not page().json["next_page_token"]
    spread.add()
    assert page(page_token).status == 200
    spread.first.lease.Release(harness.release_request(lease))
    assert waiting.result(BOUND).lease.token > lease.token


def test_a_watch_that_began_before_hears_of_keys_that_went_to_the_new_database(spread):
    watch = Reading(spread.first.lease.WatchLeases(pb.WatchLeasesRequest(namespace=["jobs"], include_initial=True)))
    watch.read()
    assert watch.next().type == pb.LeaseEvent.TYPE_SYNCED
    spread.add()
    for source in NAMES:
        spread.moved(source, "us", MORE)
    key = next(key for key in KEYS if place(key, MORE) == "us")
    lease = acquire(spread.second, key, seconds=600)
    event = watch.next()
    assert event, watch.error
    assert (event.type, event.lease.token) == (pb.LeaseEvent.TYPE_ACQUIRED, lease.token)
    for target in NAMES:
        spread.moved("us", target, NAMES)
    spread.remove()
    spread.first.lease.Release(harness.release_request(lease))
    assert watch.next().type == pb.LeaseEvent.TYPE_RELEASED
    watch.call.cancel()


def test_a_reload_that_is_wrong_in_one_section_changes_nothing(spread):
    eu, home = spread.url("eu"), spread.url("home")
    us = spread.section()
    restart = "takes a restart of the daemon"
    spread.refused(lambda was: was.replace(eu, eu + " application_name=x") + us, f"[database eu] database: a change {restart}")
    spread.refused(lambda was: was.replace("orders", "orders, bills") + us, f"[database eu] namespaces: a change {restart}")
    spread.refused(lambda was: was.replace("default = yes", "default = no") + us, f"[database home] default: a change {restart}")
    spread.refused(lambda was: was.replace("spread = jobs", "spread = jobs, more", 1) + us, f"[database home] spread: a change {restart}")
    spread.refused(us + "namespaces = x\n", "[database us] namespaces: a section that has it is added by a restart of the daemon")
    spread.refused(us.replace("jobs", "new"), "[database us] spread: new has no other section")
    spread.refused(us + spread.section("us2", eu), "[database us2] has the database of [database eu]")
    spread.refused(lambda was: was[:was.index("[database eu]")] + us,
                   "[database eu] namespaces: a section that has it is removed by a restart of the daemon")
    spread.refused(lambda was: "[leasehold]\nmax_block = 3s\n" + was[was.index("[database eu]"):],
                   "[database home] default: a section that has it is removed by a restart of the daemon")
    spread.refused(lambda was: was.replace("[leasehold]", "[leasehold]\nmax_block = 3s").replace(eu, eu + " port=1") + us)
    assert databases(spread.first) == list(NAMES)
    assert spread.first.admin.GetStatus(pb.GetStatusRequest()).max_block.seconds != 3
    assert "database us is added" not in spread.daemons[0].log()


def test_a_section_that_has_keys_is_not_removed(spread):
    spread.add()
    spread.moved("home", "us", MORE)
    before = spread.daemons[0].log()
    spread.refused("", "slots of jobs: move its keys to other sections first, with deploy/move-namespace keys")
    assert "[database us] has " in spread.daemons[0].log()[len(before):]
    assert databases(spread.first) == list(MORE)
    key = next(key for key in KEYS if place(key) == "home" and place(key, MORE) == "us")
    assert acquire(spread.first, key).token > 0
    spread.moved("us", "home", NAMES)
    spread.remove()
    assert acquire(spread.second, next(each for each in KEYS if each != key)).token > 0


def test_a_section_whose_database_is_away_comes_and_goes(spread):
    watch = Reading(spread.first.lease.WatchLeases(pb.WatchLeasesRequest(namespace=["jobs"])))
    watch.read()
    spread.hup(spread.section(url="host=127.0.0.1 port=1 dbname=x"), "reload: database us is added", 1)
    wait_until(lambda: "127.0.0.1" in spread.daemons[0].log().split("is added")[1], BOUND, "a word about us")
    assert health(spread.first, "database/us") == "NOT_SERVING"
    leases = [acquire(spread.first, key, seconds=600) for key in KEYS]
    assert [harness.heartbeat(spread.first, lease).outcome for lease in leases] == [pb.OUTCOME_OK] * len(leases)
    assert {watch.next().lease.scope.key for _ in leases} == set(KEYS)
    late = Reading(spread.first.lease.WatchLeases(pb.WatchLeasesRequest(namespace=["jobs"])))
    late.read()
    spread.first.lease.Release(harness.release_request(leases[0]))
    assert watch.next().type == late.next().type == pb.LeaseEvent.TYPE_RELEASED
    spread.hup("", "database us has been removed", 1)
    spread.add()
    spread.moved("home", "us", MORE)
    late.call.cancel()
    watch.call.cancel()


def test_a_section_is_not_removed_while_slots_are_in_no_database(spread):
    spread.add()
    number = spread.psql("home", "select min(n) from generate_series(0, 4095) n, leasehold.spread where get_bit(slots, n) = 1").strip()
    for bit, unserved in ((0, 1), (1, 0)):
        spread.psql("home", f"update leasehold.spread set slots = set_bit(slots, {number}, {bit})")
        wait_until(lambda: f"unserved={unserved}" in spread.daemons[0].log().splitlines()[-1], BOUND, "the daemon reading it")
        if unserved:
            spread.refused("", "[database us] may have keys of jobs, because 1 of 4096 slots are in no database that is known")
    spread.remove()


def test_a_database_whose_schema_is_too_new_is_added_and_does_not_serve(spread):
    """The daemon goes on; when the schema was put right, the next reload makes it serve."""
    oldest = "update leasehold.migration set oldest_daemon = '{}' where number = (select max(number) from leasehold.migration)"
    was = spread.psql("us", "select oldest_daemon from leasehold.migration order by number desc limit 1")
    spread.psql("us", oldest.format("99.0"))
    spread.hup(spread.section(), "the database needs version 99.0 or later")
    assert databases(spread.first) == list(MORE)
    assert health(spread.first, "database/us") == "NOT_SERVING"
    assert all(acquire(spread.first, key).token > 0 for key in KEYS)
    assert all(daemon.process.poll() is None for daemon in spread.daemons)
    spread.hup("", "database us has been removed")
    spread.hup(spread.section(), "the database needs version 99.0 or later")
    spread.psql("us", oldest.format(was))
    spread.hup(spread.section(), "reload: reading the settings again")
    for client in spread.clients:
        wait_until(lambda: health(client, "database/us") == "SERVING", BOUND, "us being ready")
    spread.moved("home", "us", MORE)


@contextlib.contextmanager
def kept_from_ending(spread):
    """A daemon's row in us cannot be taken away."""
    session = spread.clusters["us"].session(spread.databases["us"])
    session.run("begin; lock table leasehold.coordinator in share mode")
    yield
    session.run("rollback")


def test_a_daemon_that_is_stopped_while_a_section_ends_ends_too(spread):
    spread.add()
    with kept_from_ending(spread):
        spread.hup("", "reload: database us is removed")
        assert "database us has been removed" not in spread.daemons[1].log()
        spread.stop()
    wait_until(lambda: "database us has been removed" in spread.daemons[0].log(), BOUND, "the removal at the other daemon")
    spread.hup(spread.section(url="host=127.0.0.1 port=1 dbname=x"), "reload: database us is added", 1)
    spread.files[0].write_text(spread.was[0])
    spread.daemons[0].signal(signal.SIGHUP)  # it is being migrated still
    assert all(acquire(spread.first, key).token > 0 for key in KEYS)


def test_sections_that_end_keep_their_names_and_their_room(spread):
    """With it there are 64 at most."""
    most = "".join(spread.section(f"d{number}", f"host=127.0.0.1 port=1 dbname=d{number}") for number in range(62))
    spread.add()
    with kept_from_ending(spread):
        spread.hup("", "reload: database us is removed", 1)
        spread.refused(spread.section(), "[database us] what ran on the section of this name is ending still: reload again")
        spread.refused(most, "[database d61] sections that were removed are ending still: reload again")
        assert databases(spread.first) == list(NAMES)
    wait_until(lambda: "database us has been removed" in spread.daemons[0].log(), BOUND, "the removal")
    spread.hup(most, "reload: database d61 is added", 1)
    assert len(databases(spread.first)) == 64
    assert all(acquire(spread.first, key).token > 0 for key in KEYS)
    spread.refused(most + spread.section("d62", spread.url("us")), "[database d62]: at most 64 databases may be configured")
    spread.hup("", "database d61 has been removed", 1)
    spread.hup(spread.section(), "reload: database us is added", 1)


def test_a_section_that_would_leave_clients_too_few_files_is_refused(spread):
    daemon = spread.daemons[0]
    assert daemon.stop() == 0
    daemon.args = (*daemon.args, "--user", getpass.getuser())  # whose limits this process may change
    daemon.start()
    spread.first.close()
    spread.first = spread.clients[0] = harness.Client(daemon.target)
    spread.wait(NAMES)
    others = [harness.Client(daemon.target) for _ in range(2)]
    assert [databases(client) for client in others] == [list(NAMES)] * 2
    pid = daemon.process.pid
    soft, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    low = max(int(file.name) for file in pathlib.Path(f"/proc/{pid}/fd").iterdir()) + 10
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (low, hard))
    spread.refused(spread.section(), f"[database us] {low} files may be open, which leaves 1 to the clients, and 3 are connected: raise the limit")
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (soft, hard))
    spread.add()
    for client in others:
        client.close()


def test_two_reloads_at_once_and_some_during_a_move(spread):
    spread.hup(spread.section(), "reload: database us is added")
    for daemon, file, was in zip(spread.daemons, spread.files, spread.was):  # it may not be ready yet
        wait_until(lambda: daemon.log().count("slots of spread namespace") > 0, BOUND, "its slots")
        file.write_text(was)
        daemon.signal(signal.SIGHUP)
        daemon.signal(signal.SIGHUP)
        wait_until(lambda: "database us has been removed" in daemon.log(), BOUND, "the removal")
    spread.add()
    reloads = 0
    with Load(spread, KEYS[8:]) as load:
        spread.moved("home", "us", MORE)
        process = spread.move("eu", "us", MORE)
        while process.poll() is None:
            spread.hup([spread.section(), ""], "reload: (reading the settings again|nothing was changed)")
            reloads += 1
        assert process.wait() == 0 and reloads > 1
    assert databases(spread.first) == databases(spread.second) == list(MORE)
    assert "[database us] has " in spread.daemons[1].log()
    check_places(spread, load, MORE)
