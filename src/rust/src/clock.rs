//! The clock of deadlines. It runs while the machine is suspended, as the lease does.

use std::time::Duration;

#[cfg(target_os = "linux")]
const CLOCK: libc::clockid_t = libc::CLOCK_BOOTTIME;
#[cfg(all(unix, not(target_os = "linux")))]
const CLOCK: libc::clockid_t = libc::CLOCK_MONOTONIC;

/// The time since the machine started.
#[cfg(unix)]
pub(crate) fn now() -> Duration {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: t is a timespec of ours, and the clock exists on each system that this compiles for.
    let status = unsafe { libc::clock_gettime(CLOCK, &mut t) };
    assert_eq!(status, 0, "leasehold: clock_gettime: {}", std::io::Error::last_os_error());
    Duration::new(t.tv_sec as u64, t.tv_nsec as u32)
}

/// The time since the first call.
#[cfg(not(unix))]
pub(crate) fn now() -> Duration {
    static START: std::sync::LazyLock<std::time::Instant> = std::sync::LazyLock::new(std::time::Instant::now);
    START.elapsed()
}
