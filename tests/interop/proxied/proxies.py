"""nginx, HAProxy and Caddy with the configurations of deploy/examples/proxies, of which the tests change addresses and times alone."""
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import tempfile

import harness
from harness import wait_until

EXAMPLES = harness.ROOT / "deploy/examples/proxies"


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Proxy:
    """A proxy before one daemon. `idle_s`: the seconds after which it ends a stream that is quiet; None: as in the example."""

    def __init__(self, daemon, idle_s=None):
        self.place = pathlib.Path(tempfile.mkdtemp(prefix="lh-proxy-"))
        self.port = free_port()
        self.target = f"127.0.0.1:{self.port}"
        text = (EXAMPLES / self.example).read_text().replace("127.0.0.1:7420", daemon.target).replace("127.0.0.1:7430", self.target)
        self.config = self.place / self.example
        self.config.write_text(self.adapt(text.replace("port 7421", f"port {daemon.admin_port}"), idle_s))
        self.log = open(self.place / "log", "ab")
        self.processes = []
        self.start()

    def start(self):
        self.processes.append(subprocess.Popen([str(word) for word in self.command()], stdout=self.log, stderr=self.log, cwd=self.place,
                                               start_new_session=True, env={**os.environ, "HOME": str(self.place)}))
        wait_until(self.is_up, 60, f"{self.name}: {(self.place / 'log').read_text()[-1000:]}")

    def is_up(self):
        with socket.socket() as s:
            return s.connect_ex(("127.0.0.1", self.port)) == 0

    def kill(self):
        for process in self.processes:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait(30)
        self.processes.clear()

    def close(self):
        self.kill()
        self.log.close()
        shutil.rmtree(self.place)


class Nginx(Proxy):
    name, example = "nginx", "nginx.conf"

    def adapt(self, text, idle_s):
        if idle_s is not None:
            text = re.sub(r"(_timeout) 60s;", rf"\1 {idle_s}s;", text)
        place = f"pid {self.place}/pid;\nerror_log stderr;\ndaemon off;\n"
        paths = "".join(f"    {name}_temp_path {self.place}/{name};\n" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
        return place + text.replace("http {\n", f"http {{\n    access_log off;\n{paths}", 1)

    def command(self):
        return ["/usr/sbin/nginx", "-c", self.config]


class HAProxy(Proxy):
    name, example = "haproxy", "haproxy.cfg"

    def adapt(self, text, idle_s):
        return text if idle_s is None else re.sub(r"(timeout (?:client|server)) 50s", rf"\1 {idle_s}s", text)

    def command(self):
        return ["/usr/sbin/haproxy", "-W", "-db", "-f", self.config]


class Caddy(Proxy):
    name, example = "caddy", "Caddyfile"

    def adapt(self, text, idle_s):
        return text

    def command(self):
        return [os.environ["LEASEHOLD_CADDY"], "run", "--config", self.config, "--adapter", "caddyfile"]


# Debian has no Caddy, and building it takes longer than all else here: see tests/interop/caddy/main.go.
KINDS = (Nginx, HAProxy, Caddy) if "LEASEHOLD_CADDY" in os.environ else (Nginx, HAProxy)
