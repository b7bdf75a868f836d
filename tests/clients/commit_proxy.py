"""Stands between an application and PostgreSQL, and cuts the connection at COMMIT: what happened then the client cannot know.

    CommitProxy(address, "before")     PostgreSQL never gets the COMMIT, and rolls back
    CommitProxy(address, "after")      it has committed, and its answer is lost

`address`: (host, port), or the path of a unix socket.
"""
import contextlib
import re
import socket
import threading

COMMIT = re.compile(rb"\0commit\0|^Q....commit(?: work)?;?\0|P....[^\0]*\0commit\0", re.IGNORECASE | re.DOTALL)


class CommitProxy:
    def __init__(self, address, mode):
        self.address, self.mode, self.is_closed = address, mode, False
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.sockets = []
        self.threads = [threading.Thread(target=self._accept, daemon=True)]
        self.threads[0].start()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                client = self.listener.accept()[0]
                server = socket.socket(socket.AF_UNIX if isinstance(self.address, str) else socket.AF_INET)
                server.connect(self.address)
                self.sockets += [client, server]
                is_over = threading.Event()
                for target, arguments in ((self._ask, (client, server, is_over)), (self._answer, (client, server, is_over))):
                    self.threads.append(threading.Thread(target=target, args=arguments, daemon=True))
                    self.threads[-1].start()

    def _ask(self, client, server, is_over):
        with contextlib.suppress(OSError):
            while data := client.recv(65536):
                if COMMIT.search(data):
                    is_over.set()
                    if self.mode == "after":
                        server.sendall(data)
                        return  # the answer cuts it
                    break
                server.sendall(data)
        shut(client, server)

    def _answer(self, client, server, is_over):
        with contextlib.suppress(OSError):
            while data := server.recv(65536):
                if is_over.is_set():
                    break
                client.sendall(data)
        shut(client, server)

    def close(self):
        self.listener.close()
        shut(*self.sockets)
        for each in self.sockets:
            each.close()


def shut(*sockets):
    for each in sockets:
        with contextlib.suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
