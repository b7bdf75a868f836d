"""Servers to break, for test programs in other languages: they ask for it by HTTP, with JSON.

    with control.Control() as site:                     # starts all of it
        run([...], env={"LEASEHOLD_CONTROL": site.url})

    POST /site                     {"grpc": target, "grpc_sql": dsn, "sql": dsn, "pooler": dsn, "port": of PostgreSQL}
    POST /psql                     {"on": "grpc" | "sql" | "pooler", "sql": ...}    what psql prints
    POST /commit_proxy             {"mode"}                                         {"port"}: a CommitProxy before PostgreSQL
    POST /standby                  {}                                               {"host", "port"}: a hot standby of PostgreSQL
    POST /daemon                   {}                                               {"id", "target"}: one more on the grpc database
    POST /secure                   {}                                               {"target", "ca", ...}: a SecureDaemon (secure.py)
    POST /daemon/signal, /kill, /start   {"id", "signal"}; id 0 is the first daemon
    POST /proxy                    {"id": of the daemon}                            {"id", "target"}: a FlakyProxy before it
    POST /proxy/set                {"id", "decide", "decide_request": [actions, the last for ever | "cycle"], "frozen", "refusing", "http"}
    POST /proxy/cut                {"id"}
    POST /proxy/let_requests_go    {"id"}
    POST /proxy/state              {"id"}                                           {"connections", "accepted", "actions", "requests", "messages_sent", "replies", "held"}
    POST /liar                     {}                                               {"id", "target"}: a LyingServer
    POST /liar/set                 {"id", "lies"}
    POST /liar/state               {"id"}                                           {"asked", "released", "renewals"}

Each of grpc, sql and pooler has a database of its own. That of "grpc" has a daemon, that of "pooler" PgBouncer in transaction mode.
"""
import collections
import contextlib
import http.server
import itertools
import json
import os
import pathlib
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import threading

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
sys.path.insert(0, str(HERE.parent / "integration"))
sys.path.insert(0, str(HERE.parent / "lib"))
import harness  # noqa: E402
from commit_proxy import CommitProxy  # noqa: E402
from flaky_proxy import FlakyProxy  # noqa: E402
from lying_server import LyingServer  # noqa: E402
from ports import free_port  # noqa: E402
import rundir  # noqa: E402
from secure import SecureDaemon  # noqa: E402
from sessions import Sessions  # noqa: E402
from standby import Standby  # noqa: E402
from triggers import TRIGGERS  # noqa: E402


class Pooler:
    """PgBouncer in transaction mode."""

    def __init__(self, cluster, server_port, database):
        self.dir = pathlib.Path(rundir.mkdtemp("lh-pool-"))
        self.dir.chmod(0o755)
        port = free_port()
        config = self.dir / "pgbouncer.ini"
        config.write_text(f"[databases]\n{database} = user=postgres host={cluster.sockets} port={server_port}\n"
                          # The same, with connections of its own, which a test may end.
                          f"apart = dbname={database} user=apart host={cluster.sockets} port={server_port}\n[pgbouncer]\nlisten_addr = 127.0.0.1\n"
                          f"listen_port = {port}\nunix_socket_dir =\nauth_type = any\npool_mode = transaction\nmax_client_conn = 200\n"
                          "default_pool_size = 30\nignore_startup_parameters = extra_float_digits\n")
        user = pwd.getpwnam("postgres")
        account = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": [user.pw_gid]} if os.geteuid() == 0 else {}
        self.log = open(self.dir / "log", "w")
        self.process = subprocess.Popen(["/usr/sbin/pgbouncer", str(config)], stdout=self.log, stderr=self.log, cwd="/", **account)
        self.url = f"host=127.0.0.1 port={port} dbname={database} user=postgres"

        def answers():
            with socket.socket() as s:
                return s.connect_ex(("127.0.0.1", port)) == 0

        harness.wait_until(answers, 60, "PgBouncer")

    def close(self):
        self.process.terminate()
        self.process.wait(30)
        self.log.close()
        shutil.rmtree(self.dir)


