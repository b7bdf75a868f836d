package leasehold

import (
	"context"
	"sort"
	"time"
)

// One goroutine for each client renews all its leases. It runs while there are any.

const (
	mostInRequest = 10000 // leases
	retryAfter    = 100 * time.Millisecond
)

// add puts a lease under the renewer's care. The caller has c.mu.
func (c *Client) add(l *Lease) {
	c.leases[l] = struct{}{}
	l.isTold = true
	l.hold = l.told.Granted(l.ref.namespace, l.ref.key, modeOf(l.units), l.token)
	l.tell(l.listener.Granted)
	if c.renews {
		c.look()
		return
	}
	c.renews = true
	c.work.Add(1)
	go c.renew()
}

func (c *Client) look() {
	select {
	case c.kick <- struct{}{}:
	default:
	}
}

func (c *Client) renew() {
	defer c.work.Done()
	for {
		wake, ok := c.renewDue()
		if !ok {
			return
		}
		t := time.NewTimer(wake)
		select {
		case <-t.C:
		case <-c.kick:
		}
		t.Stop()
	}
}

// renewDue tells holders whose time is over, sends a request if one is due, and says when to look again; false: there are no leases.
func (c *Client) renewDue() (time.Duration, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := clock()
	wake := now + time.Minute
	isDue := false
	for l := range c.leases {
		l.expire()
		if l.lost != nil {
			continue
		}
		// A part of the margin at the most: the timer does not run while the machine is suspended.
		wake = min(wake, min(now+l.duration/10, l.stop()))
		if l.isRenewed() && !c.asks {
			wake = min(wake, l.next)
			isDue = isDue || l.next <= now
		}
	}
	if len(c.leases) == 0 {
		c.renews = false
		return 0, false
	}
	if isDue {
		c.ask(now)
	}
	return wake - now, true
}

func (l *Lease) isRenewed() bool { return !l.ends && !l.streaming && l.asked == nil }

// ask renews what is due, and what will be soon, in one request. The caller has c.mu.
func (c *Client) ask(now time.Duration) {
	var leases []*Lease
	for l := range c.leases {
		if l.isRenewed() && l.next <= now+l.duration/6 {
			leases = append(leases, l)
		}
	}
	sort.Slice(leases, func(i, j int) bool { return leases[i].next < leases[j].next })
	if len(leases) > mostInRequest {
		leases = leases[:mostInRequest]
	}
	asked := make(chan struct{})
	refs := make([]ref, len(leases))
	// An answer that got lost must not cost the lease.
	patience := c.settings.patience
	for i, l := range leases {
		l.asked, refs[i] = asked, l.ref
		patience = min(patience, max(min(l.duration/6, l.stop()-now), 10*time.Millisecond))
	}
	c.asks = true
	c.work.Add(1)
	go func() {
		defer c.work.Done()
		ctx, cancel := context.WithTimeout(c.ctx, patience)
		beats, err := c.t.heartbeat(ctx, refs)
		cancel()
		c.answered(now, leases, beats, err)
		close(asked)
	}()
}

// answered takes in the answers to a request that was sent at `sent`.
func (c *Client) answered(sent time.Duration, leases []*Lease, beats []beat, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asks = false
	for i, l := range leases {
		l.asked = nil
		l.expire() // an answer that was read too late saves nothing
		switch {
		case l.lost != nil || l.released:
		case err != nil:
			// One renewal that failed is no loss; the deadline is.
			l.trouble, l.next = err.Error(), clock()+min(retryAfter, l.duration/20)
		case beats[i].ok:
			l.tell(l.listener.Renewed)
			l.deadline, l.final, l.next, l.trouble = sent+beats[i].remaining, beats[i].final, sent+l.duration/3, ""
			l.wasAsked(beats[i].asked)
		case beats[i].lost && !l.ends:
			l.lose(beats[i].reason, beats[i].message)
		case !beats[i].lost:
			l.trouble, l.next = beats[i].message, clock()+min(retryAfter, l.duration/20)
		}
	}
	c.look()
}
