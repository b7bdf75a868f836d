package leasehold

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
)

// A lease that begins or ends in a transaction on the caller's own connection: its row commits with the caller's, or neither does.
//
// The package begins the transaction and commits it, so it knows the outcome: a lease is renewed from the commit that acquires it, and until
// the commit that releases it. A connection that has a transaction open is refused: its COMMIT would be somebody else's, and the client would
// believe in a lease that is gone, or stop renewing one that is not. When the connection breaks at COMMIT, a heartbeat tells whether the lease
// is still held: the transaction has its row locked, so no answer comes before the transaction's end.

// Beginner is a *sql.DB or *sql.Conn, to the database that the daemon coordinates in.
type Beginner interface {
	BeginTx(ctx context.Context, options *sql.TxOptions) (*sql.Tx, error)
}

// PgxBeginner is a *pgxpool.Pool or *pgx.Conn, to the database that the daemon coordinates in.
type PgxBeginner interface {
	Begin(ctx context.Context) (pgx.Tx, error)
}

// UnknownOutcomeError says that COMMIT was not answered, and that its outcome could not be looked up. The lease of [Lease.ReleaseIn] counts as
// lost; what [Client.AcquireIn] may have acquired is given back.
type UnknownOutcomeError struct {
	Namespace, Key string
	Err            error // of the COMMIT
}

func (e *UnknownOutcomeError) Error() string {
	return fmt.Sprintf("leasehold: the outcome of the transaction with the lease %s is unknown, for COMMIT was not answered: %s", ScopeName(e.Namespace, e.Key), e.Err)
}
func (e *UnknownOutcomeError) Unwrap() error { return e.Err }

// ReleaseIn releases the lease in a transaction that it begins, and commits when work has returned. An error or a panic of the work's rolls
// back: then the lease goes on, and is renewed. When the connection breaks at COMMIT it looks the outcome up: nil says that all of it is
// committed, *[UnknownOutcomeError] that nobody knows, and any other error that nothing is.
func (l *Lease) ReleaseIn(ctx context.Context, db Beginner, work func(*sql.Tx) error, options ...ReleaseOption) error {
	tx, err := beginSQL(ctx, db)
	if err != nil {
		return err
	}
	return l.releaseIn(ctx, tx, func() error { return work(tx.Tx) }, options)
}

// ReleaseInPgx is [Lease.ReleaseIn] with a connection or pool of pgx.
func (l *Lease) ReleaseInPgx(ctx context.Context, db PgxBeginner, work func(pgx.Tx) error, options ...ReleaseOption) error {
	tx, err := beginPgx(ctx, db)
	if err != nil {
		return err
	}
	return l.releaseIn(ctx, tx, func() error { return work(tx.Tx) }, options)
}

// AcquireIn acquires in a transaction that it begins, and commits when work has returned: from then on the lease is held, and renewed. An error
// or a panic of the work's rolls back, and nobody holds it. It does not wait. When the connection breaks at COMMIT it looks the outcome up.
func (c *Client) AcquireIn(ctx context.Context, db Beginner, namespace, key string, work func(*sql.Tx, *Lease) error, options ...Option) (*Lease, error) {
	tx, err := beginSQL(ctx, db)
	if err != nil {
		return nil, err
	}
	return c.acquireIn(ctx, tx, newRequest(namespace, key, options), func(l *Lease) error { return work(tx.Tx, l) })
}

// AcquireInPgx is [Client.AcquireIn] with a connection or pool of pgx.
func (c *Client) AcquireInPgx(ctx context.Context, db PgxBeginner, namespace, key string, work func(pgx.Tx, *Lease) error, options ...Option) (*Lease, error) {
	tx, err := beginPgx(ctx, db)
	if err != nil {
		return nil, err
	}
	return c.acquireIn(ctx, tx, newRequest(namespace, key, options), func(l *Lease) error { return work(tx.Tx, l) })
}

type transaction interface {
	row(ctx context.Context, into []any, statement string, args ...any) error
	commit(ctx context.Context) error
	rollback() // nothing after a commit
}

type sqlTx struct{ *sql.Tx }

