package leasehold.spring;

import java.time.Duration;
import java.util.ConcurrentModificationException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.ReentrantLock;
import leasehold.Lease;
import leasehold.LeaseException;

/**
 * A lock of {@link LeaseholdLockRegistry}: reentrant, held by one thread of one process. A thread whose lease is lost does not hold the
 * lock any more: the next {@link #tryLock()} returns false, and {@link #unlock} throws {@link ConcurrentModificationException}.
 */
public final class LeaseholdLock implements Generation.SpringLock {
    private static final Duration LONGEST = Duration.ofDays(36_500); // that a request waits, but for ever

    private final LeaseholdLockRegistry registry;
    private final String key;
    private final ReentrantLock local = new ReentrantLock(true);
    private volatile Lease lease; // written while `local` is held
    private volatile long usedAt;

    LeaseholdLock(LeaseholdLockRegistry registry, String key) {
        this.registry = registry;
        this.key = key;
    }

    /**
     * The lease of this lock, with its fencing token and guard.
     *
     * @return a lease that {@link #unlock} releases
     * @throws IllegalStateException the calling thread does not hold the lock
     */
    public Lease lease() {
        if (!local.isHeldByCurrentThread()) {
            throw new IllegalStateException("the lock " + key + " is not held by this thread");
        }
        return lease;
    }

    LeaseholdLock touched() {
        usedAt = System.nanoTime();
        return this;
    }

    boolean isUnusedFor(long millis) {
        return !local.isLocked() && !local.hasQueuedThreads() && System.nanoTime() - usedAt >= millis * 1_000_000;
    }

    /** Waits until the lock is held. An interrupt is kept for later. Throws what {@link leasehold.LeaseRequest#acquire} does, but Held. */
    @Override
    public void lock() {
        lock(null);
    }

    /**
     * The same, with a duration of its own in place of the registry's. The lock is renewed all the same. A thread that holds it already renews it
     * with that duration.
     *
     * @param ttl how long the lock outlives a process that died; null: the registry's duration
     */
    @Override
    public void lock(Duration ttl) {
        boolean isInterrupted = false;
        while (true) {
            try {
                lockInterruptibly(ttl);
                break;
            } catch (InterruptedException e) {
                isInterrupted = true;
            }
        }
        if (isInterrupted) {
            Thread.currentThread().interrupt();
        }
    }

    @Override
    public void lockInterruptibly() throws InterruptedException {
        lockInterruptibly(null);
    }

    private void lockInterruptibly(Duration ttl) throws InterruptedException {
        local.lockInterruptibly();
        if (!enter(null, ttl)) {
            throw new ConcurrentModificationException("the lock " + key + " was held, and its lease is lost");
        }
    }

    @Override
    public boolean tryLock() {
        boolean isInterrupted = Thread.interrupted();
        try {
            return local.tryLock() && enter(Duration.ZERO, null);
        } catch (InterruptedException e) {
            isInterrupted = true;
            return false;
        } finally {
            if (isInterrupted) {
                Thread.currentThread().interrupt();
            }
        }
    }

    @Override
    public boolean tryLock(long time, TimeUnit unit) throws InterruptedException {
        return tryFor(unit.toNanos(time), null);
    }

    /**
     * Waits so long for the lock, and holds it with a duration of its own, as {@link #lock(Duration)} does.
     *
     * @param wait how long to wait
     * @param ttl how long the lock outlives a process that died
     * @return false: another holds it, or this thread held it and its lease is lost
     * @throws InterruptedException the thread was interrupted
     */
    @Override
    public boolean tryLock(Duration wait, Duration ttl) throws InterruptedException {
        return tryFor(TimeUnit.NANOSECONDS.convert(wait), ttl);
    }

    private boolean tryFor(long nanos, Duration ttl) throws InterruptedException {
        long until = System.nanoTime() + nanos;
        if (!local.tryLock(nanos, TimeUnit.NANOSECONDS)) {
            return false;
        }
        Duration left = Duration.ofNanos(Math.max(0, until - System.nanoTime()));
        return enter(left.compareTo(LONGEST) > 0 ? null : left, ttl);
    }

    /** With `local` held once more: acquires the lease, for ever if wait is null. False: it is not held, nor is `local`. */
    private boolean enter(Duration wait, Duration ttl) throws InterruptedException {
        if (local.getHoldCount() > 1) {
            return enterAgain(ttl);
        }
        try {
            var request = registry.request(key, ttl);
            lease = (wait == null ? request.waitForever() : request.waitFor(wait)).acquire();
            return true;
        } catch (LeaseException.Held held) {
            return false;
        } finally {
            if (lease == null) {
                leave();
            }
        }
    }

    private boolean enterAgain(Duration ttl) {
        try {
            if (ttl == null) {
                lease.check();
            } else {
                lease.extend(ttl);
            }
            return true;
        } catch (LeaseException.Lost lost) {
            leave();
            return false;
        } catch (RuntimeException e) { // it is held as before
            local.unlock();
            throw e;
        }
    }

    private void leave() {
        lease = null;
        while (local.isHeldByCurrentThread()) {
            local.unlock();
        }
    }

    /**
     * Releases the lock, and its lease with the last hold of the thread.
     *
     * @throws ConcurrentModificationException the lease was lost before: what the lock protects may have been changed by others
     * @throws IllegalMonitorStateException the thread does not hold the lock
     */
    @Override
    public void unlock() {
        if (local.getHoldCount() != 1) {
            local.unlock();
            return;
        }
        Lease ended = lease;
        try {
            ended.release();
        } catch (LeaseException.Lost lost) {
            throw (RuntimeException) new ConcurrentModificationException("the lock " + key + " was lost before: " + lost.reason())
                    .initCause(lost);
        } finally {
            leave();
        }
    }

    @Override
    public Condition newCondition() {
        throw new UnsupportedOperationException("a lock of several processes has no conditions");
    }
}
