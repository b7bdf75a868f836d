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
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.condition.EnabledIfEnvironmentVariable;

/** The cases on a direct connection, to PostgreSQL or to a daemon. */
abstract class DirectCases extends HandOverCases {
    /** A way to the server that can be held up. */
    interface Way {
        LeaseClient.Builder builder();

        /** Keeps all from the client, or lets it go again. */
        void freeze(boolean on) throws Exception;

        /** Keeps answers from the client; what it asks arrives. */
        void keepAnswers(boolean on) throws Exception;

        /** The next answer comes late: after some seconds, or when this is off again. */
        void delayAnswer(boolean on) throws Exception;
    }

    abstract Way way() throws Exception;

    /** A client of an address where nobody listens. */
    abstract LeaseClient.Builder nowhere();

    @Test
    void open_transaction_is_refused() throws Exception {
        site.call("running");
        LeaseClient client = site.client();
        Connection connection = site.connection();
        Lease lease = site.lease(client).acquire();
        becomes(connection, "done", site.key);
        var refusal = assertThrows(IllegalStateException.class, () -> lease.releaseIn(connection, unused -> fail("it ran")));
        assertEquals("connection must have no transaction open: this begins one, and commits it", refusal.getMessage());
        assertThrows(IllegalStateException.class, () -> client.lease("cases", site.key + " 2").acquireIn(connection, unused -> fail("it ran")));
        connection.commit();
        assertEquals("done", site.callState());
        assertTrue(lease.isHeld());
        lease.release();
    }

    @Test
    void unanswered_commit_of_a_release_is_looked_up() throws Exception {
        site.call("running");
        LeaseClient client = site.client();
        Lease lease = site.lease(client).duration(seconds(30)).acquire();
        Connection before = site.commitProxy("before");
        assertThrows(SQLException.class, () -> lease.releaseIn(before, unused -> {
            becomes(before, "done", site.key);
            return null;
        }));
        assertEquals("running", site.callState());
        assertTrue(lease.isHeld());
        renewed();
        var waiter = site.queue(client, 1);
        Connection after = site.commitProxy("after");
        lease.releaseIn(after, unused -> {
            becomes(after, "done", site.key);
            return null;
        });
        assertEquals("done", site.callState());
        assertFalse(lease.isHeld());
        assertNull(lease.lost());
        waiter.get().release();
    }

    @Test
    void unanswered_commit_of_an_acquire_is_looked_up() throws Exception {
        site.call("queued");
        LeaseClient client = site.client();
        Connection before = site.commitProxy("before");
        assertThrows(LeaseException.UnknownOutcome.class, () -> site.lease(client).acquireIn(before, unused -> {
            becomes(before, "running", site.key);
            return null;
        }));
        assertEquals("queued", site.callState());
        assertTrue(java.util.List.of("", "free").contains(site.row("state")));
        Connection after = site.commitProxy("after");
        Lease lease = site.lease(client).duration(seconds(30)).acquireIn(after, unused -> {
            becomes(after, "running", site.key);
            return null;
        });
        assertEquals("running", site.callState());
        assertTrue(lease.isHeld());
        renewed();
        lease.release();
    }

    @Test
    void dropped_lease_is_renewed() throws Exception {
        site.lease(site.client()).duration(seconds(30)).acquire();
        await("two renewals", () -> {
            System.gc();
            return site.beats() >= 2;
        });
        assertEquals("held", site.row("state"));
    }

    @Test
    void grant_after_giving_up_is_released() throws Exception {
        Way way = way();
        LeaseClient client = site.client(way.builder());
        site.lease(client).acquire().release(); // connects
        way.keepAnswers(true);
        var acquire = new Site.Later<>(site.lease(client).duration(seconds(300))::acquire);
        await("the grant", () -> site.row("state").equals("held"));
        acquire.thread.interrupt();
        assertInstanceOf(InterruptedException.class, acquire.trouble());
        way.keepAnswers(false);
        await("the release", () -> site.row("state").equals("free"));
        assertNotEquals("expired", site.row("last_outcome"));
    }

    @Test
    void nothing_is_told_after_the_release() throws Exception {
        Way way = way();
        LeaseClient client = site.client(way.builder());
        var said = new LinkedBlockingQueue<String>();
        Lease lease = site.lease(client).duration(seconds(30)).tell(new LeaseListener() {
            @Override
            public void renewed(Lease unused) {
                said.add("renewed");
            }

            @Override
            public void released(Lease unused) {
                said.add("released");
            }

            @Override
            public void asked(Lease unused, HandOver request) {
                said.add("asked");
            }
        }).acquire();
        assertEquals("renewed", said.poll(3, TimeUnit.MINUTES));
        way.delayAnswer(true);
        site.client().askHandOver("cases", site.key, "");
        await("a renewal in flight", () -> site.beats() >= 2);
        lease.tryRelease();
        way.delayAnswer(false);
        await("the release", () -> site.row("state").equals("free"));
        client.close();
        assertEquals("[released]", said.toString());
    }

