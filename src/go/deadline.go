package leasehold

import (
	"context"
	"time"
)

// WithDeadline is ctx with the present deadline of the lease that it belongs to, and of those around it, for one call that must be over by then: gRPC
// passes it on to the server as the call's time, and that to its own calls. A later renewal does not move it, so a context of the whole work has none.
// Without a lease it is ctx.
func WithDeadline(ctx context.Context) (context.Context, context.CancelFunc) {
	if left := leftOf(ctx); left != Forever {
		return context.WithTimeout(ctx, left)
	}
	return context.WithCancel(ctx)
}

// within is ctx for one request of this package's that does not wait. One that waits ends with the lease, whose renewals move its deadline.
func within(ctx context.Context, most time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, min(most, leftOf(ctx)))
}

func leftOf(ctx context.Context) time.Duration {
	least, held := Forever, ctx.Value(leaseKey{})
	for held != nil {
		switch of := held.(type) {
		case *Lease:
			least, held = min(least, of.Remaining()), of.ctx.Context.Value(leaseKey{})
		case *Leases:
			least, held = min(least, of.Remaining()), of.ctx.Context.Value(leaseKey{})
		}
	}
	return least
}
