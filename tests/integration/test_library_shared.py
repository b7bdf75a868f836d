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
