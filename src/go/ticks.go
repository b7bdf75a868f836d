package leasehold

import (
	"context"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	pb "leasehold.example/go/leaseholdv1"
)

// Tick is an instant of a schedule that this process has claimed, with its lease: its namespace is the schedule, its key the instant.
type Tick struct {
	*Lease
	At      time.Time // the instant, in UTC
	Attempt int       // 1 for the first
	Result  any       // kept as JSON when the work has ended well, if it is not nil; at most 8 KiB
}

// claimed is the answer to a claim.
type claimed struct {
	grant
	key     string
	at      time.Time
	attempt int
}

// Ticks works for a schedule until ctx ends: it waits for the next tick that may run, claims it, runs work, and releases the tick's lease with the
// outcome, over and over. The work's context is that of the lease. When work returns nil the tick is done, with its Result. When it returns an error
// the tick has failed, with the error's words, and is claimed again, here or elsewhere, as often as the schedule says. Any number of processes and
// goroutines may work for one schedule.
//
// It returns the context's error, *[DeniedError], or *[ArgumentError] where no schedule has this name; it repeats what is unavailable. [Duration], [Owner],
// [Labels], [Tell] and [Retries] count for each tick; the options that say how to wait or to share do not: *[ArgumentError].
func (c *Client) Ticks(ctx context.Context, schedule string, work func(context.Context, *Tick) error, options ...Option) error {
	r := newRequest(schedule, "tick", options)
	if err := r.checkTicks(); err != nil {
		return err
	}
	for {
		err := c.tick(ctx, r, work)
		switch {
		case c.ctx.Err() != nil:
			return ErrClosed
		case err != nil:
			return err
		case ctx.Err() != nil:
			return ctx.Err()
		}
	}
}

func (r request) checkTicks() error {
	if r.wait != 0 || r.whileAlive || r.isHold || r.atLeast != nil || r.mode == ModeShared || r.priority != 0 || r.askHandOver {
		return &ArgumentError{Field: "options", Bound: "those of a tick",
			Message: "options must be none of Wait, WaitWhileAlive, WhileConnected, AtLeast, Shared, Priority and AskHandOver, which are not for ticks"}
	}
	return r.check()
}

// tick runs one. An error is that of the claim.
func (c *Client) tick(ctx context.Context, r request, work func(context.Context, *Tick) error) error {
	r.wait, r.isTick = Forever, true
	var it claimed
	if err := c.repeat(ctx, "ClaimTick", &r, func(call context.Context, _ time.Duration) (err error) {
		it, err = c.t.claim(call, r)
		return err
	}); err != nil {
		return err
	}
	r.key = it.key
	c.tells(ctx, &r) // of the lease: the wait may last for days
	l, err := c.newLease(ctx, r, it.grant)
	if err != nil {
		r.refused(err)
		return err
	}
	t := &Tick{Lease: l, At: it.at, Attempt: it.attempt}
	err = errPanicked
	defer func() { c.endTick(t, err) }()
	err = work(l.Context(), t)
	return nil
}

// endTick leaves what cannot be released to expire: then the tick has failed.
func (c *Client) endTick(t *Tick, result error) {
	var options []ReleaseOption
	if t.Result != nil {
		options = append(options, Result(t.Result))
		if problem := outcomeOf(options).problem; problem != nil {
			result = first(result, problem)
		}
	}
	if err := c.end([]*Lease{t.Lease}, result, options...); err != nil && err != result && c.ctx.Err() == nil {
		c.settings.logf("leasehold: the tick %s: %v", ScopeName(t.Namespace(), t.Key()), err)
	}
}

// claimWait is the longest wait of one request for a tick; it shows that the server lives.
const claimWait = 10 * time.Second

