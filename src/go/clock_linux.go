package leasehold

import (
	"time"

	"golang.org/x/sys/unix"
)

// clock runs while the machine is suspended, as the lease does.
func clock() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		panic("leasehold: CLOCK_BOOTTIME: " + err.Error())
	}
	return time.Duration(t.Nano())
}
