package leasehold

import (
	"context"
)

// WithDeadline is ctx with the present deadline of the lease that it belongs to, and of those around it, for one call that must be over by then: gRPC
// passes it on to the server as the call's time, and that to its own calls. A later renewal does not move it, so a context of the whole work has none.
// Without a lease it is ctx.
func WithDeadline(ctx context.Context) (context.Context, context.CancelFunc) {
	least, held := Forever, ctx.Value(leaseKey{})
	for held != nil {
		switch of := held.(type) {
		case *Lease:
			least, held = min(least, of.Remaining()), of.ctx.Context.Value(leaseKey{})
		case *Leases:
			least, held = min(least, of.Remaining()), of.ctx.Context.Value(leaseKey{})
		}
	}
	if least == Forever {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, least)
}
