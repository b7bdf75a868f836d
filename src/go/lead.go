package leasehold

import (
	"context"
	"errors"
	"sync"
	"time"

	pb "leasehold.example/go/leaseholdv1"
)

// Elector is a candidate for leadership.
type Elector struct {
	// Lead is the leader's work; mandatory. Its context ends when leadership is lost, or the context of [Client.Lead] ends. It must
	// return then: the candidate stands again only after that. To give leadership up, return before.
	Lead func(ctx context.Context, l *Lease) error

	// OnLeader is told the owner who leads, whenever that changes, this candidate included.
	OnLeader func(owner string)

	// OnAsked is told of each request to hand leadership over, once: have Lead return, or refuse by [Lease.RefuseHandOver].
	OnAsked func(l *Lease, request HandOver)

	// AskHandOver asks the leader to hand over while this candidate waits, as a preferred leader does.
	AskHandOver bool

	// Duration is how long a leader that is stopped or cut off is waited for; 15 s by default. One that dies is followed at once, if the
	// client was made by [Dial]; with [Over] this time passes too.
	Duration time.Duration

	// Owner names the candidate; host and pid by default.
	Owner string
}

// Lead stands for election until it is elected, runs e.Lead, and stands again when leadership was lost meanwhile. It returns what e.Lead
// returned when that gave leadership up, the context's error when it ended, or *[DeniedError] or *[ArgumentError].
func (c *Client) Lead(ctx context.Context, namespace, key string, e Elector) error {
	return c.lead(ctx, newRequest(namespace, key, []Option{Duration(15 * time.Second)}), e)
}

func (c *Client) lead(ctx context.Context, r request, e Elector) error {
	r.wait, r.whileAlive, r.isHold = Forever, false, true
	if e.Duration != 0 {
		r.duration = e.Duration
	}
	if e.Owner != "" {
		r.owner = e.Owner
	}
	if e.OnAsked != nil {
		r.listener.Asked = e.OnAsked
	}
	r.askHandOver = r.askHandOver || e.AskHandOver
	leader := ""
	see := func(owner string) {
		if e.OnLeader != nil && owner != "" && owner != leader {
			leader = owner
			e.OnLeader(owner)
		}
	}
	r.queued = func(h *HeldError) { see(h.Holder) }
	for {
		l, err := c.acquire(ctx, ctx, r)
		if err != nil {
			return err
		}
		err = errPanicked
		func() {
			defer func() { err = c.end([]*Lease{l}, err) }()
			see(r.owner)
			err = e.Lead(l.Context(), l)
		}()
		var lost *LostError
		if !errors.As(err, &lost) || lost.Reason == Closed || ctx.Err() != nil {
			return err
		}
		leader = ""
	}
}

// holding is a stream that holds a lease: the daemon renews it while this process says that it is alive, and releases it when the
// connection breaks, as it does when the process dies.
type holding struct {
	t      *rpc
	server *server
	r      request
	stream pb.LeaseService_HoldClient
	cancel context.CancelFunc
	said   chan struct{} // closed when it says `alive` no more

	mu   sync.Mutex
	sent map[int64]time.Duration // when which `alive` was sent
}

// Proxies end streams on which nothing is sent for 50 or 60 s, and answer for a process that is stopped.
const mostSilence = 15 * time.Second

// say says `alive`, from the start of the stream to its end.
func (h *holding) say(ctx context.Context) {
	defer close(h.said)
	t := time.NewTicker(min(mostSilence, max(h.r.duration/6, time.Millisecond)))
	defer t.Stop()
	for sequence := int64(1); ; sequence++ {
		h.mu.Lock()
		h.sent[sequence] = clock()
		delete(h.sent, sequence-100) // of a long wait
		h.mu.Unlock()
		if h.stream.Send(&pb.HoldRequest{Request: &pb.HoldRequest_Alive{Alive: &pb.Alive{Sequence: sequence}}}) != nil {
			return
		}
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
	}
}

// sentAt is when that `alive` was sent; older ones are forgotten.
func (h *holding) sentAt(sequence int64) (time.Duration, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	at, known := h.sent[sequence]
	for each := range h.sent {
		if each < sequence {
			delete(h.sent, each)
		}
	}
	return at, known
}

