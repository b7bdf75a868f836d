package leasehold

import (
	"context"
	"errors"
	"time"
)

// What may have been granted to callers who have given up. One goroutine for each client releases it, until a server has answered. A lease that the
// server does not know may still be granted, because its request may come after its release: it is released again after 1, 2, 4 ... s, until it would
// have ended by itself. The goroutine runs while there is any of it, and ends with the client.

const (
	mostDoubts      = 100000
	unansweredAgain = 200 * time.Millisecond
	doubtFirst      = time.Second
)

// unheard is the failure of what was granted after its caller had gone.
const unheard = "the caller gave up before it heard of the grant"

// givenUp is guarded by the mutex of its client.
type givenUp struct {
	leases []*abandoned
	wake   chan struct{} // nil: the goroutine does not run
}

// abandoned is one lease, on clock().
type abandoned struct {
	ref               ref
	until, due, doubt time.Duration
	answered          *countdown // nil: it has been answered
}

// countdown closes over when all of them are answered.
type countdown struct {
	left int
	over chan struct{}
}

func (a *abandoned) setAnswered() {
	if a.answered == nil {
		return
	}
	if a.answered.left--; a.answered.left == 0 {
		close(a.answered.over)
	}
	a.answered = nil
}

func unheardEndings(refs []ref) []ending {
	items := make([]ending, len(refs))
	for i, it := range refs {
		items[i] = ending{it, outcome{failed: true, value: unheard}}
	}
	return items
}

// giveUp sees to it that what was granted unheard is released. The channel is closed when all is answered, or left to expire.
func (c *Client) giveUp(refs []ref) <-chan struct{} {
	answered := &countdown{len(refs), make(chan struct{})}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(refs) == 0 || c.closed {
		close(answered.over)
		return answered.over
	}
	g := &c.givenUp
	for _, it := range refs {
		g.leases = append(g.leases, &abandoned{ref: it, until: clock() + it.duration, doubt: doubtFirst, answered: answered})
	}
	if g.wake == nil {
		g.wake = make(chan struct{}, 1)
		c.work.Add(1)
		go c.releaseGivenUp(g.wake)
	}
	select {
	case g.wake <- struct{}{}:
	default:
	}
	return answered.over
}

func (c *Client) releaseGivenUp(wake chan struct{}) {
	defer c.work.Done()
	for {
		due, rest := c.dueGivenUp()
		switch {
		case len(due) > 0:
			c.releaseUnheard(due)
		case rest == 0:
			return
		default:
			t := time.NewTimer(rest)
			select {
			case <-t.C:
			case <-wake:
			case <-c.ctx.Done():
			}
			t.Stop()
		}
	}
}

// dueGivenUp is what is to be released now, or how long there is none; 0: there is none at all any more.
func (c *Client) dueGivenUp() (due []*abandoned, rest time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	g := &c.givenUp
	if c.ctx.Err() != nil {
		for _, a := range g.leases {
			a.setAnswered()
		}
		g.leases = nil
	}
	if len(g.leases) == 0 {
		g.wake = nil
		return nil, 0
	}
	now, next := clock(), Forever
	for _, a := range g.leases {
		if next = min(next, a.due); a.due <= now && len(due) < mostInRelease {
			due = append(due, a)
		}
	}
	return due, max(next-now, unansweredAgain) // all are looked at no more than five times a second
}

func (c *Client) releaseUnheard(due []*abandoned) {
	ctx, cancel := context.WithTimeout(c.ctx, c.settings.patience)
	defer cancel()
	refs := make([]ref, len(due))
	for i, a := range due {
		refs[i] = a.ref
	}
	answers := c.t.giveUp(ctx, refs)
	c.mu.Lock()
	defer c.mu.Unlock()
	over := map[*abandoned]bool{}
	for i, a := range due {
		over[a] = c.isOver(a, answers[i])
	}
	kept := c.givenUp.leases[:0]
	for _, a := range c.givenUp.leases {
		if !over[a] {
			kept = append(kept, a)
		}
	}
	clear(c.givenUp.leases[len(kept):])
	c.givenUp.leases = kept
}

// isOver takes in an answer. The caller has c.mu.
func (c *Client) isOver(a *abandoned, answer error) bool {
	var lost *LostError
	switch {
	case errors.As(answer, new(*UnavailableError)):
		a.due = clock() + unansweredAgain
	case errors.As(answer, &lost) && lost.Reason == Unknown && len(c.givenUp.leases) <= mostDoubts:
		a.setAnswered()
		a.due = clock() + a.doubt
		a.doubt *= 2
	default:
		a.due = Forever
	}
	if a.due < a.until {
		return false
	}
	a.setAnswered()
	return true
}