func (t *rpc) claim(ctx context.Context, r request) (claimed, error) {
	single := r.message(0)
	message := &pb.ClaimTickRequest{Namespace: &pb.Namespace{Segments: single.Scope.Namespace}, Wait: durationpb.New(claimWait), Duration: single.Duration,
		Owner: r.owner, LeaseKey: r.leaseKey, Labels: r.labels}
	for {
		s, sent := t.pick(), clock()
		call, cancel := context.WithTimeout(ctx, claimWait+t.patience)
		answer, err := s.schedule.ClaimTick(call, message)
		cancel()
		lease := answer.GetLease()
		var g grant
		if err == nil && lease != nil {
			g, err = grantOf(r.ref(), lease, sent, answer.GetWaited())
		}
		switch {
		case ctx.Err() != nil && err != nil:
			return claimed{}, ctx.Err()
		case err != nil:
			return claimed{}, t.failed(s, r.ref(), err)
		case lease != nil:
			return claimed{g, lease.GetScope().GetKey(), answer.GetAt().AsTime(), int(answer.GetAttempt())}, nil
		}
		// A server that does not wait is not asked more than ten times a second.
		pause(ctx, retryAfter-min(clock()-sent, retryAfter))
	}
}

const claiming = granting + `, c.at, c.attempt, (c.lease).key
  from leasehold.claim_tick($1::text, owner => $2::text, duration => make_interval(secs => $3::float8), lease_key => $4::text::uuid,
                            labels => $5::text::jsonb) c, leasehold.granted(c.lease) g`

// A waiter for a tick looks at least so often behind a pooler, and at a tick that is due while no more may run.
const (
	pooledLook = time.Second
	busyLook   = 250 * time.Millisecond
)

// claim runs on a goroutine of its own, as acquire does.
func (d *direct) claim(ctx context.Context, r request) (claimed, error) {
	type answer struct {
		claimed
		err error
	}
	done := make(chan answer)
	if !d.start(func() {
		s, err := d.get(ctx)
		if err != nil {
			select {
			case done <- answer{err: err}:
			case <-ctx.Done():
			}
			return
		}
		it, err := d.awaitTick(ctx, s, r)
		select {
		case done <- answer{it, err}:
		case <-ctx.Done():
			if err == nil {
				d.undo(s, ref{r.namespace, it.key, r.leaseKey, r.duration, false})
			}
		}
		d.put(s)
	}) {
		return claimed{}, ErrClosed
	}
	select {
	case a := <-done:
		return a.claimed, a.err
	case <-ctx.Done():
		return claimed{}, ctx.Err()
	}
}

// awaitTick claims, and waits meanwhile.
func (d *direct) awaitTick(ctx context.Context, s *session, r request) (it claimed, err error) {
	row, args, err := r.inSQL()
	if err != nil {
		return it, err
	}
	if !s.isPooled {
		var channel string
		if _, err := d.row(s, r.ref(), []any{&channel}, "select leasehold.tick_channel($1::text)", r.namespace); err != nil {
			return it, err
		}
		defer d.unlisten(s)
		if err := d.listen(s, r, channel); err != nil {
			return it, err
		}
	}
	for ctx.Err() == nil {
		sent := clock()
		found, err := d.row(s, r.ref(), append(row.columns(), &it.at, &it.attempt, &it.key), claiming, r.namespace, r.owner, r.duration.Seconds(), r.leaseKey, args[5])
		if err != nil || found {
			it.grant, it.at = row.grant(sent), it.at.UTC()
			return it, err
		}
		var seconds *float64
		if _, err := d.row(s, r.ref(), []any{&seconds}, "select extract(epoch from leasehold.until_tick($1::text))::float8", r.namespace); err != nil {
			return it, err
		}
		look := d.settings.poll
		if s.isPooled {
			look = min(look, pooledLook)
		}
		if seconds != nil {
			look = min(look, max(time.Duration(*seconds*float64(time.Second)), busyLook))
		}
		if err := d.listenFor(ctx, s, r.ref(), look); err != nil {
			return it, err
		}
	}
	return it, ctx.Err()
}
