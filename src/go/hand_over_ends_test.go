package leasehold_test

import (
	"context"
	"os"
	"strings"
	"testing"

	leasehold "leasehold.example/go"
)

// onEach runs a test of the package's own on these transports, as far as this process is for them.
func onEach(t *testing.T, transports string, run func(*site)) {
	for _, on := range strings.Fields(os.Getenv("LEASEHOLD_ON")) {
		if strings.Contains(transports, on) {
			t.Run(on, func(t *testing.T) { run(newSite(t, on)) })
		}
	}
}

func TestAskingEndsWithTheClient(t *testing.T) {
	onEach(t, "grpc sql", func(s *site) {
		p := s.proxy()
		c := s.clientAt(p.address(), leasehold.Patience(lasting))
		s.release(s.acquire(c)) // connects
		s.acquire(s.client(), leasehold.Duration(lasting))
		s.holdBack(p, true)
		done := make(chan error, 1)
		go func() {
			_, err := c.AskHandOver(context.Background(), "cases", s.key, "")
			done <- err
		}()
		wait(s, "the request", func() bool {
			return s.psql("select count(*) from leasehold.hand_over where namespace = 'cases' and key = '%s'", s.key) == "1"
		})
		must(s, c.Close())
		if err := <-done; err != leasehold.ErrClosed {
			s.Fatal(err)
		}
	})
}
