package leasehold

import (
	"context"
	"database/sql"
	"errors"
	"time"
)

// Lease is held until it is released or lost. Its methods may be called from several goroutines.
type Lease struct {
	c        *Client
	ref      ref
	duration time.Duration
	ctx      leaseContext
	cancel   func(error)
	over     chan struct{} // closed when it is lost or released
	listener Listener
	strategy Strategy // nil: the client's
	told     Acquisition

	// Guarded by c.mu.
	token     int64
	units     int // 0: exclusive
	slots     []int
	deadline  time.Duration // on clock()
	final     bool          // the policy ends it then
	margin    time.Duration // before the deadline the holder is told
	next      time.Duration // of the next renewal
	trouble   string        // why the last renewal failed
	lost      *LostError
	released  bool          // successfully
	ends      bool          // being released: renewed no more
	open      bool          // a transaction that acquires or releases it is not committed yet
	sent      bool          // a release of it
	asked     chan struct{} // not nil: its renewal is in flight, and closes this
	streaming bool          // a stream renews it
	news      []func()      // that the listener is to be told
	telling   bool          // a goroutine tells it
	askedAt   time.Time     // the last request to hand it over
	isTold    bool          // of the grant
	hold      Hold          // that telemetry is told of
}

type leaseKey struct{}

// leaseContext looks at the clock: the renewer may have slept with the machine.
type leaseContext struct {
	context.Context
	l *Lease
}

func (ctx leaseContext) Err() error {
	ctx.l.c.mu.Lock()
	ctx.l.expire()
	ctx.l.c.mu.Unlock()
	return ctx.Context.Err()
}

func (ctx leaseContext) Value(key any) any {
	if key == (leaseKey{}) {
		return ctx.l
	}
	return ctx.Context.Value(key)
}

// Cause is context.Cause of the context of a lease, and looks at the clock itself: *[LostError] if the lease that ctx belongs to was lost.
func Cause(ctx context.Context) error {
	if held, ok := ctx.Value(leaseKey{}).(interface{ Lost() error }); ok {
		if lost := held.Lost(); lost != nil {
			return lost
		}
	}
	return ctx.Err()
}

func (c *Client) newLease(parent context.Context, r request, g grant) (*Lease, error) {
	l := c.makeLease(parent, r, r.ref(), g)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		l.lose(Closed, "")
		return nil, ErrClosed
	}
	c.add(l)
	if g.stream != nil {
		l.streaming = true
		c.work.Add(1)
		go func() {
			defer c.work.Done()
			g.stream.follow(l)
		}()
	}
	return l, nil
}

func (c *Client) makeLease(parent context.Context, r request, it ref, g grant) *Lease {
	l := &Lease{c: c, ref: it, duration: it.duration, listener: r.listener, strategy: r.strategy, told: r.told, hold: silent{}, over: make(chan struct{})}
	l.take(g)
	inner, cancel := context.WithCancelCause(parent)
	l.ctx, l.cancel = leaseContext{inner, l}, cancel
	return l
}

// take makes a grant the lease's. The caller has c.mu, or the lease alone.
func (l *Lease) take(g grant) {
	l.token, l.units, l.slots, l.deadline, l.final = g.token, g.units, g.slots, g.deadline, g.final
	l.margin = l.duration / 5
	l.next = g.deadline - l.duration*2/3
	if g.final { // it may be for much less than its duration
		left := max(g.deadline-clock(), 0)
		l.margin, l.next = min(l.margin, left/5), clock()+left/3
	}
}

// Token grows with each grant of the scope: hand it to whatever must refuse a holder that is late. [Lease.Downgrade] changes it.
func (l *Lease) Token() int64 {
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	return l.token
}

// Mode is ModeExclusive or ModeShared.
func (l *Lease) Mode() Mode { return modeOf(l.Units()) }

// Units are what a shared lease takes of the capacity; 0: an exclusive lease has all of it.
func (l *Lease) Units() int {
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	return l.units
}

// Slots are numbers from 1 to the capacity that no other holder of the scope has, as many as there are units, ascending; nil for an exclusive
// lease, and where there is no capacity.
func (l *Lease) Slots() []int {
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	return append([]int(nil), l.slots...)
}

// Key is the name inside of the namespace.
func (l *Lease) Key() string { return l.ref.key }

// Namespace is dotted: payments.invoices.
func (l *Lease) Namespace() string { return l.ref.namespace }

