package leasehold_test

import (
	"context"
	"errors"
	"math"
	"slices"
	"time"

	leasehold "leasehold.example/go"
)

// liar is tests/clients/lying_server.py.
type liar struct {
	s      *site
	ID     int
	Target string
}

func (s *site) liar() *liar {
	l := &liar{s: s}
	ask(s, "liar", object{}, l)
	return l
}

func (l *liar) lie(lies object) { ask(l.s, "liar/set", object{"id": l.ID, "lies": lies}, nil) }

func (l *liar) state() (of struct {
	Asked, Released []string
	Renewals        int
}) {
	ask(l.s, "liar/state", object{"id": l.ID}, &of)
	return of
}

// isGivenBack: what was asked for last.
func (l *liar) isGivenBack() bool {
	of := l.state()
	return slices.Contains(of.Released, of.Asked[len(of.Asked)-1])
}

var others = object{"lease_key": "6f1ed002-ab5f-4cbc-9c4a-3b1e0a2f9b10"}

const (
	ages        = 9_000_000_000       // seconds
	longestAges = math.MaxInt64 >> 10 // a JSON number that is exact
)

func (s *site) isUnavailable(err error) {
	s.Helper()
	if !errors.As(err, new(*leasehold.UnavailableError)) {
		s.Fatal(err)
	}
}

// The cases about answers that cannot be true.
var answerCases = []testCase{
	{"answers_for_other_leases_are_refused", "grpc", func(s *site) {
		ctx, liar := context.Background(), s.liar()
		c := s.clientAt(liar.Target, leasehold.WithStrategy(leasehold.FailFast))
		kept, err := c.Acquire(ctx, "cases", "kept", leasehold.Duration(time.Hour))
		must(s, err)
		var lost []*leasehold.Lease
		for _, options := range [][]leasehold.Option{nil, {leasehold.WhileConnected()}} {
			l, err := c.Acquire(ctx, "cases", "lost", append(options, leasehold.Duration(3*time.Second))...)
			must(s, err)
			lost = append(lost, l)
		}
		liar.lie(others)
		s.isUnavailable(kept.Downgrade(ctx, 1))
		s.isUnavailable(kept.Release(ctx))
		for _, l := range lost {
			<-l.Context().Done()
			if l.Lost() == nil {
				s.Error("it is not lost")
			}
		}
	}},
	{"doubtful_grants_are_given_back", "grpc", func(s *site) {
		ctx, liar := context.Background(), s.liar()
		c := s.clientAt(liar.Target, leasehold.WithStrategy(leasehold.FailFast))
		for _, lies := range []object{others, {"status": "UNAVAILABLE"}, {"is_garbage": true}, {"leases": 1}} {
			liar.lie(lies)
			_, err := c.AcquireAll(ctx, s.both())
			s.isUnavailable(err)
			wait(s, "the release of both", liar.isGivenBack)
			if lies["leases"] == nil {
				_, err := c.Acquire(ctx, "cases", s.key)
				s.isUnavailable(err)
				wait(s, "the release", liar.isGivenBack)
			}
		}
		liar.lie(object{"status": "UNAVAILABLE"})
		_, err := c.Acquire(ctx, "cases", s.key, leasehold.Wait(time.Minute), leasehold.Retries(func(leasehold.Retry) (time.Duration, bool) {
			liar.lie(object{"status": "PERMISSION_DENIED"})
			return 0, true
		}))
		if !errors.As(err, new(*leasehold.DeniedError)) {
			s.Fatal(err)
		}
		wait(s, "the release of what was denied", liar.isGivenBack)
	}},
	{"times_are_believed_as_far_as_they_can_be_true", "grpc", func(s *site) {
		ctx, liar := context.Background(), s.liar()
		c := s.clientAt(liar.Target)
		longest := object{"waited": longestAges, "remaining": longestAges}
		for n, lies := range []object{{"waited": ages}, {"remaining": ages}, longest, longest} {
			streams := n == 3
			options := []leasehold.Option{leasehold.Duration(3 * time.Second)}
			if streams {
				options = append(options, leasehold.WhileConnected())
			}
			liar.lie(lies)
			l, err := c.Acquire(ctx, "cases", s.key, options...)
			must(s, err)
			isTrue := func() {
				s.Helper()
				if left := l.Remaining(); left <= 0 || left > 3*time.Second {
					s.Fatal(lies, left, l.Lost())
				}
			}
			isTrue()
			before := liar.state().Renewals
			wait(s, "two renewals", func() bool { return liar.state().Renewals >= before+2 })
			isTrue()
			if !streams {
				must(s, l.Downgrade(ctx, 1))
				isTrue()
			}
			must(s, l.Release(ctx))
		}
		liar.lie(object{"waited": -longestAges, "remaining": -longestAges})
		if l, err := c.Acquire(ctx, "cases", s.key); err == nil && l.Remaining() > 0 {
			s.Error("held for", l.Remaining())
		}
	}},
}
