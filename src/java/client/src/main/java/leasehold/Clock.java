package leasehold;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;

/**
 * Nanoseconds on a clock that runs while the machine is suspended, as leases do. System.nanoTime() stops then. /proc/uptime does not, but
 * shows 10 ms only: the largest difference of the two is the time that was slept through.
 */
final class Clock {
    static final long NEVER = Long.MAX_VALUE;
    private static final Path UPTIME = Path.of("/proc/uptime");
    private static final long ORIGIN = System.nanoTime();
    private static final long BEGUN = uptime();
    private static long suspended;

    private Clock() {
    }

    static synchronized long now() {
        long ran = System.nanoTime() - ORIGIN;
        if (BEGUN >= 0) {
            suspended = Math.max(suspended, uptime() - BEGUN - ran);
        }
        return ran + suspended;
    }

    /** The time in so long, or NEVER. */
    static long in(Duration duration) {
        long nanos = nanos(duration);
        long now = now();
        return nanos >= NEVER - now ? NEVER : now + nanos;
    }

    /** A duration; one that does not fit is NEVER. */
    static long nanos(Duration duration) {
        return duration.getSeconds() >= NEVER / 1_000_000_000 ? NEVER : duration.toNanos();
    }

    /** For calls that take milliseconds: at least 1, at most a day. */
    static int millis(long nanos) {
        return (int) Math.max(1, Math.min(nanos / 1_000_000, 86_400_000));
    }

    /** Sleeps; an interrupt is left for later. */
    static void pause(long millis) {
        try {
            Thread.sleep(millis);
        } catch (InterruptedException e) {
            pause(millis);
            Thread.currentThread().interrupt();
        }
    }

    private static long uptime() {
        try {
            String text = Files.readString(UPTIME);
            return Math.round(Double.parseDouble(text.substring(0, text.indexOf(' '))) * 1e9);
        } catch (IOException | RuntimeException notLinux) {
            return -1;
        }
    }
}
