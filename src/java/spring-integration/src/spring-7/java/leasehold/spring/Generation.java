package leasehold.spring;

import org.springframework.integration.support.locks.DistributedLock;
import org.springframework.integration.support.locks.ExpirableLockRegistry;
import org.springframework.integration.support.locks.RenewableLockRegistry;

/** What the classes are to Spring Integration 7. */
final class Generation {
    private Generation() {
    }

    interface SpringLock extends DistributedLock {
    }

    interface SpringRegistry extends RenewableLockRegistry<DistributedLock>, ExpirableLockRegistry<DistributedLock> {
    }
}
