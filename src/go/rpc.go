package leasehold

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "leasehold.example/go/leaseholdv1"
)

// rpc talks to daemons. grpc-go takes at least 10 s to notice a server that hangs, so each address has a connection of its own here: a
// call that is not answered in time, or fails, makes the next call use the next address.
type rpc struct {
	servers  []*server
	patience time.Duration
	mu       sync.Mutex
	current  int
}

type server struct {
	conn     *grpc.ClientConn
	lease    pb.LeaseServiceClient
	schedule pb.ScheduleServiceClient
}

// Dial makes a client of one or more daemons: "host:port", or several separated by commas. An empty target is $LEASEHOLD_SERVER, or
// 127.0.0.1:7420. It does not wait for a connection.
func Dial(target string, options ...ClientOption) (*Client, error) {
	s := newSettings(options)
	if err := s.check(); err != nil {
		return nil, err
	}
	if target == "" {
		target = os.Getenv("LEASEHOLD_SERVER")
	}
	if target == "" {
		target = "127.0.0.1:7420"
	}
	t := &rpc{patience: s.patience}
	secrets := insecure.NewCredentials()
	if s.tls != nil {
		secrets = credentials.NewTLS(s.tls)
	}
	if s.tokenFile != "" {
		s.grpc = append(s.grpc, grpc.WithPerRPCCredentials(tokenFile(s.tokenFile)))
	}
	s.grpc = append(carrying(s.telemetry), s.grpc...)
	for _, address := range strings.Split(strings.TrimPrefix(target, "ipv4:"), ",") {
		address = strings.TrimSpace(address)
		if err := s.checkToken(address); err != nil {
			t.close()
			return nil, err
		}
		conn, err := grpc.NewClient(address, append([]grpc.DialOption{
			grpc.WithTransportCredentials(secrets),
			grpc.WithDisableRetry(), // this package repeats calls itself
			grpc.WithChainUnaryInterceptor(marked), grpc.WithChainStreamInterceptor(markedStream),
			grpc.WithConnectParams(grpc.ConnectParams{MinConnectTimeout: s.patience,
				Backoff: backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second}}),
		}, s.grpc...)...)
		if err != nil {
			t.close()
			return nil, &ArgumentError{Field: "target", Bound: "host:port", Message: fmt.Sprintf("target %q: %v", address, err)}
		}
		t.servers = append(t.servers, &server{conn, pb.NewLeaseServiceClient(conn), pb.NewScheduleServiceClient(conn)})
	}
	return newClient(t, s), nil
}

func (t *rpc) close() {
	for _, s := range t.servers {
		s.conn.Close()
	}
}

func (t *rpc) pick() *server {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.servers[t.current]
}

// leave makes the address after that of s the current one, unless another call did so already.
func (t *rpc) leave(s *server) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.servers[t.current] == s {
		t.current = (t.current + 1) % len(t.servers)
	}
}

// failed makes an error of this package, and leaves the server where another may do better.
func (t *rpc) failed(s *server, it ref, err error) error {
	err = fromStatus(it, err)
	var unavailable *UnavailableError
	if errors.As(err, &unavailable) && (unavailable.Reason == "" || retryReasons[unavailable.Reason].next) {
		t.leave(s)
	}
	return err
}

func scopeOf(namespace, key string) *pb.Scope {
	return &pb.Scope{Namespace: strings.Split(namespace, "."), Key: key}
}

func (it ref) message() *pb.LeaseRef {
	return &pb.LeaseRef{Scope: scopeOf(it.namespace, it.key), LeaseKey: it.leaseKey}
}

func (r request) ref() ref {
	return ref{r.namespace, r.key, r.leaseKey, r.duration, r.listener.Asked != nil}
}

func (r request) message(wait time.Duration) *pb.AcquireRequest {
	message := &pb.AcquireRequest{Scope: scopeOf(r.namespace, r.key), Duration: durationpb.New(r.duration), Owner: r.owner,
		LeaseKey: r.leaseKey, Labels: r.labels, Priority: int32(r.priority), AskHandOver: r.askHandOver && wait > 0}
	if r.whileAlive && wait > 0 {
		message.WaitWhileAlive, message.Wait = true, durationpb.New(r.wait)
	} else if wait == Forever {
		message.WaitForever = true
	} else {
		message.Wait = durationpb.New(wait)
	}
	if r.mode == ModeShared {
		message.Mode, message.Units = pb.Mode_MODE_SHARED, int32(r.units)
	}
	if r.atLeast != nil {
		message.AtLeast = durationpb.New(*r.atLeast)
	}
	return message
}

