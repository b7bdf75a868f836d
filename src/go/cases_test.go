package leasehold_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	leasehold "leasehold.example/go"
	pb "leasehold.example/go/leaseholdv1"
)

// beingWritten is a file of credentials, as [leasehold.TokenFile] reads it; its daemon needs none.
type beingWritten struct {
	isEmpty  atomic.Bool
	failures atomic.Int32
}

func (b *beingWritten) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	if b.isEmpty.Load() {
		b.failures.Add(1)
		return nil, status.Error(codes.Unavailable, "/run/token is empty")
	}
	return nil, nil
}

func (*beingWritten) RequireTransportSecurity() bool { return false }

type testCase struct {
	name, on string
	run      func(*site)
}

// The cases of tests/clients/cases.json, which says what each is about; those with TLS are in secure_test.go, shared leases in shared_test.go.
var cases = []testCase{
	{"acquire_and_release", "grpc sql pooler", func(s *site) {
		l := s.acquire(s.client(), leasehold.Owner("somebody"))
		s.is(s.row("state, owner, token"), fmt.Sprint("held|somebody|", l.Token()))
		must(s, l.Release(context.Background(), leasehold.Result(map[string]int{"rows": 3})))
		s.is(s.row("state, last_outcome, last_result ->> 'rows'"), "free|ok|3")
		if cause := l.Context().Err(); cause == nil || l.Lost() != nil {
			s.Fatal(cause, l.Lost())
		}
	}},
	{"failed_work_is_released_as_failed", "grpc sql pooler", func(s *site) {
		wrong := errors.New("the work is broken")
		err := s.client().Do(context.Background(), "cases", s.key, func(context.Context, *leasehold.Lease) error { return wrong })
		if err != wrong {
			s.Fatal(err)
		}
		s.is(s.row("state, last_outcome, last_error"), "free|failed|the work is broken")
	}},
	{"token_grows", "grpc sql pooler", func(s *site) {
		c := s.client()
		first := s.acquire(c)
		s.release(first)
		if second := s.acquire(c); second.Token() <= first.Token() {
			s.Fatal(first.Token(), second.Token())
		}
	}},
	{"held_names_the_holder", "grpc sql pooler", func(s *site) {
		c := s.client()
		s.acquire(c, leasehold.Owner("the first"))
		ctx, cancel := context.WithCancel(context.Background())
		waiter := s.queue(ctx, c, 1)
		_, err := c.Acquire(context.Background(), "cases", s.key)
		var held *leasehold.HeldError
		if !errors.As(err, &held) || held.Holder != "the first" || held.Ahead != 1 {
			s.Fatalf("%#v", err)
		}
		cancel()
		<-waiter
	}},
	{"held_tells_of_the_holder", "grpc sql pooler", heldTellsOfTheHolder},
	{"wait_lasts_while_the_holder_is_alive", "grpc sql pooler", waitLastsWhileTheHolderIsAlive},
	{"wait_is_granted", "grpc sql pooler", func(s *site) {
		c := s.client()
		first := s.acquire(c)
		waiter := s.queue(context.Background(), c, 1)
		s.release(first)
		second := <-waiter
		must(s, second.err)
		s.is(s.row("token"), fmt.Sprint(second.l.Token()))
	}},
	{"wait_passes", "grpc sql pooler", func(s *site) {
		c := s.client()
		s.acquire(c)
		_, err := c.Acquire(context.Background(), "cases", s.key, leasehold.Wait(300*time.Millisecond))
		var held *leasehold.HeldError
		if !errors.As(err, &held) {
			s.Fatal(err)
		}
		wait(s, "an empty queue", func() bool { return s.waiters() == "0" })
	}},
	{"waiters_are_served_in_order", "grpc sql pooler", func(s *site) {
		c := s.client()
		first := s.acquire(c)
		var waiters []chan later
		for i := 1; i <= 3; i++ {
			waiters = append(waiters, s.queue(context.Background(), c, i, leasehold.Owner(fmt.Sprint("waiter ", i))))
		}
		s.release(first)
		for i, waiter := range waiters {
			got := <-waiter
			must(s, got.err)
			s.is(s.row("owner"), fmt.Sprint("waiter ", i+1))
			s.release(got.l)
		}
	}},
	{"cancelled_wait_leaves_the_queue", "grpc sql pooler", func(s *site) {
		c := s.client()
		first := s.acquire(c)
		ctx, cancel := context.WithCancel(context.Background())
		waiter := s.queue(ctx, c, 1)
		cancel()
		if got := <-waiter; got.err != context.Canceled {
			s.Fatal(got.err)
		}
		wait(s, "an empty queue", func() bool { return s.waiters() == "0" })
		s.release(first)
		s.is(s.row("state, token"), fmt.Sprint("free|", first.Token()))
	}},
	{"grant_after_giving_up_is_released", "grpc sql", func(s *site) {
		p := s.proxy()
		c := s.clientAt(p.address())
		s.release(s.acquire(c)) // connects
		before := s.row("token")
		s.holdBack(p, true)
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		done := make(chan error)
		go func() {
			_, err := c.Acquire(ctx, "cases", s.key, leasehold.Duration(5*time.Minute))
			done <- err
		}()
		wait(s, "the grant", func() bool { return s.row("state") == "held" })
		cancel()
		if err := <-done; err != context.Canceled {
			s.Fatal(err)
		}
		s.holdBack(p, false)
		wait(s, "the release", func() bool { return s.row("state") == "free" })
		if s.row("last_outcome") == "expired" || s.row("ended_at is not null") != "t" || before == "" {
			s.Fatal(s.row("last_outcome, ended_at"))
		}
	}},
	{"late_request_is_given_back", "grpc", lateRequestIsGivenBack},
	{"late_statement_is_given_back", "sql", lateStatementIsGivenBack},
	{"grant_taken_back_is_acquired_anew", "grpc", func(s *site) {
		p := s.flaky(0)
		p.decide("drop")
		done := make(chan later, 1)
		c := s.clientAt(p.Target)
		go func() {
			l, err := c.Acquire(context.Background(), "cases", s.key, leasehold.Wait(time.Minute))
			done <- later{l, err}
		}()
		wait(s, "the grant", func() bool { return s.row("state") == "held" })
		first := s.row("lease_key")
		ask(s, "proxy/set", object{"id": p.ID, "refusing": true}, nil)
		ask(s, "proxy/cut", object{"id": p.ID}, nil)
		wait(s, "the end of the connection", func() bool {
			var state struct{ Connections int }
			ask(s, "proxy/state", object{"id": p.ID}, &state)
			return state.Connections == 0
		})
		// The daemon took it back, or wrote its answer before the connection broke.
		s.psql("select leasehold.release_ok('cases', '%s', '%s')", s.key, first)
		p.decide("pass")
		ask(s, "proxy/set", object{"id": p.ID, "refusing": false}, nil)
		got := <-done
		must(s, got.err)
		if now := s.row("lease_key, token"); strings.HasPrefix(now, first) || !strings.HasSuffix(now, fmt.Sprint("|", got.l.Token())) {
			s.Fatal(first, now, got.l.Token())
		}
	}},
	{"deadline_counts_from_the_request", "grpc sql", func(s *site) {
		p := s.proxy()
		c := s.clientAt(p.address())
		s.release(s.acquire(c)) // connects
		s.holdBack(p, true)
		since := time.Now()
		done := make(chan later, 1)
		go func() {
			l, err := c.Acquire(context.Background(), "cases", s.key, leasehold.Duration(20*time.Second))
			done <- later{l, err}
		}()
		if s.on == "sql" {
			wait(s, "two seconds", func() bool { return time.Since(since) > 2*time.Second })
			s.holdBack(p, false)
		}
		got := <-done
		must(s, got.err)
		// A fifth is the margin.
		if left, at := got.l.Remaining(), time.Since(since); left > 16*time.Second-at+1500*time.Millisecond {
			s.Fatal(left, at)
		}
	}},
	{"deadline_does_not_count_the_wait", "grpc sql pooler", func(s *site) {
		c := s.client()
		first := s.acquire(c)
		since := time.Now()
		waiter := s.queue(context.Background(), c, 1, leasehold.Duration(6*time.Second))
		wait(s, "seven seconds", func() bool { return time.Since(since) > 7*time.Second })
		s.release(first)
		got := <-waiter
		must(s, got.err)
		wait(s, "a renewal", func() bool { return s.beats() >= 1 })
		if got.l.Lost() != nil || got.l.Remaining() == 0 {
			s.Fatal(got.l.Lost())
		}
	}},
	{"renewal_keeps_the_lease", "grpc sql pooler", func(s *site) {
		l := s.acquire(s.client(), leasehold.Duration(6*time.Second))
		wait(s, "four renewals", func() bool { return s.beats() >= 4 })
		s.is(s.row("state, token"), fmt.Sprint("held|", l.Token()))
		s.release(l)
	}},
	{"one_request_renews_all", "grpc sql pooler", func(s *site) {
		c := s.client()
		name := "written." + s.on
		for i := 0; i < 50; i++ {
			_, err := c.Acquire(context.Background(), name, fmt.Sprint(i), leasehold.Duration(9*time.Second))
			must(s, err)
		}
		wait(s, "one transaction for all", func() bool {
			return s.psql(`select count(*) > 0 from (select from public.written where namespace = '%s' and what = 'renewed'
				group by xid having count(distinct key) = 50) all_of_them`, name) == "t"
		})
	}},
	{"lost_replies_cost_no_lease", "grpc", func(s *site) {
		p := s.flaky(0)
		l := s.acquire(s.clientAt(p.Target), leasehold.Duration(6*time.Second))
		p.decide("pass", "drop", "pass", "cut", "pass", []any{"delay", 0.2}, "pass", "truncate", "cycle")
		wait(s, "four renewals, and losses", func() bool {
			var state struct{ Actions map[string]int }
			ask(s, "proxy/state", object{"id": p.ID}, &state)
			return s.beats() >= 4 && state.Actions["drop"] > 0 && state.Actions["cut"] > 0
		})
		s.is(s.row("state, token"), fmt.Sprint("held|", l.Token()))
		s.release(l)
		s.is(s.row("state, last_outcome"), "free|ok")
	}},
	{"broken_connections_cost_no_lease", "sql pooler", func(s *site) {
		target, whose := s.target, "application_name = '"+s.application()+"'"
		if s.on == "pooler" { // a session keeps the name of whoever had it last, and may have another case's transaction meanwhile
			target, whose = regexp.MustCompile("dbname=[^ ]+").ReplaceAllString(s.dsn, "dbname=apart"), "usename = 'apart'"
		}
		l := s.acquire(s.clientAt(target, leasehold.Patience(20*time.Second)), leasehold.Duration(15*time.Second))
		for i := 0; i < 2; i++ {
			before := s.beats()
			wait(s, "a renewal", func() bool { return s.beats() > before })
			wait(s, "the end of a connection", func() bool {
				return s.psql("select count(pg_terminate_backend(pid)) from pg_stat_activity where %s", whose) != "0"
			})
		}
		before := s.beats()
		wait(s, "two renewals", func() bool { return s.beats() > before+1 })
		s.release(l)
		s.is(s.row("state, last_outcome"), "free|ok")
	}},
	{"forced_end_is_told", "grpc sql pooler", func(s *site) {
		l := s.acquire(s.client(), leasehold.Duration(6*time.Second))
		s.psql("select from leasehold.force_release('cases', '%s', 'a test')", s.key)
		if lost := s.lost(l); lost.Reason != leasehold.Forced {
			s.Fatal(lost)
		}
		if err := l.Release(context.Background()); !errors.As(err, new(*leasehold.LostError)) {
			s.Fatal(err)
		}
	}},
	{"hold_that_the_policy_ends_is_told", "grpc sql pooler", func(s *site) {
		s.psql("select leasehold.set_policy('ending', max_hold => '8 s', end_at_max_hold => true)")
		c := s.client()
		var leases []*leasehold.Lease
		for _, duration := range []time.Duration{6 * time.Second, 30 * time.Second} {
			l, err := c.Acquire(context.Background(), "ending", fmt.Sprint(s.key, "-", duration), leasehold.Duration(duration))
			must(s, err)
			leases = append(leases, l)
		}
		for _, l := range leases {
			if lost := s.lost(l); lost.Reason != leasehold.MaxHold || lost.Message != "the policy of ending ends a lease after max_hold" {
				s.Fatal(lost)
			}
		}
		s.is(s.psql("select deadline - acquired_at from leasehold.scope where namespace = 'ending' and key = '%s-6s' and heartbeats > 0", s.key), "00:00:08")
	}},
	{"silence_is_told_before_the_deadline", "grpc sql", func(s *site) {
		p := s.proxy()
		l := s.acquire(s.clientAt(p.address()), leasehold.Duration(10*time.Second))
		p.freeze(true)
		lost := s.lost(l)
		s.is(s.row("state, deadline > clock_timestamp()"), "held|t")
		if lost.Reason != leasehold.Unreachable {
			s.Fatal(lost)
		}
		p.freeze(false)
	}},
	{"stopped_process_wakes_up_without_the_lease", "grpc sql", func(s *site) {
		p := s.program("work", 3*time.Second)
		p.line("working")
		must(s, p.Process.Signal(syscall.SIGSTOP))
		s.reap()
		other := s.acquire(s.client(), leasehold.Wait(time.Minute))
		before := p.count("working")
		must(s, p.Process.Signal(syscall.SIGCONT))
		p.line("lost")
		if p.count("working") > before+1 { // a step that had begun
			s.Fatal("it went on with its work")
		}
		s.is(s.row("state, token"), fmt.Sprint("held|", other.Token()))
	}},
	{"lost_release_is_repeated", "grpc", func(s *site) {
		p := s.flaky(0)
		l := s.acquire(s.clientAt(p.Target))
		p.decide("cut", "pass")
		s.release(l)
		s.is(s.row("state, last_outcome"), "free|ok")
	}},
	{"no_renewal_after_release", "grpc sql", noRenewalAfterRelease},
	{"close_leaves_nothing", "grpc sql pooler", func(s *site) {
		goroutines := runtime.NumGoroutine()
		db := s.db()
		c, err := leasehold.Over(db)
		if s.on == "grpc" {
			c, err = leasehold.Dial(s.target)
		}
		must(s, err)
		l := s.acquire(c, leasehold.Duration(6*time.Second))
		waiter := s.queue(context.Background(), c, 1)
		wait(s, "a renewal", func() bool { return s.beats() >= 1 })
		must(s, c.Close())
		if got := <-waiter; got.err == nil {
			s.Fatal("a closed client got a lease")
		}
		if lost := s.lost(l); lost.Reason != leasehold.Closed {
			s.Fatal(lost)
		}
		must(s, db.Close())
		wait(s, "the end of its goroutines", func() bool { return leaked() == "" && runtime.NumGoroutine() <= goroutines })
		wait(s, "the end of its connections", func() bool {
			return s.psql("select count(*) from pg_stat_activity where application_name = 'go-%s'", s.Name()[len("TestCases/"):]) == "0" || s.on == "pooler"
		})
		before := s.beats()
		wait(s, "the deadline", func() bool { return s.row("state = 'free' or deadline < clock_timestamp()") == "t" })
		if s.beats() != before {
			s.Fatal("a closed client renewed")
		}
	}},
	{"exit_leaves_nothing", "grpc sql", func(s *site) {
		p := s.program("exit", 2*time.Second)
		<-p.ended
		if p.ProcessState.ExitCode() != 7 {
			s.Fatal(p.ProcessState)
		}
		wait(s, "the deadline", func() bool { return s.row("state = 'free' or deadline < clock_timestamp()") == "t" })
	}},
	{"denied_is_a_type", "grpc sql pooler", func(s *site) {
		s.psql("select leasehold.set_policy('frozen', frozen => true)")
		var denied *leasehold.DeniedError
		wait(s, "Denied", func() bool { // the daemon follows within a second
			l, err := s.client().Acquire(context.Background(), "frozen", s.key)
			if err == nil {
				s.release(l)
			}
			return errors.As(err, &denied)
		})
		s.is(denied.Reason, "NAMESPACE_FROZEN")
	}},
	{"unavailable_is_a_type", "grpc sql", func(s *site) {
		target := "127.0.0.1:1"
		if s.on == "sql" {
			target = "host=127.0.0.1 port=1 user=postgres dbname=none"
		}
		_, err := s.clientAt(target, leasehold.Patience(300*time.Millisecond)).Acquire(context.Background(), "cases", s.key)
		if !errors.As(err, new(*leasehold.UnavailableError)) {
			s.Fatal(err)
		}
	}},
	{"invalid_argument_is_told", "grpc sql pooler", func(s *site) {
		_, err := s.client().Acquire(context.Background(), "cases", s.key, leasehold.Duration(time.Millisecond))
		var wrong *leasehold.ArgumentError
		if !errors.As(err, &wrong) || wrong.Field != "duration" || wrong.Bound == "" {
			s.Fatalf("%#v", err)
		}
	}},
	{"daemon_restarts", "grpc", func(s *site) {
		d := s.daemon()
		l := s.acquire(s.clientAt(d.Target), leasehold.Duration(15*time.Second))
		ask(s, "daemon/kill", object{"id": d.ID}, nil)
		ask(s, "daemon/start", object{"id": d.ID}, nil)
		before := s.beats()
		wait(s, "two renewals", func() bool { return s.beats() > before+1 })
		s.is(s.row("state, token"), fmt.Sprint("held|", l.Token()))
		s.release(l)
	}},
	{"hanging_daemon_is_left", "grpc", func(s *site) {
		d := s.daemon()
		l := s.acquire(s.clientAt(d.Target+","+s.target), leasehold.Duration(12*time.Second))
		d.signal("SIGSTOP")
		before := s.beats()
		wait(s, "renewals elsewhere", func() bool { return s.beats() >= before+4 || l.Lost() != nil })
		s.is(s.row("state, token"), fmt.Sprint("held|", l.Token()))
		s.release(l)
	}},
	{"guard_fences", "grpc sql pooler", func(s *site) {
		ctx := context.Background()
		l := s.acquire(s.client())
		db := s.db()
		if s.on == "pooler" { // no prepared statements
			db = s.dbAt(s.dsn + " default_query_exec_mode=exec")
		}
		tx, err := db.Begin()
		must(s, err)
		must(s, l.Guard(ctx, tx))
		must(s, tx.Commit())
		s.psql("select from leasehold.force_release('cases', '%s', 'a test')", s.key)
		tx, err = db.Begin()
		must(s, err)
		if err := l.Guard(ctx, tx); !errors.As(err, new(*leasehold.LostError)) {
			s.Fatal(err)
		}
		must(s, tx.Rollback())
	}},
	{"released_in_a_transaction", "grpc sql pooler", releasedInATransaction},
	{"acquired_in_a_transaction", "grpc sql pooler", acquiredInATransaction},
	{"lost_lease_rolls_back", "grpc sql pooler", lostLeaseRollsBack},
	{"open_transaction_is_refused", "grpc sql", openTransactionIsRefused},
	{"unanswered_commit_of_a_release_is_looked_up", "grpc sql", unansweredCommitOfARelease},
	{"unanswered_commit_of_an_acquire_is_looked_up", "grpc sql", unansweredCommitOfAnAcquire},
	{"renewal_has_its_own_connection", "sql pooler", func(s *site) {
		db := s.db()
		db.SetMaxOpenConns(1)
		c, err := leasehold.Over(db)
		must(s, err)
		defer c.Close()
		l := s.acquire(c, leasehold.Duration(6*time.Second))
		tx, err := db.Begin()
		must(s, err)
		defer tx.Rollback()
		wait(s, "two renewals", func() bool { return s.beats() >= 2 })
		s.release(l)
	}},
	{"wait_hears_notify", "sql", func(s *site) {
		c := s.client(leasehold.Poll(10 * time.Minute))
		first := s.acquire(c)
		waiter := s.queue(context.Background(), c, 1)
		s.release(first)
		select {
		case got := <-waiter:
			must(s, got.err)
		case <-time.After(time.Minute):
			s.Fatal("no notification")
		}
	}},
	{"pooler_is_noticed", "pooler", func(s *site) {
		var mu sync.Mutex
		var said []string
		c := s.client(leasehold.Logf(func(format string, args ...any) {
			mu.Lock()
			defer mu.Unlock()
			said = append(said, fmt.Sprintf(format, args...))
		}))
		for i := 0; i < 2; i++ {
			first := s.acquire(c)
			waiter := s.queue(context.Background(), c, 1)
			s.release(first)
			got := <-waiter
			must(s, got.err)
			s.release(got.l)
		}
		mu.Lock()
		defer mu.Unlock()
		if len(said) != 1 || !strings.Contains(said[0], "poll") {
			s.Fatal(said)
		}
	}},
	{"leader_killed_is_followed", "grpc", func(s *site) {
		p := s.program("lead", 5*time.Minute)
		first := p.line("token")
		next := s.stand("child")
		must(s, p.Process.Kill())
		if token := <-next; fmt.Sprint("token ", token) == first {
			s.Fatal(token)
		}
	}},
	{"holder_killed_is_followed", "grpc", func(s *site) {
		p := s.program("hold", 5*time.Minute)
		first := p.line("token")
		waiter := s.queue(context.Background(), s.client(), 1, leasehold.Duration(5*time.Minute))
		must(s, p.Process.Kill())
		next := <-waiter // it waits for less than the first lease would last
		must(s, next.err)
		if fmt.Sprint("token ", next.l.Token()) == first {
			s.Fatal(first)
		}
		s.is(s.row("state, token"), fmt.Sprint("held|", next.l.Token()))
		s.release(next.l)
	}},
	{"leader_stopped_is_followed", "grpc", func(s *site) {
		p := s.program("lead", 3*time.Second)
		p.line("working")
		next := s.stand("child")
		must(s, p.Process.Signal(syscall.SIGSTOP))
		token := <-next
		before := p.count("working")
		must(s, p.Process.Signal(syscall.SIGCONT))
		p.line("lost")
		if p.count("working") > before+1 { // a step that had begun
			s.Fatal("it went on with its work")
		}
		s.is(s.row("state, token"), fmt.Sprint("held|", token))
	}},
	{"candidate_says_alive_while_it_waits", "grpc", func(s *site) {
		_, err := s.client().Acquire(context.Background(), "cases", s.key)
		must(s, err)
		proxy := s.flaky(0)
		s.programAt("lead", 3*time.Second, proxy.Target)
		wait(s, "a candidate", func() bool { return s.waiters() == "1" })
		sent := proxy.state().Sent
		wait(s, "its messages", func() bool { return proxy.state().Sent >= sent+4 })
		s.is(s.waiters(), "1")
	}},
	{"stopped_candidate_is_passed_over", "grpc", func(s *site) {
		first := s.program("lead", 5*time.Minute)
		first.line("token")
		proxy := s.flaky(0)
		proxy.actAsHTTP()
		stopped := s.programAt("lead", 3*time.Second, proxy.Target)
		wait(s, "a candidate", func() bool { return s.waiters() == "1" })
		next := s.stand("child")
		wait(s, "a second candidate", func() bool { return s.waiters() == "2" })
		must(s, stopped.Process.Signal(syscall.SIGSTOP))
		must(s, first.Process.Kill())
		select {
		case <-next:
		case <-time.After(time.Minute):
			s.Fatal("the stopped candidate is renewed")
		}
	}},
	{"leader_goes_on_after_a_reset", "grpc", func(s *site) {
		proxy := s.flaky(0)
		proxy.actAsHTTP()
		leader := s.programAt("lead", 6*time.Second, proxy.Target)
		leader.line("working")
		s.stand("child")
		wait(s, "a candidate", func() bool { return s.waiters() == "1" })
		token, beats, asked := s.row("token"), s.beats(), proxy.state().Requests
		proxy.cut()
		wait(s, "renewals over another connection", func() bool {
			return s.beats() > beats+3 && proxy.state().Requests > asked
		})
		s.is(s.row("token"), token)
		s.is(s.waiters(), "1")
	}},
	{"stream_that_fails_costs_no_lease", "grpc", func(s *site) {
		var credentials beingWritten
		proxy := s.flaky(0)
		proxy.actAsHTTP()
		c := s.clientAt(proxy.Target, leasehold.GRPC(grpc.WithPerRPCCredentials(&credentials)))
		other, err := c.Acquire(context.Background(), "cases", s.key+" other", leasehold.Duration(9*time.Second))
		must(s, err)
		must(s, c.Lead(context.Background(), "cases", s.key, leasehold.Elector{Duration: 9 * time.Second, Lead: func(ctx context.Context, l *leasehold.Lease) error {
			credentials.isEmpty.Store(true)
			proxy.cut()
			wait(s, "streams that are not made", func() bool { return credentials.failures.Load() >= 2 })
			credentials.isEmpty.Store(false)
			beats := s.beats()
			wait(s, "renewals", func() bool { return s.beats() > beats+2 })
			return errors.Join(l.Lost(), other.Lost())
		}}))
		s.release(other)
		s.is(s.row("state, last_outcome"), "free|ok")
	}},
	{"reset_is_no_release", "grpc", func(s *site) {
		proxy := s.flaky(0)
		leader := s.programAt("lead", 30*time.Second, proxy.Target)
		leader.line("working")
		proxy.cut()
		if said := leader.line("lost"); !strings.Contains(said, "unreachable") {
			s.Fatal(said)
		}
	}},
	{"leader_resigns", "grpc sql", func(s *site) {
		c := s.client()
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		tokens, resign := make(chan int64), make(chan bool)
		done := make(chan error, 1)
		stand := func() {
			done <- c.Lead(ctx, "cases", s.key, leasehold.Elector{Lead: func(ctx context.Context, l *leasehold.Lease) error {
				tokens <- l.Token()
				<-resign
				return nil
			}})
		}
		go stand()
		first := <-tokens
		next := s.stand("")
		wait(s, "a second candidate", func() bool { return s.waiters() == "1" })
		resign <- true
		must(s, <-done)
		second := <-next
		if second <= first {
			s.Fatal(first, second)
		}
		go stand() // again, once the second has gone
		wait(s, "the first as a candidate", func() bool { return s.waiters() == "1" })
		s.psql("select from leasehold.force_release('cases', '%s', 'a test', %d)", s.key, second)
		if third := <-tokens; third <= second {
			s.Fatal(second, third)
		}
		resign <- true
		must(s, <-done)
	}},
	{"leased_work_runs_once", "grpc sql", func(s *site) {
		var runs int32
		work := func(context.Context, *leasehold.Lease) error {
			atomic.AddInt32(&runs, 1)
			return nil
		}
		must(s, s.client().Do(context.Background(), "cases", s.key, work, leasehold.AtLeast(5*time.Minute)))
		err := s.client().Do(context.Background(), "cases", s.key, work, leasehold.AtLeast(5*time.Minute))
		if !errors.As(err, new(*leasehold.HeldError)) || runs != 1 {
			s.Fatal(err, runs)
		}
	}},
}

