"""libleasehold's shared leases against a real daemon, by each way in."""
import re

import pytest

from harness import pb, scope, wait_until

every = pytest.mark.parametrize("mode", ["thread", "base", "blocking"])


def shown(driver, name):
    return dict(word.split("=", 1) for word in driver.ask(f"show {name}").split()[2:])


def facts(driver, name):
    words = shown(driver, name)
    return words["held"], words["mode"], words["units"], words["slots"]


@every
def test_shared_leases_are_granted_renewed_and_given_back(drive, service, ns, mode):
    service.psql(f"select leasehold.set_policy('{ns}', capacity => 3)")
    driver = drive(mode)
    driver.declare(namespace=ns, duration_ms=1500)
    for name, units in (("a", 2), ("b", 1)):
        assert driver.ask(f"acquire {name} d k shared={units}").startswith(f"acquire {name} OK token=")
    assert facts(driver, "a") == ("1", "1", "2", "1,2") and facts(driver, "b") == ("1", "1", "1", "3")
    assert driver.ask("acquire c d k shared=1").startswith("acquire c LEASE_HELD ")
    assert driver.ask("acquire c d k").startswith("acquire c LEASE_HELD ")
    assert "INVALID_ARGUMENT" in driver.ask("acquire c d k shared=4")
    heartbeats = lambda: [lease.heartbeats for lease in service.client.lease.GetLease(pb.GetLeaseRequest(scope=scope(ns, "k"))).holders]
    wait_until(lambda: min(heartbeats()) >= 3, 60)
    assert driver.ask("heartbeat a") == "heartbeat a OK" and driver.ask("release a") == "release a OK"
    assert driver.ask("acquire c d k shared=2").startswith("acquire c OK") and facts(driver, "c")[3] == "1,2"
    assert driver.stats()["lost"] == 0


@every
def test_a_downgrade_lets_a_reader_in(drive, service, ns, mode):
    service.psql(f"select leasehold.set_policy('{ns}', capacity => 4)")
    writer, reader = drive(mode), drive("thread")
    for driver in (writer, reader):
        driver.declare(namespace=ns, duration_ms=60000)
    writer.ask("acquire w d k")
    before = shown(writer, "w")
    reader.say("acquire r d k shared=1 wait_ms=forever waiting=1")
    assert " mode=0 units=0 holders=1 free=0" in reader.hear("waiting r")
    assert writer.ask("downgrade w units=3") == "downgrade w OK"
    assert reader.hear("acquire r").startswith("acquire r OK")
    after = shown(writer, "w")
    assert facts(writer, "w") == ("1", "1", "3", "1,2,3") and facts(reader, "r")[3] == "4"
    assert int(after["token"]) > int(before["token"]) and after["key"] == before["key"]
    assert writer.ask("downgrade w units=3") == "downgrade w OK" and shown(writer, "w")["token"] == after["token"]
    assert writer.ask("downgrade w") == "downgrade w OK" and facts(writer, "w")[2:] == ("1", "1")
    assert writer.ask("heartbeat w") == "heartbeat w OK" and writer.ask("release w") == "release w OK"


@every
def test_a_holder_hears_of_a_downgrade_by_somebody_else(drive, service, ns, mode):
    service.psql(f"select leasehold.set_policy('{ns}', capacity => 4)")
    driver = drive(mode)
    driver.declare(namespace=ns, duration_ms=3000)
    driver.ask("acquire a d k")
    key = shown(driver, "a")["key"]
    token = service.psql(f"select token from leasehold.downgrade('{ns}', 'k', '{key}', 2)")
    wait_until(lambda: shown(driver, "a")["token"] == token, 60)
    assert facts(driver, "a") == ("1", "1", "2", "1,2") and driver.ask("release a") == "release a OK"


@every
def test_a_downgrade_is_refused_where_it_cannot_be(drive, service, ns, mode):
    service.psql(f"select leasehold.set_policy('{ns}', capacity => 4)")
    driver = drive(mode)
    driver.declare(namespace=ns, duration_ms=60000)
    driver.ask("acquire a d k")
    assert driver.ask("downgrade a units=5").startswith("downgrade a INVALID_ARGUMENT")
    assert facts(driver, "a")[:2] == ("1", "0")
    service.psql(f"select leasehold.force_release('{ns}', 'k', 'test')")
    assert driver.ask("downgrade a").startswith("downgrade a LOST")
    assert driver.hear("lost a").startswith("lost a unknown held=0 cancelled=1")


