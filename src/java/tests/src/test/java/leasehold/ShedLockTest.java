package leasehold;

import static leasehold.Site.await;
import static leasehold.Site.seconds;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.sql.Connection;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.ScheduledFuture;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import leasehold.shedlock.LeaseholdLockProvider;
import net.javacrumbs.shedlock.core.DefaultLockingTaskExecutor;
import net.javacrumbs.shedlock.core.LockConfiguration;
import net.javacrumbs.shedlock.core.LockExtender;
import net.javacrumbs.shedlock.core.LockProvider;
import net.javacrumbs.shedlock.core.LockingTaskExecutor;
import net.javacrumbs.shedlock.core.SimpleLock;
import net.javacrumbs.shedlock.support.KeepAliveLockProvider;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestInfo;
import org.junit.jupiter.api.condition.EnabledIfEnvironmentVariable;

/** ShedLock's own executor, extender and keep-alive on leases. */
@Tag("libraries")
@EnabledIfEnvironmentVariable(named = "LEASEHOLD_TEST_SQL", matches = ".+", disabledReason = "tests/clients/java/run starts the databases")
class ShedLockTest {
    private Site site;
    private LeaseholdLockProvider provider;

    String on() {
        return "sql";
    }

    @BeforeEach
    void begin(TestInfo test) {
        site = new Site(on(), test.getTestMethod().orElseThrow().getName());
        provider = new LeaseholdLockProvider(site.client(), "jobs");
    }

    @AfterEach
    void end() throws Exception {
        site.close();
    }

    private LockConfiguration times(Duration atMost, Duration atLeast) {
        return new LockConfiguration(Instant.now(), site.key, atMost, atLeast);
    }

    private boolean isRun(LockProvider by, LockConfiguration times, LockingTaskExecutor.TaskWithResult<?> task) {
        try {
            return new DefaultLockingTaskExecutor(by).executeWithLock(task, times).wasExecuted();
        } catch (Throwable trouble) {
            throw new IllegalStateException(trouble);
        }
    }

    private String row(String columns) {
        return site.row("jobs", columns);
    }

    @Test
    void shedlock_runs_a_task_on_one_machine() {
        var other = new LeaseholdLockProvider(site.client(), "jobs");
        LockConfiguration times = times(seconds(600), Duration.ZERO);
        assertTrue(isRun(provider, times, () -> {
            assertEquals("held|00:10:00", row("state, duration"));
            // In a thread of its own: ShedLock runs a task at once whose name the thread has locked already.
            assertFalse(new Site.Later<>(() -> isRun(other, times, () -> null)).get());
            return null;
        }));
        assertEquals("free|ok", row("state, last_outcome"));
        assertTrue(isRun(other, times, () -> null));
    }

    @Test
    void shedlock_keeps_the_lock_at_least() throws Exception {
        LockConfiguration times = times(seconds(600), seconds(5));
        String[] acquired = {null};
        assertTrue(isRun(provider, times, () -> acquired[0] = row("acquired_at")));
        assertEquals("free|ok", row("state, last_outcome"));
        await("the end of the rest", () -> isRun(provider, times, () -> null));
        assertEquals("t", site.sql("select ended_at >= '%s'::timestamptz + interval '5 s' from leasehold.scope where key = '%s'", acquired[0], site.key));
    }

    @Test
    void shedlock_lock_ends_without_its_holder() throws Exception {
        Optional<SimpleLock> lost = provider.lock(times(seconds(1), Duration.ZERO));
        var other = new LeaseholdLockProvider(site.client(), "jobs");
        await("another holder", () -> other.lock(times(seconds(600), Duration.ZERO)).isPresent());
        assertTrue(lost.orElseThrow().extend(seconds(600), Duration.ZERO).isEmpty());
        String before = row("state, token");
        lost = provider.lock(times(seconds(600), Duration.ZERO));
        assertTrue(lost.isEmpty());
        assertEquals(before, row("state, token"));
    }

    @Test
    void shedlock_extends_a_lock() {
        assertTrue(isRun(provider, times(seconds(60), Duration.ZERO), () -> {
            LockExtender.extendActiveLock(seconds(900), Duration.ZERO);
            assertEquals("held|00:15:00", row("state, duration"));
            return null;
        }));
        assertEquals("free|ok", row("state, last_outcome"));
        SimpleLock lock = provider.lock(times(seconds(60), Duration.ZERO)).orElseThrow();
        SimpleLock longer = lock.extend(seconds(600), Duration.ZERO).orElseThrow();
        assertThrows(IllegalStateException.class, lock::unlock);
        longer.unlock();
        assertEquals("free|ok", row("state, last_outcome"));
        assertThrows(IllegalStateException.class, () -> longer.extend(seconds(600), Duration.ZERO));
    }

    @Test
    void shedlock_keeps_a_lock_alive() {
        List<Runnable> kept = new ArrayList<>();
        try (Scheduler scheduler = new Scheduler(kept)) {
            LockProvider alive = new KeepAliveLockProvider(provider, scheduler);
            assertTrue(isRun(alive, times(seconds(30), Duration.ZERO), () -> {
                Thread other = new Thread(() -> {
                    kept.get(0).run();
                    kept.get(0).run();
                });
                other.start();
                other.join();
                assertEquals("2|00:00:30", row("heartbeats, duration"));
                assertTrue(provider.current().isPresent());
                return null;
            }));
        }
        assertEquals("free|ok", row("state, last_outcome"));
        assertTrue(provider.current().isEmpty());
    }

    /** Runs nothing by itself. */
    private static final class Scheduler extends ScheduledThreadPoolExecutor implements AutoCloseable {
        private final List<Runnable> tasks;

        Scheduler(List<Runnable> tasks) {
            super(1);
            this.tasks = tasks;
        }

        @Override
        public ScheduledFuture<?> scheduleAtFixedRate(Runnable task, long first, long period, TimeUnit unit) {
            tasks.add(task);
            return super.scheduleAtFixedRate(() -> { }, 1, 1, TimeUnit.DAYS);
        }

        @Override
        public void close() {
            shutdownNow();
        }
    }

    @Test
    void shedlock_task_has_token_and_guard() {
        assertTrue(isRun(provider, times(seconds(60), Duration.ZERO), () -> {
            Lease lease = provider.current().orElseThrow();
            assertEquals(row("token"), String.valueOf(lease.token()));
            Connection connection = site.connection();
            lease.guard(connection);
            connection.rollback();
            site.forceRelease("jobs");
            assertThrows(LeaseException.Lost.class, () -> lease.guard(connection));
            return null;
        }));
        assertTrue(provider.current().isEmpty());
    }

    @Test
    void shedlock_excludes_threads_and_processes() throws Exception {
        int[] count = {0};
        List<Site.Later<Boolean>> workers = new ArrayList<>();
        for (int i = 0; i < 4; i++) {
            LockProvider mine = i % 2 == 0 ? provider : new LeaseholdLockProvider(site.client(), "jobs");
            workers.add(new Site.Later<>(() -> {
                for (int done = 0; done < 10;) {
                    done += isRun(mine, times(seconds(300), Duration.ZERO), () -> {
                        int n = count[0];
                        Thread.sleep(1);
                        count[0] = n + 1;
                        return null;
                    }) ? 1 : 0;
                }
                return true;
            }));
        }
        for (var worker : workers) {
            worker.get();
        }
        assertEquals(40, count[0]);
    }
}