// Context ends when the lease is lost or released. context.Cause tells which: *[LostError] or [ErrReleased].
func (l *Lease) Context() context.Context { return l.ctx }

// Remaining is how long work under the lease may still take, if it is not renewed again.
func (l *Lease) Remaining() time.Duration {
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	l.expire()
	if l.lost != nil || l.released || l.open {
		return 0
	}
	return max(l.stop()-clock(), 0)
}

// Lost is nil while the lease is held, and after it was released.
func (l *Lease) Lost() error {
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	l.expire()
	if l.lost == nil {
		return nil
	}
	return l.lost
}

// stop is when the holder is told: a fifth of the duration before the deadline.
func (l *Lease) stop() time.Duration { return l.deadline - l.margin }

// expire loses the lease if its time has come. The caller has c.mu.
func (l *Lease) expire() {
	if l.lost == nil && !l.released && clock() >= l.stop() {
		reason, message := Unreachable, l.trouble
		if l.final {
			reason, message = MaxHold, "the policy of "+l.ref.namespace+" ends a lease after max_hold"
		}
		l.lose(reason, message)
	}
}

// lose tells the holder, once. The caller has c.mu.
func (l *Lease) lose(reason Reason, message string) {
	if l.lost != nil || l.released {
		return
	}
	l.lost = &LostError{l.ref.namespace, l.ref.key, reason, message}
	delete(l.c.leases, l)
	l.cancel(l.lost)
	l.hold.Ended(l.lost)
	if lost := l.lost; l.listener.Lost != nil {
		l.tell(func(l *Lease) { l.listener.Lost(l, lost) })
	}
	close(l.over)
	l.c.look()
}

// loseNow is lose for those who do not have c.mu.
func (l *Lease) loseNow(reason Reason, message string) {
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	l.lose(reason, message)
}

// extend takes in a renewal, unless it was read too late, or a newer one says more.
func (l *Lease) extend(deadline time.Duration, final bool) {
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	l.expire()
	if deadline >= l.deadline {
		l.deadline, l.final = deadline, final
		l.tell(l.listener.Renewed)
	}
	l.final = l.final || final
}

// isOver: it is lost, released, or being released.
func (l *Lease) isOver() bool {
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	l.expire()
	return l.lost != nil || l.released || l.ends
}

// Downgrade makes an exclusive lease shared, with so many units, in one step: shared requests that wait behind it are let in, and no exclusive
// one comes between. With a shared lease it gives units back. The lease goes on under another token. It repeats the request until it is
// answered, ctx ends, or the lease is lost; when ctx has ended it may have been done, and may be called again. A lease of [Client.Lead] or
// [WhileConnected] stays as it is: *[ArgumentError].
func (l *Lease) Downgrade(ctx context.Context, units int) error {
	if err := checkUnits(units); err != nil {
		return err
	}
	retry := l.c.retrying("Downgrade", l.ref, l.strategy)
	for {
		if err := l.canChange("downgraded"); err != nil {
			return err
		}
		try, cancel := context.WithTimeout(ctx, min(l.c.settings.patience, max(l.duration/6, 500*time.Millisecond)))
		g, err := l.c.t.downgrade(try, l.ref, units)
		cancel()
		var lost *LostError
		switch {
		case err == nil:
			l.c.mu.Lock()
			defer l.c.mu.Unlock()
			l.expire()
			if l.lost != nil {
				return l.lost
			}
			l.take(g)
			l.hold.Downgraded(g.token)
			return nil
		case errors.As(err, &lost):
			l.loseNow(lost.Reason, lost.Message)
			return err
		case !errors.As(err, new(*UnavailableError)):
			return err
		}
		isRefused := !retry.again(ctx, err, l.Remaining())
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case isRefused:
			return err
		}
	}
}

func (l *Lease) canChange(how string) error {
	if err := l.isHeld(); err != nil {
		return err
	}
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	if l.streaming {
		return &ArgumentError{Field: "mode", Bound: "a lease without a stream", Message: "a lease that a stream holds cannot be " + how}
	}
	return nil
}

// Release gives the lease back. It repeats the request until it is answered, the deadline has passed, or ctx ends; nil says that the lease
// was still held. Work under the lease must have stopped before. A lease whose release failed is not renewed any more.
func (l *Lease) Release(ctx context.Context, options ...ReleaseOption) error {
	with := outcomeOf(options)
	if with.problem != nil {
		return with.problem
	}
	return l.c.release(ctx, []*Lease{l}, with)
}

