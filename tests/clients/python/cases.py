"""The cases, by name; cases.json says what each is about. Others are in the files NOUN_cases.py."""
import contextlib
import itertools
import json
import os
import pathlib
import signal
import threading
import time
import uuid

import leasehold
import pytest
from harness import wait_until
from leasehold.runtime import clock

NAMESPACE = "cases"
TABLES = json.loads((pathlib.Path(__file__).resolve().parents[1] / "cases.json").read_text())
LONG = 300  # seconds: nobody waits for such a deadline


def fresh(word="k"):
    return f"{word}-{uuid.uuid4()}"


def in_background(function):
    """Its result, when asked for."""
    done = {}

    def run():
        try:
            done["value"] = function()
        except BaseException as error:
            done["error"] = error

    thread = threading.Thread(target=run)
    thread.start()

    def result():
        thread.join(120)
        assert not thread.is_alive()
        if "error" in done:
            raise done["error"]
        return done["value"]

    return result


# -- acquire and release


def acquire_and_release(place):
    key = fresh()
    with place.client().lease(NAMESPACE, key, duration=30, owner="worker-1") as lease:
        assert place.row(key, "state, owner, token") == f"held|worker-1|{lease.token}"
        assert lease.token > 0 and 20 < lease.remaining() <= 30 and lease.is_held()
        lease.check()
        lease.result = {"rows": 3}
    assert place.row(key, "state, last_outcome, last_result ->> 'rows'") == "free|ok|3"
    assert lease.remaining() == 0 and not lease.is_held()


def failed_work_is_released_as_failed(place):
    key = fresh()
    with pytest.raises(RuntimeError, match="the disk is full"):
        with place.client().lease(NAMESPACE, key):
            raise RuntimeError("the disk is full")
    assert place.row(key, "state, last_outcome, last_error") == "free|failed|RuntimeError: the disk is full"


def token_grows(place):
    key, client = fresh(), place.client()
    with client.lease(NAMESPACE, key) as first:
        pass
    with client.lease(NAMESPACE, key) as second:
        assert second.token > first.token


def held_names_the_holder(place):
    key, client = fresh(), place.client()
    with client.lease(NAMESPACE, key, owner="worker-1"):
        waiting = in_background(lambda: place.client().lease(NAMESPACE, key, wait=60).acquire())
        wait_until(lambda: place.waiting(key) == 1)
        with pytest.raises(leasehold.Held) as held:
            client.lease(NAMESPACE, key).acquire()
        assert (held.value.holder, held.value.ahead) == ("worker-1", 1)
    waiting().release()


def let_pass(place, key, seconds):
    """As if the holder had neither renewed nor acquired since."""
    place.psql(f"update leasehold.scope set acquired_at = acquired_at - interval '{seconds} s', heartbeat_at = heartbeat_at - interval '{seconds} s' "
               f"where namespace = '{NAMESPACE}' and key = '{key}'")


def held_tells_of_the_holder(place):
    key, client = fresh(), place.client()
    with client.lease(NAMESPACE, key, duration=LONG):
        with pytest.raises(leasehold.Held) as held:
            client.lease(NAMESPACE, key).acquire()
        assert held.value.is_alive and 0 <= held.value.silent_for < 100 and 0 <= held.value.held_for < 100
        let_pass(place, key, 280)
        with pytest.raises(leasehold.Held) as held:
            client.lease(NAMESPACE, key).acquire()
        assert not held.value.is_alive and held.value.silent_for >= 280 and held.value.held_for >= 280


def wait_lasts_while_the_holder_is_alive(place):
    key, client = fresh(), place.client()
    first = client.lease(NAMESPACE, key, duration=LONG).acquire()
    waiting = in_background(place.client().lease(NAMESPACE, key, duration=LONG, while_alive=True).acquire)
    wait_until(lambda: place.waiting(key) == 1)
    first.release()
    second = waiting()
    let_pass(place, key, 280)
    with pytest.raises(leasehold.Held):
        place.client().lease(NAMESPACE, key, while_alive=True).acquire()
    assert place.row(key, "token") == str(second.token)
    second.release()


