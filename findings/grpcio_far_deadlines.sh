#!/bin/sh
# Calls to a server that never answers: a time-out of 1e9 s waits, one of 8e9 s or `inf` is over at once.
set -eu

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cat > "$work/client.py" <<'PYTHON'
import socket

import grpc

silent = socket.create_server(("127.0.0.1", 0))
channel = grpc.insecure_channel("127.0.0.1:%d" % silent.getsockname()[1])
for timeout in (1e9, 8e9, float("inf")):
    call = channel.unary_unary("/a.Service/Call").future(b"", timeout=timeout)
    try:
        call.result(timeout=3)
    except grpc.FutureTimeoutError:
        print(timeout, "waits", end="; ")
        call.cancel()
    except grpc.RpcError as error:
        print(timeout, error.code().name, end="; ")
PYTHON
for version in 1.51.1 1.85.3; do
    python3 -m pip install -q --root-user-action=ignore --target "$work/$version" "grpcio==$version"
    seen=$(PYTHONPATH="$work/$version" timeout 60 python3 -B "$work/client.py")
    echo "grpcio $version: $seen"
    [ "$seen" = "1000000000.0 waits; 8000000000.0 DEADLINE_EXCEEDED; inf DEADLINE_EXCEEDED; " ]
done
