//go:build go1.20

package leasehold

import "context"

func withCause(parent context.Context) (context.Context, func(error)) {
	return context.WithCancelCause(parent)
}
