"""Proxies before PostgreSQL: one holds a statement up, one refuses connections as PostgreSQL does, one breaks connections or keeps answers back."""
import contextlib
import socket
import threading

from commit_proxy import CommitProxy, shut


class StatementProxy(CommitProxy):
    """Once `hold` is set, the first statement that has it is held up. Its client may leave: PostgreSQL gets the statement after let_go()."""

    def __init__(self, address):
        self.hold, self.held, self.going, self.releases = None, False, threading.Event(), 0
        super().__init__(address, "held")

    def _ask(self, client, server, is_over):
        with contextlib.suppress(OSError):
            while data := client.recv(65536):
                if self.hold and self.hold in data:
                    self.hold, self.held = None, True
                    with contextlib.suppress(OSError):
                        while client.recv(65536):
                            pass
                    self.going.wait()
                    server.sendall(data)
                    server.shutdown(socket.SHUT_WR)  # it is done before the session ends
                    return
                if b"leasehold.release_" in data:
                    is_over.set()
                server.sendall(data)
        shut(client, server)

    def _answer(self, client, server, is_over):
        with contextlib.suppress(OSError):
            while data := server.recv(65536):
                if is_over.is_set():
                    is_over.clear()
                    self.releases += 1  # that are answered
                with contextlib.suppress(OSError):
                    client.sendall(data)
        shut(client, server)

    def let_go(self):
        self.going.set()

    def close(self):
        self.let_go()
        super().close()


class RefusingProxy(CommitProxy):
    """The first connections get these errors, (SQLSTATE, words) each, instead of a session."""

    def __init__(self, address, errors):
        self.errors, self.connections = list(errors), 0
        super().__init__(address, "refused")

    def _ask(self, client, server, is_over):
        self.connections += 1
        if not self.errors:
            super()._ask(client, server, is_over)
            return
        state, words = self.errors.pop(0)
        with contextlib.suppress(OSError):
            client.recv(65536)
            fields = f"SFATAL\0VFATAL\0C{state}\0M{words}\0\0".encode()
            client.sendall(b"E" + (4 + len(fields)).to_bytes(4, "big") + fields)
        shut(client, server)


class CutProxy(CommitProxy):
    """After cut() connections break, those that are made later too, until restore(). Answers wait while `goes` is not set."""

    def __init__(self, address):
        self.is_cut, self.goes = False, threading.Event()
        self.goes.set()
        super().__init__(address, "cut")

    def _ask(self, client, server, is_over):
        if self.is_cut:
            shut(client, server)
        super()._ask(client, server, is_over)

    def _answer(self, client, server, is_over):
        with contextlib.suppress(OSError):
            while data := server.recv(65536):
                self.goes.wait()
                client.sendall(data)
        shut(client, server)

    def cut(self):
        self.is_cut = True
        shut(*self.sockets)

    def restore(self):
        self.is_cut = False

    def close(self):
        self.goes.set()
        super().close()
