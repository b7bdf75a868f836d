package leasehold_test

import (
	"context"
	"errors"
	"strconv"
	"time"

	leasehold "leasehold.example/go"
)

func lateRequestIsGivenBack(s *site) {
	p := s.flaky(0)
	c := s.clientAt(p.Target)
	first := s.acquire(c)
	s.release(first) // connects
	replies := p.state().Replies
	p.decideRequest("hold", "pass")
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	done := make(chan error)
	go func() {
		_, err := c.Acquire(ctx, "cases", s.key, leasehold.Duration(5*time.Minute))
		done <- err
	}()
	wait(s, "the request", func() bool { return p.state().Held > 0 })
	cancel()
	if err := <-done; err != context.Canceled {
		s.Fatal(err)
	}
	wait(s, "the answer to its release", func() bool { return p.state().Replies > replies })
	p.letRequestsGo()
	s.isGivenBack(first)
}

func lateStatementIsGivenBack(s *site) {
	p := s.pipe()
	c := s.clientAt(p.address(), leasehold.Patience(5*time.Second), leasehold.WithStrategy(leasehold.FailFast))
	first := s.acquire(c)
	s.release(first) // connects
	p.hold("leasehold.acquire_one(")
	_, err := c.Acquire(context.Background(), "cases", s.key, leasehold.Duration(5*time.Minute))
	if !errors.As(err, new(*leasehold.UnavailableError)) {
		s.Fatal(err)
	}
	wait(s, "the answer to its release", func() bool { return p.hasAnswered("release_each") })
	p.letGo()
	s.isGivenBack(first)
}

func (s *site) isGivenBack(first *leasehold.Lease) {
	s.Helper()
	wait(s, "the late grant", func() bool {
		token, _ := strconv.ParseInt(s.row("token"), 10, 64)
		return token > first.Token()
	})
	wait(s, "its release", func() bool { return s.row("state") == "free" })
}
