package leasehold_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	leasehold "leasehold.example/go"
	pb "leasehold.example/go/leaseholdv1"
)

// steps collects what a retry log gets.
type steps struct {
	mu  sync.Mutex
	all []leasehold.RetryStep
}

func (t *steps) add(step leasehold.RetryStep) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.all = append(t.all, step)
}

func (t *steps) get() []leasehold.RetryStep {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.all)
}

func (s *site) refuse(p *flaky, on bool) {
	ask(s, "proxy/set", object{"id": p.ID, "refusing": on}, nil)
	if on {
		p.cut()
	}
}

// The cases about retries.
var retryCases = []testCase{
	{"sqlstates_are_told_alike", "sql pooler", func(s *site) {
		asked := 0
		c := s.client(leasehold.WithStrategy(func(leasehold.Retry) (time.Duration, bool) { asked++; return 0, false }))
		for state, expected := range tables(s).SQLStates {
			asked = 0
			_, err := c.Acquire(context.Background(), "cases", "sqlstate "+state)
			told, retries := fmt.Sprintf("%T", err), 0
			switch e := err.(type) {
			case *leasehold.LostError:
				told = "Lost"
			case *leasehold.ArgumentError:
				told = "InvalidArgument"
			case *leasehold.DeniedError:
				told = "Denied " + e.Reason
			case *leasehold.UnavailableError:
				told, retries = "Unavailable "+string(e.Reason), 1
			}
			if told != expected || asked != retries {
				s.Errorf("%s: %s, not %s, and asked %d times: %v", state, told, expected, asked, err)
			}
		}
	}},
	{"strategy_decides_about_retries", "grpc", func(s *site) {
		ctx, p := context.Background(), s.flaky(0)
		var asked []leasehold.Retry
		patient := func(r leasehold.Retry) (time.Duration, bool) {
			asked = append(asked, r)
			if len(asked) == 3 {
				s.refuse(p, false)
			}
			return 20 * time.Millisecond, true
		}
		c := s.clientAt(p.Target, leasehold.WithStrategy(leasehold.FailFast))
		s.refuse(p, true)
		var unavailable *leasehold.UnavailableError
		if _, err := c.Acquire(ctx, "cases", s.key, leasehold.Wait(time.Minute)); !errors.As(err, &unavailable) || unavailable.Reason != leasehold.RetrySocketNotAvailable {
			s.Fatalf("%#v", err)
		}
		l := s.acquire(c, leasehold.Retries(patient)) // counts before the client's
		for i, r := range asked {
			if r.Verb != "Acquire" || r.Key != s.key || r.Reason != leasehold.RetrySocketNotAvailable || r.Failures != i+1 || r.Attempts != i+1 ||
				len(r.Reasons) != 1 || r.Remaining <= 0 || r.Err == nil {
				s.Fatalf("%+v", r)
			}
		}
		if len(asked) < 3 {
			s.Fatal(asked)
		}
		p.decide("cut", "pass") // the answer
		asked = asked[:0]
		s.release(l) // by the strategy of its acquire
		if len(asked) != 1 || asked[0].Verb != "Release" || asked[0].Reason != leasehold.RetrySocketClosedWhileInFlight {
			s.Fatalf("%+v", asked)
		}
		mayWaitForAHolder(s)
		must(s, c.Close())
	}},
	{"retries_are_logged", "grpc", func(s *site) {
		var log steps
		p := s.flaky(0)
		c := s.clientAt(p.Target, leasehold.RetryLog(log.add), leasehold.Patience(time.Second))
		s.refuse(p, true)
		done := make(chan later, 1)
		go func() {
			l, err := c.Acquire(context.Background(), "cases", s.key, leasehold.Wait(time.Minute))
			done <- later{l, err}
		}()
		wait(s, "two retries", func() bool { return len(log.get()) >= 2 })
		s.refuse(p, false)
		got := <-done
		must(s, got.err)
		for n, step := range log.get() {
			if step.Verb != "Acquire" || step.Refused || step.Reason != leasehold.RetrySocketNotAvailable || step.Delay != min(time.Millisecond<<n, 500*time.Millisecond) {
				s.Fatalf("%+v", step)
			}
		}
		before := len(log.get())
		if _, err := c.Acquire(context.Background(), "cases", s.key); !errors.As(err, new(*leasehold.HeldError)) {
			s.Fatal(err)
		}
		if steps := log.get()[before:]; len(steps) != 1 || !steps[0].Refused || steps[0].Reason != leasehold.RetryLeaseHeld {
			s.Fatalf("%+v", steps)
		}
		s.release(got.l)
		delays := []string{}
		for failures := 1; failures <= 11; failures += 5 {
			delay, _ := leasehold.BestEffort(leasehold.Retry{Failures: failures})
			delays = append(delays, fmt.Sprint(delay, " ", leasehold.ControlledBackoff(failures)))
		}
		s.is(fmt.Sprint(delays), "[1ms 1ms 32ms 1s 500ms 1s]")
	}},
	{"dead_address_is_spared", "grpc", func(s *site) {
		p := s.flaky(0)
		s.refuse(p, true)
		var asked atomic.Int32
		c := s.clientAt(p.Target, leasehold.WithStrategy(func(leasehold.Retry) (time.Duration, bool) {
			asked.Add(1)
			return time.Millisecond, true
		}))
		done := make(chan later, 1)
		go func() {
			l, err := c.Acquire(context.Background(), "cases", s.key, leasehold.Wait(2*time.Minute))
			done <- later{l, err}
		}()
		wait(s, "three hundred retries", func() bool { return asked.Load() >= 300 })
		if n := p.state().Accepted; n >= 100 {
			s.Fatal(n, "connections")
		}
		s.refuse(p, false)
		got := <-done
		must(s, got.err)
		s.release(got.l)
	}},
	{"busy_scope_is_unavailable", "grpc sql pooler", func(s *site) {
		var asked []leasehold.RetryReason
		target, next := s.target, &flaky{}
		if s.on == "grpc" {
			next = s.flaky(0)
			target = s.flaky(0).Target + "," + next.Target
		}
		c := s.clientAt(target, leasehold.WithStrategy(func(r leasehold.Retry) (time.Duration, bool) {
			asked = append(asked, r.Reason)
			return 0, false
		}), leasehold.Patience(time.Minute))
		l := s.acquire(c, leasehold.Duration(5*time.Minute))
		end := s.lock()
		var busy *leasehold.UnavailableError
		if err := l.Downgrade(context.Background(), 1); !errors.As(err, &busy) || busy.Reason != leasehold.RetryScopeBusy {
			s.Fatalf("%#v", err)
		}
		s.is(fmt.Sprint(asked), "[SCOPE_BUSY]")
		end()
		must(s, l.Downgrade(context.Background(), 1))
		s.release(l)
		if s.on == "grpc" { // in SQL an acquire never waits for the row
			end = s.lock()
			if _, err := c.Acquire(context.Background(), "cases", s.key); !errors.As(err, &busy) || busy.Reason != leasehold.RetryScopeBusy {
				s.Fatalf("%#v", err)
			}
			end()
			s.is(fmt.Sprint(next.state().Requests), "0")
		}
	}},
	{"strategy_decides_in_sql", "sql", func(s *site) {
		ctx, p := context.Background(), s.pipe()
		c := s.clientAt(p.address(), leasehold.WithStrategy(leasehold.FailFast))
		p.refuse(true)
		var unavailable *leasehold.UnavailableError
		if _, err := c.Acquire(ctx, "cases", s.key, leasehold.Wait(time.Minute)); !errors.As(err, &unavailable) || unavailable.Reason != leasehold.RetrySocketNotAvailable {
			s.Fatalf("%#v", err)
		}
		var asked []leasehold.Retry
		var end func()
		patient := func(r leasehold.Retry) (time.Duration, bool) {
			asked = append(asked, r)
			if len(asked) == 3 {
				end()
			}
			return 20 * time.Millisecond, true
		}
		told := func() (all string) {
			for i, r := range asked {
				if r.Key != s.key || r.Attempts != i+1 || r.Failures != i+1 || r.Remaining <= 0 {
					s.Fatalf("%+v", r)
				}
				all += fmt.Sprint(r.Verb, " ", r.Reason, "; ")
			}
			asked = nil
			return all
		}
		end = func() { p.refuse(false) }
		l := s.acquire(c, leasehold.Retries(patient)) // counts before the client's
		s.is(told(), strings.Repeat("Acquire SOCKET_NOT_AVAILABLE; ", 3))
		end = s.lock()
		must(s, l.Downgrade(ctx, 1))
		s.is(told(), strings.Repeat("Downgrade SCOPE_BUSY; ", 3))
		end = func() { p.refuse(false) }
		p.refuse(true)
		s.release(l)
		if all := told(); strings.Count(all, "Release SOCKET_") != 3 {
			s.Fatal(all)
		}
		s.is(s.row("state, last_outcome"), "free|ok")
	}},
	{"strategy_may_wait_for_a_holder", "sql", mayWaitForAHolder},
	{"retries_are_logged_in_sql", "sql", func(s *site) {
		var log steps
		p := s.pipe()
		c := s.clientAt(p.address(), leasehold.RetryLog(log.add))
		p.refuse(true)
		done := make(chan later, 1)
		go func() {
			l, err := c.Acquire(context.Background(), "cases", s.key, leasehold.Wait(time.Minute))
			done <- later{l, err}
		}()
		wait(s, "two retries", func() bool { return len(log.get()) >= 2 })
		p.refuse(false)
		got := <-done
		must(s, got.err)
		for n, step := range log.get()[:2] {
			if step.Verb != "Acquire" || step.Refused || step.Reason != leasehold.RetrySocketNotAvailable || step.Delay != time.Millisecond<<n {
				s.Fatalf("%+v", step)
			}
		}
		before := len(log.get())
		if _, err := c.Acquire(context.Background(), "cases", s.key); !errors.As(err, new(*leasehold.HeldError)) {
			s.Fatal(err)
		}
		if steps := log.get()[before:]; len(steps) != 1 || !steps[0].Refused || steps[0].Reason != leasehold.RetryLeaseHeld {
			s.Fatalf("%+v", steps)
		}
		s.release(got.l)
	}},
	{"retry_reasons_are_those_of_c", "grpc", func(s *site) {
		header, err := os.ReadFile("../leasehold_retry.h")
		must(s, err)
		table := regexp.MustCompile(`(?m)^ \*   ([A-Z_, ]+?) {2,}(yes|no) +(yes|no) +(the next|the same)$`).FindAllStringSubmatch(string(header), -1)
		count := 0
		for _, row := range table {
			for _, name := range strings.Split(row[1], ", ") {
				count++
				s.refusedBecause(leasehold.RetryReason(name), row[2] == "yes", row[3] == "yes", row[4] == "the next")
			}
		}
		s.is(fmt.Sprint(count), regexp.MustCompile(`RETRY_REASON_COUNT (\d+)`).FindStringSubmatch(string(header))[1])
	}},
}

