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
import leasehold.Lease;
import leasehold.LeaseClient;
import leasehold.LeaseException;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.condition.EnabledIfEnvironmentVariable;
import org.junit.jupiter.api.extension.ExtendWith;

@EnabledIfEnvironmentVariable(named = "LEASEHOLDD", matches = ".+", disabledReason = "tests/clients/java/run names the daemon")
@ExtendWith(LeaseholdExtension.class)
class WorldTest {
    private LeaseClient client;

    private Lease acquire(World world, int seconds) throws Exception {
        client = client == null ? LeaseClient.create(world.url()) : client;
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

    @Test
    void worlds_do_not_see_each_other(World world, World other) throws Exception {
        acquire(world, 30);
        try (Lease beside = client.lease(other.namespace(), "k").acquire()) {
            assertTrue(beside.isHeld());
        }
        assertThrows(LeaseException.Held.class, () -> acquire(world, 30));
    }

    @Test
    void a_lease_that_is_lost_is_told(World world) throws Exception {
        Lease lease = acquire(world, 30);
        assertTrue(world.lose("k"));
        assertEquals(LeaseException.Reason.FORCED, lost(lease));
        assertFalse(world.lose("k"));
    }

    @Test
    void time_passes_for_this_world_alone(World world, World other) throws Exception {
        Lease lease = acquire(world, 30);
        Lease beside = client.lease(other.namespace(), "k").acquire();
        world.pass(Duration.ofHours(1));
        assertEquals("free", row(world, "state"));
        assertEquals(LeaseException.Reason.EXPIRED, lost(lease));
        beside.release();
        assertThrows(IllegalArgumentException.class, () -> world.pass(Duration.ZERO));
    }

    @Test
    void an_answer_that_is_lost_costs_nothing(World world) throws Exception {
        world.drop();
        Lease lease = acquire(world, 30);
        assertEquals(String.valueOf(lease.token()), row(world, "token"));
        world.drop();
        lease.release();
        assertEquals("free", row(world, "state"));
    }

    @Test
    void a_late_answer_leaves_less_of_the_lease(World world) throws Exception {
        world.delay(Duration.ofSeconds(2));
        Lease lease = acquire(world, 20);
        Duration most = Duration.ofSeconds(20 - 20 / 5 - 2);
        assertTrue(lease.remaining().compareTo(most) <= 0, lease.remaining().toString());
    }

    @Test
    void silence_is_told_before_the_deadline(World world) throws Exception {
        Lease lease = acquire(world, 40);
        world.silence(true);
        assertEquals(LeaseException.Reason.UNREACHABLE, lost(lease));
        assertEquals("t", row(world, "deadline > clock_timestamp()"));
        world.silence(false);
    }

    @Test
    void a_failover_keeps_leases(World world) throws Exception {
        Lease lease = acquire(world, 30);
        String life = sql(world, "select id from leasehold.incarnation");
        world.failOver();
        assertNotEquals(life, sql(world, "select id from leasehold.incarnation"));
        await("a renewal", () -> row(world, "heartbeats > 0").equals("t"));
        assertEquals(String.valueOf(lease.token()), row(world, "token"));
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