func (tx sqlTx) row(ctx context.Context, into []any, statement string, args ...any) error {
	return tx.QueryRowContext(ctx, statement, args...).Scan(into...)
}
func (tx sqlTx) commit(context.Context) error { return tx.Commit() }
func (tx sqlTx) rollback()                    { _ = tx.Rollback() }

type pgxTx struct{ pgx.Tx }

func (tx pgxTx) row(ctx context.Context, into []any, statement string, args ...any) error {
	return tx.QueryRow(ctx, statement, args...).Scan(into...)
}
func (tx pgxTx) commit(ctx context.Context) error { return tx.Commit(ctx) }
func (tx pgxTx) rollback() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_ = tx.Rollback(ctx)
}

func beginSQL(ctx context.Context, db Beginner) (sqlTx, error) {
	if conn, ok := db.(*sql.Conn); ok {
		if err := conn.Raw(func(driver any) error {
			if of, ok := driver.(*stdlib.Conn); ok {
				return checkIdle(of.Conn())
			}
			return nil
		}); err != nil {
			return sqlTx{}, err
		}
	}
	tx, err := db.BeginTx(ctx, nil)
	return sqlTx{tx}, err
}

func beginPgx(ctx context.Context, db PgxBeginner) (pgxTx, error) {
	var err error
	switch of := db.(type) {
	case pgx.Tx:
		err = errOpen
	case *pgx.Conn:
		err = checkIdle(of)
	}
	if err != nil {
		return pgxTx{}, err
	}
	tx, err := db.Begin(ctx)
	return pgxTx{tx}, err
}

var errRolledBack = errors.New("the transaction was rolled back")

var errOpen = &ArgumentError{Field: "db", Bound: "without a transaction",
	Message: "db must have no transaction open: this begins one, and commits it"}

func checkIdle(conn *pgx.Conn) error {
	if !conn.IsClosed() && conn.PgConn().TxStatus() != 'I' {
		return errOpen
	}
	return nil
}

// isAnswered: PostgreSQL says that the transaction was rolled back. A server that shuts down says nothing of it.
func isAnswered(err error) bool {
	var e *pgconn.PgError
	if errors.As(err, &e) {
		return !strings.HasPrefix(e.Code, "08") && !strings.HasPrefix(e.Code, "57P")
	}
	return errors.Is(err, pgx.ErrTxCommitRollback)
}

// inTransaction is an error of this package's for a condition of Leasehold's, else the driver's own.
func inTransaction(it ref, err error) error {
	var e *pgconn.PgError
	if errors.As(err, &e) && strings.HasPrefix(e.Code, "LH") {
		return fromSQL(it, err)
	}
	return err
}

func (l *Lease) releaseIn(ctx context.Context, tx transaction, work func() error, options []ReleaseOption) error {
	defer tx.rollback()
	with := outcomeOf(options)
	if with.problem != nil {
		return with.problem
	}
	if err := l.canChange("released in a transaction"); err != nil {
		return err
	}
	if err := work(); err != nil {
		return err
	}
	if err := l.leave(ctx); err != nil {
		return err
	}
	var done bool
	if err := tx.row(ctx, []any{&done}, with.statement(), l.ref.namespace, l.ref.key, l.ref.leaseKey, with.value); err != nil {
		l.stay()
		return inTransaction(l.ref, err)
	}
	if !done {
		l.stay()
		found := l.c.settle(l.ref)
		l.loseNow(found.reason, found.message)
		return l.Lost()
	}
	err := tx.commit(ctx)
	switch {
	case err == nil:
		l.left()
		return nil
	case isAnswered(err):
		l.stay()
		return err
	}
	return l.lookUp(err, with)
}

// leave takes the lease out of the renewals: the next statement releases it.
func (l *Lease) leave(ctx context.Context) error {
	if err := l.canChange("released in a transaction"); err != nil {
		return err
	}
	err := l.beginRelease(ctx)
	if err != nil {
		l.stay()
	}
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	if l.open = err == nil; l.open {
		l.hold.Releasing(ctx)
	}
	return err
}