class Control:
    def __init__(self):
        self.pg_port = free_port()
        self.cluster = harness.Cluster(migrated=True, port=self.pg_port)
        self.database = self.cluster.create_database(migrated=True)
        self.daemons = [harness.Daemon(database=self.cluster.url(self.database))]
        self.sessions = Sessions(self.cluster)
        self.plain = self.cluster.create_database(migrated=True)
        self.pooled = self.cluster.create_database(migrated=True)
        for each in (self.database, self.plain, self.pooled):
            self.cluster.psql(TRIGGERS, each)
        self.cluster.psql("create role apart superuser login", self.pooled)
        self.pooler = Pooler(self.cluster, self.pg_port, self.pooled)
        self.proxies, self.commit_proxies, self.liars = [], [], []
        self.secured = self.standby_server = None

    def site(self, unused):
        server = f"host={self.cluster.sockets} port={self.pg_port} user=postgres"
        return {"grpc": self.daemons[0].target, "grpc_sql": f"{server} dbname={self.database}", "sql": f"{server} dbname={self.plain}",
                "pooler": self.pooler.url, "port": self.pg_port}

    def psql(self, ask):
        return self.sessions.psql(ask["sql"], {"grpc": self.database, "sql": self.plain, "pooler": self.pooled}[ask["on"]])

    def daemon(self, unused):
        self.daemons.append(harness.Daemon(database=self.cluster.url(self.database)))
        return {"id": len(self.daemons) - 1, "target": self.daemons[-1].target}

    def secure(self, unused):
        self.secured = self.secured or SecureDaemon(self.cluster, self.database)
        return self.secured.facts

    def standby(self, unused):
        self.standby_server = self.standby_server or Standby(self.cluster, self.pg_port)
        return {"host": "127.0.0.1", "port": self.standby_server.port}

    def daemon_signal(self, ask):
        self.daemons[ask["id"]].signal(getattr(signal, ask["signal"]))

    def daemon_kill(self, ask):
        self.daemons[ask["id"]].kill()

    def daemon_start(self, ask):
        self.daemons[ask["id"]].start()

    def proxy(self, ask):
        self.proxies.append(FlakyProxy(self.daemons[ask["id"]].target))
        return {"id": len(self.proxies) - 1, "target": self.proxies[-1].target}

    def commit_proxy(self, ask):
        self.commit_proxies.append(CommitProxy(("127.0.0.1", self.pg_port), ask["mode"]))
        return {"port": self.commit_proxies[-1].port}

    def proxy_set(self, ask):
        proxy = self.proxies[ask["id"]]
        for name in {"decide", "decide_request"} & set(ask):
            actions = [tuple(action) if isinstance(action, list) else action for action in ask[name]]
            ever = itertools.cycle(actions[:-1]) if actions[-1] == "cycle" else itertools.chain(actions, itertools.repeat(actions[-1]))
            setattr(proxy, name, ever.__next__)
        if "frozen" in ask:
            if ask["frozen"]:
                proxy.is_frozen = True
            else:
                proxy.thaw()
        proxy.is_refusing = ask.get("refusing", proxy.is_refusing)
        proxy.is_http = ask.get("http", proxy.is_http)

    def proxy_cut(self, ask):
        self.proxies[ask["id"]].cut_all()

    def proxy_let_requests_go(self, ask):
        self.proxies[ask["id"]].let_requests_go()

    def proxy_state(self, ask):
        proxy = self.proxies[ask["id"]]
        return {"connections": len(proxy.connections), "accepted": proxy.accepted, "actions": dict(proxy.actions), "requests": proxy.requests,
                "messages_sent": proxy.messages_sent, "replies": proxy.replies, "held": proxy.held}

    def liar(self, unused):
        self.liars.append(LyingServer())
        return {"id": len(self.liars) - 1, "target": self.liars[-1].target}

    def liar_set(self, ask):
        self.liars[ask["id"]].lies = ask["lies"]

    def liar_state(self, ask):
        liar = self.liars[ask["id"]]
        return {"asked": liar.asked, "released": liar.released, "renewals": liar.renewals}

    def __enter__(self):
        control, locks = self, collections.defaultdict(threading.Lock)

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                ask = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                try:
                    # Cases ask for rows all the time. Of what changes something one is done after the other.
                    with locks[self.path] if not ask.get("sql", "").startswith("select") else contextlib.nullcontext():
                        status, answer = 200, getattr(control, self.path[1:].replace("/", "_"))(ask)
                except Exception as trouble:  # told to the test that asked
                    status, answer = 500, repr(trouble)
                body = json.dumps(answer).encode()
                self.send_response(status)
                # Java's client would send its next question on the same connection, and find it closed if it is quick.
                self.send_header("Connection", "close")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *unused):
                pass

        class Server(http.server.ThreadingHTTPServer):
            request_queue_size = 128  # of 5 a connection was closed unanswered, on a busy machine

        self.server = Server(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        return self

    def __exit__(self, *unused):
        self.server.shutdown()
        for proxy in self.proxies + self.commit_proxies + self.liars:
            proxy.close()
        self.pooler.close()
        if self.secured:
            self.secured.close()
        if self.standby_server:
            self.standby_server.close()
        for daemon in self.daemons:
            daemon.destroy()
        self.sessions.close()
        self.cluster.destroy()
