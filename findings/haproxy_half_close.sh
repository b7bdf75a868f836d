#!/bin/sh
# A client whose connection is reset in the middle of its request: HAProxy ends the server's stream by END_STREAM, not by RST_STREAM.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m pip install -q --root-user-action=ignore --target "$work/lib" h2==4.1.0
cat > "$work/try.py" <<'PYTHON'
import pathlib
import socket
import sys

import h2.events
from h2_pair import free_port, through

port, config = free_port(), pathlib.Path(sys.argv[1], "haproxy.cfg")
with socket.create_server(("127.0.0.1", 0)) as listener:
    config.write_text(f"""
defaults
    mode http
    timeout connect 5s
    timeout client 30s
    timeout server 30s
frontend front
    bind 127.0.0.1:{port} proto h2
    default_backend back
backend back
    server one 127.0.0.1:{listener.getsockname()[1]} proto h2
""")
    proxy, client, server = through(["haproxy", "-db", "-f", config], ("127.0.0.1", port), listener, end_stream=False)
    try:
        client.reset()
        print(type(server.until(h2.events.StreamEnded, h2.events.StreamReset, h2.events.ConnectionTerminated)).__name__)
    finally:
        proxy.kill()
PYTHON
haproxy -v | head -1
seen=$(PYTHONPATH="$work/lib:$here" timeout 60 python3 -B "$work/try.py" "$work")
echo "the client's connection is reset: the server sees $seen"
haproxy -v | grep -q "version 2\.6\." && [ "$seen" = StreamEnded ]