func TestCases(t *testing.T) {
	if os.Getenv("LEASEHOLD_CONTROL") == "" {
		t.Skip("started by tests/clients/go/run")
	}
	for _, on := range strings.Fields(os.Getenv("LEASEHOLD_ON")) {
		on := on
		t.Run(on, func(t *testing.T) {
			part, parts := 0, 1
			if text := os.Getenv("LEASEHOLD_PART"); text != "" {
				if _, err := fmt.Sscanf(text, "%d/%d", &part, &parts); err != nil {
					t.Fatal("LEASEHOLD_PART is", text)
				}
			}
			for n, c := range slices.Concat(cases, secureCases, sharedCases, lossCases, declaredCases, releaseCases, togetherCases, watchCases, reapCases, nestedCases, retryCases, tickCases, priorityCases, handOverCases, answerCases) {
				c := c
				if strings.Contains(c.on, on) && n%parts == part {
					t.Run(c.name, func(t *testing.T) {
						t.Cleanup(func() {
							outcome := map[bool]string{false: "passed", true: "failed"}[t.Failed()]
							fmt.Printf("case %s on %s %s\n", c.name, on, outcome)
						})
						c.run(newSite(t, on))
					})
				}
			}
		})
	}
}

func noRenewalAfterRelease(s *site) {
	var mu sync.Mutex
	var said bytes.Buffer // what the client sent
	mark := func() int { mu.Lock(); defer mu.Unlock(); return said.Len() }
	since := func(n int) string { mu.Lock(); defer mu.Unlock(); return said.String()[n:] }
	p := s.proxy()
	var options []leasehold.ClientOption
	if s.on == "grpc" {
		options = append(options, leasehold.GRPC(grpc.WithUnaryInterceptor(func(ctx context.Context, method string, request, reply any,
			conn *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
			if beat, ok := request.(*pb.HeartbeatRequest); ok {
				mu.Lock()
				for _, it := range beat.Leases {
					fmt.Fprintln(&said, it.Scope.Key)
				}
				mu.Unlock()
			}
			return invoke(ctx, method, request, reply, conn, options...)
		})))
	} else {
		pipe := p.(*pipe)
		mark = func() int { pipe.mu.Lock(); defer pipe.mu.Unlock(); return pipe.said.Len() }
		since = func(n int) string { pipe.mu.Lock(); defer pipe.mu.Unlock(); return pipe.said.String()[n:] }
	}
	c := s.clientAt(p.address(), options...)
	l := s.acquire(c, leasehold.Duration(6*time.Second))
	wait(s, "a renewal", func() bool { return s.beats() >= 1 })
	before := s.beats() // first: once it is frozen there is one more renewal, and no other
	if s.on == "grpc" {
		p.(*flaky).decide([]any{"delay", 0.5}, "pass")
	} else {
		p.freeze(true)
	}
	wait(s, "a renewal in flight", func() bool { return s.beats() > before })
	done := make(chan error, 1)
	go func() { done <- l.Release(context.Background()) }()
	if s.on != "grpc" {
		p.freeze(false)
	}
	must(s, <-done)
	n := mark()
	other, err := c.Acquire(context.Background(), "cases", "other", leasehold.Duration(6*time.Second))
	must(s, err)
	wait(s, "renewals of another lease", func() bool {
		return s.psql("select heartbeats >= 2 from leasehold.scope where key = 'other'") == "t"
	})
	if strings.Contains(since(n), s.key) {
		s.Fatal("it was renewed after its release")
	}
	if l.Lost() != nil {
		s.Fatal(l.Lost())
	}
	s.release(other)
}
