package leasehold_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	leasehold "leasehold.example/go"
)

// lasting leases and waits end by nothing but the case.
const lasting = 5 * time.Minute

// The cases about the priority of waiters.
var priorityCases = []testCase{
	{"priority_is_served_first", "grpc sql pooler", func(s *site) {
		ctx, namespace := context.Background(), "urgent-"+s.on
		s.psql("select leasehold.set_policy('%s', max_priority => 9, ageing => '1 day')", namespace)
		c := s.client(leasehold.Poll(500 * time.Millisecond))
		held, err := c.Acquire(ctx, namespace, s.key, leasehold.Duration(lasting))
		must(s, err)
		granted := make(chan string, 4)
		var all sync.WaitGroup
		for i, waiter := range []struct {
			owner    string
			priority int
		}{{"first", 0}, {"low", 2}, {"high", 9}, {"late", 9}} {
			all.Add(1)
			go func() {
				defer all.Done()
				err := c.Do(ctx, namespace, s.key, func(context.Context, *leasehold.Lease) error {
					granted <- waiter.owner
					return nil
				}, leasehold.Owner(waiter.owner), leasehold.Priority(waiter.priority), leasehold.Wait(lasting), leasehold.Duration(lasting))
				if err != nil {
					s.Error(err)
				}
			}()
			wait(s, "a place in the queue", func() bool {
				return s.psql("select count(*) from leasehold.queue where namespace = '%s'", namespace) == fmt.Sprint(i+1)
			})
		}
		if s.on != "grpc" { // each joins again
			until := func(columns string) string {
				return s.psql("select %s from leasehold.waiter where namespace = '%s'", columns, namespace)
			}
			seen := until("max(wait_until)")
			wait(s, "all to join again", func() bool { return until("min(wait_until) > '"+seen+"'") == "t" })
		}
		s.is(s.psql("select string_agg(priority::text, ' ' order by position) from leasehold.queue where namespace = '%s'", namespace), "9 9 2 0")
		s.release(held)
		for _, owner := range []string{"high", "late", "low", "first"} {
			select {
			case got := <-granted:
				s.is(got, owner)
			case <-time.After(time.Minute):
				s.Fatal("nobody was granted the lease in place of", owner)
			}
		}
		all.Wait()
	}},
	{"priority_above_the_policy_is_denied", "grpc sql", func(s *site) { // to who has the right lease alone
		ctx := context.Background()
		var c *leasehold.Client
		if s.on == "grpc" {
			at := s.secured()
			c = at.withToken(s, at.Worker, &tls.Config{})
		} else {
			s.psql("create role urgent_go login in role leasehold_client; select leasehold.access_grant('role:urgent_go', 'secure', 'lease')")
			c = s.clientAt(strings.Replace(s.dsn, "user=postgres", "user=urgent_go", 1))
		}
		s.psql("select leasehold.set_policy('secure', max_priority => 9)")
		l, err := c.Acquire(ctx, "secure", s.key, leasehold.Priority(9))
		must(s, err)
		for _, patience := range []time.Duration{0, lasting} {
			_, err := c.Acquire(ctx, "secure", s.key, leasehold.Priority(10), leasehold.Wait(patience))
			var denied *leasehold.DeniedError
			if !errors.As(err, &denied) || denied.Reason != "ACCESS_DENIED" || !strings.Contains(err.Error(), "priority must be at most 9") ||
				!strings.Contains(err.Error(), "is 10") {
				s.Fatal(patience, err)
			}
		}
		s.release(l)
	}},
	{"wrong_priority_is_named", "grpc sql pooler", func(s *site) {
		c := s.client()
		for _, priority := range []int{-1, 1001} {
			_, err := c.Acquire(context.Background(), "cases", s.key, leasehold.Priority(priority))
			var wrong *leasehold.ArgumentError
			if !errors.As(err, &wrong) || wrong.Field != "priority" {
				s.Fatalf("%#v", err)
			}
			s.is(wrong.Message, fmt.Sprintf("priority must be 0 to 1000, not %d", priority))
		}
		s.is(s.row("state"), "")
		_, err := c.AcquireAll(context.Background(), []leasehold.Scope{{Namespace: "cases", Key: s.key}}, leasehold.Priority(1))
		if !errors.As(err, new(*leasehold.ArgumentError)) || !strings.Contains(err.Error(), "Priority") {
			s.Fatal(err)
		}
		s.release(s.acquire(c, leasehold.Priority(1000))) // an administrator's
	}},
}
