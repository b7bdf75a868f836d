/**
 * Leases on names: one holder at a time, with a fencing token, on PostgreSQL. No daemon is needed.
 *
 * <p>{@link leasehold.LeaseClient} is the beginning. The artifacts {@code leasehold-shedlock} and {@code leasehold-spring-integration}
 * have the adapters for ShedLock and Spring Integration.
 */
package leasehold;
