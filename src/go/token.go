package leasehold

import (
	"context"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// tokenFile is the path of a bearer token, as credentials of each call.
type tokenFile string

func (path tokenFile) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	text, err := os.ReadFile(string(path))
	if err != nil {
		return nil, status.Error(codes.Unavailable, err.Error())
	}
	token := strings.TrimSpace(string(text))
	if token == "" { // it is being written
		return nil, status.Errorf(codes.Unavailable, "%s is empty", string(path))
	}
	return map[string]string{"authorization": "Bearer " + token}, nil
}

// RequireTransportSecurity is false because unix sockets and loopback do without: see mayBeSentTo.
func (path tokenFile) RequireTransportSecurity() bool { return false }

// mayBeSentTo tells whether nobody else can read what is sent to an address without TLS. A name that only begins like a loopback address is
// another host's.
func mayBeSentTo(address string) bool {
	if strings.HasPrefix(address, "unix:") {
		return true
	}
	host := address
	if i := strings.LastIndexByte(address, ':'); i >= 0 && !strings.HasSuffix(address, "]") {
		if _, err := strconv.ParseUint(address[i+1:], 10, 16); err != nil {
			return false
		}
		host = address[:i]
	}
	if host == "[::1]" || strings.EqualFold(host, "localhost") {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.To4() != nil && !strings.Contains(host, ":") && ip.IsLoopback()
}

func (s settings) checkToken(address string) error {
	if s.tokenFile == "" || s.tls != nil || mayBeSentTo(address) {
		return nil
	}
	return &ArgumentError{Field: "target", Bound: "unix:PATH or loopback, without TLS",
		Message: fmt.Sprintf("target %q: a token is sent over TLS, unix sockets and loopback only: add TLS", address)}
}
