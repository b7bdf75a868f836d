package leaseholdtest_test

import (
	"testing"
	"time"

	leasehold "leasehold.example/go"
	"leasehold.example/go/leaseholdtest"
)

// As docs/use/testing.md has it.
func TestWorkThatLosesItsLease(t *testing.T) {
	world := leaseholdtest.Start(t)
	client, err := leasehold.Dial(world.Server)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	lease, err := client.Acquire(t.Context(), world.Namespace, "invoice-42", leasehold.Duration(9*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	world.Lose("invoice-42") // also Pass, FailOver, Drop, Delay, Silence
	<-lease.Context().Done()
}