def wait_is_granted(place):
    key = fresh()
    first = place.client().lease(NAMESPACE, key).acquire()
    waiting = in_background(lambda: place.client().lease(NAMESPACE, key, wait=60).acquire())
    wait_until(lambda: place.waiting(key) == 1)
    assert first.release()
    second = waiting()
    assert second.token > first.token and second.is_held()
    assert second.release()


def wait_passes(place):
    key, client = fresh(), place.client()
    with client.lease(NAMESPACE, key, owner="worker-1"):
        with pytest.raises(leasehold.Held) as held:
            client.lease(NAMESPACE, key, wait=0.5).acquire()
        assert held.value.holder == "worker-1"
        wait_until(lambda: place.waiting(key) == 0)


def waiters_are_served_in_order(place):
    key, client, order = fresh(), place.client(), []

    def wait(number):
        with client.lease(NAMESPACE, key, wait=60):
            order.append(number)

    with client.lease(NAMESPACE, key):
        waiting = []
        for number in range(3):
            waiting.append(in_background(lambda number=number: wait(number)))
            wait_until(lambda number=number: place.waiting(key) == number + 1)
    for each in waiting:
        each()
    assert order == [0, 1, 2]


@contextlib.contextmanager
def grants_that_wait(place):
    """Each grant in the namespace is held up, inside of the database, until the body calls what it is given."""
    namespace = f"slow{uuid.uuid4().hex[:8]}"
    session = place.session()
    place.psql(f"create function {namespace}(e leasehold.lease_event) returns void language plpgsql security definer as "
               "$$ begin perform pg_advisory_xact_lock(42); end $$;"
               f"alter function {namespace}(leasehold.lease_event) owner to leasehold_owner;"
               f"select leasehold.add_hook('{namespace}', 'acquire', '{namespace}(leasehold.lease_event)')")
    session.run("select pg_advisory_lock(42)")
    place.namespace = namespace
    yield lambda: session.run("select pg_advisory_unlock(42)")


def is_blocked(place):
    return place.psql("select count(*) from pg_locks where locktype = 'advisory' and not granted") == "1"


def deadline_counts_from_the_request(place):
    key = fresh()
    if place.transport == "grpc":
        proxy = place.proxy()
        actions = itertools.chain([("delay", 1.5)], itertools.repeat("pass"))
        proxy.decide = lambda: next(actions)
        lease = place.client(proxy.target).lease(NAMESPACE, key, duration=30).acquire()
    else:
        with grants_that_wait(place) as let_go:
            client = place.client()
            waiting = in_background(client.lease(place.namespace, key, duration=30).acquire)
            wait_until(lambda: is_blocked(place))
            time.sleep(1.5)  # the delay of the reply, which the client has to count
            let_go()
            lease = waiting()
    assert 0 < lease.remaining() <= 28.5
    lease.release()


def deadline_does_not_count_the_wait(place):
    key = fresh()
    first = place.client().lease(NAMESPACE, key).acquire()
    waiting = in_background(lambda: place.client().lease(NAMESPACE, key, duration=10, wait=60).acquire())
    wait_until(lambda: place.waiting(key) == 1)
    time.sleep(10)  # the wait that must not count
    first.release()
    lease = waiting()
    assert lease.is_held() and lease.remaining() > 0
    lease.release()


# -- renewal


def renewal_keeps_the_lease(place):
    key = fresh()
    with place.client().lease(NAMESPACE, key, duration=6) as lease:
        wait_until(lambda: place.heartbeats(key) >= 4)
        assert place.row(key, "state, token") == f"held|{lease.token}"
        lease.check()


def one_request_renews_all(place):
    client, key, requests = place.client(), fresh(), []
    heartbeat = client._core.transport.heartbeat

    def watch(refs, until):
        requests.append(len(refs))
        return heartbeat(refs, until)

    client._core.transport.heartbeat = watch
    leases = [client.lease(NAMESPACE, f"{key}-{i}", duration=12).acquire() for i in range(50)]
    wait_until(lambda: place.psql(f"select min(heartbeats) from leasehold.scope where key like '{key}-%'") not in ("", "0"), 60)
    wait_until(lambda: 50 in requests)
    assert all(lease.is_held() for lease in leases)


