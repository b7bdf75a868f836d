package leasehold_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
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