func (r request) contention(c *pb.Contention) *HeldError {
	held := &HeldError{Namespace: r.namespace, Key: r.key}
	held.take(c)
	return held
}

func (e *HeldError) take(c *pb.Contention) {
	e.Holder, e.HolderCount, e.Ahead = c.GetHolder().GetOwner(), int(c.GetHolderCount()), int(c.GetWaitersAhead())
	if holder := c.GetHolder(); holder != nil {
		now := holder.GetDeadline().AsTime().Add(-holder.GetRemaining().AsDuration()) // of the database
		e.Alive = c.GetLiveness() == pb.Liveness_LIVENESS_ALIVE || c.GetLiveness() == pb.Liveness_LIVENESS_OVERDUE
		e.Silent, e.HeldFor = now.Sub(holder.GetHeartbeatAt().AsTime()), now.Sub(holder.GetAcquiredAt().AsTime())
	}
	if c.GetUnitsFree() != nil {
		free := int(c.GetUnitsFree().GetValue())
		e.UnitsFree = &free
	}
}

// isAbout refuses an answer that names another lease than it was asked about: a faulty server or proxy gives it. It may name none.
func isAbout(it ref, leaseKey string) error {
	if leaseKey != "" && leaseKey != it.leaseKey {
		return errors.New("an answer about another lease than was asked about")
	}
	return nil
}

// atMost is a time of an answer, as far as it can be true.
func atMost(of *durationpb.Duration, most time.Duration) time.Duration {
	return min(max(of.AsDuration(), 0), most)
}

// grantOf is what an answer grants: no later than it came, and for no longer than was asked.
func grantOf(it ref, lease *pb.Lease, sent time.Duration, waited *durationpb.Duration) (grant, error) {
	deadline := sent + atMost(waited, clock()-sent) + atMost(lease.GetRemaining(), it.duration)
	g := grant{token: lease.GetToken(), deadline: deadline, final: lease.GetDeadlineIsFinal(), units: int(lease.GetUnits())}
	for _, slot := range lease.GetSlots() {
		g.slots = append(g.slots, int(slot))
	}
	return g, isAbout(it, lease.GetLeaseKey())
}

// The server says `queued` at least every 5 s: one that is silent for three times as long hangs.
const silence = 15 * time.Second

func (t *rpc) acquire(ctx context.Context, r request, wait time.Duration) (grant, error) {
	if r.isHold {
		return t.hold(ctx, r, wait)
	}
	s := t.pick()
	call, cancel := context.WithCancel(ctx)
	if wait == 0 {
		call, cancel = within(ctx, t.patience)
	}
	defer cancel()
	watchdog := time.AfterFunc(t.patience, cancel)
	defer watchdog.Stop()
	sent := clock()
	stream, err := s.lease.AcquireStream(call, r.message(wait))
	for err == nil {
		var event *pb.AcquireEvent
		if event, err = stream.Recv(); err != nil {
			break
		}
		watchdog.Reset(silence)
		if lease := event.GetGranted(); lease != nil {
			watchdog.Reset(100 * time.Millisecond)
			stream.Recv() // the end; a reset in its place could take the grant back
			g, other := grantOf(r.ref(), lease, sent, event.GetWaited())
			if other != nil {
				other = t.failed(s, r.ref(), other)
			}
			return g, other
		}
		if r.queued != nil {
			r.queued(r.contention(event.GetQueued()))
		}
	}
	if ctx.Err() != nil {
		return grant{}, ctx.Err()
	}
	return grant{}, t.failed(s, r.ref(), err)
}

