package leasehold

import (
	"context"
	"errors"
	"slices"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
)

// RetryReason is why an attempt failed, as in leasehold_retry.h.
type RetryReason string

const (
	RetryUnknown                   RetryReason = "UNKNOWN"
	RetrySocketNotAvailable        RetryReason = "SOCKET_NOT_AVAILABLE"
	RetryEndpointNotAvailable      RetryReason = "ENDPOINT_NOT_AVAILABLE"
	RetrySocketClosedWhileInFlight RetryReason = "SOCKET_CLOSED_WHILE_IN_FLIGHT"
	RetryCircuitBreakerOpen        RetryReason = "CIRCUIT_BREAKER_OPEN"
	RetryBlockingTimeout           RetryReason = "BLOCKING_TIMEOUT" // repeated whatever the strategy says
	RetryShuttingDown              RetryReason = "SHUTTING_DOWN"    // repeated whatever the strategy says
	RetryDatabaseUnavailable       RetryReason = "DATABASE_UNAVAILABLE"
	RetryOverloaded                RetryReason = "OVERLOADED"
	RetryScopeBusy                 RetryReason = "SCOPE_BUSY"
	RetryOutcomeRetry              RetryReason = "OUTCOME_RETRY"
	RetryLeaseHeld                 RetryReason = "LEASE_HELD"
	RetryRetryInfo                 RetryReason = "RETRY_INFO" // an unknown reason, with a RetryInfo
)

// retryProperties are those of leasehold_retry.h.
type retryProperties struct {
	unsent bool // nothing was done: also a request that is not idempotent may be repeated
	always bool // repeated whatever the strategy says
	next   bool // at the next address
}

var retryReasons = map[RetryReason]retryProperties{
	RetryUnknown:                   {},
	RetrySocketNotAvailable:        {unsent: true, next: true},
	RetryEndpointNotAvailable:      {unsent: true, next: true},
	RetrySocketClosedWhileInFlight: {next: true},
	RetryCircuitBreakerOpen:        {unsent: true, next: true},
	RetryBlockingTimeout:           {unsent: true, always: true},
	RetryShuttingDown:              {unsent: true, always: true, next: true},
	RetryDatabaseUnavailable:       {unsent: true, next: true},
	RetryOverloaded:                {unsent: true, next: true},
	RetryScopeBusy:                 {unsent: true},
	RetryOutcomeRetry:              {unsent: true},
	RetryLeaseHeld:                 {unsent: true},
	RetryRetryInfo:                 {unsent: true},
}

// IsUnsent: nothing was done, so that a request that is not idempotent may be repeated too.
func (r RetryReason) IsUnsent() bool { return retryReasons[r].unsent }

// Retry is a request whose attempt has failed. All requests are idempotent by their lease keys.
type Retry struct {
	Verb           string // Acquire, AcquireAll, ClaimTick, Downgrade, Release, AskHandOver or RefuseHandOver
	Namespace, Key string // of AcquireAll the first
	Reason         RetryReason
	Err            error
	Attempts       int           // so far
	Failures       int           // that the backoff counts, from 1 on: a wait that the server cut begins anew
	Reasons        []RetryReason // so far, each once
	Remaining      time.Duration // of the request's time; Forever: no limit
	RetryAfter     time.Duration // the server's RetryInfo; 0: none
}

// Strategy decides whether and when an attempt follows; false: the request fails with the error.
type Strategy func(Retry) (time.Duration, bool)

// RetryStep is what a strategy has decided.
type RetryStep struct {
	Retry
	Delay   time.Duration // before the next attempt
	Refused bool          // there is none
}

// WithStrategy decides about the retries of a client. Without one it is [BestEffort]. A delay that is longer than what is left of the
// request's time refuses the request. Renewals go on whatever it says.
func WithStrategy(strategy Strategy) ClientOption { return func(s *settings) { s.strategy = strategy } }

// Retries decides about the retries of an acquisition, and of what is done with its lease, in place of the client's strategy.
func Retries(strategy Strategy) Option { return func(r *request) { r.strategy = strategy } }

// RetryLog gets each retry and each refusal.
func RetryLog(f func(RetryStep)) ClientOption { return func(s *settings) { s.retryLog = f } }

// BestEffort is libleasehold's default: it repeats all but LEASE_HELD, after 1, 2, 4 ... 256, 500 ms.
func BestEffort(r Retry) (time.Duration, bool) {
	return min(time.Millisecond<<min(r.Failures-1, 9), 500*time.Millisecond), r.Reason != RetryLeaseHeld
}

// FailFast repeats nothing.
func FailFast(Retry) (time.Duration, bool) { return 0, false }

