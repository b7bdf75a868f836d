"""The minimum hold: a scope rests until acquired_at + at_least, whatever becomes of its lease meanwhile."""
import json
import re
import uuid

import grpc
import pytest

import harness
from commandline import cli, ends
from harness import acquire_request, duration, fails, pb, release_request, wait_until

LONG = duration(600)


@pytest.fixture
def key():
    return uuid.uuid4().hex


def take(service, ns, key, *, seconds=30, **fields):
    return service.client.lease.Acquire(acquire_request(ns, key, seconds, **fields)).lease


def refusal(service, ns, key):
    with fails() as failure:
        take(service, ns, key)
    return failure.value


def release(service, lease):
    assert service.client.lease.Release(release_request(lease)).results[0].outcome == pb.OUTCOME_OK


# --- cron on several hosts ---


def test_hosts_whose_clocks_are_late_do_not_run_the_job_again(shell, ns, tmp_path):
    """One comes while the job runs, one after its end."""
    job = f"echo ran >> {tmp_path}/job; until [ -e {tmp_path}/go ]; do sleep 0.02; done"
    hosts = []
    for _ in range(3):
        hosts.append(shell.start("run", ns, "nightly", "--at-least", "10m", "--", "sh", "-c", job))
        wait_until((tmp_path / "job").exists)
        if len(hosts) == 2:
            assert ends(hosts[1]) == 3
            (tmp_path / "go").touch()
            assert ends(hosts[0]) == 0
    assert ends(hosts[2]) == 3
    assert (tmp_path / "job").read_text() == "ran\n"


def test_without_a_minimum_hold_the_late_host_runs_it_again(shell, ns, tmp_path):
    for _ in range(2):
        shell.done("run", ns, "nightly", "--at-least", "0s", "--", "sh", "-c", f"echo ran >> {tmp_path}/job")
    assert (tmp_path / "job").read_text() == "ran\nran\n"


def test_a_waiter_gets_it_when_the_rest_is_over(shell, service, ns):
    first = shell.acquire(ns, "k", "--at-least", "2s", "--duration", "10m")
    waiter = shell.start("acquire", ns, "k", "--wait", "5m", "-o", "json")
    shell.is_waiting(ns, "k")
    shell.done("release", ns, "k", first["lease_key"])
    assert ends(waiter) == 0, waiter.stderr_text
    second = json.loads(waiter.stdout_text)
    at = [service.psql(f"select extract(epoch from timestamptz '{lease['acquired_at']}')") for lease in (first, second)]
    assert float(at[1]) - float(at[0]) >= 2


# --- what is told of a rest ---


def test_a_request_that_does_not_wait_hears_how_long_it_rests(service, ns, key):
    lease = take(service, ns, key, at_least=LONG)
    held = refusal(service, ns, key)
    assert held.reason == "LEASE_HELD" and held.contention.holder.token == lease.token and 0 < held.contention.rests.ToSeconds() <= 600
    release(service, lease)
    rests = refusal(service, ns, key)
    assert rests.code == grpc.StatusCode.ABORTED and rests.reason == "LEASE_HELD"
    assert not rests.contention.HasField("holder") and 0 < rests.contention.rests.ToSeconds() <= 600
    assert re.search(r"is not held, but rests for .* more", rests.message)


def test_a_wait_that_ends_during_the_rest_hears_how_long_it_lasts(service, ns, key):
    release(service, take(service, ns, key, at_least=LONG))
    with fails() as failure:
        take(service, ns, key, wait=0.5)
    assert failure.value.reason == "WAIT_TIMEOUT" and not failure.value.contention.HasField("holder")
    assert 0 < failure.value.contention.rests.ToSeconds() <= 600


def test_a_stream_that_waits_hears_of_the_rest(service, ns, key):
    release(service, take(service, ns, key, at_least=LONG))
    call = service.client.lease.AcquireStream(acquire_request(ns, key, wait=60))
    queued = next(call).queued
    call.cancel()
    assert not queued.HasField("holder") and 0 < queued.rests.ToSeconds() <= 600


def test_get_lease_tells_how_long_it_rests(service, ns, key):
    lease = take(service, ns, key, at_least=LONG)
    release(service, lease)
    answer = service.client.lease.GetLease(pb.GetLeaseRequest(scope=lease.scope))
    assert not answer.HasField("lease") and answer.last.token == lease.token
    assert 0 < answer.contention.rests.ToSeconds() <= 600