func (t *rpc) acquireAll(ctx context.Context, r request, wait time.Duration) ([]grant, error) {
	single := r.message(wait)
	message := &pb.AcquireAllRequest{Duration: single.Duration, Wait: single.Wait, WaitForever: single.WaitForever, Owner: r.owner,
		LeaseKey: r.leaseKey, Labels: r.labels}
	for _, each := range r.scopes {
		item := &pb.AcquireItem{Scope: scopeOf(each.Namespace, each.Key), Units: int32(each.Units)}
		if each.Units > 0 {
			item.Mode = pb.Mode_MODE_SHARED
		}
		message.Items = append(message.Items, item)
	}
	var cancel context.CancelFunc = func() {}
	if wait == 0 {
		ctx, cancel = within(ctx, t.patience)
	} else if wait < Forever-t.patience {
		ctx, cancel = context.WithTimeout(ctx, wait+t.patience)
	}
	defer cancel()
	s, sent := t.pick(), clock()
	answer, err := s.lease.AcquireAll(ctx, message)
	if err == nil && len(answer.GetLeases()) != len(r.scopes) {
		err = fmt.Errorf("%d leases for %d scopes", len(answer.GetLeases()), len(r.scopes))
	}
	grants := make([]grant, len(r.scopes))
	for i := 0; i < len(grants) && err == nil; i++ {
		grants[i], err = grantOf(r.ref(), answer.GetLeases()[i], sent, answer.GetWaited())
	}
	if err != nil {
		return nil, t.failed(s, ref{}, err)
	}
	return grants, nil
}

func (t *rpc) heartbeat(ctx context.Context, refs []ref) ([]beat, error) {
	s := t.pick()
	message := &pb.HeartbeatRequest{Leases: make([]*pb.LeaseRef, len(refs))}
	for i, it := range refs {
		message.Leases[i] = it.message()
	}
	answer, err := s.lease.Heartbeat(ctx, message)
	if err != nil {
		return nil, t.failed(s, refs[0], err)
	}
	if len(answer.GetResults()) != len(refs) {
		return nil, &UnavailableError{Err: fmt.Errorf("%d answers to %d renewals", len(answer.GetResults()), len(refs))}
	}
	beats := make([]beat, len(refs))
	for i, result := range answer.GetResults() {
		if err := isAbout(refs[i], result.GetLeaseKey()); err != nil {
			return nil, &UnavailableError{Err: err}
		}
		beats[i] = beat{ok: result.GetOutcome() == pb.Outcome_OUTCOME_OK, lost: result.GetOutcome() == pb.Outcome_OUTCOME_LOST,
			remaining: atMost(result.GetRemaining(), refs[i].duration), final: result.GetDeadlineIsFinal(), reason: reasonOf(result.GetEndReason()), message: result.GetMessage(),
			asked: handOverOf(result.GetAsked())}
	}
	return beats, nil
}

func (t *rpc) downgrade(ctx context.Context, it ref, units int) (grant, error) {
	s, sent := t.pick(), clock()
	answer, err := s.lease.Downgrade(ctx, &pb.DowngradeRequest{Lease: it.message(), Units: int32(units)})
	var g grant
	if err == nil {
		g, err = grantOf(it, answer.GetLease(), sent, answer.GetWaited())
	}
	if err != nil {
		return grant{}, t.failed(s, it, err)
	}
	return g, nil
}

func (with outcome) item(it ref) *pb.ReleaseItem {
	item := &pb.ReleaseItem{Lease: it.message(), Result: &pb.ReleaseItem_Success{Success: with.value}}
	if with.failed {
		item.Result = &pb.ReleaseItem_Failure{Failure: with.value}
	}
	return item
}

func (t *rpc) release(ctx context.Context, items []ending) []error {
	s := t.pick()
	message := &pb.ReleaseRequest{Items: make([]*pb.ReleaseItem, len(items))}
	for i, each := range items {
		message.Items[i] = each.item(each.ref)
	}
	answer, err := s.lease.Release(ctx, message)
	if err != nil {
		err = t.failed(s, items[0].ref, err)
	} else if n := len(answer.GetResults()); n != len(items) {
		err = &UnavailableError{Err: fmt.Errorf("%d answers to %d releases", n, len(items))}
	}
	errs := make([]error, len(items))
	for i := 0; i < len(items) && err == nil; i++ {
		if other := isAbout(items[i].ref, answer.GetResults()[i].GetLeaseKey()); other != nil {
			err = &UnavailableError{Err: other}
		}
	}
	for i, each := range items {
		if errs[i] = err; err == nil {
			errs[i] = released(each.ref, answer.GetResults()[i])
		}
	}
	return errs
}

