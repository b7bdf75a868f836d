"""PgBouncer between the daemon and PostgreSQL: a session of one's own is served, one for each transaction is refused with words."""
import os
import pathlib
import pwd
import re
import shutil
import subprocess

import pytest

import harness
from harness import Client, acquire_request, fails, wait_until
from ports import free_port
import rundir


class Pooler:
    def __init__(self, place, mode, size=20):
        self.dir = pathlib.Path(rundir.mkdtemp("lh-pool-"))
        self.dir.chmod(0o755)
        self.port = free_port()
        config = self.dir / "pgbouncer.ini"
        config.write_text(f"[databases]\n{place.database} = host={place.cluster.sockets}\n[pgbouncer]\nlisten_addr = 127.0.0.1\n"
                          f"listen_port = {self.port}\nunix_socket_dir =\nauth_type = any\npool_mode = {mode}\ndefault_pool_size = {size}\nmax_client_conn = 100\n"
                          "ignore_startup_parameters = extra_float_digits\n")
        config.write_text(config.read_text().replace(f"{place.database} = ", f"{place.database} = user=postgres "))
        user = pwd.getpwnam("postgres")
        account = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": [user.pw_gid]} if os.geteuid() == 0 else {}
        self.log = open(self.dir / "log", "w")
        self.process = subprocess.Popen(["/usr/sbin/pgbouncer", str(config)], stdout=self.log, stderr=self.log, cwd="/", **account)
        self.url = f"host=127.0.0.1 port={self.port} {harness.PATIENCE}dbname={place.database} user=postgres"

    def close(self):
        self.process.terminate()
        self.process.wait(30)
        self.log.close()
        shutil.rmtree(self.dir)


@pytest.fixture
def through(place):
    """A daemon behind a pooler of that mode."""
    poolers, daemons = [], []

    def start(mode, size=20):
        assert place.daemon().stop() == 0  # brings the schema up to date
        poolers.append(Pooler(place, mode, size))
        daemons.append(harness.Daemon("--migrate", "no", database=poolers[0].url, wait="listening"))
        return daemons[0]

    yield start
    for each in daemons:
        each.destroy()
    for each in poolers:
        each.close()


def test_a_pooler_in_transaction_mode_is_refused_with_words(through):
    daemon = through("transaction")
    client = Client(daemon.target)
    wait_until(lambda: "gives connections no session of their own, as a pooler in transaction mode does" in daemon.log())
    with fails() as failure:
        client.lease.Acquire(acquire_request("jobs", "k"))
    assert failure.value.reason == "DATABASE_UNAVAILABLE"
    assert "already exists" not in daemon.log()
    client.close()


def test_one_session_for_all_connections_is_told_as_that(through):
    """As the socket server of PGlite does it, which is no pooler."""
    daemon = through("transaction", size=1)
    wait_until(lambda: "gives connections no session of their own" in daemon.log())
    assert re.search("two connections are in one session of PostgreSQL, \\d+: |a new connection's session has statements of another connection: ", daemon.log())
    assert "ran in two sessions" not in daemon.log()


def test_a_pooler_in_session_mode_serves(through):
    daemon = through("session")
    client = Client(daemon.target)
    assert wait_until(lambda: client.lease.Acquire(acquire_request("jobs", "k", wait=20)).lease.token)
    assert "no session of their own" not in daemon.log()
    client.close()
