#!/bin/sh
# A call fails because nobody listens. Then somebody does: 1.51.1 connects and says nothing, as long as no call is made; 1.85.3 begins HTTP/2.
set -eu

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cat > "$work/client.py" <<'PYTHON'
import socket

import grpc

with socket.create_server(("127.0.0.1", 0)) as closed:
    address = closed.getsockname()
options = [("grpc.initial_reconnect_backoff_ms", 50), ("grpc.min_reconnect_backoff_ms", 2000), ("grpc.max_reconnect_backoff_ms", 500)]
channel = grpc.insecure_channel("%s:%d" % address, options=options)
try:
    channel.unary_unary("/a.Service/Call")(b"", timeout=5)
except grpc.RpcError as error:
    assert error.code() == grpc.StatusCode.UNAVAILABLE, error
with socket.create_server(address) as listener:
    connection, _ = listener.accept()
    print("begins HTTP/2" if connection.recv(24) else "gives up without a word")
PYTHON
for each in "1.51.1 gives up without a word" "1.85.3 begins HTTP/2"; do
    version=${each%% *}
    python3 -m pip install -q --root-user-action=ignore --target "$work/$version" "grpcio==$version"
    seen=$(PYTHONPATH="$work/$version" timeout 60 python3 -B "$work/client.py")
    echo "grpcio $version: connects and $seen"
    [ "$seen" = "${each#* }" ]
done
