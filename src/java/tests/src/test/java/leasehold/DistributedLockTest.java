package leasehold;

import static leasehold.Site.seconds;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import leasehold.spring.LeaseholdLockRegistry;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.condition.EnabledIfEnvironmentVariable;
import org.springframework.context.annotation.AnnotationConfigApplicationContext;
import org.springframework.core.ResolvableType;
import org.springframework.integration.support.locks.DistributedLock;
import org.springframework.integration.support.locks.LockRegistry;
import org.springframework.integration.support.locks.RenewableLockRegistry;

/** What is new in Spring Integration 7. */
@EnabledIfEnvironmentVariable(named = "LEASEHOLD_TEST_SQL", matches = ".+", disabledReason = "tests/clients/java/run starts the databases")
class DistributedLockTest {
    @Test
    void spring_knows_a_distributed_lock() throws Exception {
        try (Site site = new Site("sql", "spring_knows_a_distributed_lock"); var context = new AnnotationConfigApplicationContext()) {
            context.registerBean(LeaseholdLockRegistry.class, () -> new LeaseholdLockRegistry(site.client(), "cases", seconds(6)));
            context.refresh();
            RenewableLockRegistry<DistributedLock> registry = bean(context, RenewableLockRegistry.class);
            assertEquals(registry, bean(context, LockRegistry.class));
            DistributedLock lock = registry.obtain(site.key);
            lock.lock(seconds(100));
            assertEquals("held|00:01:40", site.row("state, duration"));
            assertTrue(lock.tryLock(Duration.ZERO, seconds(200)));
            registry.renewLock(site.key, seconds(50));
            assertEquals("held|00:00:50", site.row("state, duration"));
            lock.unlock();
            lock.unlock();
            assertEquals("free", site.row("state"));
        }
    }

    /** The bean that Spring finds for the type with the type argument DistributedLock. */
    private static <T> T bean(AnnotationConfigApplicationContext context, Class<?> type) {
        return context.<T>getBeanProvider(ResolvableType.forClassWithGenerics(type, DistributedLock.class)).getObject();
    }
}