def lost_replies_cost_no_lease(place):
    key, proxy = fresh(), place.proxy()
    # Never two losses in a row: there is time for two tries between a renewal and the deadline.
    actions = itertools.cycle(["pass", "drop", "pass", "cut", "pass", ("delay", 0.2), "pass", "truncate"])
    with place.client(proxy.target).lease(NAMESPACE, key, duration=9) as lease:
        proxy.decide = lambda: next(actions)
        wait_until(lambda: proxy.actions["truncate"] or not lease.is_held(), 90)
        beats = place.heartbeats(key)
        wait_until(lambda: place.heartbeats(key) > beats or not lease.is_held())
        assert lease.is_held(), proxy.actions
        assert place.row(key, "state, token") == f"held|{lease.token}"
    assert place.row(key, "state, last_outcome") == "free|ok"


def broken_connections_cost_no_lease(place):
    key = fresh()
    with place.client().lease(NAMESPACE, key, duration=9) as lease:
        for _ in range(2):
            beats = place.heartbeats(key)
            wait_until(lambda: place.heartbeats(key) > beats)
            place.psql("select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() "
                       "and pid <> pg_backend_pid()")
        beats = place.heartbeats(key)
        wait_until(lambda: place.heartbeats(key) > beats)
        assert place.row(key, "state, token") == f"held|{lease.token}"
    assert place.row(key, "state, last_outcome") == "free|ok"


def forced_end_is_told(place):
    key, told = fresh(), []
    with pytest.raises(leasehold.LeaseLost) as lost:
        with place.client().lease(NAMESPACE, key, duration=6, on_lost=told.append) as lease:
            place.force(key)
            wait_until(lambda: told)
            with pytest.raises(leasehold.LeaseLost):
                lease.check()
    assert told == ["forced"] and lost.value.reason == "forced"


def hold_that_the_policy_ends_is_told(place):
    namespace, told = f"ending{uuid.uuid4().hex[:8]}", []
    place.psql(f"select leasehold.set_policy('{namespace}', max_hold => '8 s', end_at_max_hold => true)")
    client = place.client()
    renewed, long = (client.lease(namespace, f"{duration}", duration=duration, on_lost=told.append).acquire() for duration in (6, 30))
    wait_until(lambda: len(told) == 2, 30)
    assert (told, renewed.lost, long.lost) == (["max_hold"] * 2, "max_hold", "max_hold")
    with pytest.raises(leasehold.LeaseLost, match=f"the policy of {namespace} ends a lease after max_hold"):
        renewed.check()
    assert place.psql(f"select deadline - acquired_at from leasehold.scope where namespace = '{namespace}' and heartbeats > 0") == "00:00:08"


def unheard_loss_is_told_at_the_end(place):
    key, told, client = fresh(), [], place.client()
    with pytest.raises(leasehold.LeaseLost) as lost:
        with client.lease(NAMESPACE, key, duration=LONG, on_lost=told.append) as lease:
            place.force(key)
            place.psql(f"select token from leasehold.acquire('{NAMESPACE}', '{key}', '1 min')" if place.transport == "grpc" else "select 1")
    assert (lost.value.reason, lease.lost, told) == ("forced", "forced", ["forced"])
    assert not lease.is_held() and (place.transport != "grpc" or place.row(key, "state") == "held")
    other = fresh()
    with pytest.raises(RuntimeError) as failed:
        with client.lease(NAMESPACE, other, duration=LONG):
            place.force(other)
            raise RuntimeError("the disk is full")
    assert any("was lost: forced" in each for each in failed.value.__notes__)
    with pytest.raises(leasehold.LeaseLost):
        client.leased(NAMESPACE, other, duration=LONG)(lambda: place.force(other))()
    assert place.row(other, "last_outcome") == "forced"


