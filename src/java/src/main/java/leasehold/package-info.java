/**
 * Leases on names: one holder at a time, with a fencing token, on PostgreSQL. No daemon is needed.
 *
 * <p>{@link leasehold.LeaseClient} is the beginning. {@link leasehold.shedlock} and {@link leasehold.spring} have the adapters for
 * ShedLock and Spring Integration.
 */
package leasehold;
