"""What these tests stand on: a cluster with a database, daemons and clients on it."""
import os
import pathlib
import shutil
import ssl
import struct
import subprocess
import sys
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "integration"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
import harness  # noqa: E402
from harness import acquire_request, pb, wait_until  # noqa: E402
import rundir  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
BOUND = 60  # seconds until a test gives up; never a measurement
STUBS = str(pathlib.Path(pb.__file__).parents[2])


class Place:
    """A cluster, a database, and what is started on it."""

    def __init__(self):
        self.cluster = harness.Cluster(migrated=True)
        self.database = self.cluster.create_database(migrated=True)
        self.daemons = []
        self.clients = []

    def daemon(self, *args):
        self.daemons.append(harness.Daemon(*args, database=self.cluster.url(self.database)))
        self.clients.append(harness.Client(self.daemons[-1].target))
        return self.daemons[-1]

    def psql(self, sql):
        return self.cluster.psql(sql, self.database)

    def waiters(self, key):
        return int(self.psql(f"select count(*) from leasehold.waiter where key = '{key}'"))

    def queued_call(self, client, key, owner, **fields):
        """A call that waits for ever, once its row is there."""
        call = client.lease.Acquire.future(acquire_request("jobs", key, 60, wait_forever=True, owner=owner, **fields))
        # Not how many there are: the daemon may just have given up one of the others, which a busy machine kept from answering.
        wait_until(lambda: self.psql(f"select 1 from leasehold.waiter where key = '{key}' and owner = '{owner}'"), BOUND, f"{owner} to queue")
        return call

    def close(self):
        for client in self.clients:
            client.close()
        for daemon in self.daemons:
            daemon.destroy()
        self.cluster.destroy()


class Standby(harness.Cluster):
    """A standby of another cluster, by pg_basebackup."""

    def __init__(self, primary):
        self.primary, self.programs = primary, primary.programs
        self.dir = pathlib.Path(rundir.mkdtemp("lh-pg-"))
        self.dir.chmod(0o755)
        self.data, self.sockets = self.dir / "data", self.dir / "s"
        for path in (self.data, self.sockets):
            path.mkdir()
            if os.geteuid() == 0:
                shutil.chown(path, "postgres", "postgres")
        self.data.chmod(0o700)
        self._run("pg_basebackup", "-D", self.data, "-h", primary.sockets, "-U", "postgres", "-R", "-X", "stream", "-c", "fast", "--no-sync")
        with open(self.data / "postgresql.conf", "a") as conf:
            conf.write(f"unix_socket_directories = '{self.sockets}'\n")
        self.start()

    def catch_up(self):
        lsn = self.primary.psql("select pg_current_wal_lsn()", "postgres")
        wait_until(lambda: self.psql(f"select pg_last_wal_replay_lsn() >= '{lsn}'", "postgres") == "t", 60, "the standby caught up")

    def cut(self):
        self.psql("alter system set primary_conninfo = ''", "postgres")
        self.psql("select pg_reload_conf()", "postgres")
        wait_until(lambda: self.psql("select count(*) from pg_stat_wal_receiver", "postgres") == "0", 60, "the stream's end")

    def promote(self):
        self._run("pg_ctl", "-D", self.data, "-w", "-t", "60", "promote")


class SteppedCluster(harness.Cluster):
    """A PostgreSQL whose wall clock can be stepped."""

    def __init__(self, settings=()):
        self.shim = pathlib.Path(rundir.mkdtemp("lh-clock-"))
        self.shim.chmod(0o755)
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", self.shim / "clock.so", HERE / "stepped_clock.c"], check=True)
        self.step(0)
        super().__init__(settings, migrated=True)

    def step(self, seconds, name="step"):
        with open(self.shim / name, "r+b" if (self.shim / name).exists() else "w+b") as file:
            file.write(struct.pack("q", int(seconds * 1e6)))

    def clock(self, name):
        return {"LD_PRELOAD": str(self.shim / "clock.so"), "STEPPED_CLOCK": str(self.shim / name)}

    def clock_ahead(self, seconds):
        """The environment of another program, whose clock is so far ahead of the machine's."""
        self.step(seconds, f"ahead{seconds}")
        return self.clock(f"ahead{seconds}")

    def start(self):
        more = self.clock("step")
        os.environ.update(more)
        try:
            super().start()
        finally:
            for name in more:
                del os.environ[name]

    def destroy(self):
        super().destroy()
        shutil.rmtree(self.shim, ignore_errors=True)


def metric(daemon, name):
    scheme, tls = ("https", ssl._create_unverified_context()) if "--tls-cert" in daemon.args else ("http", None)
    text = urllib.request.urlopen(f"{scheme}://127.0.0.1:{daemon.admin_port}/metrics", timeout=30, context=tls).read().decode()
    return float(next(line for line in text.splitlines() if line.startswith(name)).split()[-1])


# A client that finds out by itself that its daemon is cut off.
WATCHFUL = [("grpc.use_local_subchannel_pool", 1), ("grpc.enable_retries", 0), ("grpc.keepalive_time_ms", 1000),
            ("grpc.keepalive_timeout_ms", 1000), ("grpc.http2.max_pings_without_data", 0),
            ("grpc.initial_reconnect_backoff_ms", 100), ("grpc.max_reconnect_backoff_ms", 300)]

# stubs, target, request, and how: Acquire at once, once a line came on stdin, or as a Hold.
CLIENT = """
import queue, sys
sys.path.insert(0, sys.argv[1])
import google
google.__path__.append(sys.argv[1] + "/google")
import grpc
from leasehold.v1 import leasehold_pb2 as pb, leasehold_pb2_grpc as pb_grpc
channel = grpc.insecure_channel(sys.argv[2])
stub = pb_grpc.LeaseServiceStub(channel)
request = pb.AcquireRequest.FromString(bytes.fromhex(sys.argv[3]))
how = sys.argv[4] if len(sys.argv) > 4 else "now"
if how == "ready":
    grpc.channel_ready_future(channel).result()
    print(how, flush=True)
    sys.stdin.readline()
try:
    if how == "hold":
        requests = queue.Queue()
        requests.put(pb.HoldRequest(acquire=request, by_ping=True))
        for event in stub.Hold(iter(requests.get, None)):
            print(event.WhichOneof("event"), flush=True)
    else:
        stub.Acquire(request)
        print("granted", flush=True)
except grpc.RpcError as error:
    print(error.code(), flush=True)
"""


def client_command(target, request, *how):
    return [sys.executable, "-c", CLIENT, STUBS, target, request.SerializeToString().hex(), *how]
