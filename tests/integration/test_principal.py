"""The principal: what a client has proved, beside the owner that it names itself, wherever a lease is shown."""
import json
import os
import pwd
import re
import tempfile

import grpc
import pytest

from certificates import credentials, flags
from commandline import cli
from harness import Client, Daemon, acquire_request, fails, pb, release_request, scope, wait_until

USER = f"user:{pwd.getpwuid(os.geteuid()).pw_name}"
WORKER = "dns:worker-1.example"


@pytest.fixture(scope="module")
def daemon(cluster, server, authority):
    database = cluster.create_database()
    with tempfile.TemporaryDirectory(prefix="lh-p-") as directory:
        socket = f"unix:{directory}/s"
        os.chmod(directory, 0o777)
        daemon = Daemon("--listen", f"127.0.0.1:0,{socket}", *flags(server, authority), "--tls-client-auth", "request", database=cluster.url(database))
        daemon.socket = socket
        daemon.psql = lambda sql: cluster.psql(sql, database)
        daemon.clients = {USER: Client(socket), "anonymous": Client(daemon.target, credentials(authority)),
                          WORKER: Client(daemon.target, credentials(authority, authority.issue("worker-1", "DNS:worker-1.example")))}
        yield daemon
        for client in daemon.clients.values():
            client.close()
        daemon.destroy()


@pytest.mark.parametrize("principal", [USER, "anonymous", WORKER])
def test_a_lease_has_the_principal_of_who_acquired_it(daemon, principal):
    calls = daemon.clients[principal].lease
    lease = calls.Acquire(acquire_request("p.of", principal, owner="who I say I am")).lease
    assert (lease.principal, lease.owner) == (principal, "who I say I am")
    read = daemon.clients["anonymous"].lease
    assert read.GetLease(pb.GetLeaseRequest(scope=lease.scope)).lease.principal == principal
    assert principal in [each.principal for each in read.ListLeases(pb.ListLeasesRequest(namespace=["p", "of"])).leases]
    with fails() as failure:
        read.Acquire(acquire_request("p.of", principal))
    assert failure.value.contention.holder.principal == principal
    calls.Release(release_request(lease))
    assert read.GetLease(pb.GetLeaseRequest(scope=lease.scope)).last.principal == principal


def test_a_token_goes_before_the_certificate_for_its_call_alone(daemon):
    bearer = [("authorization", "Bearer " + daemon.psql("select token from leasehold.token_create('ci')"))]
    calls = daemon.clients[WORKER].lease

    def is_known():
        try:
            return calls.GetLease(pb.GetLeaseRequest(scope=scope("p.token", "none")), metadata=bearer)
        except grpc.RpcError as error:
            return error.code() == grpc.StatusCode.NOT_FOUND

    wait_until(is_known, what="the daemon to know the token")
    assert calls.Acquire(acquire_request("p.token", "a"), metadata=bearer).lease.principal == "token:ci"
    assert calls.Acquire(acquire_request("p.token", "b")).lease.principal == WORKER


def test_a_waiter_has_its_principal_and_keeps_it_when_it_is_granted(daemon):
    sql = daemon.psql("select lease_key from leasehold.acquire('p.wait', 'k', '1 min')")
    waiting = daemon.clients[WORKER].lease.Acquire.future(acquire_request("p.wait", "k", wait=60))
    wait_until(lambda: daemon.psql("select principal from leasehold.queue where namespace = 'p.wait'") == WORKER, what="its place")
    show = lambda *args: json.loads(cli(*args, "-o", "json", "--server", daemon.socket).stdout)  # noqa: E731
    assert show("show", "p.wait", "k")["lease"]["principal"] == "role:postgres"
    daemon.psql(f"select leasehold.release_ok('p.wait', 'k', '{sql}')")
    assert waiting.result(60).lease.principal == WORKER
    assert [lease["principal"] for lease in show("list", "p.wait")["leases"]] == [WORKER]


def test_an_event_names_the_principal_and_so_does_the_history(daemon):
    daemon.psql("select leasehold.set_policy('p.seen', history => true)")
    events = daemon.clients["anonymous"].lease.WatchLeases(pb.WatchLeasesRequest(namespace=["p", "seen"], include_initial=True))
    assert next(events).type == pb.LeaseEvent.TYPE_SYNCED
    calls = daemon.clients[USER].lease
    calls.Release(release_request(calls.Acquire(acquire_request("p.seen", "k")).lease))
    assert [next(events).lease.principal for _ in range(2)] == [USER, USER]
    events.cancel()
    assert daemon.psql("select principal from leasehold.history where namespace = 'p.seen'") == USER


def test_people_see_it_in_text(daemon):
    lease = daemon.clients[WORKER].lease.Acquire(acquire_request("p.text", "k")).lease
    assert re.search(rf"^principal +{re.escape(WORKER)}$", cli("show", "p.text", "k", "--server", daemon.socket).stdout, re.M)
    assert cli("list", "p.text", "--server", daemon.socket).stdout.splitlines()[1].split().count(WORKER) == 1
    daemon.clients[WORKER].lease.Release(release_request(lease))
    assert WORKER in cli("show", "p.text", "k", "--server", daemon.socket).stdout
