package leasehold.shedlock;

import java.util.Objects;
import java.util.Optional;
import leasehold.Lease;
import leasehold.LeaseClient;
import leasehold.LeaseException;
import net.javacrumbs.shedlock.core.AbstractSimpleLock;
import net.javacrumbs.shedlock.core.ExtensibleLockProvider;
import net.javacrumbs.shedlock.core.LockConfiguration;
import net.javacrumbs.shedlock.core.SimpleLock;

/**
 * ShedLock's locks as leases of one namespace. {@code lockAtMostFor} is the lease's duration, at least 1 s. As ShedLock wants it, a
 * lock is not renewed by itself; {@code LockExtender} and {@code KeepAliveLockProvider} extend it. {@code lockAtLeastFor} is the
 * lease's {@code at_least}: the database keeps it, also when the process dies. An extension keeps the first {@code lockAtLeastFor}.
 */
public final class LeaseholdLockProvider implements ExtensibleLockProvider {
    private final LeaseClient client;
    private final String namespace;
    private final ThreadLocal<Lease> current = new ThreadLocal<>();

    /**
     * A provider; the caller closes the client.
     *
     * @param client acquires the leases
     * @param namespace of the leases; their keys are the locks' names
     */
    public LeaseholdLockProvider(LeaseClient client, String namespace) {
        this.client = Objects.requireNonNull(client, "client");
        this.namespace = Objects.requireNonNull(namespace, "namespace");
    }

    /**
     * Locks without waiting.
     *
     * @param configuration the lock's name and times
     * @return a {@link LeaseholdLock}; empty when another holds it
     * @throws LeaseException.Denied the database refuses
     * @throws LeaseException.Unavailable the database did not answer
     * @throws LeaseException.InvalidArgument a name or time is out of bounds
     */
    @Override
    public Optional<SimpleLock> lock(LockConfiguration configuration) {
        try {
            Lease outer = current.get();
            Lease lease = client.lease(namespace, configuration.getName()).duration(configuration.getLockAtMostFor())
                    .atLeast(configuration.getLockAtLeastFor()).withoutRenewal().acquire();
            current.set(lease);
            return Optional.of(new LeaseholdLock(configuration, lease, outer));
        } catch (LeaseException.Held held) {
            return Optional.empty();
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            return Optional.empty();
        }
    }

    /**
     * The lease of the lock that this thread has got last and not unlocked: how a method with {@code @SchedulerLock} gets at its token.
     *
     * @return the lease; empty when there is none
     */
    public Optional<Lease> current() {
        return Optional.ofNullable(current.get());
    }

    /** A lock. {@link #lease} has its fencing token and guards transactions. */
    public final class LeaseholdLock extends AbstractSimpleLock {
        private final Lease lease;
        private final Lease outer; // that this thread got before

        private LeaseholdLock(LockConfiguration configuration, Lease lease, Lease outer) {
            super(configuration);
            this.lease = lease;
            this.outer = outer;
        }

        /**
         * The lease.
         *
         * @return a lease that {@link #unlock} releases
         */
        public Lease lease() {
            return lease;
        }

        @Override
        protected void doUnlock() {
            forget();
            try {
                lease.release();
            } catch (LeaseException.Lost lost) {
                System.getLogger("leasehold").log(System.Logger.Level.WARNING, "the task ended after its lock did: " + lost.getMessage());
            }
        }

        @Override
        protected Optional<SimpleLock> doExtend(LockConfiguration extended) {
            try {
                lease.extend(extended.getLockAtMostFor());
                return Optional.of(new LeaseholdLock(extended, lease, outer));
            } catch (LeaseException.Lost lost) {
                forget();
                return Optional.empty();
            }
        }

        private void forget() {
            if (current.get() == lease) {
                current.set(outer);
            }
        }
    }
}
