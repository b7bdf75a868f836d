"""libleasehold for tests: a program that does what it is told, line by line (library_driver.c)."""
import queue
import re
import signal
import subprocess
import threading
import time
import uuid

import harness

DRIVER = harness.BUILD / "tests/unit/library_driver"


class Driver:
    def __init__(self, mode, endpoints, **options):
        words = [f"{name}={value}" for name, value in options.items()]
        self.process = subprocess.Popen(
            [str(DRIVER), mode, f"endpoints={endpoints}", *words],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, bufsize=1,
        )
        self.lines, self.log, self.unread = queue.Queue(), [], []
        self.readers = [threading.Thread(target=self._read, daemon=True), threading.Thread(target=self._read_log, daemon=True)]
        for reader in self.readers:
            reader.start()

    def _read(self):
        for line in self.process.stdout:
            self.lines.put(line.strip())
        self.lines.put(None)

    def _read_log(self):
        for line in self.process.stderr:
            self.log.append(line.strip())

    def say(self, line):
        self.process.stdin.write(line + "\n")

    def next(self, seconds=60):
        if self.unread:
            return self.unread.pop(0)
        return self.lines.get(timeout=seconds)

    def hear(self, pattern, seconds=60):
        """The first line that begins with this pattern; others stay for later."""
        for i, line in enumerate(self.unread):
            if re.match(pattern, line):
                return self.unread.pop(i)
        end = time.monotonic() + seconds
        while True:
            try:
                line = self.lines.get(timeout=max(0.01, end - time.monotonic()))
            except queue.Empty:
                raise AssertionError(f"never heard {pattern}; heard {self.unread}, log {self.log[-20:]}") from None
            assert line is not None, (pattern, self.unread, self.log[-20:])
            if re.match(pattern, line):
                return line
            self.unread.append(line)

    def ask(self, line, pattern=None, seconds=60):
        self.say(line)
        words = line.split()
        return self.hear(pattern or f"{words[0]} {words[1]} " if len(words) > 1 else words[0], seconds)

    def declare(self, name="d", namespace=None, **options):
        words = [f"{key}={value}" for key, value in options.items()]
        answer = self.ask(" ".join(["declare", name, namespace or "n" + uuid.uuid4().hex, *words]))
        assert answer.startswith(f"declare {name} OK"), answer

    def stats(self):
        return {key: int(value) for key, value in (w.split("=") for w in self.ask("stats", "stats").split()[1:])}

    def close(self):
        """It ends by itself, without a word from a sanitizer."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.stdin.write("quit\n")
            self.process.stdin.close()
        assert self.process.wait(60) == 0, "\n".join(self.log[-60:])
        for reader in self.readers:
            reader.join(10)
