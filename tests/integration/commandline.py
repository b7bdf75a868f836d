"""The command line for tests: the real program, run to its end or on its own, and with a server."""
import json
import os
import subprocess

from google.protobuf.timestamp_pb2 import Timestamp

import harness
from harness import wait_until

NOWHERE = "127.0.0.1:1"
SOME_KEY = "6f2c1f0e-5d0b-4b57-9a35-0c8f6c2e7a11"


def environment(**more):
    clean = {name: value for name, value in os.environ.items() if not name.startswith("LEASEHOLD_")}
    return {**clean, "TZ": "UTC", "LC_ALL": "C.UTF-8", **more}


def cli(*args, seconds=60, **env):
    """Run the program to its end: .returncode, .stdout, .stderr."""
    return subprocess.run(
        [harness.CLI, *map(str, args)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        timeout=seconds,
        env=environment(**env),
    )


def start(*args, **env):
    return subprocess.Popen(
        [harness.CLI, *map(str, args)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(**env),
    )


def ends(process, seconds=60):
    process.stdout_text, process.stderr_text = process.communicate(timeout=seconds)
    return process.returncode


def timestamp(text):
    value = Timestamp()
    value.FromJsonString(text)
    return value


class Shell:
    """The command line with a server, and what tests often ask of it."""

    def __init__(self, service):
        self.service = service
        self.env = {"LEASEHOLD_SERVER": service.daemon.target}

    def __call__(self, *args, **more):
        return cli(*args, **{**self.env, **more})

    def done(self, *args, **more):
        result = self(*args, **more)
        assert result.returncode == 0, f"{args}: exit {result.returncode}: {result.stderr}"
        return result

    def start(self, *args):
        return start(*args, **self.env)

    def acquire(self, namespace, key, *args):
        return json.loads(self.done("acquire", namespace, key, "-o", "json", *args).stdout)

    def waiters(self, namespace, key):
        """How many wait for it in the database."""
        return int(self.service.psql(
            f"select count(*) from leasehold.waiter where namespace = '{namespace}' and key = '{key}'"))

    def is_waiting(self, namespace, key, count=1):
        wait_until(lambda: self.waiters(namespace, key) == count, what=f"{count} waiter(s) for {namespace}/{key}")
