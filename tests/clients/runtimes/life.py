"""A lease in this process: acquired, renewed beyond its duration, lost, acquired again: life.py TRANSPORT TARGET NAMESPACE plain | gevent | fork | spawn | forkserver."""
import sys

if "gevent" in sys.argv:
    from gevent import monkey
    monkey.patch_all()
    import grpc.experimental.gevent
    grpc.experimental.gevent.init_gevent()

import json
import multiprocessing
import os
import threading
import time

import leasehold

TRANSPORT, TARGET, NAMESPACE = json.loads(os.environ["LIFE"]) if "LIFE" in os.environ else sys.argv[1:4]  # for served.py and tasks.py, which others start
SECONDS = 6


def client():
    return leasehold.Client(**{"server" if TRANSPORT == "grpc" else "database": TARGET})


def live(own):
    renewals, lost = [], threading.Event()
    lease = own.lease(NAMESPACE, f"k-{os.getpid()}", duration=SECONDS, wait=60, on_renewed=lambda lease: renewals.append(time.monotonic()),
                      on_lost=lambda reason: lost.set()).acquire()
    begun = time.monotonic()
    while not renewals or renewals[-1] - begun < SECONDS:
        time.sleep(0.05)
    lease.check()
    print("held beyond its duration", lease.key, flush=True)
    assert lost.wait(60)
    print("lost", lease.lost, flush=True)
    with own.lease(NAMESPACE, lease.key, wait=60) as again:
        print("a larger token", again.token > lease.token, flush=True)
    own.close()
    print("released", flush=True)


def child(inherited=None):
    """Of fork: it has the parent's client and lease."""
    if inherited is not None:
        theirs, lease = inherited
        try:
            lease.check()
        except leasehold.LeaseLost as error:
            print("inherited lease:", error.reason, flush=True)
        try:
            theirs.lease(NAMESPACE, "another").acquire()
        except leasehold.LeaseholdError as error:
            print("inherited client:", error.reason, flush=True)
        try:
            live(client())
        except leasehold.LeaseholdError as error:
            print("another client:", error.reason, flush=True)
    else:
        live(client())


def main():
    if sys.argv[-1] in ("fork", "spawn", "forkserver"):
        own = client()
        lease = own.lease(NAMESPACE, "parent", duration=SECONDS).acquire()
        context = multiprocessing.get_context(sys.argv[-1])
        if sys.argv[-1] != "fork":
            try:
                context.Process(target=child, args=((own, lease),)).start()
            except TypeError as error:
                print("not handed on:", error, flush=True)
        process = context.Process(target=child, args=((own, lease),) if sys.argv[-1] == "fork" else ())
        process.start()
        process.join(120)
        lease.check()
        print("the parent's is held", lease.release(), process.exitcode, flush=True)
    else:
        live(client())


if __name__ == "__main__":
    main()
