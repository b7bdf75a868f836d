package leasehold.testing;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assertions.fail;

import java.io.BufferedReader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.sql.Connection;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.time.Duration;
import java.util.concurrent.Callable;
import java.util.concurrent.atomic.AtomicInteger;
import leasehold.Lease;
import leasehold.LeaseClient;
import leasehold.LeaseException;
import leasehold.grpc.Daemons;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.condition.EnabledIfEnvironmentVariable;
import org.junit.jupiter.api.extension.ExtendWith;
import org.junit.jupiter.api.parallel.ResourceAccessMode;
import org.junit.jupiter.api.parallel.ResourceLock;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

@EnabledIfEnvironmentVariable(named = "LEASEHOLDD", matches = ".+", disabledReason = "tests/clients/java/run names the daemon")
@ExtendWith(LeaseholdExtension.class)
@ResourceLock(value = WorldTest.CONNECTIONS, mode = ResourceAccessMode.READ)
class WorldTest {
    static final String CONNECTIONS = "connections of the daemon";

    /** Where a client asks. */
    enum Way {
        SERVER,
        DATABASE
    }

    private final AtomicInteger retries = new AtomicInteger();
    private LeaseClient client;

    private Lease acquire(Way way, World world, int seconds) throws Exception {
        if (client == null) {
            client = (way == Way.SERVER ? LeaseClient.builder(Daemons.at(world.server())) : LeaseClient.builder(world.url())).patience(Duration.ofSeconds(20))
                    .retryLog((retry, delay) -> retries.incrementAndGet()).build();
        }
        return client.lease(world.namespace(), "k").duration(Duration.ofSeconds(seconds)).acquire();
    }

    @AfterEach
    void end() {
        if (client != null) {
            client.close();
        }
    }

    private static String sql(World world, String query) throws SQLException {
        try (Connection connection = world.connect(); Statement statement = connection.createStatement();
                ResultSet rows = statement.executeQuery(query.replace(":namespace", "'" + world.namespace() + "'"))) {
            return rows.next() ? rows.getString(1) : "";
        }
    }

    private static String row(World world, String column) throws SQLException {
        return sql(world, "select " + column + " from leasehold.scope where namespace = :namespace and key = 'k'");
    }

    /** A bound, not a measurement. */
    private static void await(String what, Callable<Boolean> condition) throws Exception {
        for (long end = System.nanoTime() + 120_000_000_000L; !condition.call(); Thread.sleep(20)) {
            if (System.nanoTime() > end) {
                fail(what + " did not come true within two minutes");
            }
        }
    }

    private static LeaseException.Reason lost(Lease lease) throws Exception {
        await("the loss", () -> !lease.isHeld());
        return assertThrows(LeaseException.Lost.class, lease::check).reason();
    }

    @ParameterizedTest
    @EnumSource(Way.class)
    void worlds_do_not_see_each_other(Way way, World world, World other) throws Exception {
        acquire(way, world, 30);
        try (Lease beside = client.lease(other.namespace(), "k").acquire()) {
            assertTrue(beside.isHeld());
        }
        assertThrows(LeaseException.Held.class, () -> acquire(way, world, 30));
    }

    @ParameterizedTest
    @EnumSource(Way.class)
    void a_lease_that_is_lost_is_told(Way way, World world) throws Exception {
        Lease lease = acquire(way, world, 30);
        assertTrue(world.lose("k"));
        assertEquals(LeaseException.Reason.FORCED, lost(lease));
        assertFalse(world.lose("k"));
    }

    @ParameterizedTest
    @EnumSource(Way.class)
    void time_passes_for_this_world_alone(Way way, World world, World other) throws Exception {
        Lease lease = acquire(way, world, 30);
        Lease beside = client.lease(other.namespace(), "k").acquire();
        world.pass(Duration.ofHours(1));
        assertEquals("free", row(world, "state"));
        assertEquals(LeaseException.Reason.EXPIRED, lost(lease));
        beside.release();
        assertThrows(IllegalArgumentException.class, () -> world.pass(Duration.ZERO));
    }

    @ParameterizedTest
    @EnumSource(Way.class)
    void an_answer_that_is_lost_costs_nothing(Way way, World world) throws Exception {
        world.drop();
        Lease lease = acquire(way, world, 30);
        assertEquals(String.valueOf(lease.token()), row(world, "token"));
        assertTrue(retries.getAndSet(0) > 0, "the answer to the acquire was not lost");
        world.drop();
        lease.release();
        assertTrue(retries.get() > 0, "the answer to the release was not lost");
        assertEquals("free", row(world, "state"));
    }

    @ParameterizedTest
    @EnumSource(Way.class)
    void a_late_answer_leaves_less_of_the_lease(Way way, World world) throws Exception {
        world.delay(Duration.ofSeconds(2));
        Lease lease = acquire(way, world, 20);
        Duration most = Duration.ofSeconds(20 - 20 / 5 - 2);
        assertTrue(lease.remaining().compareTo(most) <= 0, lease.remaining().toString());
    }

    @ParameterizedTest
    @EnumSource(Way.class)
    void silence_is_told_before_the_deadline(Way way, World world) throws Exception {
        Lease lease = acquire(way, world, 40);
        world.silence(true);
        assertEquals(LeaseException.Reason.UNREACHABLE, lost(lease));
        assertEquals("t", row(world, "deadline > clock_timestamp()"));
        world.silence(false);
    }

    @ParameterizedTest
    @EnumSource(Way.class)
    @ResourceLock(CONNECTIONS)
    void a_failover_keeps_leases(Way way, World world) throws Exception {
        Lease lease = acquire(way, world, 30);
        String timeline = sql(world, "select timeline from leasehold.incarnation");
        world.failOver();
        assertNotEquals(timeline, sql(world, "select timeline from leasehold.incarnation"));
        String beats = row(world, "heartbeats");
        await("a renewal", () -> row(world, "heartbeats > " + beats).equals("t"));
        assertEquals(String.valueOf(lease.token()), row(world, "token"));
        lease.release();
        assertTrue(acquire(way, world, 30).token() - lease.token() >= 1 << 24, "what was drawn and lost stays behind by a jump alone");
    }

    /** Is killed by the test below. */
    public static final class Child {
        public static void main(String[] arguments) throws Exception {
            System.out.println(Daemon.running().socket());
            Thread.sleep(600_000);
        }
    }

    @Test
    void the_daemon_ends_when_its_program_is_killed() throws Exception {
        Process child = new ProcessBuilder(ProcessHandle.current().info().command().orElseThrow(), "-cp", System.getProperty("java.class.path"),
                Child.class.getName()).redirectError(ProcessBuilder.Redirect.INHERIT).start();
        try (BufferedReader lines = child.inputReader()) {
            Path socket = Path.of(lines.readLine());
            assertTrue(Files.exists(socket));
            child.destroyForcibly();
            await("the end of the daemon", () -> !Files.exists(socket.getParent().getParent().getParent()));
        }
    }
}
