//go:build !linux

package leasehold

import "time"

var started = time.Now()

// clock stands still while some systems are suspended: let such a machine lose its leases before it sleeps.
func clock() time.Duration { return time.Since(started) }
