package leasehold_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	leasehold "leasehold.example/go"
)

// The cases about shared leases.
var sharedCases = []testCase{
	{"readers_share_and_a_writer_waits", "grpc sql pooler", func(s *site) {
		c := s.client()
		first := s.acquire(c, leasehold.Shared(1), leasehold.Owner("first"))
		second := s.acquire(c, leasehold.Shared(1), leasehold.Owner("second"))
		s.is(s.row("state, units"), "shared|2")
		s.is(describe(first), "shared 1 []")
		if second.Token() <= first.Token() {
			s.Fatal(first.Token(), second.Token())
		}
		held := s.held(c.Acquire(context.Background(), "cases", s.key))
		if held.Holder != "first" || held.HolderCount != 2 || held.UnitsFree != nil {
			s.Fatalf("%#v", held)
		}
		if holder, err := c.Holder(context.Background(), "cases", s.key); err != nil || holder.Owner != "first" || holder.Units != 1 || holder.Mode != leasehold.ModeShared {
			s.Fatalf("%#v %v", holder, err)
		}
		waiter := s.queue(context.Background(), c, 1)
		s.release(first)
		s.is(s.row("state, units"), "shared|1")
		s.release(second)
		writer := <-waiter
		must(s, writer.err)
		s.is(describe(writer.l), "exclusive 0 []")
		if held := s.held(c.Acquire(context.Background(), "cases", s.key, leasehold.Shared(1))); held.HolderCount != 1 {
			s.Fatalf("%#v", held)
		}
	}},
	{"units_fit_the_capacity", "grpc sql pooler", func(s *site) {
		ctx, c := context.Background(), s.client()
		s.psql("select leasehold.set_policy('cases.five', capacity => 5)")
		share := func(units int, options ...leasehold.Option) (*leasehold.Lease, error) {
			return c.Acquire(ctx, "cases.five", s.key, append(options, leasehold.Shared(units))...)
		}
		first, err := share(2)
		must(s, err)
		second, err := share(2)
		must(s, err)
		s.is(describe(first)+", "+describe(second), "shared 2 [1 2], shared 2 [3 4]")
		if held := s.held(share(2)); held.HolderCount != 2 || held.UnitsFree == nil || *held.UnitsFree != 1 {
			s.Fatalf("%#v", held)
		}
		s.release(first)
		third, err := share(3, leasehold.Wait(time.Minute))
		must(s, err)
		s.is(describe(third), "shared 3 [1 2 5]")
		if held := s.held(share(1)); held.UnitsFree == nil || *held.UnitsFree != 0 {
			s.Fatalf("%#v", held)
		}
		for units, bound := range map[int]string{6: "5", 0: "1"} {
			_, err := share(units)
			var wrong *leasehold.ArgumentError
			if !errors.As(err, &wrong) || wrong.Field != "units" || !strings.Contains(wrong.Bound, bound) {
				s.Fatalf("%#v", err)
			}
		}
	}},
	{"shared_waiters_are_served_in_order", "grpc sql pooler", func(s *site) {
		c := s.client()
		first := s.acquire(c)
		var waiters []chan later
		for i, word := range []string{"reader", "reader", "writer", "reader"} {
			options := []leasehold.Option{leasehold.Wait(time.Minute)}
			if word == "reader" {
				options = append(options, leasehold.Shared(1))
			}
			waiters = append(waiters, s.queue(context.Background(), c, i+1, options...))
		}
		s.is(s.psql("select string_agg(mode, ' ' order by position) from leasehold.queue where key = '%s'", s.key), "shared shared exclusive shared")
		s.release(first)
		next := func(i int) *leasehold.Lease {
			got := <-waiters[i]
			must(s, got.err)
			return got.l
		}
		readers := []*leasehold.Lease{next(0), next(1)}
		s.is(s.row("state, units"), "shared|2")
		s.is(s.waiters(), "2")
		s.release(readers[0])
		s.release(readers[1])
		writer := next(2)
		s.is(s.row("state")+s.waiters(), "held1")
		s.release(writer)
		if last := next(3); last.Token() <= writer.Token() || writer.Token() <= readers[1].Token() {
			s.Fatal(readers[1].Token(), writer.Token(), last.Token())
		}
	}},
	{"downgrade_lets_readers_in", "grpc sql pooler", func(s *site) {
		ctx, c := context.Background(), s.client()
		l := s.acquire(c, leasehold.Duration(12*time.Second))
		first, key := l.Token(), s.row("lease_key")
		waiter := s.queue(ctx, c, 1, leasehold.Shared(1))
		must(s, l.Downgrade(ctx, 1))
		reader := <-waiter
		must(s, reader.err)
		s.is(describe(l), "shared 1 []")
		if l.Token() <= first || reader.l.Token() <= l.Token() {
			s.Fatal(first, l.Token(), reader.l.Token())
		}
		must(s, l.Downgrade(ctx, 1)) // again: the same
		s.is(s.shares(), fmt.Sprintf("%d|1\n%d|1", l.Token(), reader.l.Token()))
		s.is(s.psql("select lease_key from leasehold.share where token = %d", l.Token()), key)
		db := s.dbAt(s.dsn + " default_query_exec_mode=exec") // no prepared statements: it may be a pooler
		tx, err := db.Begin()
		must(s, err)
		must(s, l.Guard(ctx, tx))
		must(s, tx.Commit())
		if held := s.held(c.Acquire(ctx, "cases", s.key)); held.HolderCount != 2 {
			s.Fatalf("%#v", held)
		}
		before := s.beatsOf(l)
		wait(s, "a renewal", func() bool { return s.beatsOf(l) > before })
		s.release(l)
		s.is(s.shares(), fmt.Sprintf("%d|1", reader.l.Token()))
		if err := l.Downgrade(ctx, 1); err != leasehold.ErrReleased {
			s.Fatal(err)
		}
	}},
	{"lost_downgrade_is_repeated", "grpc", func(s *site) {
		p := s.flaky(0)
		l := s.acquire(s.clientAt(p.Target))
		p.decide("cut", "pass")
		must(s, l.Downgrade(context.Background(), 2))
		s.is(describe(l), "shared 2 []")
		s.is(s.shares(), fmt.Sprintf("%d|2", l.Token()))
		s.release(l)
		streaming := s.acquire(s.client(), leasehold.WhileConnected()) // its stream would not know
		if err := streaming.Downgrade(context.Background(), 1); !errors.As(err, new(*leasehold.ArgumentError)) {
			s.Fatal(err)
		}
		s.release(streaming)
	}},
	{"shared_leases_end_one_by_one", "grpc sql pooler", func(s *site) {
		c := s.client()
		kept := s.acquire(c, leasehold.Duration(12*time.Second), leasehold.Shared(1))
		ended := s.acquire(c, leasehold.Duration(12*time.Second), leasehold.Shared(1))
		wait(s, "a renewal of each", func() bool { return s.beatsOf(kept) >= 1 && s.beatsOf(ended) >= 1 })
		s.psql("select from leasehold.force_release('cases', '%s', 'a test', %d)", s.key, ended.Token())
		if lost := s.lost(ended); s.on == "grpc" && lost.Reason != leasehold.Forced {
			s.Fatal(lost)
		}
		if err := ended.Downgrade(context.Background(), 1); !errors.As(err, new(*leasehold.LostError)) {
			s.Fatal(err)
		}
		before := s.beatsOf(kept)
		wait(s, "a renewal", func() bool { return s.beatsOf(kept) > before || kept.Lost() != nil })
		must(s, kept.Lost())
		s.release(kept)
	}},
}

func describe(l *leasehold.Lease) string { return fmt.Sprint(l.Mode(), " ", l.Units(), " ", l.Slots()) }

func (s *site) held(l *leasehold.Lease, err error) *leasehold.HeldError {
	s.Helper()
	var held *leasehold.HeldError
	if !errors.As(err, &held) {
		s.Fatalf("%v %v", l, err)
	}
	return held
}

// shares has the token and the units of each holder.
func (s *site) shares() string {
	return s.psql("select token, units from leasehold.lease where namespace = 'cases' and key = '%s' order by token", s.key)
}

func (s *site) beatsOf(l *leasehold.Lease) (n int) {
	fmt.Sscan(s.psql("select heartbeats from leasehold.lease where token = %d", l.Token()), &n)
	return n
}
