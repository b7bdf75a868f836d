"""What is this package's own: TLS and tokens, its generated code, the body that asyncio cancels, a lease in one's own transaction."""
import asyncio
import concurrent.futures
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import threading
import unittest.mock

import certificates
import grpc
import harness
import leasehold
import psycopg
import pytest
from apis import APIS
from conftest import Place
from google.protobuf import descriptor_pb2
from harness import wait_until
from leasehold.v1 import leasehold_pb2 as pb

ROOT = pathlib.Path(__file__).resolve().parents[3]


@pytest.fixture
def directory():
    """Which the daemon's user can read."""
    with tempfile.TemporaryDirectory(prefix="lh-tls-") as path:
        yield pathlib.Path(path)


@pytest.mark.parametrize("is_async", [False, True], ids=["threads", "asyncio"])
def test_tls_with_certificates_that_are_replaced(site, directory, is_async):
    authority, other = certificates.Authority(directory), certificates.Authority(directory, "other")
    server = authority.issue("server", certificates.SERVER_NAMES)
    daemon = harness.Daemon(*certificates.flags(server, authority), database=site.cluster.url(site.service.database))
    ca = directory / "used.pem"
    ca.write_bytes(pathlib.Path(other.cert).read_bytes())
    mine = authority.issue("client", "DNS:client")
    tls = leasehold.TLS(ca_file=str(ca), cert_file=mine.cert, key_file=mine.key, server_name="localhost")

    async def with_asyncio():
        async with leasehold.AsyncClient(daemon.target, tls=tls, timeout=5) as client:
            with pytest.raises(leasehold.Unavailable):
                await client.lease("tls", "a").acquire()
            ca.write_bytes(pathlib.Path(authority.cert).read_bytes())
            async with client.lease("tls", "a", wait=30) as lease:
                assert lease.token

    def with_threads():
        with leasehold.Client(daemon.target, tls=tls, timeout=5) as client:
            with pytest.raises(leasehold.Unavailable):
                client.lease("tls", "t").acquire()
            ca.write_bytes(pathlib.Path(authority.cert).read_bytes())
            with client.lease("tls", "t", wait=30) as lease:
                assert lease.token

    try:
        asyncio.run(with_asyncio()) if is_async else with_threads()
    finally:
        daemon.destroy()


class Recorder(grpc.GenericRpcHandler):
    """A server that refuses every call, and remembers what came with it."""

    def __init__(self):
        self.tokens = []

    def service(self, details):
        self.tokens.append(dict(details.invocation_metadata).get("authorization"))
        return None


def test_a_token_is_sent_and_read_again(tmp_path):
    recorder, token = Recorder(), tmp_path / "token"
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(1), [recorder])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    with leasehold.Client(f"127.0.0.1:{port}", token_file=str(token)) as client:
        for secret in ("first", "second"):
            token.write_text(secret + "\n")
            with pytest.raises(leasehold.LeaseholdError):
                client.lease("a", "k").acquire()
    server.stop(None)
    assert list(dict.fromkeys(filter(None, recorder.tokens))) == ["Bearer first", "Bearer second"]


def test_a_token_is_not_sent_in_the_clear():
    with pytest.raises(leasehold.InvalidArgument, match="TLS"):
        leasehold.Client("10.0.0.1:7420", token_file="/nonexistent")


SETTINGS, SETTINGS_ACK = bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]), bytes([0, 0, 0, 4, 1, 0, 0, 0, 0])


def takes_a_connection(listener):
    """Whether a client connects and goes on to the end of the handshake of HTTP/2 (RFC 9113, section 3.4)."""
    try:
        connection, _ = listener.accept()
        with connection:
            connection.settimeout(listener.gettimeout())
            connection.sendall(SETTINGS)
            said = b""
            while SETTINGS_ACK not in said:
                if not (more := connection.recv(4096)):
                    return False
                said += more
            return True
    except (TimeoutError, ConnectionError, BlockingIOError):
        return False


