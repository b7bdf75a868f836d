#!/bin/sh
# A stream on which the server sends nothing but a PING now and then outlives the grpc_read_timeout of 2 s; without PINGs it does not.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m pip install -q --root-user-action=ignore --target "$work/lib" h2==4.1.0
cat > "$work/try.py" <<'PYTHON'
import pathlib
import socket
import sys
import time

import h2.events
from h2_pair import free_port, through

work, port = sys.argv[1], free_port()


def lives(client, server, says_pings):
    """Whether the stream is there after 8 s."""
    end = time.monotonic() + 8
    while time.monotonic() < end:
        if says_pings:
            server.http.ping(b"\0" * 8)
            server.flush()
        server.events(0.3)
        if any(isinstance(event, h2.events.StreamReset) for event in client.events(0.3)):
            return False
    return True


with socket.create_server(("127.0.0.1", 0)) as listener:
    temporary = "".join(f"{name}_temp_path {work}/{name}; " for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    pathlib.Path(work, "nginx.conf").write_text(f"""
pid {work}/pid; error_log {work}/log; daemon off; master_process off; events {{ }}
http {{
    access_log off; {temporary}
    server {{
        listen 127.0.0.1:{port} http2;
        location / {{ grpc_pass grpc://127.0.0.1:{listener.getsockname()[1]}; grpc_read_timeout 2s; }}
    }}
}}
""")
    for says_pings in (True, False):
        proxy, client, server = through(["nginx", "-c", f"{work}/nginx.conf"], ("127.0.0.1", port), listener, end_stream=True)
        try:
            print("with PINGs" if says_pings else "without", "it lives;" if lives(client, server, says_pings) else "it is ended;")
        finally:
            proxy.kill()
            proxy.wait()
PYTHON
nginx -v 2>&1
seen=$(PYTHONPATH="$work/lib:$here" timeout 60 python3 -B "$work/try.py" "$work" | tr '\n' ' ')
echo "grpc_read_timeout 2s, 8 s later: $seen"
nginx -v 2>&1 | grep -q "nginx/1\.22\." && [ "$seen" = "with PINGs it lives; without it is ended; " ]
