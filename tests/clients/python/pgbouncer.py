"""A PgBouncer before a database of a cluster."""
import os
import pathlib
import pwd
import shutil
import socket
import subprocess

from harness import wait_until
import rundir
from ports import free_port


class PgBouncer:
    def __init__(self, sockets, database, mode):
        self.dir = pathlib.Path(rundir.mkdtemp("lh-pool-"))
        self.dir.chmod(0o755)
        self.port = free_port()
        config = self.dir / "pgbouncer.ini"
        config.write_text(f"[databases]\n{database} = user=postgres host={sockets}\n[pgbouncer]\nlisten_addr = 127.0.0.1\n"
                          f"listen_port = {self.port}\nunix_socket_dir =\nauth_type = any\npool_mode = {mode}\nmax_client_conn = 200\n")
        user = pwd.getpwnam("postgres")
        account = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": [user.pw_gid]} if os.geteuid() == 0 else {}
        self.log = open(self.dir / "log", "w")
        self.process = subprocess.Popen(["/usr/sbin/pgbouncer", str(config)], stdout=self.log, stderr=self.log, cwd="/", **account)
        self.url = f"host=127.0.0.1 port={self.port} dbname={database} user=postgres application_name=pooled"  # and not leasehold
        wait_until(self._listens, 30, "pgbouncer")

    def _listens(self):
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def close(self):
        self.process.terminate()
        self.process.wait(30)
        self.log.close()
        shutil.rmtree(self.dir)
