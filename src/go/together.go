package leasehold

import (
	"context"
	"errors"
	"fmt"
	"time"
)

const mostScopes = 100 // of one AcquireAll

// Scope is one of those that [Client.AcquireAll] acquires.
type Scope struct {
	Namespace, Key string
	Units          int // of a shared lease, as in [Shared]; 0: an exclusive one
}

// Leases were acquired in one step. They are held together: when one is lost, the context of all ends; they are released as one.
type Leases struct {
	c      *Client
	ctx    leasesContext
	cancel func(error)
	leases []*Lease
}

// AcquireAll acquires 1 to 100 scopes in one step: all of them, or none. While it waits it holds none, and has a place in the queue of each: callers
// may name their scopes in any order. Over SQL it does not wait. Errors are those of [Client.Acquire]; *[HeldError] names the first scope that is in
// the way. [Shared], [AtLeast], [WaitWhileAlive], [WhileConnected], [Priority] and [AskHandOver] are for single leases: *[ArgumentError].
func (c *Client) AcquireAll(ctx context.Context, scopes []Scope, options ...Option) (*Leases, error) {
	return c.acquireAll(ctx, context.Background(), scopes, options)
}

// DoAll is [Client.Do] under the leases of [Client.AcquireAll].
func (c *Client) DoAll(ctx context.Context, scopes []Scope, work func(context.Context, *Leases) error, options ...Option) (err error) {
	s, err := c.acquireAll(ctx, ctx, scopes, options)
	if err != nil {
		return err
	}
	err = errPanicked
	defer func() { err = c.end(s.leases, err) }()
	err = work(s.ctx, s)
	return
}

func (c *Client) acquireAll(ctx, parent context.Context, scopes []Scope, options []Option) (_ *Leases, err error) {
	r := newRequest("", "", options)
	r.scopes = scopes
	if err := r.checkAll(); err != nil {
		return nil, err
	}
	calls := c.tells(ctx, &r)
	defer func() { r.refused(err) }()
	var grants []grant
	if err := c.repeat(calls, "AcquireAll", &r, func(call context.Context, wait time.Duration) (err error) {
		grants, err = c.t.acquireAll(call, r, wait)
		return err
	}); err != nil {
		return nil, err
	}
	inner, cancel := context.WithCancelCause(parent)
	s := &Leases{c: c, cancel: cancel}
	for i, it := range r.refs() {
		l := c.makeLease(inner, r, it, grants[i])
		context.AfterFunc(l.ctx.Context, func() { s.cancel(context.Cause(l.ctx.Context)) })
		s.leases = append(s.leases, l)
	}
	s.ctx = leasesContext{inner, s}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, l := range s.leases {
		if c.closed {
			l.lose(Closed, "")
		} else {
			c.add(l)
		}
	}
	if c.closed {
		return nil, ErrClosed
	}
	return s, nil
}

// checkAll looks at what can be seen here.
func (r request) checkAll() error {
	switch {
	case len(r.scopes) < 1 || len(r.scopes) > mostScopes:
		return wrong("scopes", fmt.Sprintf("1 to %d", mostScopes), len(r.scopes))
	case r.mode == ModeShared || r.atLeast != nil || r.whileAlive || r.isHold || r.priority != 0 || r.askHandOver:
		return &ArgumentError{Field: "options", Bound: "none for single leases",
			Message: "options must be none of Shared, AtLeast, WaitWhileAlive, WhileConnected, Priority and AskHandOver, which are for single leases"}
	}
	for _, each := range r.scopes {
		one := r
		one.namespace, one.key = each.Namespace, each.Key
		if each.Units != 0 {
			one.mode, one.units = ModeShared, each.Units
		}
		if err := one.check(); err != nil {
			return err
		}
	}
	return nil
}

// refs are what the request is for.
func (r request) refs() []ref {
	if r.scopes == nil {
		return []ref{r.ref()}
	}
	refs := make([]ref, len(r.scopes))
	for i, each := range r.scopes {
		refs[i] = ref{each.Namespace, each.Key, r.leaseKey, r.duration, r.listener.Asked != nil}
	}
	return refs
}

// Leases are those of the scopes, in their order; each has a token and a mode of its own.
func (s *Leases) Leases() []*Lease { return append([]*Lease(nil), s.leases...) }

// Context ends when one of the leases is lost or released. [Cause] tells which.
func (s *Leases) Context() context.Context { return s.ctx }

// Remaining is how long work under all the leases may still take, if they are not renewed again.
func (s *Leases) Remaining() time.Duration {
	return remainingOf(s.leases)
}

func remainingOf(leases []*Lease) time.Duration {
	least := Forever
	for _, l := range leases {
		least = min(least, l.Remaining())
	}
	return least
}

// Lost is nil while all are held, and after they were released.
func (s *Leases) Lost() error { return lostOf(s.leases) }

func lostOf(leases []*Lease) error {
	for _, l := range leases {
		if lost := l.Lost(); lost != nil {
			return lost
		}
	}
	return nil
}

// Release is [Lease.Release] of all, in one request. Where one was lost it releases the others, and returns *[LostError].
func (s *Leases) Release(ctx context.Context, options ...ReleaseOption) error {
	with := outcomeOf(options)
	if with.problem != nil {
		return with.problem
	}
	return s.c.release(ctx, s.leases, with)
}

// TryRelease is [Lease.TryRelease] of all.
func (s *Leases) TryRelease(options ...ReleaseOption) (result error) {
	for _, l := range s.leases {
		result = first(result, l.TryRelease(options...))
	}
	return result
}

// leasesContext looks at the clock.
type leasesContext struct {
	context.Context
	s *Leases
}

func (ctx leasesContext) Err() error {
	_ = ctx.s.Lost()
	return ctx.Context.Err()
}

func (ctx leasesContext) Value(key any) any {
	if key == (leaseKey{}) {
		return ctx.s
	}
	return ctx.Context.Value(key)
}

var errPanicked = errors.New("the work ended without returning: it panicked, or called runtime.Goexit")