def test_a_connection_that_broke_is_made_anew_between_calls():
    """As after the restart of a server, when each call fails at once: no call is under way, and gRPC's threads must do it."""
    with socket.create_server(("127.0.0.1", 0)) as closed:
        address = closed.getsockname()
    with leasehold.Client("%s:%d" % address, timeout=0.05) as client:
        with pytest.raises(leasehold.Unavailable):
            client.lease("again", "k").acquire()
        with socket.create_server(address) as listener:
            listener.settimeout(10)
            assert any(takes_a_connection(listener) for _ in range(2))  # each attempt takes 2 s at the most; gRPC itself looks after 5 s


def test_the_generated_code_fits_the_protocol(tmp_path):
    """Every field that the package knows is there, with its number and type; the protocol may have newer ones."""
    subprocess.run(["protoc", f"-I{ROOT / 'proto'}", "-I/usr/include", f"--descriptor_set_out={tmp_path / 'set'}",
                    "leasehold/v1/leasehold.proto"], check=True)
    ours, theirs = descriptor_pb2.FileDescriptorProto(), descriptor_pb2.FileDescriptorSet()
    pb.DESCRIPTOR.CopyToProto(ours)
    theirs.ParseFromString((tmp_path / "set").read_bytes())

    def facts(file):
        for message in file.message_type:
            for field in message.field:
                yield message.name, field.name, field.number, field.type, field.label, field.type_name
        for enum in file.enum_type:
            for value in enum.value:
                yield enum.name, value.name, value.number

    assert set(facts(ours)) <= set(facts(theirs.file[0])), "run src/python/generate"


def test_asyncio_a_loss_cancels_the_body_and_nothing_else(site):
    async def main():
        async with leasehold.AsyncClient(site.service.daemon.target) as client:
            was_cancelled = False
            with pytest.raises(leasehold.LeaseLost) as lost:
                async with client.lease("body", "k", duration=6):
                    site.service.psql("select leasehold.force_release('body', 'k', 'a test')")
                    try:
                        await asyncio.sleep(60)
                    except asyncio.CancelledError:
                        was_cancelled = True
                        raise
            assert was_cancelled and lost.value.reason == "forced" and asyncio.current_task().cancelling() == 0

            entered = asyncio.Event()

            async def work():
                async with client.lease("body", "other", duration=60):
                    entered.set()
                    await asyncio.sleep(60)

            task = asyncio.create_task(work())
            await entered.wait()
            task.cancel()  # by the application: no loss
            with pytest.raises(asyncio.CancelledError):
                await task
            assert site.service.psql("select state, last_outcome from leasehold.scope where key = 'other'") == "free|failed"
        assert {task for task in asyncio.all_tasks() if task is not asyncio.current_task()} == set()

    asyncio.run(main())


@pytest.mark.parametrize("is_sql", [False, True], ids=["grpc", "sql"])
def test_asyncio_a_client_belongs_to_one_loop(site, is_sql):
    """In a second loop nothing would renew its leases."""
    target = {"database": site.cluster.url(site.database)} if is_sql else {"server": site.service.daemon.target}

    async def make():
        client = leasehold.AsyncClient(**target)
        async with client.lease("loops", "k", duration=60):
            return client

    client = asyncio.run(make())

    async def use():
        with pytest.raises(leasehold.LeaseholdError, match="another event loop") as refused:
            async with client.lease("loops", "k", duration=60):
                pass
        assert refused.value.reason == "OTHER_LOOP"
        await client.close()

    asyncio.run(use())


def test_a_client_may_be_used_by_many_threads(site):
    with leasehold.Client(site.service.daemon.target) as client:
        grants, errors = [], []

        def work(number):
            try:
                for _ in range(5):
                    with client.lease("threads", f"k-{number % 3}", wait=60) as lease:
                        grants.append(lease.token)
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
    assert errors == [] and len(set(grants)) == 60


def test_a_lease_in_the_callers_own_transaction(site):
    with psycopg.connect(site.cluster.url(site.database)) as connection, connection.cursor() as cursor:
        lease = leasehold.dbapi.acquire(cursor, "dbapi", "k", duration=60, owner="me")
        connection.commit()
        with pytest.raises(leasehold.Held) as held:
            leasehold.dbapi.acquire(cursor, "dbapi", "k")
        assert held.value.holder == "me" and lease.heartbeat(cursor)
        lease.guard(cursor)
        connection.commit()
        assert lease.release(cursor, {"rows": 3}) and not lease.heartbeat(cursor)
        connection.commit()
        with pytest.raises(psycopg.Error) as lost:
            lease.guard(cursor)
        assert lost.value.sqlstate == "LH001"
        connection.rollback()
    assert site.cluster.psql("select state, last_result ->> 'rows' from leasehold.scope where namespace = 'dbapi'", site.database) == "free|3"


