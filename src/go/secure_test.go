package leasehold_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	leasehold "leasehold.example/go"
)

// secured is tests/clients/secure.py: a daemon with TLS and access rules, and files to show it.
type secured struct {
	Target, CA, Cert, Key     string
	OtherCA                   string `json:"other_ca"`
	Worker, Stranger, Revoked string
}

func (s *site) secured() (facts secured) {
	ask(s, "secure", object{}, &facts)
	return facts
}

func (s *site) authority(path string) *x509.CertPool {
	text, err := os.ReadFile(path)
	must(s, err)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(text)
	return pool
}

// withToken is a client that shows the token in a file.
func (at secured) withToken(s *site, token string, config *tls.Config) *leasehold.Client {
	if config.RootCAs == nil {
		config.RootCAs = s.authority(at.CA)
	}
	return s.clientAt(at.Target, leasehold.TLS(config), leasehold.TokenFile(token))
}

func (s *site) holdsAs(c *leasehold.Client, principal string) {
	row := func(columns string) string {
		return s.psql("select %s from leasehold.scope where namespace = 'secure' and key = '%s'", columns, s.key)
	}
	l, err := c.Acquire(context.Background(), "secure", s.key, leasehold.Duration(6*time.Second))
	must(s, err)
	s.is(row("principal, token"), fmt.Sprint(principal, "|", l.Token()))
	wait(s, "two heartbeats", func() bool { return row("heartbeats >= 2") == "t" })
	must(s, l.Release(context.Background()))
	s.is(row("state, last_outcome"), "free|ok")
}

// unavailable is an acquire that fails with these words in its error. On a slow machine the first handshake may pass its time before it fails.
func (s *site) unavailable(c *leasehold.Client, words string) {
	wait(s, words, func() bool {
		_, err := c.Acquire(context.Background(), "secure", s.key)
		if !errors.As(err, new(*leasehold.UnavailableError)) {
			s.Fatal(err)
		}
		return strings.Contains(err.Error(), words)
	})
}

func (s *site) denied(c *leasehold.Client, reason string) string {
	_, err := c.Acquire(context.Background(), "secure", s.key)
	var denied *leasehold.DeniedError
	if !errors.As(err, &denied) || denied.Reason != reason {
		s.Fatal(err)
	}
	return denied.Message
}

var secureCases = []testCase{
	{"certificate_is_the_principal", "grpc", func(s *site) {
		at := s.secured()
		pair, err := tls.LoadX509KeyPair(at.Cert, at.Key)
		must(s, err)
		config := &tls.Config{RootCAs: s.authority(at.CA), Certificates: []tls.Certificate{pair}}
		s.holdsAs(s.clientAt(at.Target, leasehold.TLS(config)), "dns:worker")
	}},
	{"token_is_the_principal", "grpc", func(s *site) {
		at := s.secured()
		s.holdsAs(at.withToken(s, at.Worker, &tls.Config{}), "token:worker")
	}},
	{"wrong_authority_is_named", "grpc", func(s *site) {
		at := s.secured()
		s.unavailable(at.withToken(s, at.Worker, &tls.Config{RootCAs: s.authority(at.OtherCA)}), "certificate signed by unknown authority")
	}},
	{"wrong_server_name_is_named", "grpc", func(s *site) {
		at := s.secured()
		s.unavailable(at.withToken(s, at.Worker, &tls.Config{ServerName: "leases.example"}), "not leases.example")
	}},
	{"revoked_token_is_denied", "grpc", func(s *site) {
		at := s.secured()
		s.denied(at.withToken(s, at.Revoked, &tls.Config{}), "UNAUTHENTICATED")
	}},
	{"missing_right_is_denied", "grpc", func(s *site) {
		at := s.secured()
		words := s.denied(at.withToken(s, at.Stranger, &tls.Config{}), "ACCESS_DENIED")
		if !strings.Contains(words, "token:stranger") || !strings.Contains(words, "right lease") {
			s.Fatal(words)
		}
	}},
}
