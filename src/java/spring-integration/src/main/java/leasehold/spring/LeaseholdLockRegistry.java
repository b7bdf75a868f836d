package leasehold.spring;

import java.time.Duration;
import java.util.Map;
import java.util.Objects;
import java.util.concurrent.ConcurrentHashMap;
import leasehold.LeaseClient;
import leasehold.LeaseException;
import leasehold.LeaseRequest;

/**
 * Spring Integration's locks as leases of one namespace. The client renews them while they are held, without a task scheduler. Waiting
 * uses the queue: waiters get a lock in the order in which they came. {@code LockRegistryLeaderInitiator} elects leaders on it.
 */
public final class LeaseholdLockRegistry implements Generation.SpringRegistry {
    private final LeaseClient client;
    private final String namespace;
    private final Duration duration;
    private final Map<String, LeaseholdLock> locks = new ConcurrentHashMap<>();

    /**
     * A registry; the caller closes the client.
     *
     * @param client acquires the leases
     * @param namespace of the leases; their keys are the locks' keys
     * @param duration how long a lock outlives a process that died
     */
    public LeaseholdLockRegistry(LeaseClient client, String namespace, Duration duration) {
        this.client = Objects.requireNonNull(client, "client");
        this.namespace = Objects.requireNonNull(namespace, "namespace");
        this.duration = Objects.requireNonNull(duration, "duration");
    }

    /**
     * The lock of a key: the same one for equal keys.
     *
     * @param lockKey its {@code toString()} is the lease's key: 1 to 1,024 bytes
     * @return the lock
     */
    @Override
    public LeaseholdLock obtain(Object lockKey) {
        return locks.compute(lockKey.toString(), (key, lock) -> (lock == null ? new LeaseholdLock(this, key) : lock).touched());
    }

    /**
     * Renews a lock now, with the registry's duration. The client renews it anyway.
     *
     * @param lockKey of a lock that this thread holds
     * @throws IllegalStateException this thread does not hold it, or its lease is lost
     */
    @Override
    public void renewLock(Object lockKey) {
        renewLock(lockKey, duration);
    }

    /**
     * Renews a lock with another duration.
     *
     * @param lockKey of a lock that this thread holds
     * @param ttl its duration from now on
     * @throws IllegalStateException this thread does not hold it, or its lease is lost
     */
    @Override
    public void renewLock(Object lockKey, Duration ttl) {
        LeaseholdLock lock = locks.get(lockKey.toString());
        if (lock == null) {
            throw new IllegalStateException("the lock " + lockKey + " is not held");
        }
        try {
            lock.lease().extend(ttl);
        } catch (LeaseException.Lost lost) {
            throw new IllegalStateException("the lock " + lockKey + " is lost", lost);
        }
    }

    /**
     * Forgets locks that are not held, so that their objects can be collected. Leases are not touched.
     *
     * @param age milliseconds since the lock was last obtained
     */
    @Override
    public void expireUnusedOlderThan(long age) {
        locks.keySet().forEach(key -> locks.computeIfPresent(key, (unused, lock) -> lock.isUnusedFor(age) ? null : lock));
    }

    LeaseRequest request(String key, Duration ttl) {
        return client.lease(namespace, key).duration(ttl == null ? duration : ttl);
    }
}
