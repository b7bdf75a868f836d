package leasehold_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	leasehold "leasehold.example/go"
)

// The cases of the ticks of schedules.
var tickCases = []testCase{
	{"tick_is_claimed_once", "grpc sql pooler", tickIsClaimedOnce},
	{"failed_tick_is_tried_again", "grpc sql pooler", failedTickIsTriedAgain},
	{"lost_tick_lets_the_loop_go_on", "grpc sql pooler", lostTickLetsTheLoopGoOn},
	{"missed_tick_is_not_yielded", "grpc sql pooler", missedTickIsNotYielded},
	{"leaving_the_loop_releases_the_tick", "grpc sql pooler", leavingTheLoopReleasesTheTick},
	{"cancelled_wait_claims_nothing", "grpc sql pooler", cancelledWaitClaimsNothing},
	{"run_now_is_seen", "grpc sql pooler", runNowIsSeen},
	{"paused_schedule_waits", "grpc sql pooler", pausedScheduleWaits},
	{"unknown_schedule_is_named", "grpc sql pooler", unknownScheduleIsNamed},
	{"workers_share_ticks", "grpc sql pooler", workersShareTicks},
	{"lost_answer_of_a_claim_is_found", "grpc", lostAnswerOfAClaimIsFound},
}

// never has no tick of its own in this century.
const never = "starts_at => '2100-01-01Z', backoff => '0'"

// schedule is one of this case's own.
func (s *site) schedule(expression, settings string) string {
	s.Helper()
	name := "ticks-" + strings.ReplaceAll(s.Name()[len("TestCases/"):], "/", "-")
	s.psql(`select from leasehold.set_schedule('%s', '%s', %s); update leasehold.schedule set look_at = '-infinity' where name = '%s'`,
		name, expression, settings, name)
	return name
}

func (s *site) runNow(name string) time.Time {
	s.Helper()
	at, err := time.Parse(time.RFC3339, s.psql(`select to_char(leasehold.run_schedule_now('%s') at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"')`, name))
	must(s, err)
	return at
}

func (s *site) ticks(name, columns string) string {
	return s.psql("select %s from (select * from leasehold.tick where schedule = '%s' order by at) t", columns, name)
}

// worker is a loop over a schedule's ticks. What it got is in got; its end is in ended.
type worker struct {
	got   chan *leasehold.Tick
	ended chan error
	stop  context.CancelFunc
}

func (s *site) worker(c *leasehold.Client, name string, work func(context.Context, *leasehold.Tick) error, options ...leasehold.Option) *worker {
	ctx, cancel := context.WithCancel(context.Background())
	w := &worker{make(chan *leasehold.Tick, 100), make(chan error, 1), cancel}
	go func() {
		w.ended <- c.Ticks(ctx, name, func(ctx context.Context, t *leasehold.Tick) error {
			w.got <- t
			return work(ctx, t)
		}, options...)
	}()
	s.Cleanup(func() {
		cancel()
		if err := <-w.ended; !errors.Is(err, context.Canceled) && err != leasehold.ErrClosed {
			s.Error(err)
		}
	})
	return w
}

func (w *worker) next(s *site) *leasehold.Tick {
	s.Helper()
	select {
	case t := <-w.got:
		return t
	case <-time.After(time.Minute):
		s.Fatal("no tick within a minute")
		return nil
	}
}

func well(context.Context, *leasehold.Tick) error { return nil }

// looked is true once a worker has looked for a tick in vain.
func (s *site) looked(name string) bool {
	return s.psql("select look_at > now() from leasehold.schedule where name = '%s'", name) == "t"
}

func tickIsClaimedOnce(s *site) {
	name, finish := s.schedule("every 365 d", never), make(chan struct{})
	work := func(ctx context.Context, t *leasehold.Tick) error {
		select {
		case <-finish:
		case <-ctx.Done():
		}
		t.Result = map[string]int{"rows": 3}
		return nil
	}
	options := []leasehold.Option{leasehold.Owner("worker-1"), leasehold.Labels(map[string]string{"kind": "report"})}
	one, two := s.worker(s.client(), name, work, options...), s.worker(s.client(), name, work, options...)
	next := func() *leasehold.Tick {
		select {
		case t := <-one.got:
			return t
		case t := <-two.got:
			return t
		case <-time.After(time.Minute):
			s.Fatal("no tick within a minute")
			return nil
		}
	}
	at := s.runNow(name)
	first := next()
	if !first.At.Equal(at) || first.Attempt != 1 || first.Namespace() != name || first.Key() != at.UTC().Format(time.RFC3339) || first.Remaining() == 0 {
		s.Fatal(first, at)
	}
	s.is(s.ticks(name, "state, attempts, token, owner"), fmt.Sprint("running|1|", first.Token(), "|worker-1"))
	s.is(s.psql("select labels ->> 'kind' from leasehold.lease where namespace = '%s'", name), "report")
	close(finish)
	wait(s, "the end of the tick", func() bool { return s.ticks(name, "state, result ->> 'rows'") == "done|3" })
	at = s.runNow(name)
	if second := next(); !second.At.Equal(at) || second.Attempt != 1 || second.Token() <= first.Token() {
		s.Fatal(second, at)
	}
	wait(s, "the end of both", func() bool { return s.ticks(name, "state") == "done\ndone" })
}

