package leasehold_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	leasehold "leasehold.example/go"
)

// The cases about leases that begin and end in a transaction of the application's.

var ctx = context.Background()

// call makes a row of the application's, with the key of the case. One with other libraries may have run before.
func (s *site) call(state string) {
	s.psql("do $$ begin create table if not exists call (id text primary key, state text not null); exception when unique_violation then null; end $$")
	s.psql("insert into call values ('%s', '%s') on conflict (id) do update set state = excluded.state", s.key, state)
}

func (s *site) callIs(state string) {
	s.Helper()
	s.is(s.psql("select state from call where id = '%s'", s.key), state)
}

func (s *site) applications() *sql.DB { // with no prepared statements behind the pooler
	return s.dbAt(s.dsn + " default_query_exec_mode=exec")
}

func (s *site) commitProxy(mode string) string {
	var answer struct{ Port int }
	ask(s, "commit_proxy", object{"mode": mode}, &answer)
	return fmt.Sprintf("host=127.0.0.1 port=%d user=postgres %s sslmode=disable", answer.Port, s.dsn[strings.Index(s.dsn, "dbname="):])
}

func (s *site) becomes(tx *sql.Tx, state string) error {
	_, err := tx.Exec("update call set state = $1 where id = $2", state, s.key)
	return err
}

func (s *site) renewed() {
	before := s.beats()
	wait(s, "two renewals", func() bool { return s.beats() >= before+2 })
}

func isHeld(l *leasehold.Lease) bool { return l.Remaining() > 0 && l.Context().Err() == nil }

func releasedInATransaction(s *site) {
	s.call("running")
	c, db := s.client(), s.applications()
	l := s.acquire(c, leasehold.Duration(6*time.Second))
	wrong := errors.New("the disk is full")
	err := l.ReleaseIn(ctx, db, func(tx *sql.Tx) error {
		must(s, s.becomes(tx, "done"))
		return wrong
	})
	if err != wrong || !isHeld(l) {
		s.Fatal(err)
	}
	func() {
		defer func() { recover() }()
		_ = l.ReleaseIn(ctx, db, func(tx *sql.Tx) error {
			must(s, s.becomes(tx, "done"))
			panic("of the work's")
		})
	}()
	s.callIs("running")
	s.renewed()
	must(s, l.ReleaseIn(ctx, db, func(tx *sql.Tx) error { return s.becomes(tx, "done") }, leasehold.Result(map[string]int{"rows": 3})))
	s.callIs("done")
	s.is(s.row("state, last_outcome, last_result ->> 'rows'"), "free|ok|3")
	if isHeld(l) || l.Lost() != nil {
		s.Fatal(l.Lost())
	}
	s.release(l)
	l = s.acquire(c)
	conn, err := pgx.Connect(ctx, s.dsn+" default_query_exec_mode=exec")
	must(s, err)
	defer conn.Close(ctx)
	must(s, l.ReleaseInPgx(ctx, conn, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "update call set state = 'broken' where id = $1", s.key)
		return err
	}, leasehold.Failure(errors.New("no such payee"))))
	s.callIs("broken")
	s.is(s.row("state, last_outcome, last_error"), "free|failed|no such payee")
}

func acquiredInATransaction(s *site) {
	s.call("queued")
	c, db := s.client(), s.applications()
	wrong := errors.New("the disk is full")
	_, err := c.AcquireIn(ctx, db, "cases", s.key, func(tx *sql.Tx, l *leasehold.Lease) error {
		must(s, s.becomes(tx, "running"))
		if l.Token() <= 0 || isHeld(l) {
			s.Error("held before the commit")
		}
		return wrong
	})
	if err != wrong {
		s.Fatal(err)
	}
	s.callIs("queued")
	if state := s.row("state"); state != "" && state != "free" {
		s.Fatal(state)
	}
	l, err := c.AcquireIn(ctx, db, "cases", s.key, func(tx *sql.Tx, l *leasehold.Lease) error {
		return s.becomes(tx, fmt.Sprint("token ", l.Token()))
	}, leasehold.Duration(6*time.Second), leasehold.Owner("worker-1"))
	must(s, err)
	s.callIs(fmt.Sprint("token ", l.Token()))
	if !isHeld(l) {
		s.Fatal(l.Lost())
	}
	s.renewed()
	conn, err := pgx.Connect(ctx, s.dsn+" default_query_exec_mode=exec")
	must(s, err)
	defer conn.Close(ctx)
	_, err = c.AcquireInPgx(ctx, conn, "cases", s.key, func(pgx.Tx, *leasehold.Lease) error { s.Error("it ran"); return nil })
	var held *leasehold.HeldError
	if !errors.As(err, &held) || held.Holder != "worker-1" {
		s.Fatal(err)
	}
	_, err = c.AcquireIn(ctx, db, "cases", s.key, nil, leasehold.Wait(time.Second))
	var wrongArgument *leasehold.ArgumentError
	if !errors.As(err, &wrongArgument) || wrongArgument.Message != "wait must be 0 in a transaction, without WaitWhileAlive, not 1s" {
		s.Fatal(err)
	}
	s.release(l)
}

