package leasehold

import (
	"context"
	"errors"
	"time"
)

// Releases that nobody waits for. One goroutine for each client sends them, one request at a time; it runs while there are any.

const (
	mostReleases  = 1 << 21 // that wait to be sent
	mostInRelease = 1000
)

type scope struct{ namespace, key string }

// releases are guarded by the mutex of their client.
type releases struct {
	waiting []*parting
	last    map[scope]*parting
	done    chan struct{} // closed when the goroutine ends; nil: it does not run
}

// parting is a lease that is given back. Its holder has been told.
type parting struct {
	l    *Lease
	with outcome
	over chan struct{} // closed when it was answered, or left to expire
}

// TryRelease gives the lease back without waiting for anything: from the call on it is neither held nor renewed. The client sends what is given
// back in the background, all that there is in one request. A release that fails is repeated until the lease's deadline, and at the client's
// end for at most [FlushTimeout]; then the lease is left to expire, and Logf gets a line. An acquire of the same scope by the same client follows it.
// It returns *[LostError] or [ErrReleased] when the lease was not held any more.
func (l *Lease) TryRelease(options ...ReleaseOption) error {
	with := outcomeOf(options)
	if with.problem != nil {
		return with.problem
	}
	c := l.c
	c.mu.Lock()
	defer c.mu.Unlock()
	l.expire()
	switch {
	case l.lost != nil:
		return l.lost
	case l.released || l.ends || l.open:
		return ErrReleased
	}
	l.ends = true
	l.letGo()
	l.hold.Releasing(context.Background())
	p := &parting{l, with, make(chan struct{})}
	if len(c.releases.waiting) >= mostReleases {
		err := &UnavailableError{Err: errors.New("too many releases wait to be sent: the lease is left to expire")}
		c.part(p, err)
		return err
	}
	c.releases.add(p)
	if c.releases.done == nil {
		c.releases.done = make(chan struct{})
		c.work.Add(1)
		go c.sendReleases()
	}
	return nil
}

func (r *releases) add(p *parting) {
	r.waiting = append(r.waiting, p)
	if r.last == nil {
		r.last = map[scope]*parting{}
	}
	r.last[p.scope()] = p
}

func (p *parting) scope() scope { return scope{p.l.ref.namespace, p.l.ref.key} }

// part is the end of it. The caller has c.mu.
func (c *Client) part(p *parting, err error) {
	p.l.hold.Ended(err)
	close(p.over)
	close(p.l.over) // of a stream, which releases what it holds when it ends: not before
	if c.releases.last[p.scope()] == p {
		delete(c.releases.last, p.scope())
	}
}

func (c *Client) sendReleases() {
	defer c.work.Done()
	for {
		c.mu.Lock()
		r := &c.releases
		n := min(len(r.waiting), mostInRelease)
		some := r.waiting[:n:n]
		if r.waiting = r.waiting[n:]; n == 0 {
			close(r.done)
			r.done, r.waiting = nil, nil
			c.mu.Unlock()
			return
		}
		c.mu.Unlock()
		if c.sendSome(some) {
			pause(c.ctx, 100*time.Millisecond)
		}
	}
}

// sendSome sends what its time has not passed for, and tells whether some of it is to be repeated.
func (c *Client) sendSome(some []*parting) bool {
	ctx, cancel := context.WithTimeout(c.ctx, c.settings.patience)
	defer cancel()
	var items []ending
	var repeated []bool
	for _, p := range some {
		p.l.awaitRenewal(ctx)
		items, repeated = append(items, ending{p.l.ref, p.with}), append(repeated, p.l.sends())
	}
	answers := c.t.release(ctx, items)
	c.mu.Lock()
	defer c.mu.Unlock()
	again := false
	for i, p := range some {
		var unavailable *UnavailableError
		var lost *LostError
		err := answers[i]
		switch {
		case errors.As(err, &unavailable) && c.ctx.Err() == nil && clock() < p.l.deadline:
			again = true
			c.releases.waiting = append(c.releases.waiting, p)
			continue
		case errors.As(err, &lost) && repeated[i] && (lost.Reason == Released || lost.Reason == Failed):
			err = nil
		case errors.As(err, &lost):
			c.settings.logf("%v: it was to be released", lost)
		case err != nil:
			c.settings.logf("leasehold: the release of %s was not delivered, and the lease is left to expire: %v", ScopeName(p.l.ref.namespace, p.l.ref.key), err)
		}
		c.part(p, err)
	}
	return again
}

// awaitRenewal waits for a renewal that is in flight: none comes after a release.
func (l *Lease) awaitRenewal(ctx context.Context) error {
	l.c.mu.Lock()
	asked := l.asked
	l.c.mu.Unlock()
	if asked != nil {
		select {
		case <-asked:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// awaitReleases lets an acquire follow the client's own release of the same scope.
func (c *Client) awaitReleases(ctx context.Context, refs []ref) {
	ctx, cancel := context.WithTimeout(ctx, c.settings.patience)
	defer cancel()
	for _, it := range refs {
		c.mu.Lock()
		p := c.releases.last[scope{it.namespace, it.key}]
		c.mu.Unlock()
		if p != nil {
			select {
			case <-p.over:
			case <-ctx.Done():
			}
		}
	}
}

// flush waits until all releases are sent, but not for long.
func (c *Client) flush() {
	c.mu.Lock()
	done := c.releases.done
	c.mu.Unlock()
	if done == nil {
		return
	}
	t := time.NewTimer(c.settings.flush)
	defer t.Stop()
	select {
	case <-done:
	case <-t.C:
	}
}
