package leasehold;

import static leasehold.Site.await;
import static leasehold.Site.seconds;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotSame;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.sql.Connection;
import java.time.Duration;
import java.util.ArrayList;
import java.util.ConcurrentModificationException;
import java.util.List;
import java.util.concurrent.TimeUnit;
import leasehold.spring.LeaseholdLock;
import leasehold.spring.LeaseholdLockRegistry;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestInfo;
import org.junit.jupiter.api.condition.EnabledIfEnvironmentVariable;
import org.springframework.integration.leader.DefaultCandidate;
import org.springframework.integration.support.leader.LockRegistryLeaderInitiator;

/** Spring Integration's own leader election and lock callbacks on leases. */
@Tag("libraries")
@EnabledIfEnvironmentVariable(named = "LEASEHOLD_TEST_SQL", matches = ".+", disabledReason = "tests/clients/java/run starts the databases")
class SpringTest {
    private Site site;

    String on() {
        return "sql";
    }

    @BeforeEach
    void begin(TestInfo test) {
        site = new Site(on(), test.getTestMethod().orElseThrow().getName());
    }

    @AfterEach
    void end() throws Exception {
        site.close();
    }

    private LeaseholdLockRegistry registry(int duration) {
        return new LeaseholdLockRegistry(site.client(), "cases", seconds(duration));
    }

    private LockRegistryLeaderInitiator candidate(String id) {
        var initiator = new LockRegistryLeaderInitiator(registry(30), new DefaultCandidate(id, site.key));
        initiator.setHeartBeatMillis(100);
        initiator.setBusyWaitMillis(50);
        initiator.start();
        site.atEnd(initiator::destroy);
        return initiator;
    }

    @Test
    void spring_elects_one_leader() throws Exception {
        var first = candidate("first");
        await("a leader", () -> first.getContext().isLeader());
        var second = candidate("second");
        await("a second candidate", () -> site.waiters().equals("1"));
        assertFalse(second.getContext().isLeader());
        long token = Long.parseLong(site.row("token"));
        first.stop();
        await("the next leader", () -> second.getContext().isLeader());
        assertTrue(Long.parseLong(site.row("token")) > token);
        // A leader whose lease was ended is told, and stands again.
        String before = site.row("token");
        site.forceRelease("cases");
        await("a new term", () -> second.getContext().isLeader() && site.row("state").equals("held") && !site.row("token").equals(before));
    }

    @Test
    void spring_revokes_a_leader_who_lost() throws Exception {
        var first = candidate("first");
        await("a leader", () -> first.getContext().isLeader());
        var second = candidate("second");
        await("a second candidate", () -> site.waiters().equals("1"));
        await("another leader", () -> {
            if (first.getContext().isLeader() && site.waiters().equals("1")) { // it may have come back before the second stood again
                site.forceRelease("cases");
            }
            return second.getContext().isLeader() && !first.getContext().isLeader();
        });
    }

    @Test
    void spring_lock_is_reentrant() throws Exception {
        LeaseholdLockRegistry mine = registry(30);
        LeaseholdLockRegistry theirs = registry(30);
        LeaseholdLock lock = mine.obtain(site.key);
        assertSame(lock, mine.obtain(site.key));
        lock.lock();
        assertTrue(lock.tryLock());
        assertFalse(theirs.obtain(site.key).tryLock(100, TimeUnit.MILLISECONDS));
        assertFalse(new Site.Later<>(lock::tryLock).get());
        lock.unlock();
        assertEquals("held|" + lock.lease().token(), site.row("state, token"));
        lock.unlock();
        assertEquals("free|ok", site.row("state, last_outcome"));
        assertThrows(IllegalMonitorStateException.class, lock::unlock);
        assertTrue(theirs.obtain(site.key).tryLock());
        theirs.obtain(site.key).unlock();
        mine.expireUnusedOlderThan(0);
        assertNotSame(lock, mine.obtain(site.key));
    }

    @Test
    void spring_renews_and_extends_a_lock() throws Exception {
        LeaseholdLockRegistry registry = registry(20);
        LeaseholdLock lock = registry.obtain(site.key);
        assertThrows(IllegalStateException.class, () -> registry.renewLock(site.key));
        lock.lock();
        await("two renewals by itself", () -> site.beats() >= 2);
        int before = site.beats();
        registry.renewLock(site.key);
        assertTrue(site.beats() > before);
        registry.renewLock(site.key, seconds(100));
        assertEquals("00:01:40", site.row("duration"));
        Connection connection = site.connection();
        lock.lease().guard(connection);
        connection.rollback();
        lock.unlock();
    }

    @Test
    void spring_lock_has_a_duration_of_its_own() throws Exception {
        LeaseholdLock mine = registry(20).obtain(site.key);
        LeaseholdLock theirs = registry(20).obtain(site.key);
        mine.lock(seconds(100));
        assertEquals("held|00:01:40", site.row("state, duration"));
        assertFalse(theirs.tryLock(Duration.ofMillis(100), seconds(50)));
        assertTrue(mine.tryLock(Duration.ZERO, seconds(200)));
        assertEquals("held|00:03:20", site.row("state, duration"));
        assertThrows(IllegalArgumentException.class, () -> mine.lock(Duration.ZERO));
        assertThrows(IllegalArgumentException.class, () -> theirs.lock(Duration.ZERO));
        var waiter = new Site.Later<>(() -> theirs.tryLock(seconds(60), seconds(50)) && site.row("duration").equals("00:00:50"));
        await("a waiter", () -> site.waiters().equals("1"));
        mine.unlock();
        assertTrue(mine.lease().isHeld());
        mine.unlock();
        assertTrue(waiter.get());
        site.forceRelease("cases");
        await("the end", () -> mine.tryLock(Duration.ZERO, seconds(100)));
        site.forceRelease("cases");
        assertThrows(ConcurrentModificationException.class, () -> mine.lock(seconds(100)));
        assertThrows(IllegalMonitorStateException.class, mine::unlock);
    }

    @Test
    void spring_tells_a_lost_lock() throws Exception {
        LeaseholdLockRegistry registry = registry(30);
        LeaseholdLock lock = registry.obtain(site.key);
        lock.lock();
        site.forceRelease("cases");
        assertThrows(ConcurrentModificationException.class, lock::unlock);
        lock.lock();
        Lease lease = lock.lease();
        site.forceRelease("cases");
        await("the loss", () -> !lease.isHeld());
        assertThrows(IllegalStateException.class, () -> registry.renewLock(site.key));
        assertFalse(lock.tryLock());
        await("the lock", lock::tryLock); // one try finds the scope busy while another session looks at its row
        lock.unlock();
    }

    @Test
    void spring_excludes_threads_and_processes() throws Exception {
        int[] count = {0};
        var registries = List.of(registry(30), registry(30));
        List<Site.Later<Boolean>> workers = new ArrayList<>();
        for (int i = 0; i < 4; i++) {
            var mine = registries.get(i % 2);
            workers.add(new Site.Later<>(() -> {
                for (int n = 0; n < 10; n++) {
                    mine.executeLocked(site.key, () -> {
                        int before = count[0];
                        Thread.sleep(1);
                        count[0] = before + 1;
                    });
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
