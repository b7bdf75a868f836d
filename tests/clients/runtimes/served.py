"""The work of life.py in a worker of gunicorn, with a client that its master made: served.py TRANSPORT TARGET NAMESPACE preload."""
import json
import os
import pathlib
import socket
import subprocess
import sys
import time

os.environ.setdefault("LIFE", json.dumps(sys.argv[1:4]))
import life  # noqa: E402

MAKER, client = os.getpid(), life.client()


def application(environ, start_response):
    print("made by another process", os.getpid() != MAKER, flush=True)
    life.live(client)
    start_response("200 OK", [("Content-Length", "0")])
    return []


def answer(path, process):
    """What a request gets, once gunicorn listens."""
    while process.poll() is None:
        with socket.socket(socket.AF_UNIX) as connection:
            if connection.connect_ex(path) == 0:
                connection.sendall(b"GET / HTTP/1.0\r\n\r\n")
                return connection.makefile("rb").readline()
        time.sleep(0.05)
    return b"gunicorn has ended"


def main():
    path = f"served-{os.getpid()}.socket"
    environment = {**os.environ, "PYTHONPATH": f"{pathlib.Path(__file__).parent}:{os.environ['PYTHONPATH']}"}
    process = subprocess.Popen([sys.executable, "-m", "gunicorn", "--preload", "--workers", "2", "--timeout", "110", "--bind", f"unix:{path}", "--log-level", "error",
                                "served:application"], env=environment)
    try:
        print("answered", answer(path, process).split()[1].decode(), flush=True)
    finally:
        process.terminate()
        status = process.wait()
    return status


if __name__ == "__main__":
    sys.exit(main())
