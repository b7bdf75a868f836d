package leasehold;

import static leasehold.Site.await;
import static leasehold.Site.lost;
import static leasehold.Site.seconds;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assertions.fail;

import java.nio.file.Files;
import java.nio.file.Path;
import java.sql.Connection;
import java.sql.SQLException;
import java.time.Duration;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.condition.EnabledIfEnvironmentVariable;

/** The cases on a direct connection to PostgreSQL. */
@Tag("libraries")
@EnabledIfEnvironmentVariable(named = "LEASEHOLD_TEST_SQL", matches = ".+", disabledReason = "tests/clients/java/run starts the databases")
class SqlCasesTest extends DirectCases {
    @Override
    public String on() {
        return "sql";
    }

    @Override
    Way way() throws Exception {
        return site.atEnd(new Pipe(site.url));
    }

    @Override
    LeaseClient.Builder nowhere() {
        return LeaseClient.builder("jdbc:postgresql://127.0.0.1:1/none?user=none");
    }

    @Override
    LeaseClient worker() {
        String role = "worker_java_" + System.nanoTime(); // a second try has another
        site.sql("create role %1$s login in role leasehold_client; select from leasehold.access_grant('role:%1$s', 'secure', 'lease')", role);
        return site.client(LeaseClient.builder(site.url.replace("user=postgres", "user=" + role)));
    }

    @Test
    @Override
    void sqlstates_are_told_alike() throws Exception {
        super.sqlstates_are_told_alike();
    }

    @Test
    void broken_connections_cost_no_lease() throws Exception {
        broken_connections(site.client(), "application_name = 'java-" + site.key + "'");
    }

    @Test
    void late_statement_is_given_back() throws Exception {
        Pipe pipe = site.atEnd(new Pipe(site.url));
        LeaseClient client = site.client(LeaseClient.builder(pipe.url()).patience(seconds(5)));
        site.lease(client).acquire().release(); // connects
        String before = site.row("token");
        int said = pipe.said();
        pipe.holdUp(true);
        var acquire = new Site.Later<>(() -> site.lease(client).duration(seconds(300)).acquire());
        await("a statement that is held up", () -> pipe.saidSince(said).contains("leasehold.acquire_one("));
        acquire.thread.interrupt();
        assertInstanceOf(InterruptedException.class, acquire.trouble());
        // A second one comes when the first is answered.
        await("the answer to the release of what is not granted yet", () -> pipe.saidSince(said).split("leasehold.release_each\\(").length > 2);
        pipe.holdUp(false);
        await("the late grant", () -> !site.row("token").equals(before));
        await("the release", () -> site.row("state").equals("free"));
        assertEquals("failed", site.row("last_outcome"));
    }

    @Test
    void no_renewal_after_release() throws Exception {
        Pipe pipe = site.atEnd(new Pipe(site.url));
        LeaseClient client = site.client(LeaseClient.builder(pipe.url()));
        Lease lease = site.lease(client).duration(seconds(20)).acquire();
        await("a renewal", () -> site.beats() >= 1);
        int before = site.beats(); // a renewal that is written while the pipe freezes is in flight, too
        pipe.freeze(true);
        await("a renewal in flight", () -> site.beats() > before);
        var release = new Site.Later<>(() -> {
            lease.release();
            return true;
        });
        pipe.freeze(false);
        release.get();
        int n = pipe.said();
        Lease other = client.lease("cases", "another").duration(seconds(20)).acquire();
        await("renewals of another lease",
                () -> site.sql("select heartbeats >= 2 from leasehold.scope where key = 'another'").equals("t"));
        assertFalse(pipe.saidSince(n).contains(site.key), "it was renewed after its release");
        assertNull(lease.lost());
        other.release();
    }

    @Test
    void reaping_calls_back() throws Exception {
        site.sql("select from leasehold.set_policy('reaped', reaper => 'external')");
        site.sql("drop table if exists public.reaped_java; create table public.reaped_java (key text primary key)");
        LeaseClient holder = site.client();
        for (String key : java.util.List.of("broken", "twice", "well")) {
            holder.lease("reaped.java", key).owner("somebody").withoutRenewal().acquire();
        }
        String earlier = java.util.stream.Stream.of("acquired_at", "heartbeat_at", "deadline", "check_at")
                .map(each -> each + " = " + each + " - interval '1 h'").collect(java.util.stream.Collectors.joining(", "));
        site.sql("update leasehold.scope set " + earlier + " where namespace = 'reaped.java'");
        Connection connection = site.connection();
        StaleLease.End end = lease -> {
            assertEquals("somebody", lease.owner());
            assertTrue(lease.token() > 0 && lease.deadline().isAfter(lease.acquiredAt()), lease.toString());
            insert(connection, lease.key());
            if (lease.key().equals("broken")) {
                throw new IllegalStateException("it cannot be put back");
            }
            if (lease.key().equals("twice")) {
                insert(connection, lease.key());
            }
        };
        long[] done = new long[2];
        await("the end of the lease", () -> {
            StaleLease.Count some = StaleLease.reap(connection, java.util.List.of("reaped"), true, end);
            done[0] += some.ended();
            done[1] += some.failed();
            return done[0] == 1 && done[1] >= 2;
        });
        assertEquals("well", site.sql("select key from public.reaped_java"));
        assertEquals("broken|held|\ntwice|held|\nwell|free|expired",
                site.sql("select key, state, last_outcome from leasehold.scope where namespace = 'reaped.java' order by key"));
        String words = site.sql("select error from leasehold.reap_failure where namespace = 'reaped.java' order by key");
        assertTrue(words.contains("it cannot be put back") && words.contains("duplicate key"), words);
        assertEquals(new StaleLease.Count(2, 0), StaleLease.reap(connection, java.util.List.of("reaped.java"), false, unused -> { }));
        assertThrows(LeaseException.InvalidArgument.class, () -> StaleLease.reap(connection, java.util.List.of(""), false, end));
    }

    private static void insert(Connection connection, String key) throws SQLException {
        try (var statement = connection.prepareStatement("insert into public.reaped_java values (?)")) {
            statement.setString(1, key);
            statement.execute();
        }
    }

    @Test
    void standby_is_left_out() throws Exception {
        String alone = site.url.replaceFirst("//[^/]*/", "//" + System.getenv("LEASEHOLD_TEST_STANDBY") + "/");
        String both = site.url.replace("//", "//" + System.getenv("LEASEHOLD_TEST_STANDBY") + ",");
        Lease lease = site.lease(site.client(LeaseClient.builder(both))).duration(seconds(20)).acquire();
        assertEquals("held|" + lease.token(), site.row("state, token"));
        await("a renewal", () -> site.beats() >= 1);
        lease.release();
        LeaseClient client = site.client(LeaseClient.builder(alone).patience(seconds(1)));
        assertThrows(LeaseException.Unavailable.class, () -> site.lease(client).acquire());
    }

    @Test
    void wait_hears_notify() throws Exception {
        LeaseClient client = site.client(LeaseClient.builder(site.url).poll(Duration.ofMinutes(10)));
        Lease first = site.lease(client).acquire();
        var waiter = site.queue(client, 1);
        first.release();
        waiter.get();
    }

    @Test
    @Override
    void unreadable_requests_cost_no_lease() throws Exception {
        super.unreadable_requests_cost_no_lease();
    }
}
