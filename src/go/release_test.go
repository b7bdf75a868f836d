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

// many acquires so many leases of a namespace of its own.
func (s *site) many(c *leasehold.Client, n int) (namespace string, leases []*leasehold.Lease) {
	namespace = "written." + s.on + "." + strings.ReplaceAll(s.Name()[strings.LastIndex(s.Name(), "/")+1:], "_", "-")
	for i := 0; i < n; i++ {
		l, err := c.Acquire(context.Background(), namespace, fmt.Sprint(i))
		must(s, err)
		leases = append(leases, l)
	}
	return namespace, leases
}

// The cases about releases that nobody waits for.
var releaseCases = []testCase{
	{"try_release_waits_for_nothing", "grpc sql pooler", func(s *site) {
		c := s.client()
		l := s.acquire(c)
		var p proxy
		if s.on != "pooler" {
			p = s.proxy()
			c = s.clientAt(p.address())
			s.release(l)
			l = s.acquire(c)
			s.holdBack(p, true)
		}
		must(s, l.TryRelease(leasehold.Result(map[string]int{"rows": 3})))
		if l.Context().Err() == nil || l.Remaining() != 0 || l.Lost() != nil || context.Cause(l.Context()) != leasehold.ErrReleased {
			s.Fatal("it is held", l.Lost())
		}
		if err := l.TryRelease(); err != leasehold.ErrReleased {
			s.Fatal(err)
		}
		must(s, l.Release(context.Background()))
		wait(s, "the release", func() bool { return s.row("state, last_outcome, last_result ->> 'rows'") == "free|ok|3" })
		if p != nil {
			s.holdBack(p, false)
		}
	}},
	{"try_releases_go_together", "grpc sql pooler", func(s *site) {
		c := s.client()
		namespace, leases := s.many(c, 100)
		for _, l := range leases {
			must(s, l.TryRelease())
		}
		ended := func(looked string) string {
			return s.psql("select %s from public.written where namespace = '%s' and what = 'ended'", looked, namespace)
		}
		wait(s, "all releases", func() bool { return ended("count(*)") == "100" })
		if ended("count(distinct xid) < 20") != "t" {
			s.Fatal("too many transactions")
		}
	}},
	{"acquire_follows_its_own_try_release", "grpc sql pooler", func(s *site) {
		c := s.client()
		for i := 0; i < 10; i++ {
			must(s, s.acquire(c).TryRelease())
		}
		s.release(s.acquire(c))
	}},
	{"close_sends_what_try_release_left", "grpc sql pooler", func(s *site) {
		c := s.client()
		namespace, leases := s.many(c, 100)
		for _, l := range leases {
			must(s, l.TryRelease())
		}
		must(s, c.Close())
		s.is(s.psql("select count(*) from leasehold.scope where namespace = '%s' and state = 'held'", namespace), "0")
	}},
	{"undelivered_release_is_logged", "grpc", func(s *site) {
		var mu sync.Mutex
		var said []string
		p := s.flaky(0)
		c := s.clientAt(p.Target, leasehold.FlushTimeout(300*time.Millisecond), leasehold.Logf(func(format string, args ...any) {
			mu.Lock()
			defer mu.Unlock()
			said = append(said, fmt.Sprintf(format, args...))
		}))
		l := s.acquire(c)
		p.freeze(true)
		must(s, l.TryRelease())
		must(s, c.Close())
		mu.Lock()
		defer mu.Unlock()
		if len(said) != 1 || !strings.Contains(said[0], "cases/"+s.key+" was not delivered, and the lease is left to expire") {
			s.Fatal(said)
		}
		if err := l.TryRelease(); !errors.Is(err, leasehold.ErrReleased) {
			s.Fatal(err)
		}
		s.is(s.row("state"), "held")
		p.freeze(false)
	}},
}