func released(it ref, result *pb.ReleaseResult) error {
	switch result.GetOutcome() {
	case pb.Outcome_OUTCOME_OK:
		return nil
	case pb.Outcome_OUTCOME_LOST:
		return &LostError{it.namespace, it.key, reasonOf(result.GetEndReason()), result.GetMessage()}
	case pb.Outcome_OUTCOME_DENIED:
		return &DeniedError{"ACCESS_DENIED", result.GetMessage()}
	case pb.Outcome_OUTCOME_REJECTED:
		return &DeniedError{"HOOK_REJECTED", result.GetMessage()}
	case pb.Outcome_OUTCOME_INVALID:
		return &ArgumentError{Message: result.GetMessage()}
	}
	return &UnavailableError{Err: errors.New(result.GetMessage()), Reason: RetryOutcomeRetry}
}

func (t *rpc) giveUp(ctx context.Context, refs []ref) []error {
	return t.release(ctx, unheardEndings(refs))
}

func (t *rpc) holder(ctx context.Context, namespace, key string) (*Holder, error) {
	ctx, cancel := within(ctx, t.patience)
	defer cancel()
	s := t.pick()
	answer, err := s.lease.GetLease(ctx, &pb.GetLeaseRequest{Scope: scopeOf(namespace, key)})
	if status.Code(err) == codes.NotFound {
		return nil, nil
	}
	if err != nil {
		return nil, t.failed(s, ref{namespace: namespace, key: key}, err)
	}
	lease := answer.GetLease()
	if lease == nil {
		return nil, nil
	}
	return holderOf(lease), nil
}

func holderOf(lease *pb.Lease) *Holder {
	return &Holder{Owner: lease.GetOwner(), Token: lease.GetToken(), Duration: lease.GetDuration().AsDuration(),
		AcquiredAt: lease.GetAcquiredAt().AsTime(), HeartbeatAt: lease.GetHeartbeatAt().AsTime(), Heartbeats: lease.GetHeartbeats(),
		Expired: lease.GetLiveness() == pb.Liveness_LIVENESS_EXPIRED, Mode: modeOf(int(lease.GetUnits())), Units: int(lease.GetUnits()),
		Labels: lease.GetLabels()}
}

func reasonOf(reason pb.EndReason) Reason {
	switch reason {
	case pb.EndReason_END_REASON_RELEASED:
		return Released
	case pb.EndReason_END_REASON_FAILED:
		return Failed
	case pb.EndReason_END_REASON_EXPIRED:
		return Expired
	case pb.EndReason_END_REASON_FORCED:
		return Forced
	case pb.EndReason_END_REASON_MAX_HOLD:
		return MaxHold
	}
	return Unknown
}

// fromStatus makes an error of this package from one of gRPC's, by the reason in its details.
func fromStatus(it ref, err error) error {
	if err == io.EOF {
		return &UnavailableError{Err: errors.New("the server ended the call without an answer")}
	}
	state := status.Convert(err)
	held := &HeldError{Namespace: it.namespace, Key: it.key, Message: state.Message()}
	wrong := &ArgumentError{Message: state.Message()}
	reason := ""
	for _, detail := range state.Details() {
		switch d := detail.(type) {
		case *errdetails.ErrorInfo:
			reason = d.GetReason()
			wrong.Field, wrong.Bound = d.GetMetadata()["field"], d.GetMetadata()["limit"]
			if it == (ref{}) { // of several
				held.Namespace, held.Key = d.GetMetadata()["namespace"], d.GetMetadata()["key"]
			}
		case *pb.Contention:
			held.take(d)
		}
	}
	switch reason {
	case "LEASE_HELD":
		held.retry = RetryLeaseHeld
		return held
	case "WAIT_TIMEOUT":
		return held
	case "NOT_HELD":
		return &LostError{it.namespace, it.key, Unknown, state.Message()}
	case "INVALID_ARGUMENT", "MESSAGE_TOO_LARGE":
		return wrong
	case "NAMESPACE_FROZEN", "HOOK_REJECTED", "LEASE_ENDED", "QUOTA_EXCEEDED", "UNAUTHENTICATED", "ACCESS_DENIED", "NOT_ASKED":
		return &DeniedError{reason, state.Message()}
	}
	switch state.Code() {
	case codes.Unauthenticated, codes.PermissionDenied, codes.Unimplemented, codes.FailedPrecondition:
		return &DeniedError{state.Code().String(), state.Message()}
	}
	return unavailable(err)
}
