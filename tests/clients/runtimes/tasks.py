"""The work of life.py in a process of Celery's pool, with a client that the worker made before it forked: tasks.py TRANSPORT TARGET NAMESPACE prefork.

The broker is a directory, so no other server is needed."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import celery

os.environ.setdefault("LIFE", json.dumps(sys.argv[1:4]))
os.environ.setdefault("QUEUE", tempfile.mkdtemp(prefix="queue-", dir="."))
import life  # noqa: E402

QUEUE = os.path.abspath(os.environ["QUEUE"])
MAKER, client = os.getpid(), life.client()
app = celery.Celery("tasks", broker="filesystem://", backend=f"file://{QUEUE}")
app.conf.update(broker_transport_options={"data_folder_in": QUEUE, "data_folder_out": QUEUE, "control_folder": QUEUE}, worker_redirect_stdouts=False)


@app.task(name="live")
def live():
    print("made by another process", os.getpid() != MAKER, flush=True)
    life.live(client)


def main():
    environment = {**os.environ, "PYTHONPATH": f"{pathlib.Path(__file__).parent}:{os.environ['PYTHONPATH']}"}
    with open(os.path.join(QUEUE, "log"), "w+", encoding="utf-8") as log:
        process = subprocess.Popen([sys.executable, "-m", "celery", "--quiet", "--app", "tasks:app", "worker", "--pool", "prefork", "--concurrency", "2", "--loglevel", "ERROR"],
                                   env=environment, stderr=log)
        try:
            app.send_task("live").get(timeout=110)
        finally:
            process.terminate()
            status = process.wait()
            log.seek(0)
            if status != 0:
                print(log.read())
    return status


if __name__ == "__main__":
    sys.exit(main())
