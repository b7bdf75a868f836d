"""What a hostile or careless caller sends where access rules are on: headers, names, thousands of rules, floods of denials."""
import concurrent.futures
import pathlib
import socket
import struct
import sys

import pytest

import harness
from access_site import Site, bearer, literal
from access_table import BOUND
from harness import Client, acquire_request, fails, pb, wait_until
from streams import keys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "fault"))
from flood import (BEGIN, CONTINUATION, DATA, END_HEADERS, END_STREAM, HEADERS, LEASE, acquire, frame, headers, message,  # noqa: E402
                   text)


@pytest.fixture(scope="module")
def site(cluster):
    site = Site(cluster)
    site.grant("*", "open", "lease", "read")
    site.grant("token:*", "tokens", "lease")
    site.waits_for("OK", "open")
    yield site
    site.close()


# --- headers ---


def huge(name, size):
    """A literal without an index whose value has so many bytes."""
    rest, length = size - 127, b""
    while rest > 0x7F:
        length += bytes((0x80 | rest & 0x7F,))
        rest >>= 7
    return b"\0" + text(name) + b"\x7f" + length + bytes((rest,)) + b"x" * size


def answer_to(site, *fields):
    """Acquire with these fields behind the usual ones, by hand: the bytes that come until the daemon ends the call or us."""
    block = headers(LEASE + "Acquire") + b"".join(fields)
    pieces = [block[at:at + 16384] for at in range(0, len(block), 16384)]
    sent = frame(HEADERS, END_HEADERS if len(pieces) == 1 else 0, 1, pieces[0])
    for i, piece in enumerate(pieces[1:], 2):
        sent += frame(CONTINUATION, END_HEADERS if i == len(pieces) else 0, 1, piece)
    sent += frame(DATA, END_STREAM, 1, message(acquire("open", keys(), 30, 0)))
    with socket.create_connection(("127.0.0.1", site.daemon.port), timeout=BOUND) as plain:
        got = b""
        try:
            plain.sendall(BEGIN + sent)
            while not ended(got):
                more = plain.recv(1 << 16)
                if not more:
                    break
                got += more
        except ConnectionError:
            pass
        return got


def ended(got):
    """Of stream 1, or of the connection: trailers, RST_STREAM or GOAWAY."""
    at = 0
    while at + 9 <= len(got):
        size = int.from_bytes(got[at:at + 3], "big")
        kind, flags, stream = got[at + 3], got[at + 4], struct.unpack(">I", got[at + 5:at + 9])[0]
        if at + 9 + size <= len(got) and (kind in (3, 7) or (kind == HEADERS and stream == 1 and flags & END_STREAM)):
            return True
        at += 9 + size
    return False


def granted(site):
    return int(site.psql("select count(*) from leasehold.scope where namespace = 'open' and state = 'held'"))


@pytest.mark.parametrize("size", [200, 5000, 16_000, 60_000, 1 << 20], ids=str)
def test_a_huge_authorization_is_refused_and_costs_nothing(site, size):
    before = granted(site)
    for _ in range(20):
        answer_to(site, huge("authorization", size))
        answer_to(site, b"\0" + text("authorization") + text("Bearer lht_" + "x" * 49), huge("authorization", size))
    assert granted(site) == before, "a call with a credential that is not valid is granted nothing"
    assert site.asks("open") == "OK"


@pytest.mark.parametrize("value", [
    b"", b" ", b"Bearer", b"Bearer ", b"Bearer  ", b"bearer\tlht_", b"Bearer \xff\xfe\xfd", b"Bearer lht_\xc3\x28", b"\x80",
    b"Bearer lht_" + b"%n%s%x" * 8, b"Bearer lht_" + b"'" * 49, b"Bearer " + b"lht_" * 40, b"lht_" + b"x" * 49,
    b"BEARER lht_" + b"-" * 49,
], ids=repr)
def test_a_value_that_is_no_token_is_refused(site, value):
    before = granted(site)
    assert answer_to(site, b"\0" + text("authorization") + (bytes((len(value),)) if len(value) < 127 else b"\x7f" + bytes((len(value) - 127,))) + value)
    assert granted(site) == before
    assert site.asks("open") == "OK"


def test_an_authorization_in_upper_case_is_no_http2(site):
    before = granted(site)
    answer_to(site, b"\0" + text("Authorization") + text("Bearer lht_" + "x" * 49))
    assert granted(site) == before and site.asks("open") == "OK"


# --- principals and namespaces ---

ODD = ["token:o'brien", 'dns:"quoted"', "uri:a;drop table leasehold.scope", "dns:%s%n", "user:ümlaut", "spiffe://x/" + "y" * 1000,
       "dns:back\\slash", "user:two words", "dns:x" + "é" * 100]
BAD = ["", "dns:new\nline", "dns:bell\x07", "dns:del\x7f", "a*b", "**", "*a", "token:*x*", "dns:" + "z" * 1025]


def test_odd_principals_are_data(site):
    for principal in ODD:
        site.grant(principal, "odd", "read")
        assert site.psql(f"select rights from leasehold.access_rule where principal = {literal(principal)}") == "{read}"
    site.grant("anonymous", "after-odd", "lease")
    site.waits_for("OK", "after-odd")
    assert site.asks("odd") == "ACCESS_DENIED"
    for principal in ODD:
        site.revoke(principal, "odd")


