/** ShedLock's {@code LockProvider} on leases. */
package leasehold.shedlock;
