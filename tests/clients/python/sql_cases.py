"""The cases about PostgreSQL without a daemon."""
import logging

import leasehold
import psycopg
import pytest
from cases import LONG, NAMESPACE, fresh, in_background
from harness import wait_until


def guard_fences(place):
    key, client = fresh(), place.client()
    url = place.target() if place.transport == "pooler" else place.site.cluster.url(place.database)
    with pytest.raises(leasehold.LeaseLost):
        with client.lease(NAMESPACE, key, duration=LONG) as lease:
            client.guard(lease, url)
            place.force(key)
            client.guard(lease, url)


def renewal_has_its_own_connection(place):
    key, client = fresh(), place.client()
    with psycopg.connect(place.target()) as application, application.cursor() as cursor:
        with client.lease(NAMESPACE, key, duration=6) as lease:
            cursor.execute("select leasehold.guard(%s, %s, %s)", (NAMESPACE, key, lease.token))
            beats = place.heartbeats(key)
            wait_until(lambda: place.heartbeats(key) >= beats + 2)
            application.rollback()


def wait_hears_notify(place):
    key = fresh()
    first = place.client().lease(NAMESPACE, key).acquire()
    client = place.client()
    client._core.transport.poll_s = 600
    waiting = in_background(lambda: client.lease(NAMESPACE, key, wait=900).acquire())
    wait_until(lambda: place.waiting(key) == 1)
    wait_until(lambda: place.psql("select count(*) from pg_stat_activity where application_name = 'leasehold' "
                                  "and state = 'idle' and query like '%leasehold.acquire_one(%'") != "0")
    first.release()
    assert waiting().release()


def standby_is_left_out(place):
    place.psql("select pg_switch_wal()")
    standby, key = place.site.standby, fresh()
    servers = f"host={standby.dir},{place.site.cluster.sockets} port={standby.port},5432 dbname={place.database} user=postgres"
    with place.client(servers).lease(NAMESPACE, key, duration=6) as lease:
        assert place.row(key, "state, token") == f"held|{lease.token}"
        wait_until(lambda: place.heartbeats(key) >= 1)
    alone = f"host={standby.dir} port={standby.port} dbname={place.database} user=postgres"
    for more in ("", " target_session_attrs=any"):
        with pytest.raises(leasehold.Unavailable, match="read-only|recovery"):
            place.client(alone + more, timeout=5).lease(NAMESPACE, key).acquire()


def pooler_is_noticed(place):
    messages = []
    handler = logging.Handler()
    handler.emit = lambda record: messages.append(record.getMessage())
    logging.getLogger("leasehold").addHandler(handler)
    try:
        key, client = fresh(), place.client()
        for _ in range(2):
            first = place.client().lease(NAMESPACE, key).acquire()
            waiting = in_background(lambda: client.lease(NAMESPACE, key, wait=60).acquire())
            wait_until(lambda: place.waiting(key) == 1)
            first.release()
            assert waiting().release()
    finally:
        logging.getLogger("leasehold").removeHandler(handler)
    assert len([each for each in messages if "pooler" in each]) == 1, messages
