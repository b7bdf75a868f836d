// Caddy with the parts of it that a reverse proxy needs; the whole takes five times as long to build. With Go 1.26 or newer:
//
//	tests/lib/build_go tests/interop/caddy /tmp/caddy && LEASEHOLD_CADDY=/tmp/caddy pytest tests/interop/test_proxies.py
package main

import (
	caddycmd "github.com/caddyserver/caddy/v2/cmd"

	_ "github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	_ "github.com/caddyserver/caddy/v2/modules/caddyhttp"
	_ "github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"
	_ "github.com/caddyserver/caddy/v2/modules/filestorage"
)

func main() { caddycmd.Main() }