@pytest.mark.parametrize("principal", BAD, ids=repr)
def test_a_principal_that_cannot_be_is_refused(site, principal):
    done = site.cluster.psql(f"select leasehold.access_grant({literal(principal)}, 'odd', 'read')", site.database, check=False)
    assert done.returncode != 0 and "invalid_argument: principal" in done.stderr, done.stderr


@pytest.mark.parametrize("namespace", ["a..b", ".", "a.", ".a", "a\nb", "x" * 64, ".".join("x" * 17), "*", "a.*", "a b", "o'brien"], ids=repr)
def test_a_namespace_is_a_name_or_refused(site, namespace):
    """A star is no pattern there; what may be a namespace may be in a rule."""
    done = site.cluster.psql(f"select leasehold.access_grant('anonymous', {literal(namespace)}, 'lease')", site.database, check=False)
    taken = site.asks(namespace) != "INVALID_ARGUMENT"
    assert (done.returncode == 0) == taken, done.stderr
    if taken:
        site.waits_for("OK", namespace)
        assert site.asks("elsewhere") == site.asks(namespace + "x") == "ACCESS_DENIED"
        site.revoke("anonymous", namespace)


def test_a_denial_says_long_names_within_its_bounds(site):
    """All trailers together are small, whatever the caller asked for."""
    namespace, key = ".".join(["n" * 61 + "é"] * 3) + "." + "m" * 60, "k" * 1000
    with fails() as failure:
        site.client.lease.Acquire(acquire_request(namespace, key), timeout=BOUND)
    assert failure.value.reason == "ACCESS_DENIED" and failure.value.metadata["namespace"] == namespace
    with fails() as failure:
        site.client.lease.Acquire(acquire_request("x" * 4000, key), timeout=BOUND)
    assert failure.value.reason == "INVALID_ARGUMENT"


# --- many ---


def test_ten_thousand_rules_cost_memory_only(cluster):
    """They are read, they decide, and no call asks the database who may what."""
    site = Site(cluster)
    try:
        site.psql("""
            insert into leasehold.access_rule (principal, namespace, rights, created_at, created_by)
            select 'anonymous', 'team' || n || '.jobs', '{lease,read}'::text[], now(), 'test' from generate_series(1, 4000) n union all
            select 'token:t' || n, 'team' || n, '{admin}'::text[], now(), 'test' from generate_series(1, 4000) n union all
            select 'anon*', 'more' || n, '{lease}'::text[], now(), 'test' from generate_series(1, 2000) n""")
        site.grant("anonymous", "last", "lease")
        site.waits_for("OK", "last")
        assert site.asks("team4000.jobs") == site.asks("team1.jobs.sub") == site.asks("more2000") == "OK"
        assert site.asks("team4001.jobs") == site.asks("team40") == site.asks("team1.job") == "ACCESS_DENIED"
        refs = [pb.LeaseRef(scope=harness.scope(f"team{n}.{'jobs' if n % 2 else 'jobz'}", "k"), lease_key=str(n).zfill(8) + "-0000-4000-8000-000000000000")
                for n in range(1, 4001)]
        results = site.client.lease.Heartbeat(pb.HeartbeatRequest(leases=refs), timeout=BOUND).results
        assert [result.outcome for result in results] == [pb.OUTCOME_LOST, pb.OUTCOME_DENIED] * 2000
        lists = site.client.lease.ListLeases(pb.ListLeasesRequest(include_children=True, page_size=1000), timeout=BOUND)
        assert {".".join(lease.scope.namespace) for lease in lists.leases} == {"team4000.jobs", "team1.jobs.sub"}
        site.psql("delete from leasehold.access_rule where created_by = 'test'; select leasehold.access_revoke('anonymous', 'last')")
        site.waits_for("ACCESS_DENIED", "team1.jobs")
    finally:
        site.close()


def flood_with_denials(site, calls, threads=4):
    def flood():
        client = Client(site.daemon.target)
        futures = [client.lease.Acquire.future(acquire_request("flood", keys()), timeout=BOUND) for _ in range(calls // threads)]
        assert {harness.Failure(future.exception()).reason for future in futures} == {"ACCESS_DENIED"}
        client.close()

    with concurrent.futures.ThreadPoolExecutor(threads) as pool:
        for done in [pool.submit(flood) for _ in range(threads)]:
            done.result()


def test_a_flood_of_denials_is_counted_and_not_written_one_by_one(site):
    calls = 3000
    begun = float(site.psql("select extract(epoch from clock_timestamp())"))
    flood_with_denials(site, calls)
    since = f"action = 'denied' and principal = 'anonymous' and at > to_timestamp({begun})"
    wait_until(lambda: int(site.psql(f"select coalesce(sum(count), 0) from leasehold.audit where {since}")) >= calls, BOUND, "the audit")
    rows, seconds = site.psql(f"select count(*), extract(epoch from clock_timestamp()) - {begun} from leasehold.audit where {since}").split("|")
    assert int(rows) <= float(seconds) + 2
    assert site.daemon.log().count("denied") < calls


@pytest.mark.release_build
def test_what_is_refused_is_kept_nowhere(site):
    """Sanitizers keep what was freed."""
    flood_with_denials(site, 400)
    before = site.daemon.memory_kib()
    flood_with_denials(site, 4000)
    for _ in range(20):
        answer_to(site, huge("authorization", 1 << 20))
    assert site.daemon.memory_kib() < before + 32 * 1024
