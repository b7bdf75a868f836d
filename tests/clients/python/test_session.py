"""Connections in SQL that PostgreSQL refuses, in whatever language: libpq keeps no SQLSTATE of them."""
import leasehold
import pytest
from apis import APIS
from conftest import Place
from postgres_proxies import RefusingProxy

STARTING = ("57P03", "the database system is starting up")


@pytest.fixture(params=APIS)
def place(site, request):
    place = Place(site, "sql", APIS[request.param])
    yield place
    place.close()


def test_a_server_that_starts_is_asked_again(place):
    proxy, asked = RefusingProxy(place.socket, [STARTING, ("57P03", "das Datenbanksystem fährt herunter"), ("53300", "sorry, too many clients already")]), []

    def strategy(retry):
        asked.append(retry.reason)
        return 0.001

    with place.client(place.behind(proxy), strategy=strategy).lease("cases", f"starts-{place.api.name}") as lease:
        assert lease.token
    assert asked == ["DATABASE_UNAVAILABLE"] * 3


@pytest.mark.parametrize("state, words, reason", [
    ("28P01", 'password authentication failed for user "app"', "UNAUTHENTICATED"), ("28000", 'no pg_hba.conf entry for host "10.0.0.1", user "app"', "UNAUTHENTICATED"),
    ("28000", 'role "app" does not exist', "UNAUTHENTICATED"), ("28P01", "Passwort-Authentifizierung für Benutzer »app« fehlgeschlagen", "UNAUTHENTICATED"), ("3D000", 'database "app" does not exist', "3D000")])
def test_a_connection_that_would_be_refused_again_is_not_repeated(place, state, words, reason):
    proxy = RefusingProxy(place.socket, [(state, words)] * 2)
    with pytest.raises(leasehold.Denied) as denied:
        place.client(place.behind(proxy)).lease("cases", "refused").acquire()
    assert (denied.value.reason, proxy.connections) == (reason, 1) and words in str(denied.value)


def test_of_two_servers_one_that_starts_makes_the_refusal_of_the_other_no_end(place):
    starting, other = RefusingProxy(place.socket, [STARTING]), RefusingProxy(place.socket, [("3D000", 'database "app" does not exist')])
    both = place.behind(starting).replace(f"port={starting.port}", f"port={starting.port},{other.port}").replace("host=127.0.0.1", "host=127.0.0.1,127.0.0.1")
    place.behind(other)
    with place.client(both).lease("cases", f"two-{place.api.name}") as lease:
        assert lease.token
