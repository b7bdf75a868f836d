package leasehold

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// ScopeName is a scope as errors and logs name it. A namespace that has a slash stands in quotes: a/b/k would name two scopes.
func ScopeName(namespace, key string) string {
	if strings.Contains(namespace, "/") {
		namespace = `"` + namespace + `"`
	}
	return namespace + "/" + key
}

// HeldError is the answer to an acquire whose scope another holds, or others wait for, and whose wait has passed.
type HeldError struct {
	Namespace, Key string
	Holder         string        // the owner's own words; empty where the scope is free but others wait for it
	HolderCount    int           // of several Holder is the oldest
	UnitsFree      *int          // of the capacity for shared leases; nil: there is none
	Ahead          int           // waiters ahead of the caller
	Alive          bool          // whether the holder renews; false too where there is none, and where the server did not say, as with the next two
	Silent         time.Duration // since the holder's last renewal
	HeldFor        time.Duration // since it was acquired
	Message        string        // the server's sentence for people
	retry          RetryReason   // LEASE_HELD; empty: the wait has passed
}

func (e *HeldError) Error() string {
	if e.Message != "" {
		return "leasehold: " + e.Message
	}
	return fmt.Sprintf("leasehold: %s is held by %q, %d waiters ahead", ScopeName(e.Namespace, e.Key), e.Holder, e.Ahead)
}

// Reason says how a lease ended without its holder's doing.
type Reason string

const (
	Expired     Reason = "expired"     // renewed too late: another may hold it
	Forced      Reason = "forced"      // by an administrator
	Released    Reason = "released"    // by somebody else who knows the lease key
	Failed      Reason = "failed"      // the same
	MaxHold     Reason = "max_hold"    // the policy of the namespace ends a lease after max_hold
	Unreachable Reason = "unreachable" // no renewal was answered before the deadline, or the connection of a leader broke
	Closed      Reason = "closed"      // the client was closed; nothing renews the lease
	Unknown     Reason = "unknown"     // it has ended, and the database does not remember how
)

// LostError is the cause of a lease's context after it was lost, and what [Client.Do] and [Lease.Release] then return.
type LostError struct {
	Namespace, Key string
	Reason         Reason
	Message        string // more about it; may be empty
}

func (e *LostError) Error() string {
	text := fmt.Sprintf("leasehold: the lease %s is lost: %s", ScopeName(e.Namespace, e.Key), e.Reason)
	if e.Message != "" {
		text += ": " + e.Message
	}
	return text
}

// DeniedError is a refusal that has nothing to do with another holder.
type DeniedError struct {
	Reason  string // NAMESPACE_FROZEN, HOOK_REJECTED, QUOTA_EXCEEDED, ACCESS_DENIED, UNAUTHENTICATED, LEASE_ENDED, or an SQLSTATE
	Message string
}

func (e *DeniedError) Error() string { return "leasehold: " + e.Reason + ": " + e.Message }

// ArgumentError is an argument out of bounds; nothing was written.
type ArgumentError struct {
	Field, Bound string
	Message      string
}

func (e *ArgumentError) Error() string { return "leasehold: " + e.Message }

// UnavailableError says that no server could be reached in time, or that a transaction kept the row locked. An acquire that ends
// with it holds nothing for long: what was granted unheard is released as soon as a server can be reached, or ends by its deadline.
type UnavailableError struct {
	Err        error
	Reason     RetryReason // of the last attempt; may be empty
	retryAfter time.Duration
}

func (e *UnavailableError) Error() string { return "leasehold: unavailable: " + e.Err.Error() }
func (e *UnavailableError) Unwrap() error { return e.Err }

// ErrReleased is the cause of a lease's context after [Lease.Release].
var ErrReleased = errors.New("leasehold: the lease was released")

// ErrClosed is the answer of a closed client.
var ErrClosed = errors.New("leasehold: the client is closed")
