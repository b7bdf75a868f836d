package leasehold_test

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	leasehold "leasehold.example/go"
)

func TestContextCauseIsTheLoss(t *testing.T) {
	if os.Getenv("LEASEHOLD_ON") == "" {
		t.Skip("started by tests/clients/go/run")
	}
	s := newSite(t, "grpc")
	s.key += os.Getenv("LEASEHOLD_ON")
	var lost *leasehold.LostError
	err := s.client().Do(context.Background(), "cases", s.key, func(ctx context.Context, l *leasehold.Lease) error {
		s.psql("select from leasehold.force_release('cases', '%s', 'a test')", s.key)
		<-ctx.Done()
		if !errors.As(context.Cause(ctx), &lost) {
			t.Error(context.Cause(ctx))
		}
		return ctx.Err()
	}, leasehold.Duration(6*time.Second))
	if !errors.As(err, &lost) || lost.Reason != leasehold.Forced {
		t.Fatal(err)
	}
}