def released_lease_is_not_held(place):
    key, told = fresh(), []
    with place.client().lease(NAMESPACE, key, on_lost=told.append) as lease:
        assert lease.release({"rows": 3})
        with pytest.raises(leasehold.LeaseLost, match="was released"):
            lease.check()
        assert not lease.release() and not lease.is_held()
    assert lease.lost is None and told == [] and place.row(key, "last_result ->> 'rows'") == "3"
    with pytest.raises(leasehold.LeaseLost, match="never acquired"):
        place.client().lease(NAMESPACE, key).check()


def in_use(function):
    with pytest.raises(leasehold.LeaseholdError, match="is in use") as refused:
        function()
    assert refused.value.reason == "IN_USE"


def one_object_is_one_holder(place):
    key, client, inside = fresh(), place.client(), []
    lock, go_on = client.lease(NAMESPACE, key, duration=6, wait=60), threading.Event()

    def body():
        with client.shared(lock) as entered:
            inside.append(entered.token)
            go_on.wait(60)

    bodies, outcomes = [in_background(body) for _ in range(3)], []
    wait_until(lambda: inside)
    in_use(lock.acquire)
    in_use(client.shared(lock).__enter__)
    assert place.row(key, "state, token, lease_key") == f"held|{inside[0]}|{lock.lease_key}"
    go_on.set()
    for each in bodies:
        try:
            outcomes.append(each() or "entered")
        except leasehold.LeaseholdError as error:
            outcomes.append(error.reason)
    assert sorted(outcomes) == ["IN_USE", "IN_USE", "entered"] and len(inside) == 1
    assert place.row(key, "state, last_outcome") == "free|ok"
    lock.acquire()  # again, after its end
    in_use(lock.acquire)
    with pytest.raises(leasehold.LeaseLost), lock:
        in_use(client.shared(lock).__enter__)
        lock.check()
        place.force(key)
        wait_until(lambda: not lock.is_held())
        in_use(lock.acquire)  # its body still runs
    with lock:
        lock.check()
    assert place.row(key, "state, last_outcome") == "free|ok"


def blocked_event_loop_is_told(place):
    key = fresh()
    program = place.program("block", key, 3)
    if place.api.name == "threads":
        assert program.end() == 0, program.lines
        return
    assert program.end() == 4, program.lines[-5:]
    assert program.find("ended").split()[1] in ("expired", "unreachable"), program.lines


def listener_that_throws_costs_nothing(place):
    key, other, client = fresh(), fresh(), place.client()

    def told(reason):
        raise SystemExit("the listener is broken")

    kept = client.lease(NAMESPACE, other, duration=6).acquire()
    lease = client.lease(NAMESPACE, key, duration=6, on_lost=told).acquire()
    place.force(key)
    wait_until(lambda: not lease.is_held())

    async def too_late(reason):
        raise SystemExit("nobody waits for it")

    with pytest.raises(ValueError, match="on_lost must be a function that does its work"):
        client.lease(NAMESPACE, key, on_lost=too_late)
    beats = place.heartbeats(other)
    wait_until(lambda: place.heartbeats(other) > beats)
    kept.check()
    assert kept.release()


@contextlib.contextmanager
def silence(place):
    """Yields a target, and what makes it silent."""
    if place.transport == "grpc":
        proxy = place.proxy()
        yield proxy.target, lambda: setattr(proxy, "is_frozen", True)
        return
    stopped = []

    def stop():
        postmaster = int(pathlib.Path(place.site.cluster.data, "postmaster.pid").read_text().split()[0])
        stopped.append(postmaster)
        stopped.extend(map(int, place.connections().split()))
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)

    try:
        yield place.target(), stop
    finally:
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)


def silence_is_told_before_the_deadline(place):
    key, told = fresh(), []
    with silence(place) as (target, be_silent):
        lease = place.client(target).lease(NAMESPACE, key, duration=12,
                                           on_lost=lambda reason: told.append((reason, lease._deadline - clock())))
        lease.acquire()
        be_silent()
        wait_until(lambda: told)
        with pytest.raises(leasehold.LeaseLost):
            lease.check()
        assert lease.remaining() == 0
    assert [reason for reason, _ in told] == ["unreachable"] and told[0][1] > 0, told


