package leasehold

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "leasehold.example/go/leaseholdv1"
)

// Explanation is what a person wants to know of a scope. Of several shared holders the oldest is told of.
type Explanation struct {
	State     string // free, held, shared or resting
	Liveness  string // of the holder: alive, suspected_dead, overdue or expired; empty where there is none
	Holder    string // the owner's own words
	Principal string // what the holder has proved
	Token     int64  // 0 where the role may not see it
	Mode      Mode
	Units     int // of all shared holders together, with Dial of the oldest 100
	Holders   int
	Waiters   int
	Since     time.Time     // it was acquired, or ended
	Silent    time.Duration // since the holder's last renewal
	Rests     time.Duration // that it is granted to nobody
	Advice    string        // what to do next
}

// Explain tells who holds namespace/key, whether it is alive, who waits, and what to do.
func (c *Client) Explain(ctx context.Context, namespace, key string) (*Explanation, error) {
	if err := first(checkNamespace(namespace), checkKey(key)); err != nil {
		return nil, err
	}
	return c.t.explain(ctx, namespace, key)
}

// Explain is [Client.Explain].
func (d *Declared) Explain(ctx context.Context, key string) (*Explanation, error) {
	return d.c.Explain(ctx, d.namespace, key)
}

func (d *direct) explain(ctx context.Context, namespace, key string) (*Explanation, error) {
	s, err := d.get(ctx)
	if err != nil {
		return nil, err
	}
	defer d.put(s)
	var e Explanation
	var silent, rests float64
	_, err = d.row(s, ref{namespace: namespace, key: key},
		[]any{&e.State, &e.Liveness, &e.Holder, &e.Principal, &e.Token, &e.Mode, &e.Units, &e.Holders, &e.Waiters, &e.Since, &silent, &rests, &e.Advice}, `
		select state, coalesce(liveness, ''), coalesce(holder, ''), coalesce(principal, ''), coalesce(token, 0), coalesce(mode, ''),
		       coalesce(units, 0), holders, waiters, coalesce(since, '0001-01-01 00:00:00Z'),
		       coalesce(extract(epoch from clock_timestamp() - last_heartbeat_at), 0)::float8,
		       coalesce(extract(epoch from rests_until - clock_timestamp()), 0)::float8, advice
		  from leasehold.explain($1::text, $2::text)`, namespace, key)
	e.Silent, e.Rests = time.Duration(silent*float64(time.Second)), time.Duration(rests*float64(time.Second))
	return &e, err
}

func (t *rpc) explain(ctx context.Context, namespace, key string) (*Explanation, error) {
	ctx, cancel := within(ctx, t.patience)
	defer cancel()
	s := t.pick()
	answer, err := s.lease.GetLease(ctx, &pb.GetLeaseRequest{Scope: scopeOf(namespace, key)})
	if err != nil && status.Code(err) != codes.NotFound {
		return nil, t.failed(s, ref{namespace: namespace, key: key}, err)
	}
	e := &Explanation{State: "free", Holders: int(answer.GetHolderCount()), Waiters: int(answer.GetContention().GetWaitersAhead()),
		Rests: answer.GetContention().GetRests().AsDuration()}
	if ended := answer.GetLast().GetEndedAt(); ended != nil {
		e.Since = ended.AsTime()
	}
	if e.Rests > 0 {
		e.State = "resting"
	}
	if lease := answer.GetLease(); lease != nil {
		e.take(lease)
	}
	for _, each := range answer.GetHolders() {
		e.Units += int(each.GetUnits())
	}
	e.Advice = e.advice()
	return e, nil
}

func (e *Explanation) take(lease *pb.Lease) {
	e.Holder, e.Principal, e.Token = lease.GetOwner(), lease.GetPrincipal(), lease.GetToken()
	e.Since = lease.GetAcquiredAt().AsTime()
	now := lease.GetDeadline().AsTime().Add(-lease.GetRemaining().AsDuration()) // of the database
	e.Silent = now.Sub(lease.GetHeartbeatAt().AsTime())
	if e.Mode, e.State = modeOf(int(lease.GetUnits())), "held"; e.Mode == ModeShared {
		e.State = "shared"
	}
	e.Liveness = map[pb.Liveness]string{pb.Liveness_LIVENESS_ALIVE: "alive", pb.Liveness_LIVENESS_SUSPECTED_DEAD: "suspected_dead",
		pb.Liveness_LIVENESS_OVERDUE: "overdue", pb.Liveness_LIVENESS_EXPIRED: "expired"}[lease.GetLiveness()]
}

// advice is shorter than that of leasehold.explain, which knows the policy.
func (e *Explanation) advice() string {
	switch {
	case e.State == "resting":
		return fmt.Sprintf("wait: it rests for another %s", e.Rests.Round(time.Millisecond))
	case e.State == "free" && e.Waiters > 0:
		return "join the queue: it is free, but others wait"
	case e.State == "free":
		return "free: acquire it"
	case e.Liveness == "expired":
		return "it has expired: wait for the reaper"
	case e.Liveness == "suspected_dead":
		return fmt.Sprintf("look at %s: silent for %s, suspected dead", e.Holder, e.Silent.Round(time.Millisecond))
	case e.Liveness == "overdue":
		return fmt.Sprintf("look at %s: alive, but it has held this for longer than max_hold", e.Holder)
	case e.State == "shared":
		return "acquire it shared: an exclusive lease waits for all of its holders"
	}
	return fmt.Sprintf("wait: %s is alive, its last heartbeat was %s ago", e.Holder, e.Silent.Round(time.Millisecond))
}
