"""The cases about the ticks of a schedule."""
import datetime
import itertools
import threading
import uuid

import leasehold
import pytest
from cases import LONG, in_background
from harness import wait_until


def schedule(place, expression="every 365 d", **settings):
    """Of a name of its own; by itself it has no tick in this century."""
    name = f"ticks-{uuid.uuid4()}"
    settings = {"starts_at": "2100-01-01Z", "backoff": "0", **settings}
    given = ", ".join(f"{setting} => {value if isinstance(value, int) else repr(value)}" for setting, value in settings.items() if value is not None)
    place.psql(f"select from leasehold.set_schedule('{name}', '{expression}', {given})")
    return name


def run_now(place, name):
    return datetime.datetime.fromisoformat(place.psql(f"select to_json(leasehold.run_schedule_now('{name}')) #>> '{{}}'"))


def ticks(place, name, columns="state, attempts"):
    return place.psql(f"select {columns} from leasehold.tick where schedule = '{name}' order by at")


def count(place, name, condition):
    return int(place.psql(f"select count(*) from leasehold.tick where schedule = '{name}' and {condition}"))


def start_workers(place, work, number):
    """Each ends with its client, and not before."""
    for _ in range(number):
        client, is_closed = place.client(), threading.Event()

        def until_closed(client=client, is_closed=is_closed):
            with pytest.raises(leasehold.LeaseholdError):
                work(client)
            assert is_closed.is_set()

        ended = in_background(until_closed)

        def end(client=client, is_closed=is_closed, ended=ended):
            is_closed.set()
            client.close()
            ended()

        place.closing.append(end)


def tick_is_claimed_once(place):
    name, got, finish = schedule(place), [], threading.Event()

    def work(client):
        for tick in client.ticks(name, owner="worker-1", duration=LONG, labels={"kind": "report"}):
            with tick as lease:
                got.append((tick.at, tick.attempt, lease.token))
                assert lease.is_held() and lease.key == tick.at.strftime("%Y-%m-%dT%H:%M:%SZ") and lease.namespace == name
                assert finish.wait(60)
                lease.result = {"rows": 3}

    start_workers(place, work, 2)
    at = run_now(place, name)
    wait_until(lambda: got)
    assert ticks(place, name, "state, attempts, token, owner") == f"running|1|{got[0][2]}|worker-1"
    assert place.psql(f"select labels ->> 'kind' from leasehold.lease where namespace = '{name}'") == "report"
    finish.set()
    wait_until(lambda: ticks(place, name, "state, result ->> 'rows'") == "done|3")
    other = run_now(place, name)
    wait_until(lambda: ticks(place, name, "state") == "done\ndone")
    assert [each[:2] for each in got] == [(at, 1), (other, 1)] and got[1][2] > got[0][2]


def failed_tick_is_tried_again(place):
    name = schedule(place)
    at, attempts = run_now(place, name), []
    for tick in place.client().ticks(name):
        attempts.append((tick.at, tick.attempt))
        with tick:
            if tick.attempt == 1:
                raise RuntimeError("the disk is full")
        if tick.attempt == 1:
            assert ticks(place, name, "state, attempts, error") == "failed|1|RuntimeError: the disk is full"
        else:
            break
    assert attempts == [(at, 1), (at, 2)] and ticks(place, name) == "done|2"


def lost_tick_lets_the_loop_go_on(place):
    name, told = schedule(place), []
    run_now(place, name)
    for tick in place.client().ticks(name, duration=12, on_lost=told.append):
        with tick as lease:
            if tick.attempt == 1:
                wait_until(lambda: place.beats_of(lease) >= 1)
                place.psql(f"select leasehold.force_release('{name}', '{lease.key}', 'a test')")
                wait_until(lambda: told)
        if tick.attempt == 2:
            break
    assert told == ["forced"] and ticks(place, name) == "done|2"


def missed_tick_is_not_yielded(place):
    name = schedule(place)
    run_now(place, name)
    # An hour later.
    place.psql(f"update leasehold.tick set at = at - interval '1 h', claim_until = now() - interval '1 s' where schedule = '{name}'; "
               f"update leasehold.schedule set look_at = now() where name = '{name}'")
    worker = place.client().ticks(name)
    waiting = in_background(lambda: next(worker))
    wait_until(lambda: ticks(place, name) == "missed|0")
    at = run_now(place, name)
    assert waiting().at == at and ticks(place, name) == "missed|0\nrunning|1"
    worker.close()


