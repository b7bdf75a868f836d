package leasehold

import (
	"context"
	"errors"
	"iter"
	"strings"
	"time"

	pb "leasehold.example/go/leaseholdv1"
)

// EventType says what [Client.Watch] tells of.
type EventType string

const (
	EventHeld       EventType = "held"   // when the watch begins, and again after each break
	EventSynced     EventType = "synced" // that was all that is held; it has no lease
	EventAcquired   EventType = "acquired"
	EventReleased   EventType = "released"
	EventFailed     EventType = "failed" // released as failed
	EventExpired    EventType = "expired"
	EventMaxHold    EventType = "max_hold" // the policy ended it
	EventForced     EventType = "forced"
	EventDowngraded EventType = "downgraded"
)

// Event is a grant or an end of a lease.
type Event struct {
	Type           EventType
	Namespace, Key string
	Holder         Holder
	Result         string // JSON, of EventReleased
	Message        string // the error of EventFailed and EventExpired, the administrator's words of EventForced
}

// WatchOption changes what is watched.
type WatchOption func(*pb.WatchLeasesRequest)

// WatchKey watches this key of the namespace alone.
func WatchKey(key string) WatchOption { return func(r *pb.WatchLeasesRequest) { r.Key = key } }

// WatchChildren watches the namespaces below it, too.
func WatchChildren() WatchOption { return func(r *pb.WatchLeasesRequest) { r.IncludeChildren = true } }

// Watch tells first what is held in a namespace (empty: in all), then EventSynced, then each grant and end. A stream that breaks is begun again, with
// what is held then: what has happened meanwhile is to be seen in that. It ends with an error: that of ctx, [ErrClosed], *[UnavailableError] when no
// server could be reached at the beginning, *[DeniedError], or *[ArgumentError]. It is for clients of [Dial].
func (c *Client) Watch(ctx context.Context, namespace string, options ...WatchOption) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		call, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(c.ctx, cancel)()
		hasBegun, ended := false, false
		until := clock() + c.settings.patience
		for !ended {
			err := c.t.watch(call, watchRequest(namespace, options), func(e Event) bool {
				hasBegun = true
				ended = !yield(e, nil)
				return !ended
			})
			switch {
			case ended:
				return
			case ctx.Err() != nil:
				err = ctx.Err()
			case c.ctx.Err() != nil:
				err = ErrClosed
			case errors.As(err, new(*UnavailableError)) && (hasBegun || clock() < until):
				pause(call, 100*time.Millisecond)
				continue
			}
			yield(Event{}, err)
			return
		}
	}
}

func watchRequest(namespace string, options []WatchOption) *pb.WatchLeasesRequest {
	request := &pb.WatchLeasesRequest{IncludeInitial: true, Alive: true}
	if namespace != "" {
		request.Namespace = strings.Split(namespace, ".")
	}
	for _, option := range options {
		option(request)
	}
	return request
}

// watch is one stream, until `tell` is false, or it breaks.
func (t *rpc) watch(ctx context.Context, request *pb.WatchLeasesRequest, tell func(Event) bool) error {
	s := t.pick()
	call, cancel := context.WithCancel(ctx)
	defer cancel()
	watchdog := time.AfterFunc(t.patience, cancel)
	defer watchdog.Stop()
	stream, err := s.lease.WatchLeases(call, request)
	for err == nil {
		var event *pb.LeaseEvent
		if event, err = stream.Recv(); err != nil {
			break
		}
		watchdog.Stop() // not while the caller thinks
		if kind := typeOf(event); kind != "" && !tell(eventOf(kind, event)) {
			return nil
		}
		watchdog.Reset(3 * silence) // it says alive after 15 s
	}
	return t.failed(s, ref{}, err)
}

func eventOf(kind EventType, event *pb.LeaseEvent) Event {
	e := Event{Type: kind, Result: event.GetResult(), Message: event.GetReason() + event.GetError()}
	if lease := event.GetLease(); lease != nil {
		e.Namespace, e.Key = strings.Join(lease.GetScope().GetNamespace(), "."), lease.GetScope().GetKey()
		e.Holder = *holderOf(lease)
	}
	return e
}

// typeOf is empty where there is nothing to tell.
func typeOf(event *pb.LeaseEvent) EventType {
	switch event.GetType() {
	case pb.LeaseEvent_TYPE_INITIAL:
		return EventHeld
	case pb.LeaseEvent_TYPE_SYNCED:
		return EventSynced
	case pb.LeaseEvent_TYPE_ACQUIRED:
		return EventAcquired
	case pb.LeaseEvent_TYPE_FORCED:
		return EventForced
	case pb.LeaseEvent_TYPE_DOWNGRADED:
		return EventDowngraded
	case pb.LeaseEvent_TYPE_RELEASED:
		if event.GetEndReason() == pb.EndReason_END_REASON_FAILED {
			return EventFailed
		}
		return EventReleased
	case pb.LeaseEvent_TYPE_EXPIRED:
		if event.GetEndReason() == pb.EndReason_END_REASON_MAX_HOLD {
			return EventMaxHold
		}
		return EventExpired
	}
	return ""
}

func (d *direct) watch(context.Context, *pb.WatchLeasesRequest, func(Event) bool) error {
	return &ArgumentError{Field: "client", Bound: "one of Dial", Message: "client must be one of Dial: SQL has no watch"}
}