    @Test
    void deadline_counts_from_the_request() throws Exception {
        Way way = way();
        LeaseClient client = site.client(way.builder());
        site.lease(client).acquire().release(); // connects
        way.delayAnswer(true);
        var acquire = new Site.Later<>(site.lease(client).duration(seconds(60))::acquire);
        await("the grant", () -> site.row("state").equals("held"));
        long since = System.nanoTime(); // not before the request
        await("two seconds", () -> System.nanoTime() - since > 2_000_000_000L);
        way.delayAnswer(false);
        Lease lease = acquire.get();
        Duration ago = Duration.ofNanos(System.nanoTime() - since);
        Duration left = lease.remaining();
        // A fifth is the margin.
        assertTrue(left.compareTo(seconds(48).minus(ago)) <= 0, left + " after " + ago);
    }

    @Test
    void silence_is_told_before_the_deadline() throws Exception {
        Way way = way();
        Lease lease = site.lease(site.client(way.builder())).duration(seconds(40)).acquire();
        way.freeze(true);
        LeaseException.Lost loss = lost(lease);
        assertEquals("held|t", site.row("state, deadline > clock_timestamp()"));
        assertEquals(LeaseException.Reason.UNREACHABLE, loss.reason());
    }

    @Test
    void stopped_process_wakes_up_without_the_lease() throws Exception {
        Program program = new Program(site, "work", seconds(15));
        await("work", () -> program.count("working") > 0);
        int seen = program.count("working");
        await("the work after that", () -> program.count("working") > seen);
        program.signal("STOP"); // while it sleeps
        Lease other = site.lease(site.client()).waitFor(seconds(180)).acquire();
        int before = program.count("working");
        program.signal("CONT");
        await("its loss", () -> program.count("lost") == 1);
        assertTrue(program.count("working") <= before + 1, "it went on with its work"); // but for a step that had begun
        assertEquals("held|" + other.token(), site.row("state, token"));
    }

    @Test
    void exit_leaves_nothing() throws Exception {
        Program program = new Program(site, "exit", seconds(4));
        assertEquals(1, program.status());
        await("the deadline", () -> site.row("state = 'free' or deadline < clock_timestamp()").equals("t"));
    }

    @Test
    void listener_that_throws_costs_nothing() throws Exception {
        LeaseClient client = site.client();
        Lease kept = client.lease("cases", site.key + "-kept").duration(seconds(30)).acquire();
        Lease lease = site.lease(client).duration(seconds(30)).acquire();
        var told = new LinkedBlockingQueue<LeaseException.Reason>();
        lease.onLost(loss -> {
            throw new IllegalStateException("the listener is broken");
        });
        lease.onLost(loss -> told.add(loss.reason()));
        site.forceRelease("cases");
        assertEquals(LeaseException.Reason.FORCED, told.poll(3, TimeUnit.MINUTES));
        int before = site.beats(kept);
        await("a renewal", () -> site.beats(kept) > before);
        kept.release();
    }

    @Test
    void deferred_work_is_refused() throws Exception {
        var later = new CompletableFuture<String>();
        var refused = assertThrows(IllegalStateException.class, () -> site.lease(site.client()).call(lease -> later));
        assertTrue(refused.getMessage().contains("wait for it in the work"), refused.getMessage());
        assertEquals("free|failed", site.row("state, last_outcome"));
        later.complete("done");
        assertEquals("done", site.lease(site.client()).call(lease -> later).get());
    }

    /** A client with the right lease alone, in the namespace `secure`. */
    abstract LeaseClient worker() throws Exception;

    @Test
    void priority_above_the_policy_is_denied() throws Exception {
        LeaseClient client = worker();
        site.sql("select leasehold.set_policy('secure', max_priority => 9)");
        Lease lease = client.lease("secure", site.key).priority(9).acquire();
        for (int wait : new int[] {0, 300}) {
            var denied = assertThrows(LeaseException.Denied.class,
                    () -> client.lease("secure", site.key).priority(10).waitFor(seconds(wait)).acquire());
            assertEquals("ACCESS_DENIED", denied.reason());
            assertTrue(denied.getMessage().matches("(?s).*priority must be at most 9.* is 10.*"), denied.getMessage());
        }
        lease.release();
    }

    @Test
    void wrong_arguments_are_named() throws Exception {
        LeaseClient client = site.client();
        String table = Files.readString(Path.of(System.getenv("LEASEHOLD_CASES")));
        Matcher row = Pattern.compile("\"argument\": \"(\\w+)\", \"value\": (-?\\d+|\"[^\"]*\")}").matcher(table);
        int rows = 0;
        for (; row.find(); rows++) { // those with "typed": false do not compile
            String argument = row.group(1);
            String value = row.group(2).replace("\\u0000", "\0");
            var wrong = assertThrows(LeaseException.InvalidArgument.class, () -> with(client, argument, value), row.group());
            String field = argument.equals("timeout") ? "patience" : argument;
            boolean isTime = !argument.equals("units") && !value.startsWith("\"");
            String shown = isTime ? Duration.ofSeconds(Long.parseLong(value)).toString() : value;
            assertEquals(field, wrong.field());
            assertTrue(wrong.getMessage().startsWith(field + " must be ") && wrong.getMessage().endsWith("; it is " + shown), wrong.getMessage());
        }
        assertTrue(rows >= 10, table);
        assertEquals("", site.row("state"));
    }

