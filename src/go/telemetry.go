package leasehold

import (
	"context"

	"google.golang.org/grpc"
)

// Telemetry is told of each acquisition. The module leaseholdotel is one for OpenTelemetry. What is told must not call the client: the client's
// lock is held.
type Telemetry interface {
	// Acquire begins an acquisition, of several scopes with the first one's names; its requests have the context that it returns.
	Acquire(ctx context.Context, namespace, key string, mode Mode) (context.Context, Acquisition)
	// Outgoing may add metadata to a call to a daemon. Renewals, which are for many leases, have no caller's context.
	Outgoing(ctx context.Context) context.Context
}

// Acquisition ends with one of these: an error after a grant is none of its own.
type Acquisition interface {
	// Granted is called once for each scope.
	Granted(namespace, key string, mode Mode, token int64) Hold
	Refused(err error)
}

// Hold is a lease that is held.
type Hold interface {
	Downgraded(token int64)
	// Releasing begins a release; its request has the context that it returns.
	Releasing(ctx context.Context) context.Context
	// Stayed: the release was not done.
	Stayed(err error)
	// Ended is called once; nil: the lease was released.
	Ended(err error)
}

// WithTelemetry tells of what the client does.
func WithTelemetry(t Telemetry) ClientOption { return func(s *settings) { s.telemetry = t } }

// silent tells nobody.
type silent struct{}

func (s silent) Acquire(ctx context.Context, _, _ string, _ Mode) (context.Context, Acquisition) {
	return ctx, s
}
func (silent) Outgoing(ctx context.Context) context.Context  { return ctx }
func (s silent) Granted(string, string, Mode, int64) Hold    { return s }
func (silent) Refused(error)                                 {}
func (silent) Downgraded(int64)                              {}
func (silent) Releasing(ctx context.Context) context.Context { return ctx }
func (silent) Stayed(error)                                  {}
func (silent) Ended(error)                                   {}

// tells begins the acquisition of r. The caller calls Refused with its error, if there is one.
func (c *Client) tells(ctx context.Context, r *request) context.Context {
	first := r.refs()[0]
	ctx, r.told = c.settings.telemetry.Acquire(ctx, first.namespace, first.key, r.mode)
	return ctx
}

func (r *request) refused(err error) {
	if err != nil {
		r.told.Refused(err)
	}
}

// carrying gives each call what telemetry adds.
func carrying(t Telemetry) []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, request, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
			return invoke(t.Outgoing(ctx), method, request, reply, conn, options...)
		}),
		grpc.WithChainStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, begin grpc.Streamer, options ...grpc.CallOption) (grpc.ClientStream, error) {
			return begin(t.Outgoing(ctx), desc, conn, method, options...)
		}),
	}
}
