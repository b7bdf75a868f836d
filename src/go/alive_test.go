package leasehold_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	leasehold "leasehold.example/go"
)

// silence is as if the holder had neither renewed nor acquired since.
func (s *site) silence(seconds int) {
	s.psql("update leasehold.scope set acquired_at = acquired_at - interval '%d s', heartbeat_at = heartbeat_at - interval '%d s' where namespace = 'cases' and key = '%s'",
		seconds, seconds, s.key)
}

func heldTellsOfTheHolder(s *site) {
	c := s.client()
	l := s.acquire(c, leasehold.Duration(5*time.Minute))
	var held *leasehold.HeldError
	_, err := c.Acquire(context.Background(), "cases", s.key)
	if !errors.As(err, &held) || !held.Alive || held.Silent < 0 || held.Silent > 100*time.Second || held.HeldFor < 0 || held.HeldFor > 100*time.Second {
		s.Fatalf("%#v", err)
	}
	s.silence(280)
	_, err = c.Acquire(context.Background(), "cases", s.key)
	if !errors.As(err, &held) || held.Alive || held.Silent < 280*time.Second || held.HeldFor < 280*time.Second {
		s.Fatalf("%#v", err)
	}
	s.release(l)
}

func waitLastsWhileTheHolderIsAlive(s *site) {
	c := s.client(leasehold.Poll(time.Second / 2))
	first := s.acquire(c, leasehold.Duration(5*time.Minute))
	waiter := s.queue(context.Background(), c, 1, leasehold.Duration(5*time.Minute), leasehold.Wait(0), leasehold.WaitWhileAlive())
	s.release(first)
	second := <-waiter
	must(s, second.err)
	s.silence(280)
	if _, err := c.Acquire(context.Background(), "cases", s.key, leasehold.WaitWhileAlive()); !errors.As(err, new(*leasehold.HeldError)) {
		s.Fatal(err)
	}
	s.is(s.row("token"), fmt.Sprint(second.l.Token()))
	s.release(second.l)
}
