package leasehold_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	leasehold "leasehold.example/go"
)

// told collects the requests to hand over that a listener hears of.
type told chan leasehold.HandOver

func (t told) listener() leasehold.Option {
	return leasehold.Tell(leasehold.Listener{Asked: func(_ *leasehold.Lease, h leasehold.HandOver) { t <- h }})
}

func (t told) next(s *site) leasehold.HandOver {
	s.Helper()
	select {
	case request := <-t:
		return request
	case <-time.After(time.Minute):
		s.Fatal("the holder did not hear of the request")
	}
	return leasehold.HandOver{}
}

// The cases about requests to hand a lease over.
var handOverCases = []testCase{
	{"holder_is_asked", "grpc sql pooler", func(s *site) {
		ctx, c, heard := context.Background(), s.client(), make(told, 8)
		l := s.acquire(c, leasehold.Duration(12*time.Second), leasehold.Owner("worker-1"), heard.listener())
		refuse := func(words string, want bool) {
			s.Helper()
			if was, err := l.RefuseHandOver(ctx, words); err != nil || was != want {
				s.Fatal(words, was, err)
			}
		}
		ask := func(reason, refusal string) leasehold.HandOver {
			s.Helper()
			found, err := c.AskHandOver(ctx, "cases", s.key, reason)
			if err != nil || len(found) != 1 || found[0].Owner != "worker-1" || found[0].Token != l.Token() || found[0].Refusal != refusal {
				s.Fatal(reason, found, err)
			}
			return found[0]
		}
		refuse("too early", false)
		asked := ask("its host is drained", "")
		if asked.Reason != "its host is drained" || asked.AnswerIn <= 0 || asked.AnswerIn > 30*time.Second {
			s.Fatal(asked)
		}
		if got := heard.next(s); got.Reason != asked.Reason || got.AskedBy != asked.AskedBy || !got.AskedAt.Equal(asked.AskedAt) || got.AnswerIn <= 0 {
			s.Fatal(got)
		}
		beats := s.beats()
		wait(s, "two renewals", func() bool { return s.beats() >= beats+2 })
		s.is(fmt.Sprint(len(heard)), "0")
		refuse("in a minute", true)
		refuse("and again", true)
		if again := ask("well?", "in a minute"); !again.AskedAt.Equal(asked.AskedAt) {
			s.Fatal(again)
		}
		// The time to answer has passed: it may be asked again.
		s.psql("update leasehold.hand_over set answer_by = now() - interval '1 s' where namespace = 'cases' and key = '%s'", s.key)
		ask("and now?", "")
		s.is(heard.next(s).Reason, "and now?")
		must(s, l.Lost())
		s.release(l)
		if found, err := c.AskHandOver(ctx, "cases", s.key, "nobody"); err != nil || len(found) != 0 {
			s.Fatal(found, err)
		}
	}},
	{"waiter_asks_the_holder", "grpc sql pooler", func(s *site) {
		heard := make(told, 8)
		holder := s.acquire(s.client(), leasehold.Duration(12*time.Second), heard.listener())
		waiter := s.queue(context.Background(), s.client(), 1, leasehold.Owner("worker-2"), leasehold.AskHandOver())
		request := heard.next(s)
		if request.Refusal != "" || (s.on == "grpc" && request.AskedBy != "worker-2") || request.AskedBy == "" {
			s.Fatal(request)
		}
		s.release(holder)
		next := <-waiter
		must(s, next.err)
		s.release(next.l)
	}},
	{"leader_is_asked_on_its_stream", "grpc", func(s *site) {
		ctx, heard, leads, ended := context.Background(), make(told, 8), make(chan struct{}), make(chan error)
		resign := make(chan struct{})
		go func() {
			ended <- s.client().Lead(ctx, "cases", s.key, leasehold.Elector{Duration: lasting,
				OnAsked: func(_ *leasehold.Lease, h leasehold.HandOver) { heard <- h },
				Lead: func(ctx context.Context, l *leasehold.Lease) error {
					close(leads)
					<-resign
					return ctx.Err()
				}})
		}()
		<-leads
		if _, err := s.client().AskHandOver(ctx, "cases", s.key, "a better one is there"); err != nil {
			s.Fatal(err)
		}
		s.is(heard.next(s).Reason, "a better one is there") // long before its next renewal
		close(resign)
		must(s, <-ended)
	}},
	{"refusal_of_an_ended_lease_is_false", "grpc sql pooler", func(s *site) {
		ctx, c := context.Background(), s.client()
		l := s.acquire(c, leasehold.Duration(lasting)) // no renewal tells of the end
		_, err := c.AskHandOver(ctx, "cases", s.key, "")
		must(s, err)
		s.psql("select from leasehold.force_release('cases', '%s', 'a test')", s.key)
		if was, err := l.RefuseHandOver(ctx, "not now"); was || err != nil {
			s.Fatal(was, err)
		}
	}},
	{"unreadable_requests_cost_no_lease", "sql pooler", func(s *site) {
		heard, said := make(told, 8), make(chan string, 100)
		c := s.client(leasehold.Logf(func(format string, args ...any) { said <- fmt.Sprintf(format, args...) }))
		l := s.acquire(c, leasehold.Duration(6*time.Second), heard.listener())
		set := func(at string) {
			s.psql("select from leasehold.ask_hand_over('cases', '%[1]s', reason => 'well?'); "+
				"update leasehold.hand_over set answer_by = %[2]s where namespace = 'cases' and key = '%[1]s'", s.key, at)
		}
		set("'infinity'") // from which asked() cannot subtract
		wait(s, "a renewal after more than the duration", func() bool { return s.row("heartbeat_at > acquired_at + interval '8 s'") == "t" })
		must(s, l.Lost())
		s.is(fmt.Sprint(len(heard), len(said)), "0 1")
		if words := <-said; !strings.Contains(words, "requests to hand over are not heard") {
			s.Fatal(words)
		}
		set("now() + interval '30 s'")
		s.is(heard.next(s).Reason, "well?")
		s.release(l)
	}},
	// A renewal that is in flight at a TryRelease is answered after it, and has a request.
	{"nothing_is_told_after_the_release", "grpc sql", func(s *site) {
		var mu sync.Mutex
		var said []string
		say := func(what string) { mu.Lock(); defer mu.Unlock(); said = append(said, what) }
		p, asker := s.proxy(), s.client()
		c := s.clientAt(p.address())
		l := s.acquire(c, leasehold.Duration(12*time.Second), leasehold.Tell(leasehold.Listener{
			Granted:  func(*leasehold.Lease) { say("granted") },
			Renewed:  func(*leasehold.Lease) { say("renewed") },
			Released: func(*leasehold.Lease) { say("released") },
			Asked:    func(*leasehold.Lease, leasehold.HandOver) { say("asked") }}))
		wait(s, "a renewal that is answered", func() bool { mu.Lock(); defer mu.Unlock(); return len(said) == 2 })
		if s.on == "grpc" {
			p.(*flaky).decide([]any{"delay", 1}, "pass")
		} else {
			p.freeze(true)
		}
		if _, err := asker.AskHandOver(context.Background(), "cases", s.key, ""); err != nil {
			s.Fatal(err)
		}
		wait(s, "a renewal in flight", func() bool { return s.beats() >= 2 })
		must(s, l.TryRelease())
		p.freeze(false)
		wait(s, "the release", func() bool { return s.row("state") == "free" })
		must(s, c.Close())
		must(s, asker.Close())
		wait(s, "the listener to be told", func() bool { return leaked() == "" })
		s.is(fmt.Sprint(said), "[granted renewed released]")
	}},
	{"wrong_words_are_named", "grpc sql pooler", func(s *site) {
		ctx, c := context.Background(), s.client()
		named := func(err error, field, words string) {
			s.Helper()
			var wrong *leasehold.ArgumentError
			if !errors.As(err, &wrong) || wrong.Field != field || wrong.Message != words {
				s.Fatalf("%#v", err)
			}
		}
		_, err := c.AskHandOver(ctx, "cases", s.key, strings.Repeat("x", 1025))
		named(err, "reason", "reason must be at most 1024 bytes, has 1025")
		_, err = c.Acquire(ctx, "cases", s.key, leasehold.AskHandOver())
		named(err, "ask_hand_over", "ask_hand_over must be absent without a wait, not true")
		_, err = c.AskHandOver(ctx, "cases", "", "x")
		named(err, "key", "key must be 1 to 1024 bytes, has 0")
		l := s.acquire(c)
		_, err = l.RefuseHandOver(ctx, "")
		named(err, "reason", "reason must be 1 to 1024 bytes, has 0")
		s.release(l)
		if _, err = l.RefuseHandOver(ctx, "too late"); !errors.Is(err, leasehold.ErrReleased) {
			s.Fatal(err)
		}
	}},
}