def stopped_process_wakes_up_without_the_lease(place):
    key = fresh()
    program = place.program("hold", key, 3)
    program.wait_for("working")
    program.process.send_signal(signal.SIGSTOP)
    other = place.client().lease(NAMESPACE, key, wait=60).acquire()
    worked = program.lines.count(program.find("working"))
    program.process.send_signal(signal.SIGCONT)
    assert program.end() == 4, program.lines[-5:]
    assert program.lines.count(program.find("working")) <= worked + 1  # a step that had begun
    assert program.find("lost").split()[1] in ("expired", "unknown", "unreachable")
    assert place.row(key, "state, token") == f"held|{other.token}"


def lost_release_is_repeated(place):
    key, proxy = fresh(), place.proxy()
    lease = place.client(proxy.target).lease(NAMESPACE, key, duration=30).acquire()
    actions = itertools.chain(["drop"], itertools.repeat("pass"))
    proxy.decide = lambda: next(actions)
    assert lease.release({"rows": 3}) is True
    assert proxy.actions["drop"] == 1
    assert place.row(key, "state, last_outcome, last_result ->> 'rows'") == "free|ok|3"


def no_renewal_after_release(place):
    key, told, renewed, proxy = fresh(), [], [], None
    if place.transport == "grpc":
        proxy = place.proxy()
    client = place.client(proxy.target if proxy else None)
    lease = client.lease(NAMESPACE, key, duration=12, on_lost=told.append).acquire()
    if proxy:
        proxy.decide = lambda: ("delay", 0.3)  # the answer of the next renewal, and that of the release
    wait_until(lambda: place.heartbeats(key) >= 1)
    assert lease.release()
    if proxy:
        proxy.decide = lambda: "pass"
    heartbeat = client._core.transport.heartbeat

    def watch(refs, until):
        renewed.extend(ref.lease_key for ref in refs)
        return heartbeat(refs, until)

    client._core.transport.heartbeat = watch
    beats = place.heartbeats(key)
    other = client.lease(NAMESPACE, fresh(), duration=12).acquire()  # the loop goes on
    wait_until(lambda: place.heartbeats(other.key) >= 2)
    assert other.lease_key in renewed and lease.lease_key not in renewed
    assert place.row(key, "state") == "free" and place.heartbeats(key) == beats and told == []


# -- daemons


def daemon_restarts(place):
    key, daemon = fresh(), place.daemon()
    with place.client(daemon.target).lease(NAMESPACE, key, duration=12) as lease:
        daemon.kill()
        daemon.start()
        beats = place.heartbeats(key)
        wait_until(lambda: place.heartbeats(key) >= beats + 2 or not lease.is_held())
        assert lease.is_held() and place.row(key, "state, token") == f"held|{lease.token}"
    assert place.row(key, "state, last_outcome") == "free|ok"


def hanging_daemon_is_left(place):
    key, hanging = fresh(), place.daemon()
    with place.client(f"{hanging.target},{place.target()}").lease(NAMESPACE, key, duration=9) as lease:
        wait_until(lambda: place.heartbeats(key) >= 1)
        hanging.signal(signal.SIGSTOP)
        beats = place.heartbeats(key)
        # More than its deadline allows without a renewal.
        wait_until(lambda: place.heartbeats(key) >= beats + 4 or not lease.is_held(), 90)
        assert lease.is_held() and place.row(key, "state, token") == f"held|{lease.token}"
    assert place.row(key, "state, last_outcome") == "free|ok"


# -- leaders


def leased_work_runs_once(place):
    key, ran = fresh(), []
    for number in range(2):
        work = place.client().leased(NAMESPACE, key, at_least=50, skip_if_held=True)(lambda number=number: ran.append(number) or "done")
        assert work() == (None if number else "done")
    assert ran == [0] and place.row(key, "state, last_outcome") == "free|ok"