def test_the_command_line_shows_a_rest(shell, service, cluster, ns):
    lease = shell.acquire(ns, "k", "--at-least", "10m")
    assert re.search(r"^rests +for 9 min .* more", shell.done("show", ns, "k").stdout, re.M) or "rests" in shell.done("show", ns, "k").stdout
    shell.done("release", ns, "k", lease["lease_key"])
    shown = shell("show", ns, "k")
    assert shown.returncode == 4 and re.search(r"^state +at rest$", shown.stdout, re.M) and re.search(r"^rests +for ", shown.stdout, re.M)
    assert "rests" in json.loads(shell("show", ns, "k", "-o", "json").stdout)["contention"]
    refused = shell("acquire", ns, "k")
    assert refused.returncode == 3 and "rests for" in refused.stderr and "next waiter" not in refused.stderr
    told = cli("explain", ns, "k", "--database", cluster.url(service.database)).stdout
    assert re.search(r"^state +resting$", told, re.M) and re.search(r"^rests until +\d{4}-", told, re.M)


# --- who sets it ---


def test_the_policy_counts_where_the_request_names_none(shell, service, ns):
    assert shell.done("policy", "set", ns, "at_least=10m")
    assert re.search(r"^at_least +10 min", shell.done("policy", "show", ns).stdout, re.M)
    release(service, take(service, ns, "a", at_least=duration(0)))
    release(service, take(service, ns, "a"))
    assert refusal(service, ns, "a").contention.HasField("rests")
    shell.done("policy", "reset", ns, "at_least")
    release(service, take(service, ns, "b"))
    take(service, ns, "b")


def test_a_repeat_keeps_the_first_one(service, ns, key):
    lease = take(service, ns, key)
    again = take(service, ns, key, lease_key=lease.lease_key, at_least=LONG)
    assert again.token == lease.token
    release(service, lease)
    take(service, ns, key)


@pytest.mark.parametrize("seconds", [86400.001, -1])
def test_its_bounds(service, ns, key, seconds):
    with fails() as failure:
        take(service, ns, key, at_least=duration(seconds))
    assert failure.value.reason == "INVALID_ARGUMENT" and failure.value.metadata["field"] == "at_least"


def test_its_bounds_on_the_command_line(shell, ns):
    said = shell("acquire", ns, "k", "--at-least", "25h")
    assert said.returncode == 2 and "at-least must be at most 1 day" in said.stderr


def test_the_bound_of_the_policy(shell, ns):
    said = shell("policy", "set", ns, "at_least=25h")
    assert said.returncode == 2 and "at most 1 day" in said.stderr


# --- who ends it ---


@pytest.mark.parametrize("where", ["server", "database"])
def test_a_force_release_ends_the_rest(shell, service, cluster, ns, where):
    by = ["--database", cluster.url(service.database)] if where == "database" else []
    lease = shell.acquire(ns, "k", "--at-least", "10m")
    shell.done("release", ns, "k", lease["lease_key"])
    said = shell.done("force-release", ns, "k", "--reason", "the job must run again", *by)
    assert said.stdout == f"ended the rest of {ns}/k; nobody held it\n"
    assert shell("force-release", ns, "k", "--reason", "the job must run again", *by).returncode == 4
    shell.done("acquire", ns, "k", "--at-least", "10m")
    assert shell.done("force-release", ns, "k", "--reason", "it hangs", *by).stdout.startswith("ended the lease ")
    shell.done("acquire", ns, "k")


def test_a_force_release_lets_the_waiter_in(shell, ns):
    lease = shell.acquire(ns, "k", "--at-least", "10m")
    shell.done("release", ns, "k", lease["lease_key"])
    waiter = shell.start("acquire", ns, "k", "--wait", "5m")
    shell.is_waiting(ns, "k")
    shell.done("force-release", ns, "k", "--reason", "the job must run again")
    assert ends(waiter) == 0, waiter.stderr_text


def test_a_lease_that_expires_leaves_the_rest(service, ns, key):
    lease = take(service, ns, key, seconds=1, at_least=LONG)
    wait_until(lambda: service.psql(f"select state from leasehold.scope where key = '{key}'") == "free", 60, "the reaper")
    assert refusal(service, ns, key).contention.HasField("rests")
    assert service.client.lease.GetLease(pb.GetLeaseRequest(scope=lease.scope)).last.end_reason == pb.END_REASON_EXPIRED