def test_a_row_that_somebody_keeps_locked_costs_no_other_lease(site):
    """Renewals in SQL go one by one where one of them cannot have its row."""
    with leasehold.Client(database=site.cluster.url(site.database)) as client:
        leases = [client.lease("rows", f"k-{number}", duration=6).acquire() for number in range(4)]
        session = site.cluster.session(site.database)
        session.run("begin; select from leasehold.scope where namespace = 'rows' and key = 'k-1' for update")
        wait_until(lambda: not leases[1].is_held())
        assert [lease.is_held() for lease in leases] == [True, False, True, True]
        session.run("rollback")
        session.close()


@pytest.mark.parametrize("is_sql", [False, True], ids=["grpc", "sql"])
def test_close_ends_what_other_threads_wait_for(site, is_sql):
    client = leasehold.Client(database=site.cluster.url(site.database)) if is_sql else leasehold.Client(site.service.daemon.target)
    database = site.database if is_sql else site.service.database
    with leasehold.Client(database=site.cluster.url(database)) as other, other.lease("closed", "k"):
        errors = []

        def wait():
            try:
                client.lease("closed", "k", wait=None).acquire()
            except leasehold.LeaseholdError as error:
                errors.append(error)

        thread = threading.Thread(target=wait)
        thread.start()
        wait_until(lambda: site.cluster.psql("select count(*) from leasehold.queue where key = 'k' and namespace = 'closed'", database) == "1")
        client.close()
        thread.join(60)
        assert not thread.is_alive() and len(errors) == 1


def test_a_result_that_is_no_json_releases_the_lease_as_failed(site):
    with leasehold.Client(site.service.daemon.target) as client:
        with pytest.raises(TypeError):
            with client.lease("json", "k") as lease:
                lease.result = object()
    assert site.service.psql("select state, last_outcome from leasehold.scope where namespace = 'json'") == "free|failed"


