package leasehold.testing;

import java.time.Duration;
import java.util.ArrayDeque;

/** What happens to the answers of one world, whichever way they come. Guarded by `this`. */
final class Faults {
    private final ArrayDeque<Duration> next = new ArrayDeque<>(); // zero: the answer is lost
    private boolean isSilent;
    private boolean isClosed;

    synchronized void add(Duration fault) {
        next.add(fault);
    }

    synchronized void silence(boolean on) {
        isSilent = on;
        notifyAll();
    }

    synchronized void close() {
        isClosed = true;
        notifyAll();
    }

    /** Whether what has come may go on, when it may. One that begins an answer of Leasehold's meets the next fault; false: it is lost. */
    boolean lets(boolean isAnswer) throws InterruptedException {
        Duration fault;
        synchronized (this) {
            fault = isAnswer ? next.poll() : null;
        }
        if (fault != null && fault.isZero()) {
            return false;
        }
        if (fault != null) {
            Thread.sleep(fault.toMillis());
        }
        synchronized (this) {
            while (isSilent && !isClosed) {
                wait();
            }
        }
        return true;
    }
}
