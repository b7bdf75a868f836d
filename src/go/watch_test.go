package leasehold_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	leasehold "leasehold.example/go"
)

// watching collects what a watch tells.
type watching struct {
	s      *site
	events chan leasehold.Event
	ended  chan error
}

func (s *site) watch(c *leasehold.Client, namespace string, options ...leasehold.WatchOption) *watching {
	w := &watching{s, make(chan leasehold.Event, 1000), make(chan error, 1)}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan bool)
	go func() {
		defer close(ended)
		for event, err := range c.Watch(ctx, namespace, options...) {
			if err != nil {
				w.ended <- err
				return
			}
			w.events <- event
		}
	}()
	s.Cleanup(func() { cancel(); <-ended })
	return w
}

// watchIsRefusedInSQL: by words that say what to use, before there is a connection.
func (s *site) watchIsRefusedInSQL() {
	db, err := sql.Open("pgx", "")
	must(s, err)
	defer db.Close()
	c, err := leasehold.Over(db)
	must(s, err)
	told := []string{}
	for _, err := range c.Watch(context.Background(), "cases") {
		told = append(told, fmt.Sprintf("%T %v", err, err))
	}
	s.is(fmt.Sprint(told), "[*leasehold.ArgumentError leasehold: client must be one of Dial: SQL has no watch]")
	must(s, c.Close())
}

// is waits for the next event.
func (w *watching) is(kind leasehold.EventType, with string) {
	w.s.Helper()
	select {
	case e := <-w.events:
		if got := fmt.Sprint(e.Key, " ", e.Holder.Token, " ", e.Result, e.Message); e.Type != kind || kind != leasehold.EventSynced && got != with {
			w.s.Fatalf("%s %q instead of %s %q", e.Type, got, kind, with)
		}
	case err := <-w.ended:
		w.s.Fatal(err)
	case <-time.After(time.Minute):
		w.s.Fatal("no ", kind)
	}
}

// The cases about what others hold.
var watchCases = []testCase{
	{"explain_says_who_holds", "grpc sql pooler", func(s *site) {
		ctx, c := context.Background(), s.client()
		cases := c.Declare("cases", leasehold.Owner("somebody"))
		e, err := cases.Explain(ctx, s.key)
		must(s, err)
		if e.State != "free" || e.Liveness != "" || e.Holders != 0 || !strings.HasPrefix(e.Advice, "free: acquire it") || e.Mode != "" {
			s.Fatalf("%+v", e)
		}
		l, err := cases.Acquire(ctx, s.key)
		must(s, err)
		waiting, cancel := context.WithCancel(ctx)
		waiter := s.queue(waiting, c, 1)
		wait(s, "a waiter", func() bool {
			e, err = cases.Explain(ctx, s.key)
			must(s, err)
			return e.Waiters == 1
		})
		if e.State != "held" || e.Holder != "somebody" || e.Liveness != "alive" || e.Token != l.Token() || e.Mode != leasehold.ModeExclusive ||
			e.Holders != 1 || e.Units != 0 || !strings.HasPrefix(e.Advice, "wait: somebody is alive") || time.Since(e.Since).Abs() > time.Minute {
			s.Fatalf("%+v", e)
		}
		cancel()
		<-waiter
		wait(s, "an empty queue", func() bool { return s.waiters() == "0" })
		s.release(l)
		for range 2 {
			l, err = cases.Acquire(ctx, s.key, leasehold.Shared(3))
			must(s, err)
			defer s.release(l)
		}
		e, err = cases.Explain(ctx, s.key)
		must(s, err)
		if e.State != "shared" || e.Holders != 2 || e.Units != 6 || e.Mode != leasehold.ModeShared || e.Liveness != "alive" || !strings.HasPrefix(e.Advice, "acquire it shared") {
			s.Fatalf("%+v", e)
		}
		if _, err := c.Explain(ctx, "cases", ""); !errors.As(err, new(*leasehold.ArgumentError)) {
			s.Fatal(err)
		}
	}},
	{"watch_begins_with_what_is_held", "grpc", func(s *site) {
		s.watchIsRefusedInSQL()
		ctx, c, namespace := context.Background(), s.client(), "watched.begin"
		first, err := c.Acquire(ctx, namespace, "first", leasehold.Owner("somebody"))
		must(s, err)
		w := s.watch(c, "watched", leasehold.WatchChildren())
		w.is(leasehold.EventHeld, fmt.Sprint("first ", first.Token(), " "))
		w.is(leasehold.EventSynced, "")
		second, err := c.Acquire(ctx, namespace, "second")
		must(s, err)
		w.is(leasehold.EventAcquired, fmt.Sprint("second ", second.Token(), " "))
		must(s, first.Release(ctx, leasehold.Result(3)))
		w.is(leasehold.EventReleased, fmt.Sprint("first ", first.Token(), " 3"))
		must(s, second.Release(ctx, leasehold.Failure(errors.New("it is broken"))))
		w.is(leasehold.EventFailed, fmt.Sprint("second ", second.Token(), " it is broken"))
		third, err := c.Acquire(ctx, namespace, "third")
		must(s, err)
		w.is(leasehold.EventAcquired, fmt.Sprint("third ", third.Token(), " "))
		s.psql("select from leasehold.force_release('%s', 'third', 'a test')", namespace)
		w.is(leasehold.EventForced, fmt.Sprint("third ", third.Token(), " a test"))
		for e, err := range c.Watch(ctx, namespace, leasehold.WatchKey("none")) {
			must(s, err)
			s.is(string(e.Type), "synced")
			break
		}
		db, err := leasehold.Over(s.db())
		must(s, err)
		defer db.Close()
		for _, err := range db.Watch(ctx, namespace) {
			if !errors.As(err, new(*leasehold.ArgumentError)) {
				s.Fatal(err)
			}
		}
		other, err := leasehold.Dial(s.target)
		must(s, err)
		ended := s.watch(other, namespace).ended
		must(s, other.Close())
		if err := <-ended; err != leasehold.ErrClosed {
			s.Fatal(err)
		}
	}},
	{"watch_goes_on_after_a_restart", "grpc", func(s *site) {
		d, namespace := s.daemon(), "watched.restart"
		c := s.clientAt(d.Target)
		l, err := c.Acquire(context.Background(), namespace, "first", leasehold.Duration(time.Minute))
		must(s, err)
		w := s.watch(c, namespace)
		w.is(leasehold.EventHeld, fmt.Sprint("first ", l.Token(), " "))
		w.is(leasehold.EventSynced, "")
		ask(s, "daemon/kill", object{"id": d.ID}, nil)
		ask(s, "daemon/start", object{"id": d.ID}, nil)
		w.is(leasehold.EventHeld, fmt.Sprint("first ", l.Token(), " "))
		w.is(leasehold.EventSynced, "")
		must(s, l.Release(context.Background()))
		w.is(leasehold.EventReleased, fmt.Sprint("first ", l.Token(), " "))
	}},
}