    @Test
    void bounds_are_told_before_any_request() throws Exception {
        String table = Files.readString(Path.of(System.getenv("LEASEHOLD_CASES")).resolveSibling("../lib/bounds.json"));
        Matcher row = Pattern.compile("\"kind\": \"(\\w+)\", \"value\": \"([^\"]*)\", \"times\": (\\d+), \"words\": (null|\"[^\"]*\")}").matcher(table);
        LeaseClient client = site.client(nowhere().patience(Duration.ofMillis(1)));
        int rows = 0;
        for (; row.find(); rows++) {
            String kind = row.group(1);
            String value = unescaped(row.group(2)).repeat(Integer.parseInt(row.group(3)));
            if (!kind.matches("namespace|key|owner|label_name|label_value")) {
                continue;
            }
            Declared[] declared = new Declared[1];
            Throwable trouble = assertThrows(RuntimeException.class, () -> {
                declared[0] = client.declare(kind.equals("namespace") ? value : "cases", request -> bounded(request, kind, value));
                declared[0].lease(kind.equals("key") ? value : "any").acquire();
            });
            if (row.group(4).equals("null")) {
                assertInstanceOf(LeaseException.Unavailable.class, trouble, row.group());
            } else {
                assertInstanceOf(LeaseException.InvalidArgument.class, trouble, row.group());
                assertEquals(row.group(4), "\"" + trouble.getMessage() + "\"");
                assertEquals(kind.equals("key"), declared[0] != null, row.group());
            }
        }
        assertTrue(rows > 40, table);
    }

    private static void bounded(LeaseRequest request, String kind, String value) {
        switch (kind) {
            case "owner" -> request.owner(value);
            case "label_name" -> request.labels(Map.of(value, ""));
            case "label_value" -> request.labels(Map.of("n", value));
            default -> { }
        }
    }

    /** Of JSON. */
    private static String unescaped(String text) {
        return Pattern.compile("\\\\u([0-9a-f]{4})").matcher(text).replaceAll(each -> String.valueOf((char) Integer.parseInt(each.group(1), 16)))
                .replace("\\n", "\n").replace("\\t", "\t");
    }

    private void with(LeaseClient client, String argument, String value) throws Exception {
        String text = value.replace("\"", "");
        Duration time = value.startsWith("\"") ? null : Duration.ofSeconds(Long.parseLong(value));
        LeaseRequest request = client.lease(argument.equals("namespace") ? text : "cases", argument.equals("key") ? text : site.key);
        switch (argument) {
            case "owner" -> request.owner(text);
            case "duration" -> request.duration(time);
            case "wait" -> request.waitFor(time);
            case "at_least" -> request.atLeast(time);
            case "units" -> request.shared(Integer.parseInt(value));
            case "timeout" -> site.builder().patience(time);
            default -> throw new AssertionError("not known: " + argument);
        }
        request.acquire();
    }

    @Test
    void unavailable_is_a_type() {
        LeaseClient client = site.client(nowhere().patience(Duration.ofMillis(300)));
        assertThrows(LeaseException.Unavailable.class, () -> site.lease(client).acquire());
    }

    @Test
    void leader_resigns() throws Exception {
        LeaseClient client = site.client();
        LeaseClient other = site.client();
        var tokens = new LinkedBlockingQueue<Long>();
        var resigns = new LinkedBlockingQueue<Boolean>();
        LeaseWork<Boolean, InterruptedException> work = lease -> {
            tokens.add(lease.token());
            return resigns.take();
        };
        var first = new Site.Later<>(() -> site.lease(client).lead(work));
        long one = tokens.poll(3, TimeUnit.MINUTES);
        var second = new Site.Later<>(() -> site.lease(other).duration(seconds(30)).lead(work));
        await("a second candidate", () -> site.waiters().equals("1"));
        resigns.add(true);
        first.get();
        long two = tokens.poll(3, TimeUnit.MINUTES);
        assertTrue(two > one);
        var again = new Site.Later<>(() -> site.lease(client).lead(work));
        await("the first as a candidate", () -> site.waiters().equals("1"));
        site.forceRelease("cases");
        long three = tokens.poll(3, TimeUnit.MINUTES);
        assertTrue(three > two);
        await("the second as a candidate, because it was told", () -> site.waiters().equals("1"));
        resigns.add(true);
        again.get();
        tokens.poll(3, TimeUnit.MINUTES);
        resigns.add(true);
        second.get();
    }

    @Test
    void leased_work_runs_once() throws Exception {
        var runs = new AtomicInteger();
        LeaseWork<Integer, RuntimeException> work = lease -> runs.incrementAndGet();
        site.lease(site.client()).atLeast(seconds(300)).call(work);
        LeaseClient second = site.client();
        assertThrows(LeaseException.Held.class, () -> site.lease(second).atLeast(seconds(300)).call(work));
        assertEquals(1, runs.get());
    }
}
