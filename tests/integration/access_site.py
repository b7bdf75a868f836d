"""What the tests of access rules stand on: a daemon that has them on, its rules and tokens, and calls as somebody."""
import functools

import grpc

import harness
from access_table import BOUND, tried
from harness import Client, acquire_request, pb, wait_until
from streams import Stream, keys

REFUSED = grpc.StatusCode.UNAUTHENTICATED


def literal(text):
    return "E'" + text.replace("\\", "\\\\").replace("'", "''") + "'"


def bearer(token):
    return (("authorization", f"Bearer {token}"),)


class Site:
    """A daemon with authorization on a fresh database, and one client without any credentials."""

    def __init__(self, cluster, *args, database=None):
        self.cluster = cluster
        self.database = database or cluster.create_database(migrated=True)
        self.daemon = harness.Daemon("--authorization", "yes", *args, database=cluster.url(self.database))
        self.client = Client(self.daemon.target)

    def psql(self, sql, **more):
        return self.cluster.psql(sql, self.database, **more)

    def grant(self, principal, namespace, *rights):
        self.psql("select leasehold.access_grant({})".format(", ".join(map(literal, (principal, namespace, *rights)))))

    def revoke(self, principal, namespace, *rights):
        self.psql("select leasehold.access_revoke({})".format(", ".join(map(literal, (principal, namespace, *rights)))))

    def token(self, name, expires=None):
        """The token and its ID."""
        until = f", {literal(expires)}" if expires else ""
        return self.psql(f"select t.token, t.id from leasehold.token_create({literal(name)}{until}) t").split("|")

    def asks(self, namespace, metadata=None, client=None):
        """Acquires there, at once: the word of the answer, "OK" or its reason."""
        def acquire():
            (client or self.client).lease.Acquire(acquire_request(namespace, keys(), 600), metadata=metadata, timeout=BOUND)
            return "OK"
        return tried(acquire)[0]

    def waits_for(self, word, namespace, metadata=None, client=None):
        wait_until(lambda: self.asks(namespace, metadata, client) == word, BOUND, f"{word} in {namespace}")

    def open(self, method, *requests, metadata=None, unary=None):
        """A stream as somebody."""
        return Stream(functools.partial(getattr(self.client.lease, method), metadata=metadata), *requests, unary=unary)

    def hold(self, namespace, key, seconds, metadata=None):
        """A Hold that has its lease."""
        hold = self.open("Hold", pb.HoldRequest(acquire=acquire_request(namespace, key, seconds)), metadata=metadata)
        event = hold.next()
        assert event is not None and event.WhichOneof("event") == "granted", hold.error
        return hold, event.granted

    def scope(self, namespace, key, columns="state"):
        return self.psql(f"select {columns} from leasehold.scope where namespace = {literal(namespace)} and key = {literal(key)}")

    def close(self):
        self.client.close()
        assert self.daemon.stop() == 0, self.daemon.log()
        self.daemon.destroy()