// mayWaitForAHolder: a strategy repeats an acquire that does not wait.
func mayWaitForAHolder(s *site) {
	ctx, c := context.Background(), s.client(leasehold.WithStrategy(leasehold.FailFast))
	first := s.acquire(c)
	asked := 0
	second, err := c.Acquire(ctx, "cases", s.key, leasehold.Retries(func(r leasehold.Retry) (time.Duration, bool) {
		if asked++; asked == 2 {
			s.release(first)
		}
		return time.Millisecond, r.Reason == leasehold.RetryLeaseHeld
	}))
	must(s, err)
	if asked < 2 {
		s.Fatal(asked)
	}
	hour := func(leasehold.Retry) (time.Duration, bool) { return time.Hour, true } // longer than the request's time
	for _, strategy := range []leasehold.Strategy{leasehold.BestEffort, hour} {
		if _, err := c.Acquire(ctx, "cases", s.key, leasehold.Retries(strategy)); !errors.As(err, new(*leasehold.HeldError)) {
			s.Fatal(err)
		}
	}
	s.release(second)
}

// refusing is a daemon that refuses each acquire for the same reason.
type refusing struct {
	pb.UnimplementedLeaseServiceServer
	answer error
	asked  atomic.Int32
}

func (r *refusing) AcquireStream(*pb.AcquireRequest, pb.LeaseService_AcquireStreamServer) error {
	r.asked.Add(1)
	return r.answer
}

