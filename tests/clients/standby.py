"""A hot standby of a test's cluster, for clients whose list of servers begins with one."""
import os
import pathlib
import shutil

import harness
import rundir
from ports import free_port


class Standby:
    def __init__(self, cluster, port):
        """`port`: the primary's."""
        self.cluster, self.port = cluster, free_port()
        self.dir = pathlib.Path(rundir.mkdtemp("lh-standby-"))
        self.dir.chmod(0o755)
        if os.geteuid() == 0:
            shutil.chown(self.dir, "postgres", "postgres")
        self.data = self.dir / "data"
        cluster._run("pg_basebackup", "-D", self.data, "-h", cluster.sockets, "-p", port, "-U", "postgres", "-c", "fast", "-R", "--no-sync")
        with open(self.data / "postgresql.conf", "a") as conf:
            conf.write(f"listen_addresses = '127.0.0.1'\nport = {self.port}\nunix_socket_directories = '{self.dir}'\n")
        cluster._run("pg_ctl", "-D", self.data, "-l", self.data / "log", "-w", "-t", "60", "start")

    def close(self):
        self.cluster._run("pg_ctl", "-D", self.data, "-w", "-m", "immediate", "stop", check=False)
        shutil.rmtree(self.dir, ignore_errors=True)
