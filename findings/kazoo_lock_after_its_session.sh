#!/bin/sh
# kazoo's Lock whose session expired while its process was stopped: `is_acquired` stays true, in a new session and beside another holder.
# `acquire` of that Lock fails from then on, after its whole timeout, though nobody holds it or waits for it. A new Lock has it at once.
set -eu

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cat > "$work/pom.xml" <<'XML'
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>try</groupId>
  <artifactId>try</artifactId>
  <version>1</version>
  <dependencies>
    <dependency>
      <groupId>org.apache.zookeeper</groupId>
      <artifactId>zookeeper</artifactId>
      <version>3.9.3</version>
    </dependency>
    <dependency>
      <groupId>io.dropwizard.metrics</groupId>
      <artifactId>metrics-core</artifactId>
      <version>4.2.25</version>
    </dependency>
    <dependency>
      <groupId>org.xerial.snappy</groupId>
      <artifactId>snappy-java</artifactId>
      <version>1.1.10.5</version>
    </dependency>
  </dependencies>
</project>
XML
cat > "$work/try.py" <<'PYTHON'
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import threading
import time

from kazoo.client import KazooClient
from kazoo.protocol.states import KazooState

PATH = "/nightly"


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def stopped(port, parent):
    """Takes the lock, is stopped by its parent, and says after its session's end what it holds."""
    client = KazooClient(f"127.0.0.1:{port}", timeout=2)
    lost, back = threading.Event(), threading.Event()
    client.add_listener(lambda state: lost.set() if state == KazooState.LOST else lost.is_set() and back.set() or None)
    client.start(timeout=60)
    lock = client.Lock(PATH, "first")
    lock.acquire()
    parent.send(client.client_id[0])
    assert lost.wait(60) and back.wait(60)
    parent.send((client.client_id[0], lock.is_acquired))
    parent.recv()
    begun = time.monotonic()
    again = lock.acquire(timeout=5), time.monotonic() - begun > 4
    parent.send((again, client.get_children(PATH), client.Lock(PATH, "new").acquire(timeout=5)))
    client.stop()


port = free_port()
java = ["java", "-cp", f"{sys.argv[1]}/target/dependency/*", "org.apache.zookeeper.server.ZooKeeperServerMain", str(port), f"{sys.argv[1]}/data", "500"]
with subprocess.Popen(java, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
    try:
        here, there = multiprocessing.Pipe()
        process = multiprocessing.Process(target=stopped, args=(port, there))
        process.start()
        other = KazooClient(f"127.0.0.1:{port}", timeout=30)
        other.start(timeout=60)
        old = here.recv()
        os.kill(process.pid, signal.SIGSTOP)
        lock = other.Lock(PATH, "second")
        assert lock.acquire(timeout=60)
        os.kill(process.pid, signal.SIGCONT)
        new, says_acquired = here.recv()
        print("a new session:", new != old)
        print("is_acquired of the first and of the second:", says_acquired, lock.is_acquired)
        lock.release()
        here.send(True)
        again, contenders, fresh = here.recv()
        print("contenders:", contenders, "acquire of the first again, and whether it waited to its end:", again, "of a new Lock:", fresh)
        process.join()
        other.stop()
    finally:
        server.kill()
PYTHON
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check kazoo==2.11.0
mvn -q -B -Dstyle.color=never -f "$work/pom.xml" dependency:copy-dependencies
timeout 120 "$work/venv/bin/python" -B "$work/try.py" "$work" 2> "$work/errors" > "$work/seen" || cat "$work/errors"
cat "$work/seen"
diff "$work/seen" - <<'SEEN'
a new session: True
is_acquired of the first and of the second: True True
contenders: [] acquire of the first again, and whether it waited to its end: (False, True) of a new Lock: True
SEEN