def leaving_the_loop_releases_the_tick(place):
    name, client = schedule(place), place.client()
    run_now(place, name)
    for tick in client.ticks(name, duration=LONG):
        assert tick.attempt == 1
        break
    wait_until(lambda: ticks(place, name) == "failed|1")
    assert "the loop was left" in ticks(place, name, "error")
    for tick in client.ticks(name, duration=LONG):
        with tick:
            assert tick.attempt == 2
            break
    assert ticks(place, name) == "done|2"
    run_now(place, name)
    assert count(place, name, "state = 'due'") == 1


def waiting_worker(place):
    """A client, and what says that its worker waits."""
    if place.transport == "grpc":
        proxy = place.proxy()
        return place.client(proxy.target), lambda: proxy.requests > 0
    asked = "select count(*) from pg_stat_activity where datname = current_database() and state = 'idle' and query like '%leasehold.until_tick%'"
    client = place.client()
    client._core.transport.claim_poll_s = 600  # it hears of what comes, or comes too late
    return client, lambda: place.psql(asked) != "0"


def cancelled_wait_claims_nothing(place):
    name, (client, is_waiting) = schedule(place), waiting_worker(place)
    client.give_up_tick(name, is_waiting)
    client.explain(name, "k")  # the daemon has seen the end of the call before it
    at = run_now(place, name)
    other = place.client().ticks(name)
    tick = next(other)
    assert (tick.at, tick.attempt) == (at, 1)
    other.close()


def run_now_is_seen(place):
    name, (client, is_waiting) = schedule(place), waiting_worker(place)
    worker = client.ticks(name)
    waiting = in_background(lambda: next(worker))
    wait_until(is_waiting)
    at = run_now(place, name)
    assert waiting().at == at
    worker.close()


def paused_schedule_waits(place):
    name = schedule(place, "0 0 1 1 *", starts_at=None)
    place.psql(f"select leasehold.pause_schedule('{name}'); select from leasehold.set_schedule('{name}', 'every 1 s', tick_deadline => '1 h')")
    worker = place.client().ticks(name)
    waiting = in_background(lambda: next(worker))
    # Instants pass: they are skipped, as soon as somebody looks.
    wait_until(lambda: place.psql(f"select leasehold.until_tick('{name}') is null") == "t" and count(place, name, "state = 'skipped'") >= 2)
    assert count(place, name, "attempts > 0") == 0
    passed = datetime.datetime.fromisoformat(place.psql(f"select to_json(max(at)) #>> '{{}}' from leasehold.tick where schedule = '{name}'"))
    place.psql(f"select leasehold.pause_schedule('{name}', false)")
    assert waiting().at > passed
    worker.close()


def unknown_schedule_is_named(place):
    client = place.client()
    with pytest.raises(leasehold.InvalidArgument, match="name.* is no-such"):
        next(client.ticks("no-such"))
    with pytest.raises(ValueError, match="^segment 2 of namespace must be 1 to 63 bytes"):
        next(client.ticks("a..b"))


def workers_share_ticks(place):
    name, got = schedule(place, overlap=3), []

    def work(client):
        for tick in client.ticks(name):
            with tick:
                got.append(tick.at)

    start_workers(place, work, 3)
    # As if nobody had looked for 8 s.
    place.psql(f"select from leasehold.set_schedule('{name}', 'every 1 s', ends_at => now(), catch_up => 'all', overlap => 3, tick_deadline => '1 h'); "
               f"update leasehold.schedule set made_until = ends_at - interval '8 s', look_at = now() where name = '{name}'")
    wait_until(lambda: len(got) >= 8 and count(place, name, "state <> 'done'") == 0, 120)
    assert len(got) == len(set(got)) and count(place, name, "attempts <> 1") == 0


def lost_answer_of_a_claim_is_found(place):
    name, proxy = schedule(place), place.proxy()
    run_now(place, name)
    actions = itertools.chain(["drop"], itertools.repeat("pass"))
    proxy.decide = lambda: next(actions)
    worker = place.client(proxy.target, timeout=5).ticks(name, duration=LONG)
    tick = next(worker)
    assert proxy.actions["drop"] == 1 and tick.attempt == 1 and ticks(place, name) == "running|1"
    worker.close()
