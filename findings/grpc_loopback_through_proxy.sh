#!/bin/sh
# A call to 127.0.0.1 with http_proxy set: the proxy gets CONNECT 127.0.0.1:1, unless no_proxy names the address.
set -eu

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cat > "$work/proxy.py" <<'PYTHON'
"""proxy.py COMMAND...: runs it with http_proxy, and prints the first line that the proxy gets."""
import os
import socket
import subprocess
import sys

with socket.create_server(("127.0.0.1", 0)) as proxy:
    proxy.settimeout(20)
    url = "http://127.0.0.1:%d" % proxy.getsockname()[1]
    environment = {name: value for name, value in os.environ.items() if name.lower() not in ("no_proxy", "no_grpc_proxy", "grpc_proxy", "https_proxy")}
    client = subprocess.Popen(sys.argv[1:], env={**environment, "http_proxy": url}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        connection, _ = proxy.accept()
        print(connection.recv(4096).split(b"\r\n")[0].decode())
    finally:
        client.kill()
PYTHON
cat > "$work/client.py" <<'PYTHON'
import grpc

grpc.insecure_channel("127.0.0.1:1").unary_unary("/a.Service/Call")(b"", timeout=10)
PYTHON
cat > "$work/client.js" <<'NODE'
const grpc = require('@grpc/grpc-js');
const client = new grpc.Client('127.0.0.1:1', grpc.credentials.createInsecure());
const same = (bytes) => bytes;
client.makeUnaryRequest('/a.Service/Call', same, same, Buffer.alloc(0), { deadline: Date.now() + 10000 }, () => {});
NODE
check() {
    name=$1
    shift
    seen=$(timeout 60 python3 -B "$work/proxy.py" "$@")
    echo "$name: $seen"
    [ "$seen" = "CONNECT 127.0.0.1:1 HTTP/1.1" ] || [ "$seen" = "CONNECT 127.0.0.1:1 HTTP/1.0" ]
}
for version in 1.51.1 1.85.3; do
    python3 -m pip install -q --root-user-action=ignore --target "$work/$version" "grpcio==$version"
    PYTHONPATH="$work/$version" check "grpcio $version" python3 -B "$work/client.py"
done
(cd "$work" && npm install --silent --no-audit --no-fund --prefix "$work" @grpc/grpc-js@1.14.7)
check "@grpc/grpc-js 1.14.7" node "$work/client.js"
