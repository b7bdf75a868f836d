// Package resourcelock lets client-go's leader election run on a lease of Leasehold, without a Kubernetes API.
package resourcelock

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	leasehold "leasehold.example/go"
)

// Lock is a resourcelock.Interface on one lease, for one candidate.
//
// The lease is renewed by its client. The elector's updates only look whether it is still held, and acquire it anew if it is not and
// nobody else has it. With a client of leasehold.Dial the lease ends as soon as the leader's process dies: the next candidate leads after
// its RetryPeriod.
type Lock struct {
	client                   *leasehold.Client
	namespace, key, identity string
	mu                       sync.Mutex
	lease                    *leasehold.Lease
}

var _ resourcelock.Interface = (*Lock)(nil)

// New makes a lock for the candidate `identity`, which must differ between candidates.
func New(client *leasehold.Client, namespace, key, identity string) *Lock {
	return &Lock{client: client, namespace: namespace, key: key, identity: identity}
}

// Token is the fencing token of this candidate's leadership; 0 while it does not lead.
func (k *Lock) Token() int64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.holds() {
		return 0
	}
	return k.lease.Token()
}

func (k *Lock) holds() bool { return k.lease != nil && k.lease.Remaining() > 0 }

// Get tells who leads. LeaderTransitions is the fencing token, which grows with each leader.
func (k *Lock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	holder, err := k.client.Holder(ctx, k.namespace, k.key)
	if err != nil {
		return nil, nil, err
	}
	if holder == nil || holder.Expired {
		return nil, nil, errors.NewNotFound(schema.GroupResource{Group: "leasehold", Resource: k.namespace}, k.key)
	}
	record := &resourcelock.LeaderElectionRecord{
		HolderIdentity:       holder.Owner,
		LeaseDurationSeconds: int(holder.Duration / time.Second),
		AcquireTime:          meta.NewTime(holder.AcquiredAt),
		RenewTime:            meta.NewTime(holder.HeartbeatAt),
		LeaderTransitions:    int(holder.Token),
	}
	// What the elector compares to see that the leader is alive: RenewTime has only seconds.
	raw, err := json.Marshal(holder)
	return record, raw, err
}

// Create acquires the lease, without waiting.
func (k *Lock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return k.Update(ctx, record)
}

// Update looks whether the lease is held, and acquires it if not; a record without holder, by which a leader resigns, releases it.
func (k *Lock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if record.HolderIdentity == "" {
		if k.lease == nil {
			return nil
		}
		err := k.lease.Release(ctx)
		k.lease = nil
		return err
	}
	if k.holds() {
		return nil
	}
	lease, err := k.client.Acquire(ctx, k.namespace, k.key, leasehold.Owner(k.identity), leasehold.WhileConnected(),
		leasehold.Duration(time.Duration(record.LeaseDurationSeconds)*time.Second))
	if err == nil {
		k.lease = lease
	}
	return err
}

// RecordEvent does nothing: there is nowhere to record.
func (k *Lock) RecordEvent(string) {}

// Identity is the candidate's.
func (k *Lock) Identity() string { return k.identity }

// Describe names the lease in the elector's log.
func (k *Lock) Describe() string { return leasehold.ScopeName(k.namespace, k.key) }