// ControlledBackoff is 1, 10, 50, 100, 500, then 1000 ms.
func ControlledBackoff(failures int) time.Duration {
	steps := []time.Duration{1, 10, 50, 100, 500, 1000}
	return steps[min(max(failures, 1), len(steps))-1] * time.Millisecond
}

// retrying is a request that may be repeated.
type retrying struct {
	Retry
	c        *Client
	strategy Strategy
	begun    time.Duration // the attempt
}

func (c *Client) retrying(verb string, it ref, strategy Strategy) *retrying {
	if strategy == nil {
		strategy = c.settings.strategy
	}
	if strategy == nil {
		strategy = BestEffort
	}
	return &retrying{Retry: Retry{Verb: verb, Namespace: it.namespace, Key: it.key}, c: c, strategy: strategy, begun: clock()}
}

// again tells whether another attempt follows, and waits for it.
func (r *retrying) again(ctx context.Context, err error, remaining time.Duration) bool {
	r.Reason, r.RetryAfter = retryReason(err)
	r.Err, r.Remaining = err, remaining
	r.Attempts++
	r.Failures++
	if !slices.Contains(r.Reasons, r.Reason) {
		r.Reasons = append(r.Reasons, r.Reason)
	}
	delay, ok := r.decide()
	if r.c.settings.retryLog != nil && ctx.Err() == nil && r.Reason != "" {
		step := RetryStep{r.Retry, delay, !ok}
		step.Reasons = slices.Clone(r.Reasons)
		r.c.settings.retryLog(step)
	}
	if ok {
		pause(ctx, delay)
	}
	r.begun = clock()
	return ok
}

func (r *retrying) decide() (time.Duration, bool) {
	switch {
	case r.Reason == "": // final
		return 0, false
	case r.Reason == RetryBlockingTimeout && clock()-r.begun >= time.Second:
		r.Failures = 0
		return 0, true
	case retryReasons[r.Reason].always:
		return ControlledBackoff(r.Failures), true
	}
	delay, ok := r.strategy(r.Retry)
	return max(delay, 0), ok && delay <= r.Remaining
}

// retryReason is empty where there is none.
func retryReason(err error) (RetryReason, time.Duration) {
	var unavailable *UnavailableError
	var held *HeldError
	switch {
	case errors.As(err, &held):
		return held.retry, 0
	case !errors.As(err, &unavailable):
		return "", 0
	case unavailable.Reason != "":
		return unavailable.Reason, unavailable.retryAfter
	}
	return RetryUnknown, 0
}

// unavailable has the reason that follows from the evidence of a call's end.
func unavailable(err error) *UnavailableError {
	state := status.Convert(err)
	u := &UnavailableError{Err: err}
	for _, detail := range state.Details() {
		switch d := detail.(type) {
		case *errdetails.ErrorInfo:
			if reason := RetryReason(d.GetReason()); retryReasons[reason].unsent {
				u.Reason = reason
				return u
			}
		case *errdetails.RetryInfo:
			u.Reason, u.retryAfter = RetryRetryInfo, d.GetRetryDelay().AsDuration()
		}
	}
	var call callError
	if u.Reason == "" && errors.As(err, &call) {
		u.Reason = call.reason(state.Code())
	}
	return u
}

// callError is one of gRPC's, and whether the call had been sent.
type callError struct {
	error
	isSent bool
}

func (e callError) GRPCStatus() *status.Status { return status.Convert(e.error) }
func (e callError) Unwrap() error              { return e.error }

func (e callError) reason(code codes.Code) RetryReason {
	switch {
	case !e.isSent:
		return RetrySocketNotAvailable
	case code == codes.Unavailable || code == codes.Canceled || code == codes.DeadlineExceeded: // cut short, to ask the next
		return RetrySocketClosedWhileInFlight
	}
	return RetryUnknown
}

// marked makes a *callError of each error of a call.
func marked(ctx context.Context, method string, request, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
	var to peer.Peer
	err := invoke(ctx, method, request, reply, conn, append(options, grpc.Peer(&to))...)
	if err != nil {
		return callError{err, to.Addr != nil}
	}
	return nil
}

func markedStream(ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, begin grpc.Streamer, options ...grpc.CallOption) (
	grpc.ClientStream, error) {
	stream, err := begin(ctx, desc, conn, method, options...)
	if err != nil {
		return nil, callError{err, false}
	}
	return sentStream{stream}, nil
}

type sentStream struct{ grpc.ClientStream }

func (s sentStream) RecvMsg(message any) error {
	err := s.ClientStream.RecvMsg(message)
	if _, isStatus := status.FromError(err); err != nil && isStatus {
		return callError{err, true}
	}
	return err
}
