/** Spring Integration's {@code LockRegistry} on leases. */
package leasehold.spring;
