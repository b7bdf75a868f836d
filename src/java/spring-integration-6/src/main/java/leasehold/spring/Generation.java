package leasehold.spring;

import java.time.Duration;
import java.util.concurrent.locks.Lock;
import org.springframework.integration.support.locks.ExpirableLockRegistry;
import org.springframework.integration.support.locks.RenewableLockRegistry;

/** What the classes are to Spring Integration 6, with the methods that came with 7. */
final class Generation {
    private Generation() {
    }

    interface SpringLock extends Lock {
        void lock(Duration ttl);

        boolean tryLock(Duration wait, Duration ttl) throws InterruptedException;
    }

    interface SpringRegistry extends RenewableLockRegistry, ExpirableLockRegistry {
        void renewLock(Object lockKey, Duration ttl);
    }
}
