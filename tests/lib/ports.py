"""Ports for servers of tests: free_port().

None of those that the kernel gives to connections, which are many: one would take the port before the server does, or while it starts again. And each
is given once in a run: a server's stays its own.
"""
import contextlib
import fcntl
import os
import random
import socket

import rundir

FIRST, COUNT = 10000, 22000


def is_free(port):
    with contextlib.suppress(OSError), socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers do
        probe.bind(("127.0.0.1", port))
        return True
    return False


def free_port():
    with open(os.path.join(rundir.find_place(), "port"), "a+", encoding="ascii") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        number = int(file.read() or random.randrange(COUNT))  # another run may be on its way
        while True:
            number += 1
            port = FIRST + number % COUNT
            if is_free(port):
                break
        file.truncate(0)
        file.write(str(number))
    return port