def test_a_loss_is_told_although_the_program_ends_meanwhile(site):
    program = """
import sys, time, leasehold
def told(reason):
    time.sleep(1)  # the work hears of the loss, and ends the program, before this is done
    print("told", reason, flush=True)
def main():
    with leasehold.Client(sys.argv[1]).lease("ends", "k", duration=6, on_lost=told) as lease:
        print("held", flush=True)
        while lease.is_held():
            time.sleep(0.01)
try:
    main()
except leasehold.LeaseLost:
    sys.exit(4)
"""
    process = subprocess.Popen([sys.executable, "-c", program, site.service.daemon.target], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "held\n"
    site.service.psql("select leasehold.force_release('ends', 'k', 'a test')")
    assert process.stdout.read() == "told forced\n"
    assert process.wait(60) == 4


def test_renewals_go_on_after_an_error_of_any_kind(site):
    with leasehold.Client(site.service.daemon.target) as client:
        lease = client.lease("errors", "k", duration=9).acquire()
        transport, failures = client._core.transport, []
        metadata = transport.metadata

        def fail():
            if len(failures) < 3:
                failures.append(1)
                raise RuntimeError("no such thing")
            return metadata()

        transport.metadata = fail
        wait_until(lambda: site.service.psql("select heartbeats from leasehold.scope where namespace = 'errors'") not in ("", "0"))
        assert len(failures) == 3 and lease.is_held()
        assert lease.release()


@pytest.mark.parametrize("api", APIS.values(), ids=APIS)
def test_who_gives_up_within_a_statement_leaves_the_queue(site, api):
    place = Place(site, "sql", api)
    try:
        place.client().lease(place.namespace, "given-up", duration=300).acquire()
        scope, client = place.session(), place.client(timeout=60)  # longer than a busy machine needs to find it stuck

        def asks_and_is_stuck():
            if place.waiting("given-up") and not scope.is_locked:
                scope.run(f"begin; select 1 from leasehold.scope where namespace = '{place.namespace}' and key = 'given-up' for update")
                scope.is_locked = True
            return place.psql("select count(*) from pg_stat_activity where application_name = 'leasehold' and wait_event_type = 'Lock'") != "0"

        scope.is_locked = False
        client.give_up(client.lease(place.namespace, "given-up", wait=300), asks_and_is_stuck)
        scope.run("rollback")  # the statement goes on, and asks for the place once more
        wait_until(lambda: place.waiting("given-up") == 0, what="an empty queue")
        place.force("given-up")
    finally:
        place.close()


@pytest.mark.parametrize("transport", ["grpc", "sql"])
def test_a_namespace_with_a_slash_stands_in_quotes(site, transport):
    place = Place(site, transport, APIS["threads"])
    try:
        place.namespace = "cases/slash"
        name = '"cases/slash"/k '
        lease = place.client().lease("cases/slash", "k", duration=9).acquire()
        assert repr(lease).startswith("<lease " + name)
        with pytest.raises(leasehold.Held, match=name):
            place.client().lease("cases/slash", "k").acquire()
        place.force("k")
        wait_until(lambda: not lease.is_held())
        with pytest.raises(leasehold.LeaseLost, match=name):
            lease.check()
    finally:
        place.close()


def test_a_pass_of_renewals_looks_at_each_lease_once():
    """A client may hold ten thousand."""
    looked = []

    class Held:
        duration, _next_beat, _margin, _deadline = 30, 0.0, 5.0, float("inf")

        def _scopes(self):
            looked.append(self)
            return [("a", "b")]

    core = leasehold.core.Core(None, unittest.mock.Mock(), None, 5)
    core.leases = {str(n): Held() for n in range(2000)}
    batches = []

    async def renew(batch, held):
        batches.append(len(batch))
    core._renew_batch = renew
    asyncio.run(core._renew())
    assert batches == [2000] and len(looked) <= 3 * 2000


def test_the_reasons_of_retries_are_those_of_c():
    header = (ROOT / "src/leasehold_retry.h").read_text()
    words = re.search(r"also if not idempotent.*?\n(.*?)\n \*\n", header, re.S)[1]
    table = {}
    for line in words.splitlines():
        names, unsent, always, where = re.split(r"  +", line.strip(" *"))
        table |= {name: leasehold.retry.Reason(unsent == "yes", always == "yes", where == "the next") for name in names.split(", ")}
    assert list(leasehold.retry.REASONS) == re.findall(r"^    LH_RETRY_(\w+),$", header, re.M) and leasehold.retry.REASONS == table
    listed = re.search(r"controlled_backoff_us.*/\* ([0-9, ]+) ms", header)[1]
    assert [round(leasehold.controlled_backoff(n) * 1000) for n in range(1, 7)] == [int(each) for each in listed.split(", ")]

    def delay(failures):
        return leasehold.best_effort(leasehold.Retry("Acquire", "a", "b", "UNKNOWN", None, failures, failures, (), 9, 0)) * 1000
    assert [delay(n) for n in (1, 2, 3, 9, 10, 99)] == [1, 2, 4, 256, 500, 500]


def test_what_is_always_repeated_asks_no_strategy():
    retrying = leasehold.retry.Retrying("Acquire", "a", "b", leasehold.fail_fast)
    busy, cut = leasehold.Unavailable("ends", "SHUTTING_DOWN"), leasehold.Unavailable("cut", "BLOCKING_TIMEOUT")
    assert [retrying.delay(busy, 60) for _ in range(7)] == [0.001, 0.01, 0.05, 0.1, 0.5, 1, 1]
    assert retrying.delay(busy, 0.5) is None  # longer than what is left
    retrying.begun = 0  # the server blocked for long
    assert retrying.delay(cut, 60) == 0 and retrying.failures == 0
    assert retrying.delay(cut, 60) == 0.001 and retrying.reasons == ("SHUTTING_DOWN", "BLOCKING_TIMEOUT")
    assert retrying.delay(leasehold.Denied("no", "QUOTA_EXCEEDED"), 60) is None