func (r *refusing) serve(s *site) string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(s, err)
	server := grpc.NewServer()
	pb.RegisterLeaseServiceServer(server, r)
	go server.Serve(listener)
	s.Cleanup(server.Stop)
	return listener.Addr().String()
}

// refusedBecause: of two daemons the first gives this reason.
func (s *site) refusedBecause(reason leasehold.RetryReason, unsent, always, next bool) {
	if reason.IsUnsent() != unsent {
		s.Fatal(reason, "is unsent:", reason.IsUnsent())
	}
	code := codes.Unavailable
	if reason == leasehold.RetryUnknown {
		code = codes.Internal
	}
	answer := status.New(code, "a test")
	if unsent { // the others follow from the call's end
		var err error
		answer, err = answer.WithDetails(&errdetails.ErrorInfo{Reason: string(reason)})
		must(s, err)
	}
	var one, other refusing
	one.answer, other.answer = answer.Err(), answer.Err()
	var log steps
	asked := 0
	c := s.clientAt(one.serve(s)+","+other.serve(s), leasehold.RetryLog(log.add), leasehold.Patience(time.Second),
		leasehold.WithStrategy(func(leasehold.Retry) (time.Duration, bool) { asked++; return time.Millisecond, asked < 2 }))
	if _, err := c.Acquire(context.Background(), "cases", s.key, leasehold.Wait(time.Second)); err == nil {
		s.Fatal(reason, "is no error")
	}
	must(s, c.Close())
	told := log.get()
	if len(told) < 2 || told[0].Reason != reason || !slices.Equal(told[1].Reasons, []leasehold.RetryReason{reason}) || (asked == 0) != always || (other.asked.Load() > 0) != next {
		s.Fatalf("%s: the strategy was asked %d times, the other server %d times; %+v", reason, asked, other.asked.Load(), told)
	}
}
