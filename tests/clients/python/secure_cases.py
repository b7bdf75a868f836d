"""The cases about TLS and tokens, against the daemon of tests/clients/secure.py."""
import re
import socket

import leasehold
import pytest
from cases import TABLES, fresh
from harness import wait_until


def holds_as(place, client, principal):
    key = fresh()
    with client.lease("secure", key, duration=9) as lease:
        row = place.psql(f"select principal, token from leasehold.scope where namespace = 'secure' and key = '{key}'")
        assert row == f"{principal}|{lease.token}"
        wait_until(lambda: int(place.psql(f"select heartbeats from leasehold.scope where namespace = 'secure' and key = '{key}'")) >= 2)
        lease.check()
    assert place.psql(f"select state, last_outcome from leasehold.scope where namespace = 'secure' and key = '{key}'") == "free|ok"


def refusal(client, error):
    with pytest.raises(error) as refused:
        client.lease("secure", fresh()).acquire()
    return refused.value


def is_unavailable(place, word, **tls):
    """On a slow machine the first handshake may pass its time before it fails."""
    client = place.secure_client(token="worker", **tls)
    wait_until(lambda: word in str(refusal(client, leasehold.Unavailable)), 60, word)


def certificate_is_the_principal(place):
    holds_as(place, place.secure_client(cert_file="cert", key_file="key"), "dns:worker")


def token_is_the_principal(place):
    holds_as(place, place.secure_client(token="worker"), "token:worker")


def wrong_authority_is_named(place):
    is_unavailable(place, "certificate", ca_file="other_ca")


def wrong_server_name_is_named(place):
    is_unavailable(place, "leases.example", server_name="leases.example")


def revoked_token_is_denied(place):
    assert refusal(place.secure_client(token="revoked"), leasehold.Denied).reason == "UNAUTHENTICATED"


def missing_right_is_denied(place):
    error = refusal(place.secure_client(token="stranger"), leasehold.Denied)
    assert error.reason == "ACCESS_DENIED" and "token:stranger" in str(error) and "right lease" in str(error), str(error)


def token_goes_to_loopback_only(place):
    for address, is_near in TABLES["token_addresses"].items():
        if is_near:
            place.client(address, token_file="/nonexistent")
            continue
        for servers in (address, f"127.0.0.1:7420,{address}"):
            with pytest.raises(leasehold.InvalidArgument, match=re.escape(repr(address)) + ".*TLS"):
                place.client(servers, token_file="/nonexistent")


def loopback_needs_no_proxy(place):
    with socket.create_server(("127.0.0.1", 0)) as proxy, pytest.MonkeyPatch.context() as environment:
        for name in ("grpc_proxy", "http_proxy", "https_proxy"):
            environment.setenv(name, f"http://127.0.0.1:{proxy.getsockname()[1]}")
        with place.client(place.target().replace("127.0.0.1", "localhost")).lease("cases", fresh()) as lease:
            lease.check()
        proxy.setblocking(False)
        with pytest.raises(BlockingIOError):
            proxy.accept()