func failedTickIsTriedAgain(s *site) {
	name := s.schedule("every 365 d", "starts_at => '2100-01-01Z', backoff => '1 h'")
	at := s.runNow(name)
	w := s.worker(s.client(leasehold.Poll(200*time.Millisecond)), name, func(_ context.Context, t *leasehold.Tick) error {
		if t.Attempt == 1 {
			return errors.New("the disk is full")
		}
		return nil
	})
	if first := w.next(s); !first.At.Equal(at) || first.Attempt != 1 {
		s.Fatal(first)
	}
	wait(s, "the failure", func() bool { return s.ticks(name, "state, attempts, error") == "failed|1|the disk is full" })
	s.psql("update leasehold.tick set next_try_at = now() where schedule = '%s'", name)
	if second := w.next(s); !second.At.Equal(at) || second.Attempt != 2 {
		s.Fatal(second)
	}
	wait(s, "the end", func() bool { return s.ticks(name, "state, attempts") == "done|2" })
}

func lostTickLetsTheLoopGoOn(s *site) {
	name, causes := s.schedule("every 365 d", never), make(chan error, 2)
	s.runNow(name)
	w := s.worker(s.client(leasehold.Logf(s.Logf)), name, func(ctx context.Context, t *leasehold.Tick) error {
		if t.Attempt == 1 {
			<-ctx.Done()
			causes <- leasehold.Cause(ctx)
		}
		return nil
	}, leasehold.Duration(6*time.Second))
	first := w.next(s)
	wait(s, "a renewal", func() bool {
		return s.psql("select heartbeats > 0 from leasehold.scope where namespace = '%s'", name) == "t"
	})
	s.psql("select from leasehold.force_release('%s', '%s', 'a test')", name, first.Key())
	var lost *leasehold.LostError
	if err := <-causes; !errors.As(err, &lost) || lost.Reason != leasehold.Forced {
		s.Fatal(err)
	}
	if second := w.next(s); second.Attempt != 2 {
		s.Fatal(second.Attempt)
	}
	wait(s, "the end", func() bool { return s.ticks(name, "state, attempts") == "done|2" })
}

func missedTickIsNotYielded(s *site) {
	name := s.schedule("every 365 d", never)
	missed := s.runNow(name)
	s.psql(`update leasehold.tick set claim_until = now() - interval '1 s' where schedule = '%s';
		update leasehold.schedule set look_at = now() where name = '%s'`, name, name)
	w := s.worker(s.client(), name, well)
	wait(s, "the miss", func() bool { return s.ticks(name, "state, attempts") == "missed|0" })
	wait(s, "another second", func() bool { return s.psql("select clock_timestamp() >= to_timestamp(%d)", missed.Unix()+1) == "t" })
	at := s.runNow(name)
	if t := w.next(s); !t.At.Equal(at) || t.At.Equal(missed) {
		s.Fatal(t.At, at, missed)
	}
}

func leavingTheLoopReleasesTheTick(s *site) {
	name, c := s.schedule("every 365 d", never), s.client()
	s.runNow(name)
	ctx, leave := context.WithCancel(context.Background())
	err := c.Ticks(ctx, name, func(ctx context.Context, t *leasehold.Tick) error {
		leave()
		<-ctx.Done()
		return ctx.Err()
	}, leasehold.Duration(5*time.Minute))
	if err != context.Canceled {
		s.Fatal(err)
	}
	s.is(s.ticks(name, "state, attempts, error"), "failed|1|context canceled")
	func() {
		defer func() { s.is(fmt.Sprint(recover()), "the work is broken") }()
		c.Ticks(context.Background(), name, func(context.Context, *leasehold.Tick) error { panic("the work is broken") }, leasehold.Duration(5*time.Minute))
	}()
	s.is(s.ticks(name, "state, attempts"), "failed|2")
	ctx, leave = context.WithCancel(context.Background())
	if err := c.Ticks(ctx, name, func(context.Context, *leasehold.Tick) error {
		leave()
		return nil
	}); err != context.Canceled {
		s.Fatal(err)
	}
	s.is(s.ticks(name, "state, attempts"), "done|3")
}