func lostLeaseRollsBack(s *site) {
	s.call("running")
	l := s.acquire(s.client(), leasehold.Duration(5*time.Minute))
	err := l.ReleaseIn(ctx, s.applications(), func(tx *sql.Tx) error {
		must(s, s.becomes(tx, "done"))
		s.psql("select from leasehold.force_release('cases', '%s', 'a test')", s.key)
		return nil
	})
	var lost *leasehold.LostError
	if !errors.As(err, &lost) || lost.Reason != leasehold.Forced || l.Lost() == nil {
		s.Fatal(err)
	}
	s.callIs("running")
}

func openTransactionIsRefused(s *site) {
	s.call("running")
	c, db := s.client(), s.applications()
	l := s.acquire(c)
	conn, err := db.Conn(ctx)
	must(s, err)
	defer conn.Close()
	tx, err := conn.BeginTx(ctx, nil)
	must(s, err)
	must(s, s.becomes(tx, "done"))
	direct, err := pgx.Connect(ctx, s.dsn)
	must(s, err)
	defer direct.Close(ctx)
	nested, err := direct.Begin(ctx)
	must(s, err)
	defer nested.Rollback(ctx)
	_, acquired := c.AcquireIn(ctx, conn, "cases", s.key+" 2", nil)
	for _, err := range []error{l.ReleaseIn(ctx, conn, nil), acquired, l.ReleaseInPgx(ctx, direct, nil), l.ReleaseInPgx(ctx, nested, nil)} {
		if err == nil || err.Error() != "leasehold: db must have no transaction open: this begins one, and commits it" {
			s.Fatal(err)
		}
	}
	must(s, tx.Commit())
	s.callIs("done")
	s.release(l)
}

func unansweredCommitOfARelease(s *site) {
	s.call("running")
	c := s.client()
	l := s.acquire(c, leasehold.Duration(6*time.Second))
	work := func(tx *sql.Tx) error { return s.becomes(tx, "done") }
	if err := l.ReleaseIn(ctx, s.dbAt(s.commitProxy("before")), work); err == nil || errors.As(err, new(*leasehold.UnknownOutcomeError)) || !isHeld(l) {
		s.Fatal(err)
	}
	s.callIs("running")
	s.renewed()
	waiter := s.queue(ctx, c, 1)
	must(s, l.ReleaseIn(ctx, s.dbAt(s.commitProxy("after")), work))
	s.callIs("done")
	if isHeld(l) || l.Lost() != nil {
		s.Fatal(l.Lost())
	}
	got := <-waiter
	must(s, got.err)
}

func unansweredCommitOfAnAcquire(s *site) {
	s.call("queued")
	c := s.client()
	work := func(tx *sql.Tx, _ *leasehold.Lease) error { return s.becomes(tx, "running") }
	if _, err := c.AcquireIn(ctx, s.dbAt(s.commitProxy("before")), "cases", s.key, work); !errors.As(err, new(*leasehold.UnknownOutcomeError)) {
		s.Fatal(err)
	}
	s.callIs("queued")
	if state := s.row("state"); state != "" && state != "free" {
		s.Fatal(state)
	}
	l, err := c.AcquireIn(ctx, s.dbAt(s.commitProxy("after")), "cases", s.key, work, leasehold.Duration(6*time.Second))
	must(s, err)
	s.callIs("running")
	if !isHeld(l) {
		s.Fatal(l.Lost())
	}
	s.renewed()
	s.release(l)
}
