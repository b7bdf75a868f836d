package leasehold;

import static leasehold.Site.await;
import static leasehold.Site.seconds;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.sql.Connection;
import java.sql.SQLException;
import java.sql.Statement;
import java.time.Duration;
import java.util.ArrayList;
import java.util.EnumSet;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.stream.Stream;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestInfo;
import org.junit.jupiter.api.condition.EnabledIfEnvironmentVariable;

/** The cases about retries. */
@EnabledIfEnvironmentVariable(named = "LEASEHOLD_TEST_SQL", matches = ".+", disabledReason = "tests/clients/java/run starts the databases")
class RetryCasesTest implements Reporter.Case {
    private final List<Retry> asked = new CopyOnWriteArrayList<>();
    private Site site;
    private Pipe pipe;

    @Override
    public String on() {
        return "sql";
    }

    @BeforeEach
    void begin(TestInfo test) throws IOException {
        site = new Site("sql", test.getTestMethod().orElseThrow().getName());
        pipe = site.atEnd(new Pipe(site.url));
    }

    @AfterEach
    void end() throws Exception {
        site.close();
    }

    /** Retries soon; the third retry finds the trouble gone. */
    private Retry.Strategy patient(Runnable end) {
        asked.clear();
        return retry -> {
            asked.add(retry);
            if (asked.size() == 3) {
                end.run();
            }
            return Optional.of(Duration.ofMillis(20));
        };
    }

    private void refuse(boolean on) {
        try {
            pipe.refuse(on);
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    private void assertAsked(String verb, Retry.Reason first, Retry.Reason... others) {
        assertEquals(3, asked.size());
        for (int i = 0; i < 3; i++) {
            Retry retry = asked.get(i);
            assertEquals(List.of(verb, "cases", site.key, i + 1), List.of(retry.verb(), retry.namespace(), retry.key(), retry.attempts()));
            assertTrue(retry.remaining().compareTo(Duration.ZERO) > 0, retry.toString());
        }
        assertEquals(first, asked.get(0).reason());
        assertEquals(EnumSet.of(first, others), asked.get(2).reasons());
    }

    @Test
    void strategy_decides_in_sql() throws Exception {
        var refused = new ArrayList<Retry>();
        LeaseClient client = site.client(LeaseClient.builder(pipe.url()).strategy(Retry.FAIL_FAST).retryLog((retry, delay) -> refused.add(retry)));
        refuse(true);
        var unavailable = assertThrows(LeaseException.Unavailable.class, () -> site.lease(client).waitFor(seconds(180)).acquire());
        assertEquals(Retry.Reason.SOCKET_NOT_AVAILABLE, unavailable.reason());
        assertEquals(1, refused.size());
        assertSame(unavailable, refused.get(0).cause());
        // A strategy that is given with a request counts before the client's, for its lease too.
        var end = new Runnable[] {() -> refuse(false)};
        Lease lease = site.lease(client).retries(patient(() -> end[0].run())).acquire();
        assertAsked("Acquire", Retry.Reason.SOCKET_NOT_AVAILABLE);
        asked.clear();
        Connection connection = site.connection();
        lock(connection);
        end[0] = () -> rollback(connection);
        lease.downgrade();
        assertAsked("Downgrade", Retry.Reason.SCOPE_BUSY);
        asked.clear();
        end[0] = () -> refuse(false);
        refuse(true);
        lease.release();
        assertAsked("Release", Retry.Reason.SOCKET_CLOSED_WHILE_IN_FLIGHT, Retry.Reason.SOCKET_NOT_AVAILABLE);
        assertEquals("free|ok", site.row("state, last_outcome"));
    }

    private void lock(Connection connection) throws SQLException {
        try (Statement statement = connection.createStatement()) {
            statement.execute("select from leasehold.scope where namespace = 'cases' and key = '" + site.key + "' for update");
        }
    }

    private static void rollback(Connection connection) {
        try {
            connection.rollback();
        } catch (SQLException e) {
            throw new IllegalStateException(e);
        }
    }

    @Test
    void strategy_may_wait_for_a_holder() throws Exception {
        LeaseClient client = site.client();
        Lease first = site.lease(client).acquire();
        Lease second = site.lease(client).retries(patient(first::release)).acquire();
        assertAsked("Acquire", Retry.Reason.LEASE_HELD);
        assertThrows(LeaseException.Held.class, () -> site.lease(client).retries(Retry.BEST_EFFORT).acquire());
        // Longer than what is left of the request's time.
        assertThrows(LeaseException.Held.class, () -> site.lease(client).retries(retry -> Optional.of(Duration.ofHours(1))).acquire());
        var wrong = new IllegalStateException("a fault of the strategy's");
        assertSame(wrong, assertThrows(IllegalStateException.class, () -> site.lease(client).retries(retry -> {
            throw wrong;
        }).acquire()));
        asked.clear();
        assertThrows(LeaseException.Held.class, () -> site.lease(client).waitFor(Duration.ofMillis(50)).retries(patient(() -> { })).acquire());
        assertEquals(List.of(), asked); // the wait has passed
        second.release();
    }

    @Test
    void retries_are_logged_in_sql() throws Exception {
        record Step(Retry retry, Optional<Duration> delay) {
        }

        var log = new CopyOnWriteArrayList<Step>();
        LeaseClient client = site.client(LeaseClient.builder(pipe.url()).retryLog((retry, delay) -> {
            log.add(new Step(retry, delay));
            throw new IllegalStateException("a listener that fails");
        }));
        refuse(true);
        var waiter = new Site.Later<>(() -> site.lease(client).waitFor(seconds(180)).acquire());
        await("two retries", () -> log.size() >= 2);
        refuse(false);
        waiter.get();
        for (Step step : log) {
            assertEquals("Acquire", step.retry.verb());
            assertEquals(Optional.of(Duration.ofMillis(Math.min(1L << Math.min(step.retry.failures() - 1, 9), 500))), step.delay);
        }
        log.clear();
        assertThrows(LeaseException.Held.class, () -> site.lease(client).acquire());
        assertEquals(1, log.size());
        assertEquals(Retry.Reason.LEASE_HELD, log.get(0).retry.reason());
        assertEquals(Optional.empty(), log.get(0).delay);
        var delays = Stream.of(1, 6, 11).map(n -> Retry.BEST_EFFORT.next(new Retry("Acquire", "a", "b", Retry.Reason.SCOPE_BUSY, null, n, n,
                EnumSet.of(Retry.Reason.SCOPE_BUSY), seconds(5), Duration.ZERO)).orElseThrow().toMillis() + " " + Retry.controlledBackoff(n).toMillis()).toList();
        assertEquals(List.of("1 1", "32 1000", "500 1000"), delays);
    }
}
