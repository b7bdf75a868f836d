// Package leasehold leases names, to one holder at a time or to several that share one, with fencing tokens, on PostgreSQL.
//
// A [Client] talks to Leasehold daemons ([Dial]) or straight to a database that has the schema ([Over]). Its leases are renewed by
// themselves, all in one request, until they are released or lost. A lease that is lost ends its context before its deadline, so that
// work under that context has stopped when another may hold it.
package leasehold

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"

	pb "leasehold.example/go/leaseholdv1"
)

// ref names a lease for its holder.
type ref struct {
	namespace, key, leaseKey string
	duration                 time.Duration // of a lease that is renewed
	listens                  bool          // to requests to hand over
}

// grant is the answer to an acquire: deadline on clock().
type grant struct {
	token    int64
	deadline time.Duration
	final    bool // the policy ends it at the deadline
	units    int  // 0: exclusive
	slots    []int
	stream   *holding // that renews it; nil: the client does
}

// ending is one release.
type ending struct {
	ref
	outcome
}

// beat is the answer to one renewal. Neither ok nor lost: not done, and nothing is known to be lost.
type beat struct {
	ok, lost  bool
	final     bool // of a renewal that is ok: the policy ends it at its deadline
	remaining time.Duration
	reason    Reason
	message   string
	asked     *HandOver // nil: it is not
}

// transport is a way to the coordinator. Each call is one try; *UnavailableError says that another may succeed.
type transport interface {
	// acquire waits for at most `wait`, and tells r.queued() who is ahead. When it fails, it may have been granted all the same.
	acquire(ctx context.Context, r request, wait time.Duration) (grant, error)
	// acquireAll is acquire for the scopes of r; it tells nobody who is ahead.
	acquireAll(ctx context.Context, r request, wait time.Duration) ([]grant, error)
	// claim waits for a tick of the schedule that is r.namespace, until ctx ends.
	claim(ctx context.Context, r request) (claimed, error)
	heartbeat(ctx context.Context, refs []ref) ([]beat, error)
	// downgrade may be repeated: the answer is the same.
	downgrade(ctx context.Context, it ref, units int) (grant, error)
	// release has an answer for each: nil, *LostError, *DeniedError or *UnavailableError.
	release(ctx context.Context, items []ending) []error
	// giveUp ends what acquires that failed may have left: a place in the queue, or a grant. The answers are those of a release.
	giveUp(ctx context.Context, refs []ref) []error
	holder(ctx context.Context, namespace, key string) (*Holder, error)
	explain(ctx context.Context, namespace, key string) (*Explanation, error)
	askHandOver(ctx context.Context, namespace, key, reason string) ([]HandOver, error)
	// refuseHandOver is false where nobody has asked, or the lease has ended.
	refuseHandOver(ctx context.Context, it ref, words string) (bool, error)
	watch(ctx context.Context, request *pb.WatchLeasesRequest, tell func(Event) bool) error
	close()
}

// Client has any number of leases. Its methods may be called from several goroutines.
type Client struct {
	t        transport
	settings settings
	ctx      context.Context // ends with Close
	cancel   context.CancelFunc
	work     sync.WaitGroup // goroutines that end with ctx
	mu       sync.Mutex     // guards the fields below, and those of the leases
	leases   map[*Lease]struct{}
	kick     chan struct{} // the renewer looks again
	renews   bool          // the renewer runs
	asks     bool          // a renewal is in flight
	closed   bool
	releases releases
	givenUp  givenUp
}

func newClient(t transport, s settings) *Client {
	c := &Client{t: t, settings: s, leases: map[*Lease]struct{}{}, kick: make(chan struct{}, 1)}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c
}

// Close sends what [Lease.TryRelease] left, for at most [FlushTimeout], and ends all goroutines and connections. Leases that are still held are not renewed any more: their contexts end with the reason
// [Closed], and they stay with their holder until their deadlines. A second call does nothing.
func (c *Client) Close() error {
	c.mu.Lock()
	again := c.closed
	c.closed = true
	for l := range c.leases {
		l.lose(Closed, "")
	}
	c.mu.Unlock()
	c.flush()
	c.cancel()
	c.work.Wait()
	if !again {
		c.t.close()
	}
	return nil
}

// start runs f on a goroutine that Close waits for; false: the client is closed.
func (c *Client) start(f func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.work.Add(1)
	go func() {
		defer c.work.Done()
		f()
	}()
	return true
}

// Acquire leases namespace/key. It returns *[HeldError] when another holds it and the wait has passed, *[UnavailableError] when no server
// could be reached, *[DeniedError], *[ArgumentError], or the context's error. The lease outlives ctx: it ends by [Lease.Release], or when
// it is lost.
func (c *Client) Acquire(ctx context.Context, namespace, key string, options ...Option) (*Lease, error) {
	return c.acquire(ctx, context.Background(), newRequest(namespace, key, options))
}

func newRequest(namespace, key string, options []Option) request {
	r := request{namespace: namespace, key: key, owner: defaultOwner(), duration: 30 * time.Second, mode: ModeExclusive}
	for _, option := range options {
		option(&r)
	}
	return r
}