// hold acquires over a stream.
func (t *rpc) hold(ctx context.Context, r request, wait time.Duration) (grant, error) {
	call, cancel := context.WithCancel(context.Background())
	h := &holding{t: t, server: t.pick(), r: r, cancel: cancel, said: make(chan struct{}), sent: map[int64]time.Duration{}}
	answered := make(chan struct{})
	defer close(answered)
	go func() {
		select {
		case <-ctx.Done():
			cancel()
		case <-answered:
		}
	}()
	watchdog := time.AfterFunc(t.patience, cancel)
	defer watchdog.Stop()
	granted := false
	defer func() {
		if !granted { // r.queued may have panicked, too
			cancel()
		}
	}()
	sent := clock()
	var err error
	if h.stream, err = h.server.lease.Hold(call); err == nil {
		err = h.stream.Send(&pb.HoldRequest{Request: &pb.HoldRequest_Acquire{Acquire: r.message(wait)}})
	}
	if err == nil {
		go h.say(call)
	} else {
		close(h.said)
	}
	for {
		var event *pb.HoldEvent
		if h.stream != nil { // Recv knows why a Send failed
			event, err = h.stream.Recv()
		}
		if err == nil && ctx.Err() == nil && watchdog.Reset(silence) {
			if lease := event.GetGranted(); lease != nil {
				g, other := grantOf(r.ref(), lease, sent, event.GetWaited())
				if other != nil {
					return grant{}, t.failed(h.server, r.ref(), other)
				}
				g.stream, granted = h, true
				return g, nil
			}
			if r.queued != nil && event.GetQueued() != nil {
				r.queued(r.contention(event.GetQueued()))
			}
			continue
		}
		if ctx.Err() != nil {
			return grant{}, ctx.Err()
		}
		if err == nil {
			err = errors.New("the server was silent for too long")
		}
		return grant{}, t.failed(h.server, r.ref(), err)
	}
}

// follow keeps a lease until it is over: when the stream ends before that, another one, perhaps to another daemon, finds the lease again.
func (h *holding) follow(l *Lease) {
	for {
		err := h.run(l)
		h.cancel()
		if l.isOver() {
			return
		}
		h.t.leave(h.server)
		for {
			ctx, cancel := context.WithTimeout(l.c.ctx, max(l.duration/6, 10*time.Millisecond))
			var g grant
			if g, err = h.t.hold(ctx, h.r, 0); err == nil {
				cancel()
				l.extend(g.deadline, g.final)
				h = g.stream
				break
			}
			var held *HeldError
			if isEnded(err) || errors.As(err, &held) {
				reason, message := h.t.reason(ctx, l.ref)
				if reason == Released || reason == Failed { // by the daemon, because the stream broke
					reason = Unreachable
				}
				l.loseNow(reason, message)
			}
			cancel()
			if l.isOver() {
				return
			}
			pause(l.c.ctx, min(retryAfter, l.duration/20))
		}
	}
}

// reason is how a lease has ended.
func (t *rpc) reason(ctx context.Context, it ref) (Reason, string) {
	beats, err := t.heartbeat(ctx, []ref{it})
	if err != nil || !beats[0].lost {
		return Unknown, "it had ended when the connection was back"
	}
	return beats[0].reason, beats[0].message
}

// run takes in what the daemon says, until the stream ends or the lease is over.
func (h *holding) run(l *Lease) error {
	defer func() { <-h.said }()
	defer h.cancel()
	done := make(chan struct{})
	defer close(done)
	go func() {
		select {
		case <-l.over:
			h.cancel()
		case <-done:
		}
	}()
	// The next renewal comes after a third of the duration.
	watchdog := time.AfterFunc(l.duration/2, h.cancel)
	defer watchdog.Stop()
	for {
		event, err := h.stream.Recv()
		if err != nil {
			return err
		}
		if lost := event.GetLost(); lost != nil {
			l.loseNow(reasonOf(lost.GetEndReason()), lost.GetMessage())
			return nil
		}
		if asked := handOverOf(event.GetAsked()); asked != nil {
			l.c.mu.Lock()
			l.wasAsked(asked)
			l.c.mu.Unlock()
		}
		renewed := event.GetRenewed()
		if renewed == nil || isAbout(l.ref, renewed.GetLeaseKey()) != nil {
			continue
		}
		watchdog.Reset(l.duration / 2)
		if at, known := h.sentAt(event.GetAliveSequence()); known {
			l.extend(at+atMost(renewed.GetRemaining(), l.duration), renewed.GetDeadlineIsFinal())
		}
	}
}