def test_a_waiter_is_told_how_many_share_it(drive, service, ns):
    service.psql(f"select leasehold.set_policy('{ns}', capacity => 4)")
    driver = drive()
    driver.declare(namespace=ns, duration_ms=60000)
    for name in "abc":
        driver.ask(f"acquire {name} d k shared=1")
    driver.say("acquire w d k wait_ms=forever waiting=1")
    assert re.search(r" mode=1 units=1 holders=3 free=1$", driver.hear("waiting w"))
    driver.say("cancel w")
    driver.hear("acquire w CANCELED")


# --- several scopes at once ---


def waiting(service, ns):
    return int(service.psql(f"select count(*) from leasehold.waiter where namespace = '{ns}'"))


@every
def test_several_scopes_are_acquired_together_and_kept_one_by_one(drive, service, ns, mode):
    service.psql(f"select leasehold.set_policy('{ns}', capacity => 3)")
    driver = drive(mode)
    driver.declare(namespace=ns, duration_ms=12000)
    tokens = re.search(r"^all a OK tokens=(\S+)$", driver.ask("all a d c,b*2,a", "all a")).group(1).split(",")
    assert [shown(driver, f"a.{i}")["token"] for i in range(3)] == tokens and len(set(tokens)) == 3
    assert [shown(driver, f"a.{i}")["scope"] for i in range(3)] == [f"{ns}/{key}" for key in "cba"]
    assert len({shown(driver, f"a.{i}")["key"] for i in range(3)}) == 1 and facts(driver, "a.1")[2:] == ("2", "1,2")
    refused = driver.ask("all b d z,a", "all b")
    assert refused.startswith("all b LEASE_HELD ") and f"{ns}/a" in refused
    heartbeats = lambda: service.psql(f"select min(heartbeats) from leasehold.lease where namespace = '{ns}'")
    wait_until(lambda: int(heartbeats()) >= 1, 60)
    assert driver.ask("release a.1") == "release a.1 OK" and driver.ask("heartbeat a.2") == "heartbeat a.2 OK"
    service.psql(f"select leasehold.force_release('{ns}', 'c', 'test')")
    assert driver.hear("lost", 60).startswith("lost a.0 forced held=0 cancelled=1")
    assert driver.ask("heartbeat a.2") == "heartbeat a.2 OK" and driver.stats()["lost"] == 1
    assert driver.ask("release a.2") == "release a.2 OK"
    assert waiting(service, ns) == 0 and service.psql(f"select count(*) from leasehold.lease where namespace = '{ns}'") == "0"


@pytest.mark.parametrize("mode", ["thread", "base"])
def test_several_scopes_wait_without_holding_any(drive, service, ns, mode):
    holder, other = drive(mode), drive(mode)
    for driver in (holder, other):
        driver.declare(namespace=ns, duration_ms=60000)
    holder.ask("acquire h d b")
    other.say("all w d c,b,a wait_ms=forever")
    wait_until(lambda: waiting(service, ns) == 3, 60)
    assert service.psql(f"select string_agg(key, '') from leasehold.lease where namespace = '{ns}'") == "b"
    other.say("cancel w")
    assert other.hear("all w").startswith("all w CANCELED")
    wait_until(lambda: waiting(service, ns) == 0, 60)
    other.say("all x d a,b wait_ms=forever")  # in another order than the next
    other.say("all y d b,a wait_ms=forever")
    wait_until(lambda: waiting(service, ns) == 4, 60)
    holder.ask("release h")
    first = re.match(r"all (\w) OK", other.hear("all")).group(1)
    for place in "01":
        other.ask(f"release {first}.{place}")
    assert re.match(rf"all [xy] OK", other.hear("all"))


def test_a_repeat_of_several_returns_the_leases_that_are_held(drive, service, ns):
    driver, lease_key = drive(), "6f2c1f0e-5d0b-4b57-9a35-0c8f6c2e7a11"
    driver.declare(namespace=ns, duration_ms=60000)
    first = driver.ask(f"all a d x,y lease_key={lease_key}", "all a")
    again = driver.ask(f"all b d x,y lease_key={lease_key}", "all b")
    assert first.split()[3] == again.split()[3] and driver.stats()["leases"] == 2
    assert driver.ask(f"all c d x,z lease_key={lease_key}", "all c").startswith("all c INVALID_ARGUMENT")
    assert driver.ask("all d d x,x", "all d").startswith("all d INVALID_ARGUMENT")