// stay: it was not released, and is renewed again.
func (l *Lease) stay() {
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	l.open, l.ends = false, false
	l.hold.Stayed(errRolledBack)
	l.expire()
	l.c.look()
}

func (l *Lease) left() {
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	l.open = false
	l.setReleased()
}

// lookUp is the outcome of a COMMIT that nobody answered.
func (l *Lease) lookUp(commit error, with outcome) error {
	found := l.c.settle(l.ref)
	switch {
	case found.ok:
		l.stay()
		l.extend(found.deadline, found.final)
		return commit
	case found.reason == Released && !with.failed, found.reason == Failed && with.failed:
		l.left()
		return nil
	}
	l.stay()
	if found.reason != Unknown {
		l.loseNow(found.reason, found.message)
		return commit
	}
	l.loseNow(Unreachable, "nobody answered the COMMIT of the transaction that released it")
	l.c.giveUp([]ref{l.ref})
	return &UnknownOutcomeError{l.ref.namespace, l.ref.key, commit}
}

type settled struct {
	beat
	deadline time.Duration // on clock()
}

// settle asks what has become of a lease.
func (c *Client) settle(it ref) settled {
	for until := clock() + c.settings.patience; clock() < until && c.ctx.Err() == nil; pause(c.ctx, 50*time.Millisecond) {
		ctx, cancel := context.WithTimeout(c.ctx, min(until-clock(), time.Second))
		sent := clock()
		beats, err := c.t.heartbeat(ctx, []ref{it})
		cancel()
		if err == nil && (beats[0].ok || beats[0].lost) {
			return settled{beats[0], sent + beats[0].remaining}
		}
	}
	return settled{beat: beat{lost: true, reason: Unknown}}
}

func (c *Client) acquireIn(ctx context.Context, tx transaction, r request, work func(*Lease) error) (_ *Lease, err error) {
	defer tx.rollback()
	if err := r.checkIn(); err != nil {
		return nil, err
	}
	if c.ctx.Err() != nil {
		return nil, ErrClosed
	}
	c.tells(ctx, &r)
	defer func() { r.refused(err) }()
	r.leaseKey = newUUID()
	into, args, err := r.inSQL()
	if err != nil {
		return nil, err
	}
	sent := clock()
	if err := tx.row(ctx, into.columns(), acquiring, args...); errors.Is(err, sql.ErrNoRows) {
		return nil, r.heldIn(ctx, tx)
	} else if err != nil {
		return nil, inTransaction(r.ref(), err)
	}
	l := c.makeLease(context.Background(), r, r.ref(), into.grant(sent))
	l.open = true
	committed := false
	defer func() {
		if !committed {
			l.loseNow(Unknown, "the transaction that acquired it was rolled back")
		}
	}()
	if err := work(l); err != nil {
		return nil, err
	}
	if lost := l.Lost(); lost != nil { // the transaction took longer than the lease lasts
		return nil, lost
	}
	if err := tx.commit(ctx); err != nil {
		if isAnswered(err) {
			return nil, err
		}
		found := c.settle(l.ref)
		if !found.ok {
			c.giveUp(r.refs())
			return nil, &UnknownOutcomeError{r.namespace, r.key, err}
		}
		l.extend(found.deadline, found.final)
	}
	committed = true
	return c.hold(l)
}

// hold renews it from now on.
func (c *Client) hold(l *Lease) (*Lease, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	l.open = false
	if c.closed {
		l.lose(Closed, "")
		return nil, ErrClosed
	}
	c.add(l)
	return l, nil
}

func (r request) checkIn() error {
	switch {
	case r.wait != 0 || r.whileAlive:
		return wrongTime("wait", "0 in a transaction, without WaitWhileAlive", r.wait)
	case r.isHold:
		return &ArgumentError{Field: "mode", Bound: "a lease without a stream", Message: "a lease that a stream holds is not acquired in a transaction"}
	}
	return r.check()
}

func (r request) heldIn(ctx context.Context, tx transaction) error {
	held := r.heldRow()
	if err := tx.row(ctx, held.columns(), contending, []string{r.namespace}, []string{r.key}, nil); err != nil {
		return inTransaction(r.ref(), err)
	}
	return held.error()
}