func cancelledWaitClaimsNothing(s *site) {
	name, c := s.schedule("every 365 d", never), s.client()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- c.Ticks(ctx, name, well) }()
	wait(s, "a look", func() bool { return s.looked(name) })
	cancel()
	if err := <-done; err != context.Canceled {
		s.Fatal(err)
	}
	s.runNow(name)
	if t := s.worker(s.client(), name, well).next(s); t.Attempt != 1 {
		s.Fatal(t.Attempt)
	}
}

// runNowIsSeen without a look of the worker's own, where there are notifications.
func runNowIsSeen(s *site) {
	name := s.schedule("every 365 d", never)
	w := s.worker(s.client(leasehold.Poll(10*time.Minute)), name, well)
	wait(s, "a look", func() bool { return s.looked(name) })
	at := s.runNow(name)
	if t := w.next(s); !t.At.Equal(at) {
		s.Fatal(t.At, at)
	}
}

func pausedScheduleWaits(s *site) {
	name := s.schedule("every 1 s", "starts_at => '2020-01-01Z', tick_deadline => '1 h'")
	pause := func(paused bool) time.Time {
		at, err := time.Parse(time.RFC3339, s.psql(
			`select to_char(clock_timestamp() at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') from leasehold.pause_schedule('%s', %t)`, name, paused))
		must(s, err)
		return at
	}
	paused := pause(true)
	w := s.worker(s.client(leasehold.Poll(10*time.Minute)), name, well)
	wait(s, "three seconds", func() bool { return time.Since(paused) > 4*time.Second })
	s.is(s.ticks(name, "count(*) filter (where state not in ('due', 'skipped'))"), "0")
	resumed := pause(false)
	for t := w.next(s); t.At.Before(resumed); t = w.next(s) {
		if t.At.After(paused) { // the last before the pause may have been due
			s.Fatal(t.At, paused, resumed)
		}
	}
}

func unknownScheduleIsNamed(s *site) {
	var wrong *leasehold.ArgumentError
	if err := s.client().Ticks(context.Background(), "no-such", well); !errors.As(err, &wrong) || !strings.Contains(wrong.Bound, "no-such") {
		s.Fatalf("%#v", err)
	}
	if err := s.client().Ticks(context.Background(), "a..b", well); !errors.As(err, &wrong) || wrong.Field != "namespace" {
		s.Fatalf("%#v", err)
	}
	if err := s.client().Ticks(context.Background(), "no-such", well, leasehold.Shared(1)); !errors.As(err, &wrong) || wrong.Field != "options" {
		s.Fatalf("%#v", err)
	}
}

func workersShareTicks(s *site) {
	name := s.schedule("every 365 d", never+", overlap => 3")
	var mu sync.Mutex
	var got []int64
	for range 3 {
		s.worker(s.client(), name, func(_ context.Context, t *leasehold.Tick) error {
			mu.Lock()
			defer mu.Unlock()
			got = append(got, t.At.Unix())
			return nil
		})
	}
	// As if nobody had looked for 8 s.
	s.psql(`select from leasehold.set_schedule('%s', 'every 1 s', ends_at => now(), catch_up => 'all', overlap => 3, tick_deadline => '1 h');
		update leasehold.schedule set made_until = ends_at - interval '8 s', look_at = now() where name = '%s'`, name, name)
	wait(s, "the first half", func() bool { return s.ticks(name, "count(*) filter (where state = 'done') >= 4") == "t" })
	wait(s, "8 ticks", func() bool { return s.ticks(name, "count(*) >= 8 and bool_and(state = 'done')") == "t" })
	mu.Lock()
	defer mu.Unlock()
	n := len(got)
	slices.Sort(got)
	if n < 8 || len(slices.Compact(got)) != n {
		s.Fatal(n, got)
	}
	s.is(s.ticks(name, "max(attempts)"), "1")
}

func lostAnswerOfAClaimIsFound(s *site) {
	name, p, finish := s.schedule("every 365 d", never), s.flaky(0), make(chan struct{})
	s.runNow(name)
	p.decide("drop", "pass")
	w := s.worker(s.clientAt(p.Target, leasehold.Patience(5*time.Second)), name, func(ctx context.Context, _ *leasehold.Tick) error {
		select {
		case <-finish:
		case <-ctx.Done():
		}
		return nil
	}, leasehold.Duration(5*time.Minute))
	defer close(finish)
	if t := w.next(s); t.Attempt != 1 {
		s.Fatal(t.Attempt)
	}
	s.is(s.ticks(name, "state, attempts"), "running|1")
	var state struct{ Actions map[string]int }
	ask(s, "proxy/state", object{"id": p.ID}, &state)
	if state.Actions["drop"] != 1 {
		s.Fatal(state)
	}
}
