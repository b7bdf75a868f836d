package leasehold_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	leasehold "leasehold.example/go"
)

// both are two scopes of one test.
func (s *site) both() []leasehold.Scope {
	return []leasehold.Scope{{Namespace: "cases", Key: s.key}, {Namespace: "cases", Key: s.key + " 2"}}
}

func (s *site) states(columns string) string {
	return s.psql("select %s from leasehold.scope where namespace = 'cases' and key in ('%[2]s', '%[2]s 2') order by key", columns, s.key)
}

// The cases about several leases in one step.
var togetherCases = []testCase{
	{"all_or_none", "grpc sql pooler", func(s *site) {
		ctx, c := context.Background(), s.client()
		other, err := c.Acquire(ctx, "cases", s.key+" 2", leasehold.Owner("the other"))
		must(s, err)
		_, err = c.AcquireAll(ctx, s.both())
		var held *leasehold.HeldError
		if !errors.As(err, &held) || held.Holder != "the other" || held.Namespace != "cases" || held.Key != s.key+" 2" {
			s.Fatalf("%#v", err)
		}
		if state := s.row("state"); state == "held" {
			s.Fatal(state)
		}
		s.release(other)
		all, err := c.AcquireAll(ctx, s.both())
		must(s, err)
		leases := all.Leases()
		s.is(s.states("state, token"), fmt.Sprintf("held|%d\nheld|%d", leases[0].Token(), leases[1].Token()))
		if leases[0].Token() == leases[1].Token() || all.Remaining() == 0 || all.Lost() != nil {
			s.Fatal(leases[0].Token(), all.Remaining(), all.Lost())
		}
		must(s, all.Release(ctx))
		s.is(s.states("state"), "free\nfree")
		if all.Context().Err() == nil || all.Lost() != nil {
			s.Fatal(all.Lost())
		}
		shared := s.both()
		shared[1].Units = 2
		all, err = c.AcquireAll(ctx, shared)
		must(s, err)
		if leases := all.Leases(); leases[0].Mode() != leasehold.ModeExclusive || leases[1].Units() != 2 {
			s.Fatal(leases[0].Mode(), leases[1].Units())
		}
		must(s, all.TryRelease())
		for _, wrong := range []struct {
			scopes []leasehold.Scope
			option leasehold.Option
			words  string
		}{
			{nil, leasehold.Wait(0), "scopes must be 1 to 100, not 0"},
			{[]leasehold.Scope{{"cases", "", 0}}, leasehold.Wait(0), "key must be 1 to 1024 bytes, has 0"},
			{s.both(), leasehold.Shared(1), "options must be none of Shared, AtLeast, WaitWhileAlive, WhileConnected, Priority and AskHandOver, which are for single leases"},
		} {
			_, err := c.AcquireAll(ctx, wrong.scopes, wrong.option)
			var argument *leasehold.ArgumentError
			if !errors.As(err, &argument) || argument.Message != wrong.words {
				s.Fatal(err)
			}
		}
		if s.on != "grpc" {
			_, err := c.AcquireAll(ctx, s.both(), leasehold.Wait(time.Second))
			if !errors.As(err, new(*leasehold.ArgumentError)) {
				s.Fatal(err)
			}
		}
	}},
	{"all_wait_together", "grpc", func(s *site) {
		ctx, c := context.Background(), s.client()
		first, err := c.AcquireAll(ctx, s.both())
		must(s, err)
		there := s.both()
		back := []leasehold.Scope{there[1], there[0]}
		ended := make(chan error, 2)
		for i, scopes := range [][]leasehold.Scope{there, back} {
			go func() {
				ended <- s.client().DoAll(ctx, scopes, func(context.Context, *leasehold.Leases) error {
					if got := s.states("state, owner"); got != fmt.Sprintf("held|%d\nheld|%d", i, i) {
						return errors.New(got)
					}
					return nil
				}, leasehold.Wait(time.Minute), leasehold.Owner(fmt.Sprint(i)))
			}()
			wait(s, "a place in the queue", func() bool { return s.waiters() == fmt.Sprint(i+1) })
		}
		must(s, first.Release(ctx))
		must(s, <-ended)
		must(s, <-ended)
		s.is(s.states("state"), "free\nfree")
	}},
	{"what_is_left_of_several_is_given_back", "grpc", func(s *site) {
		p := s.flaky(0)
		p.decide("drop")
		c := s.clientAt(p.Target)
		var all *leasehold.Leases
		done := make(chan error, 1)
		go func() {
			var err error
			all, err = c.AcquireAll(context.Background(), s.both(), leasehold.Wait(2*time.Minute), leasehold.Duration(5*time.Minute))
			done <- err
		}()
		wait(s, "the lost answer", func() bool {
			var state struct{ Actions map[string]int }
			ask(s, "proxy/state", object{"id": p.ID}, &state)
			return state.Actions["drop"] > 0 && s.states("state") == "held\nheld"
		})
		before := s.row("lease_key")
		s.force()
		p.decide("pass")
		ask(s, "proxy/cut", object{"id": p.ID}, nil)
		must(s, <-done)
		leases, after := all.Leases(), s.row("lease_key")
		if after == before {
			s.Fatal(after)
		}
		s.is(s.states("state, token, lease_key"), fmt.Sprintf("held|%d|%s\nheld|%d|%[2]s", leases[0].Token(), after, leases[1].Token()))
		must(s, all.Release(context.Background()))
	}},
	{"all_are_lost_as_one", "grpc sql pooler", func(s *site) {
		err := s.client().DoAll(context.Background(), s.both(), func(ctx context.Context, all *leasehold.Leases) error {
			wait(s, "renewals of both", func() bool { return s.states("heartbeats > 0") == "t\nt" })
			s.force()
			<-ctx.Done()
			var lost *leasehold.LostError
			if !errors.As(leasehold.Cause(ctx), &lost) || lost.Reason != leasehold.Forced || lost.Key != s.key {
				s.Error(leasehold.Cause(ctx))
			}
			s.is(s.states("state"), "free\nheld")
			return ctx.Err()
		}, leasehold.Duration(6*time.Second))
		var lost *leasehold.LostError
		if !errors.As(err, &lost) || lost.Reason != leasehold.Forced {
			s.Fatal(err)
		}
		s.is(s.states("state, last_outcome"), "free|forced\nfree|failed")
	}},
	{"all_are_released_with_one_result", "grpc sql pooler", func(s *site) {
		ctx, c := context.Background(), s.client()
		all, err := c.AcquireAll(ctx, s.both())
		must(s, err)
		must(s, all.Release(ctx, leasehold.Result(map[string]int{"rows": 3})))
		s.is(s.states("state, last_outcome, last_result ->> 'rows'"), "free|ok|3\nfree|ok|3")
		must(s, c.DoAll(ctx, s.both(), func(context.Context, *leasehold.Leases) error { return nil }))
		s.is(s.states("state, last_outcome"), "free|ok\nfree|ok")
		broken := errors.New("the work is broken")
		if err := c.DoAll(ctx, s.both(), func(context.Context, *leasehold.Leases) error { return broken }); err != broken {
			s.Fatal(err)
		}
		s.is(s.states("state, last_outcome, last_error"), strings.Repeat("free|failed|the work is broken\n", 2)[:len("free|failed|the work is broken")*2+1])
	}},
}
