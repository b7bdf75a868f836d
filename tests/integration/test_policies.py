"""A changed policy acts on running daemons by itself, whichever way it was changed; and what is refused names its field."""
import subprocess
import uuid

import grpc
import pytest

import harness
from harness import acquire_request, duration, fails, lease_ref, pb, release_request, wait_until

# "Within a second", with room for a busy machine; what is tested would else take until a lease of an hour ends.
SOON_S = 15


@pytest.fixture
def ns():
    return "p" + uuid.uuid4().hex[:8]


@pytest.fixture(params=["sql", "server", "database"])
def policy(request, service, cluster):
    """Changes a policy: by SQL, by the command line and the daemon, by the command line and the database."""
    where = ["--server", service.daemon.target] if request.param == "server" else ["--database", cluster.url(service.database)]

    def change(ns, **settings):
        if request.param == "sql":
            named = ", ".join(f"{name} => '{value}'" for name, value in settings.items())
            service.psql(f"select leasehold.set_policy('{ns}', {named})")
        else:
            words = [f"{name}={value}" for name, value in settings.items()]
            done = subprocess.run([harness.CLI, "policy", "set", ns, *words, *where], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            assert done.returncode == 0, done.stderr
    return change


def is_held(service, ns, key):
    return service.psql(f"select state from leasehold.scope where namespace = '{ns}' and key = '{key}'") == "held"


def let_pass(service, ns, key, by="2 days"):
    service.psql(f"update leasehold.scope set acquired_at = acquired_at - interval '{by}', heartbeat_at = heartbeat_at - interval '{by}', "
                 f"deadline = deadline - interval '{by}' where namespace = '{ns}' and key = '{key}'")


def test_frozen_and_the_limits_of_durations_act_on_the_next_call(policy, service, ns):
    take = lambda key, seconds: service.client.lease.Acquire(acquire_request(ns, key, seconds)).lease  # noqa: E731
    lease = take("a", 30)
    policy(ns, frozen="true", max_duration="20s")
    with fails() as failure:
        take("b", 10)
    assert failure.value.reason == "NAMESPACE_FROZEN"
    assert service.client.lease.Heartbeat(pb.HeartbeatRequest(leases=[lease_ref(lease)])).results[0].outcome == pb.OUTCOME_OK
    policy(ns, frozen="false")
    with fails() as failure:
        take("b", 21)
    assert failure.value.code == grpc.StatusCode.INVALID_ARGUMENT and failure.value.metadata["field"] == "duration"
    take("b", 20)


def test_a_lease_that_was_manual_goes_to_its_waiter_when_it_may_be_taken_over(policy, service, ns):
    policy(ns, expiry="manual")
    service.client.lease.Acquire(acquire_request(ns, "k", 3600, owner="gone"))
    let_pass(service, ns, "k")
    waiter = service.client.lease.Acquire.future(acquire_request(ns, "k", 30, wait_forever=True))
    wait_until(lambda: service.psql(f"select count(*) from leasehold.waiter where namespace = '{ns}'") == "1")
    # The reaper has looked, and put it aside for good.
    service.psql(f"update leasehold.scope set check_at = clock_timestamp() where namespace = '{ns}' and key = 'k'")
    wait_until(lambda: service.psql(f"select check_at from leasehold.scope where namespace = '{ns}' and key = 'k'") == "infinity")
    assert not waiter.done()
    policy(ns, expiry="takeover")
    assert waiter.result(SOON_S).lease.token > 0


def test_an_external_reapers_lease_is_left_alone_until_daemons_may(policy, service, ns):
    policy(ns, reaper="external", expiry="reap")
    for key in ("named", "left"):
        service.client.lease.Acquire(acquire_request(ns, key, 3600))
        let_pass(service, ns, key)
        service.psql(f"update leasehold.scope set check_at = clock_timestamp() where namespace = '{ns}' and key = '{key}'")
        wait_until(lambda: service.psql(f"select check_at from leasehold.scope where namespace = '{ns}' and key = '{key}'") == "infinity")  # noqa: B023
    assert service.psql(f"select count(*) from leasehold.reap() where namespace = '{ns}'") == "0" and is_held(service, ns, "named")
    assert service.psql(f"select count(*) from leasehold.reap(array['{ns}'], max => 1)") == "1"
    assert is_held(service, ns, "named") != is_held(service, ns, "left")
    policy(ns, reaper="auto")
    wait_until(lambda: not is_held(service, ns, "named") and not is_held(service, ns, "left"), SOON_S, "the daemon reaping it")


def test_a_wait_for_a_living_holder_hears_of_a_shorter_dead_after(policy, service, ns):
    service.client.lease.Acquire(acquire_request(ns, "k", 3600, owner="silent"))
    waiter = service.client.lease.Acquire.future(acquire_request(ns, "k", 30, wait_while_alive=True))
    wait_until(lambda: service.psql(f"select count(*) from leasehold.waiter where namespace = '{ns}'") == "1")
    policy(ns, dead_after="1ms")
    with fails() as failure:
        waiter.result(SOON_S)
    assert failure.value.reason == "WAIT_TIMEOUT" and failure.value.contention.liveness == pb.LIVENESS_SUSPECTED_DEAD


def test_a_shorter_free_retention_acts_on_rows_that_are_free_already(policy, service, ns):
    policy(ns, free_retention="1d")
    service.client.lease.Release(release_request(service.client.lease.Acquire(acquire_request(ns, "k", 30)).lease))
    service.psql(f"update leasehold.scope set check_at = clock_timestamp() where namespace = '{ns}'")
    wait_until(lambda: service.psql(f"select check_at > clock_timestamp() + interval '23 hours' from leasehold.scope where namespace = '{ns}'") == "t")
    policy(ns, free_retention="0s")
    wait_until(lambda: service.psql(f"select count(*) from leasehold.scope where namespace = '{ns}'") == "0", SOON_S, "the free row's end")


def test_quotas_act_at_once(policy, service, ns):
    leases = [service.client.lease.Acquire(acquire_request(ns, f"k{n}")).lease for n in range(3)]
    policy(ns, max_leases="3")
    with fails() as failure:
        service.client.lease.Acquire(acquire_request(ns, "more"))
    assert failure.value.reason == "QUOTA_EXCEEDED"
    service.client.lease.Release(release_request(leases[0]))
    service.client.lease.Acquire(acquire_request(ns, "more"))
    policy(ns, max_leases="4")
    service.client.lease.Acquire(acquire_request(ns, "evenmore"))


BAD = [
    (["min_duration=2h", "max_duration=1h"], "min_duration"), (["min_duration=2d"], "min_duration"), (["max_duration=500ms"], "max_duration"),
    (["grace=-1s"], "grace"), (["min_duration=99ms"], "min_duration"), (["expiry=never"], "expiry"), (["reaper=cron"], "reaper"),
    (["frozen=perhaps"], "frozen"), (["max_leases=-1"], "max_leases"), (["history_retention=-1s"], "history_retention"),
    (["max_reap_failures=1e9"], "max_reap_failures"), (["colour=red"], "colour"), (["grace"], "grace"), ([], "NAME=VALUE"),
]


@pytest.mark.parametrize("words, field", BAD, ids=[" ".join(words) or "nothing" for words, _ in BAD])
def test_what_is_no_setting_is_refused_with_its_field_and_changes_nothing(service, cluster, ns, words, field):
    for where in (["--server", service.daemon.target], ["--database", cluster.url(service.database)]):
        done = subprocess.run([harness.CLI, "policy", "set", ns, *words, *where], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert done.returncode == 2 and field.lower() in done.stderr.lower(), done.stderr
    assert service.psql(f"select count(*) from leasehold.policy where namespace = '{ns}'") == "0"


def test_a_contradiction_below_is_refused_by_the_server_with_a_bad_request(service, ns):
    service.psql(f"select leasehold.set_policy('{ns}.child', max_duration => '10 s')")
    request = pb.SetPolicyRequest(policy=pb.Policy(namespace=pb.Namespace(segments=[ns]), min_duration=duration(20)))
    request.update_mask.paths.append("min_duration")
    with fails() as failure:
        service.client.admin.SetPolicy(request)
    assert failure.value.code == grpc.StatusCode.INVALID_ARGUMENT and failure.value.metadata["field"] == "policy.min_duration"
    assert failure.value.bad_request.field_violations[0].field == "policy.min_duration" and f"{ns}.child" in failure.value.message


def test_show_tells_column_by_column_where_each_comes_from(service, cluster, ns):
    service.psql(f"select leasehold.set_policy('{ns}', grace => '5 s', history => true), leasehold.set_policy('{ns}.a', grace => '6 s', frozen => true), "
                 f"leasehold.set_policy('{ns}.a.b', expiry => 'manual')")
    for where in (["--server", service.daemon.target], ["--database", cluster.url(service.database)]):
        shown = subprocess.run([harness.CLI, "policy", "show", f"{ns}.a.b.c", *where], stdout=subprocess.PIPE, text=True, check=True).stdout
        table = {line.split()[0]: (line.split()[1], line.split()[-1]) for line in shown.splitlines()[1:]}
        assert len(table) == 21
        assert table["grace"] == ("6.0", f"{ns}.a") and table["frozen"] == ("true", f"{ns}.a") and table["expiry"] == ("manual", f"{ns}.a.b")
        assert table["history"] == ("true", ns) and table["min_duration"][1] == "(root)" and table["max_leases"][1] == "(default)"