// acquire makes a lease whose context is a child of `parent`.
func (c *Client) acquire(ctx, parent context.Context, r request) (_ *Lease, err error) {
	if err := r.check(); err != nil {
		return nil, err
	}
	calls := c.tells(ctx, &r)
	defer func() { r.refused(err) }()
	var g grant
	if err := c.repeat(calls, "Acquire", &r, func(call context.Context, wait time.Duration) (err error) {
		g, err = c.t.acquire(call, r, wait)
		return err
	}); err != nil {
		return nil, err
	}
	return c.newLease(parent, r, g)
}

// repeat tries until a try is granted, or ends otherwise; r gets its lease key here.
func (c *Client) repeat(ctx context.Context, verb string, r *request, try func(call context.Context, wait time.Duration) error) error {
	r.leaseKey = newUUID()
	waitUntil, until, repeated := Forever, Forever, false
	if now := clock(); !r.whileAlive && r.wait < Forever-now-c.settings.patience {
		waitUntil, until = now+r.wait, now+r.wait+c.settings.patience
	}
	call, cancel, err := c.callContext(ctx)
	if err != nil {
		return err
	}
	defer cancel()
	c.awaitReleases(call, r.refs())
	for retry := c.retrying(verb, r.refs()[0], r.strategy); ; {
		wait := Forever
		if waitUntil != Forever {
			wait = max(waitUntil-clock(), 0)
		}
		if err = try(call, wait); err == nil {
			return nil
		}
		isUnavailable := errors.As(err, new(*UnavailableError))
		switch {
		case c.ctx.Err() != nil:
			return ErrClosed
		case ctx.Err() != nil:
			c.giveUp(r.unheard())
			return ctx.Err()
		case repeated && isEnded(err):
			// The daemon granted it, saw the connection break, and took the lease back; or one of several has ended.
			if r.scopes != nil {
				select {
				case <-c.giveUp(r.refs()): // the others are in the way
				case <-time.After(c.settings.patience):
				case <-call.Done():
				}
			}
			repeated, r.leaseKey = false, newUUID()
		case isUnavailable && clock() >= until:
			c.giveUp(r.unheard())
			return err
		case retry.again(call, err, until-clock()):
			repeated = true // the same lease key makes it the same acquisition, with its old place in the queue
		default:
			if isUnavailable || repeated {
				c.giveUp(r.unheard())
			}
			return err
		}
	}
}

// callContext ends with ctx, and with the client.
func (c *Client) callContext(ctx context.Context) (context.Context, context.CancelFunc, error) {
	call, cancel := context.WithCancel(ctx)
	if !c.start(func() {
		select {
		case <-c.ctx.Done():
			cancel()
		case <-call.Done():
		}
	}) {
		cancel()
		return nil, nil, ErrClosed
	}
	return call, cancel, nil
}

// unheard is what may have been granted without an answer. A tick is left to expire: nobody knows which one it is.
func (r request) unheard() []ref {
	if r.isTick {
		return nil
	}
	return r.refs()
}

// Do runs work under a lease. The work's context ends when ctx does, or the lease is lost; then Do returns *[LostError] as soon as the work
// has. Else the lease is released, as failed if the work returned an error, and Do returns that error.
func (c *Client) Do(ctx context.Context, namespace, key string, work func(context.Context, *Lease) error, options ...Option) (err error) {
	r := newRequest(namespace, key, options)
	l, err := c.acquire(ctx, ctx, r)
	if err != nil {
		return err
	}
	err = errPanicked
	defer func() { err = c.end([]*Lease{l}, err) }()
	err = work(l.Context(), l)
	return
}

// end releases leases whose work has ended with `result`. A loss is told also when nobody heard of it before.
func (c *Client) end(leases []*Lease, result error, options ...ReleaseOption) error {
	if result != nil {
		options = append(options, Failure(result))
	}
	ctx, cancel := context.WithTimeout(c.ctx, 2*c.settings.patience)
	defer cancel()
	err := c.release(ctx, leases, outcomeOf(options))
	lost := lostOf(leases)
	switch {
	case lost == nil && result == nil:
		return err
	case lost == nil:
		return result
	case result != nil && !errors.Is(result, context.Canceled):
		return fmt.Errorf("%w (the work ended with: %v)", lost, result)
	}
	return lost
}

// Mode says whether others may hold the scope too.
type Mode string

const (
	ModeExclusive Mode = "exclusive"
	ModeShared    Mode = "shared"
)

func modeOf(units int) Mode {
	if units > 0 {
		return ModeShared
	}
	return ModeExclusive
}

// Holder is who holds a scope now, the oldest of several.
type Holder struct {
	Owner                   string
	Token                   int64 // 0 where the role may not see it
	Duration                time.Duration
	AcquiredAt, HeartbeatAt time.Time // by the database's clock
	Heartbeats              int64
	Expired                 bool
	Mode                    Mode
	Units                   int // of a shared lease
	Labels                  map[string]string
}

// Holder tells who holds namespace/key; nil: nobody.
func (c *Client) Holder(ctx context.Context, namespace, key string) (*Holder, error) {
	return c.t.holder(ctx, namespace, key)
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

func isEnded(err error) bool {
	var denied *DeniedError
	return errors.As(err, &denied) && denied.Reason == "LEASE_ENDED"
}

func newUUID() string {
	var b [16]byte
	if _, err := rand.Read(b[:]); err != nil {
		panic("leasehold: no random numbers: " + err.Error())
	}
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
