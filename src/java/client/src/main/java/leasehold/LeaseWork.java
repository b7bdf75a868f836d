package leasehold;

/**
 * Work that runs under a lease.
 *
 * @param <T> what it returns
 * @param <E> what it throws
 */
@FunctionalInterface
public interface LeaseWork<T, E extends Exception> {
    /**
     * Does the work. The thread is interrupted when the lease is lost: then it must stop.
     *
     * @param lease the lease, which is held
     * @return a result for the caller
     * @throws E what the caller gets; the lease is then released as failed
     */
    T run(Lease lease) throws E;
}
