"""A primary and a standby that follows it, each a cluster on a unix socket, for tests that fail over from one to the other."""
import contextlib
import os
import pathlib
import shutil
import signal
import socket
import subprocess

import harness
from harness import wait_until
import rundir


class Standby(harness.Cluster):
    """Made from a running primary by pg_basebackup; asynchronous."""

    def __init__(self, primary):
        self.primary = primary
        super().__init__()

    def _make_data(self, migrated):
        shutil.rmtree(self.data)
        self.sockets.parent.chmod(0o777)
        self._run("pg_basebackup", "-D", self.data, "-d", f"host={self.primary.sockets} user=postgres", "-R", "-X",
                            "stream", "-c", "fast", "--no-sync")
        (self.data / "postmaster.pid").unlink(missing_ok=True)

    def promote(self):
        self._run("pg_ctl", "-D", self.data, "-w", "-t", "60", "promote")


class Pair:
    """`old` is the primary and listed first, `new` its standby."""

    def __init__(self):
        self.old = harness.Cluster(migrated=True)
        self.new = Standby(self.old)
        self.database = self.old.create_database(migrated=True)
        self.frozen = []
        self.closers = []

    def url(self, *first):
        sockets = ",".join([*map(str, first), str(self.old.sockets), str(self.new.sockets)])
        return f"host={sockets} dbname={self.database} user=postgres"

    def daemon(self, url=None, *args, **options):
        daemon = harness.Daemon(*args, database=url or self.url(), **options)
        self.closers.append(daemon.destroy)
        return daemon

    def wait_for_standby(self):
        """What was committed on the old primary is on the standby."""
        end = self.old.psql("select pg_current_wal_lsn()", "postgres")
        wait_until(lambda: self.new.psql(f"select pg_last_wal_replay_lsn() >= '{end}'", "postgres") == "t")

    def freeze(self, cluster):
        """Everything of it stands still, as a hung machine; the kernel goes on to accept connections."""
        postmaster = int((cluster.data / "postmaster.pid").read_text().split()[0])
        os.kill(postmaster, signal.SIGSTOP)  # first, so that it starts no more
        children = subprocess.run(["ps", "-o", "pid=", "--ppid", str(postmaster)], stdout=subprocess.PIPE, text=True, check=False)
        self.frozen = [postmaster, *map(int, children.stdout.split())]
        for pid in self.frozen[1:]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)

    def thaw(self):
        for pid in reversed(self.frozen):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        self.frozen = []

    def silent_host(self):
        """A host whose kernel accepts connections, and where nothing ever answers."""
        directory = pathlib.Path(rundir.mkdtemp("lh-mute-"))
        directory.chmod(0o755)
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(directory / ".s.PGSQL.5432"))
        (directory / ".s.PGSQL.5432").chmod(0o777)
        listener.listen(64)
        self.closers.append(lambda: (listener.close(), shutil.rmtree(directory)))
        return directory

    def shut(self, cluster):
        """Refuses new sessions; those that are there go on."""
        hba = cluster.data / "pg_hba.conf"
        lines = hba.read_text()
        hba.write_text(f"local {self.database} all reject\n" + lines)
        cluster._run("pg_ctl", "-D", cluster.data, "reload")

    def close(self):
        self.thaw()
        for close in self.closers:
            close()
        self.new.destroy()
        self.old.destroy()