// release ends several at once, alike; the error is the first.
func (c *Client) release(ctx context.Context, leases []*Lease, with outcome) (result error) {
	var open []*Lease
	for _, l := range leases {
		if err := l.beginRelease(ctx); err != nil {
			result = first(result, err)
		} else if !l.isReleased() {
			open = append(open, l)
		}
	}
	for i, l := range open {
		if calls := l.releasing(ctx); i == 0 {
			ctx = calls
		}
	}
	retry := c.retrying("Release", leases[0].ref, leases[0].strategy)
	for len(open) > 0 {
		again, trouble, err := c.tryRelease(ctx, open, with)
		result = first(result, err)
		if open = again; len(open) > 0 && !retry.again(ctx, trouble, remainingOf(open)) {
			for _, l := range open {
				result = first(result, l.endRelease(trouble, true))
			}
			return result
		}
	}
	return result
}

// tryRelease is one try. It returns those that may be tried again, and why, and the first error of the others.
func (c *Client) tryRelease(ctx context.Context, leases []*Lease, with outcome) (again []*Lease, trouble, result error) {
	items, repeated := make([]ending, len(leases)), make([]bool, len(leases))
	for i, l := range leases {
		items[i], repeated[i] = ending{l.ref, with}, l.sends()
	}
	try, cancel := context.WithTimeout(ctx, c.settings.patience)
	defer cancel()
	for i, answer := range c.t.release(try, items) {
		if l := leases[i]; errors.As(answer, new(*UnavailableError)) && ctx.Err() == nil && l.Remaining() > 0 {
			again, trouble = append(again, l), first(trouble, answer)
		} else {
			result = first(result, l.endRelease(answer, repeated[i]))
		}
	}
	return again, trouble, result
}

func first(a, b error) error {
	if a != nil {
		return a
	}
	return b
}

func (l *Lease) releasing(ctx context.Context) context.Context {
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	return l.hold.Releasing(ctx)
}

func (l *Lease) isReleased() bool {
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	return l.released
}

// sends tells whether a release was sent before, perhaps by another call.
func (l *Lease) sends() bool {
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	before := l.sent
	l.sent = true
	return before
}

// beginRelease stops the renewals, and waits for one that is in flight: no renewal comes after a release.
func (l *Lease) beginRelease(ctx context.Context) error {
	l.c.mu.Lock()
	l.expire()
	if l.lost != nil {
		defer l.c.mu.Unlock()
		return l.lost
	}
	l.ends = true
	l.c.mu.Unlock()
	return l.awaitRenewal(ctx)
}

func (l *Lease) endRelease(err error, repeated bool) error {
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	var lost *LostError
	if errors.As(err, &lost) {
		// A repeated release whose first answer was lost is told that the lease has been released.
		if !repeated || lost.Reason != Released && lost.Reason != Failed {
			l.lose(lost.Reason, lost.Message)
			return err
		}
		err = nil
	}
	if err == nil {
		l.setReleased()
	} else {
		l.hold.Stayed(err)
	}
	if err != nil && l.streaming {
		l.lose(Unreachable, err.Error())
	}
	return err
}

// setReleased ends its context. The caller has c.mu.
func (l *Lease) setReleased() {
	if l.lost == nil && !l.released {
		l.letGo()
		l.hold.Ended(nil)
		close(l.over)
	}
}

// letGo tells its holder. The caller has c.mu.
func (l *Lease) letGo() {
	l.released = true
	delete(l.c.leases, l)
	l.cancel(ErrReleased)
	l.tell(l.listener.Released)
	l.c.look()
}

// Execer is a *sql.Tx, or a *sql.Conn with a transaction open.
type Execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// Guard makes tx fail with *[LostError] unless the lease is held. If it passes, nobody else gets the lease before tx ends.
// The database is the one that the daemon coordinates in.
func (l *Lease) Guard(ctx context.Context, tx Execer) error {
	_, err := tx.ExecContext(ctx, "select leasehold.guard($1, $2, $3)", l.ref.namespace, l.ref.key, l.Token())
	var state interface{ SQLState() string }
	if errors.As(err, &state) && state.SQLState() == "LH001" {
		return &LostError{l.ref.namespace, l.ref.key, Unknown, err.Error()}
	}
	return err
}
