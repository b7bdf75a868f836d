package leasehold;

import static leasehold.Site.await;
import static leasehold.Site.lost;
import static leasehold.Site.seconds;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assertions.fail;

import java.nio.file.Files;
import java.nio.file.Path;
import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.SQLException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Optional;
import java.util.OptionalInt;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.regex.Pattern;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestInfo;

/** The cases of tests/clients/cases.json, which says what each is about: those that run directly and behind a pooler. */
abstract class Cases implements Reporter.Case {
    Site site;

    @BeforeEach
    void begin(TestInfo test) {
        site = new Site(on(), test.getTestMethod().orElseThrow().getName());
    }

    @AfterEach
    void end() throws Exception {
        site.close();
    }

    @Test
    void acquire_and_release() throws Exception {
        Lease lease = site.lease(site.client()).owner("somebody \"else\"").acquire();
        assertEquals("held|somebody \"else\"|" + lease.token(), site.row("state, owner, token"));
        assertTrue(lease.isHeld());
        lease.release("{\"rows\": 3}");
        assertEquals("free|ok|3", site.row("state, last_outcome, last_result ->> 'rows'"));
        assertFalse(lease.isHeld());
    }

    void sqlstates_are_told_alike() throws Exception {
        String table = Files.readString(Path.of(System.getenv("LEASEHOLD_CASES")));
        table = table.substring(table.indexOf("\"sqlstates\""), table.indexOf("\"cases\": ["));
        var asked = new AtomicInteger();
        LeaseClient client = site.client(site.builder().strategy(retry -> {
            asked.incrementAndGet();
            return Optional.empty();
        }));
        var row = Pattern.compile("\"(\\w{5})\": \"(\\w+) ?(\\w*)\"").matcher(table);
        int rows = 0;
        for (; row.find(); rows++) {
            int before = asked.get();
            var error = assertThrows(RuntimeException.class, () -> client.lease("cases", "sqlstate " + row.group(1)).acquire(), row.group());
            String reason = error instanceof LeaseException.Denied denied ? denied.reason()
                    : error instanceof LeaseException.Unavailable unavailable ? unavailable.reason().name() : "";
            assertEquals(row.group(2) + " " + row.group(3), error.getClass().getSimpleName() + " " + reason, row.group(1));
            assertEquals(error instanceof LeaseException.Unavailable ? 1 : 0, asked.get() - before, row.group(1));
        }
        assertTrue(rows >= 30, table);
    }

    @Test
    void unheard_loss_is_told_at_the_end() {
        LeaseRequest request = site.lease(site.client()).duration(seconds(300));
        var lost = assertThrows(LeaseException.Lost.class, () -> request.call(lease -> {
            site.forceRelease("cases");
            return null;
        }));
        assertEquals(LeaseException.Reason.FORCED, lost.reason());
        var broken = new IllegalStateException("the disk is full");
        lost = assertThrows(LeaseException.Lost.class, () -> request.call(lease -> {
            site.forceRelease("cases");
            throw broken;
        }));
        assertEquals(LeaseException.Reason.FORCED, lost.reason());
        assertEquals(List.of(broken), List.of(lost.getSuppressed()));
        assertThrows(LeaseException.Lost.class, () -> {
            try (Lease lease = request.acquire()) {
                site.forceRelease("cases");
            }
        });
        assertEquals("forced", site.row("last_outcome"));
    }

    @Test
    void released_lease_is_not_held() throws Exception {
        site.lease(site.client()).call(lease -> {
            var others = new ArrayList<Site.Later<Boolean>>();
            for (int i = 0; i < 3; i++) { // several at once
                others.add(new Site.Later<>(() -> {
                    lease.release("{\"rows\": 3}");
                    return true;
                }));
            }
            for (var other : others) {
                other.get();
            }
            assertFalse(lease.isHeld());
            var released = assertThrows(LeaseException.Lost.class, lease::check);
            assertEquals(LeaseException.Reason.RELEASED, released.reason());
            assertThrows(LeaseException.Lost.class, () -> lease.extend(seconds(30)));
            lease.release();
            return null;
        });
        assertEquals("free|ok|3", site.row("state, last_outcome, last_result ->> 'rows'"));
    }

    @Test
    void failed_work_is_released_as_failed() {
        var wrong = new IllegalStateException("the work is broken");
        var thrown = assertThrows(IllegalStateException.class, () -> site.lease(site.client()).call(lease -> {
            throw wrong;
        }));
        assertEquals(wrong, thrown);
        assertEquals("free|failed|java.lang.IllegalStateException: the work is broken", site.row("state, last_outcome, last_error"));
    }

    @Test
    void token_grows() throws Exception {
        LeaseClient client = site.client();
        Lease first = site.lease(client).acquire();
        first.release();
        assertTrue(site.lease(client).acquire().token() > first.token());
    }

    @Test
    void held_names_the_holder() throws Exception {
        LeaseClient client = site.client();
        site.lease(client).owner("the first").acquire();
        var waiter = site.queue(client, 1);
        var held = assertThrows(LeaseException.Held.class, () -> site.lease(client).acquire());
        assertEquals("the first", held.holder());
        assertEquals(1, held.ahead());
        waiter.thread.interrupt();
        assertInstanceOf(InterruptedException.class, waiter.trouble());
    }

    @Test
    void wait_is_granted() throws Exception {
        LeaseClient client = site.client();
        Lease first = site.lease(client).acquire();
        var waiter = site.queue(client, 1);
        first.release();
        assertEquals(String.valueOf(waiter.get().token()), site.row("token"));
    }

    @Test
    void wait_passes() throws Exception {
        LeaseClient client = site.client();
        site.lease(client).acquire();
        assertThrows(LeaseException.Held.class, () -> site.lease(client).waitFor(Duration.ofMillis(300)).acquire());
        await("an empty queue", () -> site.waiters().equals("0"));
    }

    @Test
    void waiters_are_served_in_order() throws Exception {
        LeaseClient client = site.client();
        Lease first = site.lease(client).acquire();
        List<Site.Later<Lease>> waiters = new ArrayList<>();
        for (int i = 1; i <= 3; i++) {
            waiters.add(site.queue(site.lease(client).waitFor(seconds(180)).owner("waiter " + i), i));
        }
        first.release();
        for (int i = 1; i <= 3; i++) {
            Lease lease = waiters.get(i - 1).get();
            assertEquals("waiter " + i, site.row("owner"));
            lease.release();
        }
    }

    @Test
    void cancelled_wait_leaves_the_queue() throws Exception {
        LeaseClient client = site.client();
        Lease first = site.lease(client).acquire();
        var waiter = site.queue(client, 1);
        waiter.thread.interrupt();
        assertInstanceOf(InterruptedException.class, waiter.trouble());
        await("an empty queue", () -> site.waiters().equals("0"));
        first.release();
        assertEquals("free|" + first.token(), site.row("state, token"));
    }

    @Test
    void interrupts_cost_no_lease() throws Exception {
        LeaseClient client = site.client();
        Lease lease = site.lease(client).duration(seconds(20)).acquire();
        var waiter = site.queue(client, 1);
        int before = site.beats();
        await("two renewals", () -> {
            Site.threads(client).forEach(Thread::interrupt);
            return site.beats() >= before + 2 || !lease.isHeld();
        });
        Thread.currentThread().interrupt();
        lease.release();
        assertTrue(Thread.interrupted());
        waiter.get().release();
        assertEquals("free|ok", site.row("state, last_outcome"));
    }

    @Test
    void deadline_does_not_count_the_wait() throws Exception {
        LeaseClient client = site.client();
        Lease first = site.lease(client).acquire();
        long since = System.nanoTime();
        var waiter = site.queue(site.lease(client).duration(seconds(20)).waitFor(seconds(180)), 1);
        await("more than the duration", () -> System.nanoTime() - since > 21_000_000_000L);
        first.release();
        Lease second = waiter.get();
        await("a renewal", () -> site.beats() >= 1);
        second.check();
        second.release();
    }

    @Test
    void renewal_keeps_the_lease() throws Exception {
        Lease lease = site.lease(site.client()).duration(seconds(20)).acquire();
        await("four renewals", () -> site.beats() >= 4);
        assertEquals("held|" + lease.token(), site.row("state, token"));
        lease.release();
    }

    @Test
    void one_request_renews_all() throws Exception {
        LeaseClient client = site.client();
        for (int i = 0; i < 50; i++) {
            client.lease("written.renewals", String.valueOf(i)).duration(seconds(30)).acquire();
        }
        await("one transaction for all", () -> site.sql("select count(*) > 0 from (select from public.written where namespace = 'written.renewals' "
                + "and what = 'renewed' group by xid having count(distinct key) = 50) all_of_them").equals("t"));
    }

    @Test
    void hold_that_the_policy_ends_is_told() throws Exception {
        site.sql("select leasehold.set_policy('ending', max_hold => '24 s', end_at_max_hold => true)");
        LeaseClient client = site.client();
        Lease renewed = client.lease("ending", site.key + "-18").duration(seconds(18)).acquire();
        Lease asked = client.lease("ending", site.key + "-30").duration(seconds(30)).acquire();
        assertEquals(LeaseException.Reason.MAX_HOLD, lost(renewed).reason());
        LeaseException.Lost lost = lost(asked);
        assertEquals(LeaseException.Reason.MAX_HOLD, lost.reason());
        assertTrue(lost.getMessage().contains("the policy of ending ends a lease after max_hold"), lost.getMessage());
        assertEquals("00:00:24", site.sql("select deadline - acquired_at from leasehold.scope where namespace = 'ending' and key = '"
                + site.key + "-18' and heartbeats > 0"));
    }

    @Test
    void forced_end_is_told() throws Exception {
        Lease lease = site.lease(site.client()).duration(seconds(20)).acquire();
        site.forceRelease("cases");
        assertEquals(LeaseException.Reason.FORCED, lost(lease).reason());
        assertThrows(LeaseException.Lost.class, lease::release);
    }

    @Test
    void close_leaves_nothing() throws Exception {
        LeaseClient client = site.client();
        Lease lease = site.lease(client).duration(seconds(20)).acquire();
        var waiter = site.queue(client, 1);
        await("a renewal", () -> site.beats() >= 1);
        assertFalse(Site.threads(client).isEmpty());
        client.close();
        assertInstanceOf(IllegalStateException.class, waiter.trouble());
        assertEquals(LeaseException.Reason.CLOSED, assertThrows(LeaseException.Lost.class, lease::check).reason());
        await("the end of its threads", () -> Site.threads(client).isEmpty());
        if (on().equals("sql")) { // PgBouncer keeps its own
            await("the end of its connections",
                    () -> site.sql("select count(*) from pg_stat_activity where application_name = 'java-%s'", site.key).equals("0"));
        }
        int before = site.beats();
        await("the deadline", () -> site.row("state = 'free' or deadline < clock_timestamp()").equals("t"));
        assertEquals(before, site.beats());
        assertThrows(IllegalStateException.class, () -> site.lease(client).acquire());
    }

    private static String facts(Lease lease) {
        return lease.mode() + " " + lease.units() + " " + lease.slots();
    }

    private LeaseException.Held refused(LeaseRequest request) {
        return assertThrows(LeaseException.Held.class, request::acquire);
    }

    @Test
    void readers_share_and_a_writer_waits() throws Exception {
        LeaseClient client = site.client();
        Lease first = site.lease(client).shared().owner("first").acquire();
        Lease second = site.lease(client).shared().owner("second").acquire();
        assertEquals("shared|2", site.row("state, units"));
        assertTrue(second.token() > first.token());
        assertEquals("SHARED 1 []", facts(first));
        var held = refused(site.lease(client));
        assertEquals("first 2 " + OptionalInt.empty(), held.holder() + " " + held.holders() + " " + held.unitsFree());
        var waiter = site.queue(client, 1);
        first.release();
        assertEquals("shared|1", site.row("state, units"));
        second.release();
        assertEquals("EXCLUSIVE 0 []", facts(waiter.get()));
        assertEquals(1, refused(site.lease(client).shared()).holders());
    }

    @Test
    void units_fit_the_capacity() throws Exception {
        LeaseClient client = site.client();
        site.sql("select leasehold.set_policy('five', capacity => 5)");
        LeaseRequest two = client.lease("five", "k").shared(2);
        Lease first = two.acquire();
        Lease second = two.acquire();
        assertEquals("SHARED 2 [1, 2], SHARED 2 [3, 4]", facts(first) + ", " + facts(second));
        var held = refused(two);
        assertEquals(2, held.holders());
        assertEquals(OptionalInt.of(1), held.unitsFree());
        first.release();
        Lease third = client.lease("five", "k").shared(3).waitFor(seconds(180)).acquire();
        assertEquals("SHARED 3 [1, 2, 5]", facts(third));
        assertEquals(OptionalInt.of(0), refused(client.lease("five", "k").shared()).unitsFree());
        third.extend(seconds(40));
        assertEquals("SHARED 3 [1, 2, 5]", facts(third));
        var wrong = assertThrows(LeaseException.InvalidArgument.class, () -> client.lease("five", "k").shared(6).acquire());
        assertEquals("units", wrong.field());
        assertTrue(wrong.getMessage().contains("1 to 5") && wrong.getMessage().contains("is 6"), wrong.getMessage());
        assertEquals("units", assertThrows(LeaseException.InvalidArgument.class, () -> client.lease("five", "k").shared(0)).field());
    }

    @Test
    void shared_waiters_are_served_in_order() throws Exception {
        LeaseClient client = site.client();
        Lease first = site.lease(client).acquire();
        List<Site.Later<Lease>> waiters = new ArrayList<>();
        for (boolean isShared : new boolean[] {true, true, false, true}) {
            LeaseRequest request = site.lease(client).waitFor(seconds(180));
            waiters.add(site.queue(isShared ? request.shared() : request, waiters.size() + 1));
        }
        assertEquals("shared shared exclusive shared",
                site.sql("select string_agg(mode, ' ' order by position) from leasehold.queue where key = '%s'", site.key));
        first.release();
        Lease reader = waiters.get(0).get();
        Lease other = waiters.get(1).get();
        assertEquals("shared|2 2", site.row("state, units") + " " + site.waiters());
        reader.release();
        other.release();
        Lease writer = waiters.get(2).get();
        assertEquals("held 1", site.row("state") + " " + site.waiters());
        writer.release();
        assertTrue(waiters.get(3).get().token() > writer.token() && writer.token() > other.token());
    }

    @Test
    void priority_is_served_first() throws Exception {
        String namespace = "urgent-" + on();
        String queue = "select %s from leasehold.queue where namespace = '" + namespace + "'";
        site.sql("select leasehold.set_policy('%s', max_priority => 9, ageing => '1 day')", namespace);
        LeaseClient client = site.client(site.builder().poll(Duration.ofMillis(500)));
        Lease held = client.lease(namespace, site.key).duration(seconds(300)).acquire();
        List<String> order = Collections.synchronizedList(new ArrayList<>());
        List<Site.Later<Boolean>> waiters = new ArrayList<>();
        for (String owner : List.of("first 0", "low 2", "high 9", "late 9")) {
            LeaseRequest request = client.lease(namespace, site.key).owner(owner).priority(owner.charAt(owner.length() - 1) - '0').duration(seconds(300))
                    .waitFor(seconds(300));
            waiters.add(new Site.Later<>(() -> request.call(lease -> order.add(owner))));
            await("a place in the queue", () -> site.sql(queue, "count(*)").equals(String.valueOf(waiters.size())));
        }
        if (!on().equals("grpc")) { // each joins again
            String until = "select %s from leasehold.waiter where namespace = '" + namespace + "'";
            String seen = site.sql(until, "max(wait_until)");
            await("all to join again", () -> site.sql(until, "min(wait_until) > '" + seen + "'").equals("t"));
        }
        assertEquals("9 9 2 0", site.sql(queue, "string_agg(priority::text, ' ' order by position)"));
        held.release();
        for (var waiter : waiters) {
            assertTrue(waiter.get());
        }
        assertEquals(List.of("high 9", "late 9", "low 2", "first 0"), order);
    }

    @Test
    void wrong_priority_is_named() throws Exception {
        LeaseClient client = site.client();
        for (int value : new int[] {-1, 1001}) {
            var wrong = assertThrows(LeaseException.InvalidArgument.class, () -> site.lease(client).priority(value));
            assertEquals("priority", wrong.field());
            assertEquals("priority must be 0 to 1000; it is " + value, wrong.getMessage());
        }
        assertThrows(LeaseException.InvalidArgument.class,
                () -> client.acquireAll(List.of(new LeaseScope("cases", site.key, 0)), request -> request.priority(1)));
        assertEquals("", site.row("state"));
        site.lease(client).priority(1000).acquire().release(); // an administrator's
    }

    @Test
    void busy_scope_is_unavailable() throws Exception {
        var asked = new ArrayList<Retry.Reason>();
        Flaky[] proxies = site.on.equals("grpc") ? new Flaky[] {new Flaky(), new Flaky()} : new Flaky[0];
        LeaseClient.Builder builder = proxies.length == 0 ? site.builder() : Site.builder(proxies[0].target + "," + proxies[1].target).patience(seconds(60));
        LeaseClient client = site.client(builder.strategy(retry -> {
            asked.add(retry.reason());
            return Optional.empty();
        }));
        Lease lease = site.lease(client).duration(seconds(300)).acquire();
        Connection connection = site.connection();
        try (PreparedStatement row = connection.prepareStatement("select from leasehold.scope where namespace = 'cases' and key = ? for update")) {
            row.setString(1, site.key);
            row.execute();
        }
        assertEquals(Retry.Reason.SCOPE_BUSY, assertThrows(LeaseException.Unavailable.class, lease::downgrade).reason());
        assertEquals(List.of(Retry.Reason.SCOPE_BUSY), asked);
        if (proxies.length > 0) { // in SQL an acquire never waits for the row
            assertEquals(Retry.Reason.SCOPE_BUSY, assertThrows(LeaseException.Unavailable.class, () -> site.lease(client).acquire()).reason());
            assertEquals(0, proxies[1].count("requests"));
        }
        connection.rollback();
        lease.release();
    }

    @Test
    void downgrade_lets_readers_in() throws Exception {
        LeaseClient client = site.client();
        Lease lease = site.lease(client).duration(seconds(30)).acquire();
        long first = lease.token();
        String key = site.row("lease_key");
        var waiter = site.queue(site.lease(client).shared().waitFor(seconds(180)), 1);
        lease.downgrade();
        Lease reader = waiter.get();
        assertEquals("SHARED 1 []", facts(lease));
        assertTrue(first < lease.token() && lease.token() < reader.token());
        lease.downgrade(); // again: the same
        assertEquals(lease.token() + "|1\n" + reader.token() + "|1", site.shares());
        assertEquals(key, site.sql("select lease_key from leasehold.share where token = %d", lease.token()));
        Connection connection = site.connection();
        lease.guard(connection);
        connection.commit();
        assertEquals(2, refused(site.lease(client)).holders());
        lease.extend(seconds(30)); // as the shared lease that it is now
        int before = site.beats(lease);
        await("a renewal", () -> site.beats(lease) > before);
        lease.release();
        assertEquals(reader.token() + "|1", site.shares());
        assertThrows(IllegalStateException.class, lease::downgrade);
    }

    @Test
    void shared_leases_end_one_by_one() throws Exception {
        LeaseClient client = site.client();
        Lease kept = site.lease(client).duration(seconds(30)).shared().acquire();
        Lease ended = site.lease(client).duration(seconds(30)).shared().acquire();
        await("a renewal of each", () -> site.beats(kept) >= 1 && site.beats(ended) >= 1);
        site.sql("select from leasehold.force_release('cases', '%s', 'a test', %d)", site.key, ended.token());
        lost(ended);
        assertThrows(LeaseException.Lost.class, ended::downgrade);
        int before = site.beats(kept);
        await("a renewal", () -> site.beats(kept) > before || !kept.isHeld());
        kept.release();
    }

    @Test
    void denied_is_a_type() throws Exception {
        site.sql("select leasehold.set_policy('frozen', frozen => true)");
        LeaseClient client = site.client();
        await("Denied", () -> { // a daemon follows within a second
            try {
                client.lease("frozen", site.key).acquire().release();
                return false;
            } catch (LeaseException.Denied denied) {
                assertEquals("NAMESPACE_FROZEN", denied.reason());
                return true;
            }
        });
    }

    @Test
    void invalid_argument_is_told() {
        IllegalArgumentException wrong = assertThrows(IllegalArgumentException.class,
                () -> site.lease(site.client()).duration(Duration.ofMillis(1)).acquire());
        var told = assertInstanceOf(LeaseException.InvalidArgument.class, wrong);
        assertEquals("duration", told.field());
        assertFalse(told.bound().isEmpty());
    }

    @Test
    void guard_fences() throws Exception {
        Lease lease = site.lease(site.client()).acquire();
        Connection connection = site.connection();
        lease.guard(connection);
        connection.commit();
        site.forceRelease("cases");
        assertThrows(LeaseException.Lost.class, () -> lease.guard(connection));
        connection.rollback();
        connection.setAutoCommit(true);
        assertThrows(IllegalStateException.class, () -> lease.guard(connection));
    }

    @Test
    void held_tells_of_the_holder() throws Exception {
        LeaseClient client = site.client();
        Lease lease = site.lease(client).duration(seconds(300)).acquire();
        var held = assertThrows(LeaseException.Held.class, () -> site.lease(client).acquire());
        assertTrue(held.isAlive());
        assertTrue(held.silent().orElseThrow().toSeconds() < 100 && held.heldFor().orElseThrow().toSeconds() < 100);
        site.silence(280);
        held = assertThrows(LeaseException.Held.class, () -> site.lease(client).acquire());
        assertFalse(held.isAlive());
        assertTrue(held.silent().orElseThrow().toSeconds() >= 280 && held.heldFor().orElseThrow().toSeconds() >= 280);
        lease.release();
    }

    @Test
    void wait_lasts_while_the_holder_is_alive() throws Exception {
        LeaseClient client = site.client(site.builder().poll(Duration.ofMillis(500)));
        Lease first = site.lease(client).duration(seconds(300)).acquire();
        var waiter = site.queue(site.lease(client).duration(seconds(300)).waitWhileAlive(), 1);
        first.release();
        Lease second = waiter.get();
        site.silence(280);
        assertThrows(LeaseException.Held.class, () -> site.lease(client).waitWhileAlive().acquire());
        assertEquals(String.valueOf(second.token()), site.row("token"));
        second.release();
    }

    static void becomes(Connection connection, String state, String key) throws SQLException {
        try (PreparedStatement statement = connection.prepareStatement("update call set state = ? where id = ?")) {
            statement.setString(1, state);
            statement.setString(2, key);
            statement.execute();
        }
    }

    void renewed() throws Exception {
        int before = site.beats();
        await("two renewals", () -> site.beats() >= before + 2);
    }

    @Test
    void released_in_a_transaction() throws Exception {
        site.call("running");
        LeaseClient client = site.client();
        Connection connection = site.connection();
        Lease lease = site.lease(client).duration(seconds(20)).acquire();
        var broken = new IllegalStateException("the disk is full");
        assertEquals(broken, assertThrows(IllegalStateException.class, () -> lease.releaseIn(connection, unused -> {
            becomes(connection, "done", site.key);
            throw broken;
        })));
        assertEquals("running", site.callState());
        assertTrue(lease.isHeld());
        renewed();
        assertThrows(SQLException.class, () -> lease.releaseIn(connection, "no JSON", unused -> {
            becomes(connection, "done", site.key);
            return null;
        }));
        assertTrue(lease.isHeld());
        connection.setAutoCommit(true);
        assertEquals("value", lease.<String, SQLException>releaseIn(connection, "{\"rows\": 3}", unused -> {
            becomes(connection, "done", site.key);
            return "value";
        }));
        assertTrue(connection.getAutoCommit());
        assertFalse(lease.isHeld());
        assertEquals("done", site.callState());
        assertEquals("free|ok|3", site.row("state, last_outcome, last_result ->> 'rows'"));
        lease.close();
        site.lease(client).acquire().failIn(connection, "no such payee", unused -> {
            becomes(connection, "broken", site.key);
            return null;
        });
        assertEquals("free|failed|no such payee", site.row("state, last_outcome, last_error"));
    }

    @Test
    void acquired_in_a_transaction() throws Exception {
        site.call("queued");
        LeaseClient client = site.client();
        Connection connection = site.connection();
        var broken = new IllegalStateException("the disk is full");
        assertEquals(broken, assertThrows(IllegalStateException.class, () -> site.lease(client).acquireIn(connection, lease -> {
            becomes(connection, "running", site.key);
            assertTrue(lease.token() > 0 && !lease.isHeld());
            throw broken;
        })));
        assertEquals("queued", site.callState());
        assertTrue(List.of("", "free").contains(site.row("state")));
        Lease lease = site.lease(client).owner("worker-1").duration(seconds(30)).acquireIn(connection, begun -> {
            becomes(connection, "token " + begun.token(), site.key);
            return null;
        });
        assertEquals("token " + lease.token(), site.callState());
        assertTrue(lease.isHeld());
        renewed();
        var held = assertThrows(LeaseException.Held.class, () -> site.lease(client).acquireIn(connection, unused -> fail("it ran")));
        assertEquals("worker-1", held.holder());
        var wrong = assertThrows(LeaseException.InvalidArgument.class,
                () -> site.lease(client).waitFor(seconds(1)).acquireIn(connection, unused -> fail("it ran")));
        assertEquals("wait must be zero in a transaction; it is PT1S", wrong.getMessage());
        lease.release();
    }

    @Test
    void lost_lease_rolls_back() throws Exception {
        site.call("running");
        Connection connection = site.connection();
        Lease lease = site.lease(site.client()).duration(seconds(300)).acquire();
        var lost = assertThrows(LeaseException.Lost.class, () -> lease.releaseIn(connection, unused -> {
            becomes(connection, "done", site.key);
            site.forceRelease("cases");
            return null;
        }));
        assertEquals(LeaseException.Reason.FORCED, lost.reason());
        assertEquals("running", site.callState());
    }

    @Test
    void renewal_has_its_own_connection() throws Exception {
        Lease lease = site.lease(site.client()).duration(seconds(20)).acquire();
        Connection connection = site.connection();
        lease.guard(connection); // begins a transaction, which stays open
        await("two renewals", () -> site.beats() >= 2);
        connection.rollback();
        lease.release();
    }

    void broken_connections(LeaseClient client, String whose) throws Exception {
        Lease lease = site.lease(client).duration(seconds(30)).acquire();
        for (int i = 0; i < 2; i++) {
            int before = site.beats();
            await("a renewal", () -> site.beats() > before);
            site.sql("select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() "
                    + "and pid <> pg_backend_pid() and %s", whose);
        }
        int before = site.beats();
        await("two renewals", () -> site.beats() > before + 1);
        lease.release();
        assertEquals("free|ok", site.row("state, last_outcome"));
    }


    @Test
    void declared_lease_is_used_everywhere() throws Exception {
        Declared cases = site.client().declare("cases", request -> request.owner("declared").duration(seconds(60)));
        cases.lease(site.key).acquire();
        assertEquals("declared|00:01:00", site.row("owner, duration"));
        site.forceRelease("cases");
        cases.lease(site.key).owner("its own").call(lease -> {
            assertEquals("its own|00:01:00", site.row("owner, duration"));
            return null;
        });
        cases.lease(site.key).lead(lease -> {
            assertEquals("declared|00:01:00", site.row("owner, duration"));
            return null;
        });
    }

    @Test
    void try_release_waits_for_nothing() throws Exception {
        Lease lease = site.lease(site.client()).acquire();
        lease.tryRelease("{\"rows\": 3}");
        assertFalse(lease.isHeld());
        assertEquals(Duration.ZERO, lease.remaining());
        assertEquals(LeaseException.Reason.RELEASED, assertThrows(LeaseException.Lost.class, () -> lease.tryRelease()).reason());
        lease.release();
        await("the release", () -> site.row("state, last_outcome, last_result ->> 'rows'").equals("free|ok|3"));
    }

    private List<Lease> many(LeaseClient client, String namespace) throws Exception {
        List<Lease> leases = new ArrayList<>();
        for (int i = 0; i < 100; i++) {
            leases.add(client.lease(namespace, String.valueOf(i)).acquire());
        }
        return leases;
    }

    @Test
    void try_releases_go_together() throws Exception {
        many(site.client(), "written.releases").forEach(Lease::tryRelease);
        String ended = " from public.written where namespace = 'written.releases' and what = 'ended'";
        await("all releases", () -> site.sql("select count(*)" + ended).equals("100"));
        assertEquals("t", site.sql("select count(distinct xid) < 20" + ended));
    }

    @Test
    void acquire_follows_its_own_try_release() throws Exception {
        LeaseClient client = site.client();
        for (int i = 0; i < 10; i++) {
            site.lease(client).acquire().tryRelease();
        }
        site.lease(client).acquire().release();
    }

    @Test
    void close_sends_what_try_release_left() throws Exception {
        LeaseClient client = site.client();
        many(client, "cases.closed").forEach(Lease::tryRelease);
        client.close();
        assertEquals("0", site.sql("select count(*) from leasehold.scope where namespace = 'cases.closed' and state = 'held'"));
    }

    List<LeaseScope> both() {
        return List.of(new LeaseScope("cases", site.key), new LeaseScope("cases", site.key + " 2"));
    }

    String states(String columns) {
        return site.sql("select %s from leasehold.scope where namespace = 'cases' and key in ('%s', '%s 2') order by key", columns, site.key, site.key);
    }

    @Test
    void all_or_none() throws Exception {
        LeaseClient client = site.client();
        Lease other = client.lease("cases", site.key + " 2").owner("the other").acquire();
        var held = assertThrows(LeaseException.Held.class, () -> client.acquireAll(both()));
        assertEquals("the other", held.holder());
        assertTrue(held.getMessage().contains(site.key + " 2"), held.getMessage());
        assertFalse(site.row("state").equals("held"));
        other.release();
        Leases all = client.acquireAll(both());
        List<Lease> leases = all.leases();
        assertEquals("held|" + leases.get(0).token() + "\nheld|" + leases.get(1).token(), states("state, token"));
        assertTrue(all.isHeld() && !all.remaining().isZero() && leases.get(0).token() != leases.get(1).token());
        all.close();
        assertEquals("free\nfree", states("state"));
        assertFalse(all.isHeld());
        assertThrows(LeaseException.Lost.class, all::check);
        Leases mixed = client.acquireAll(List.of(both().get(0), new LeaseScope("cases", site.key + " 2", 2)));
        assertEquals(Lease.Mode.EXCLUSIVE, mixed.leases().get(0).mode());
        assertEquals(2, mixed.leases().get(1).units());
        mixed.tryRelease();
        assertEquals("scopes", assertThrows(LeaseException.InvalidArgument.class, () -> client.acquireAll(List.of())).field());
        assertEquals("options", assertThrows(LeaseException.InvalidArgument.class,
                () -> client.acquireAll(both(), on().equals("grpc") ? request -> request.hold() : request -> request.waitFor(seconds(1)))).field());
    }

    @Test
    void all_are_lost_as_one() throws Exception {
        Leases all = site.client().acquireAll(both(), request -> request.duration(seconds(20)));
        List<LeaseException.Lost> told = java.util.Collections.synchronizedList(new ArrayList<>());
        all.onLost(told::add);
        var lost = assertThrows(LeaseException.Lost.class, () -> all.call(leases -> {
            await("renewals of both", () -> states("heartbeats > 0").equals("t\nt"));
            site.forceRelease("cases");
            try {
                Thread.sleep(300_000);
            } catch (InterruptedException e) {
                assertEquals("free\nheld", states("state"));
                throw e;
            }
            return null;
        }));
        assertEquals(LeaseException.Reason.FORCED, lost.reason());
        assertEquals("free|forced\nfree|failed", states("state, last_outcome"));
        assertEquals(1, told.size());
    }

    @Test
    void all_are_released_with_one_result() throws Exception {
        LeaseClient client = site.client();
        client.acquireAll(both()).release("{\"rows\": 3}");
        assertEquals("free|ok|3\nfree|ok|3", states("state, last_outcome, last_result ->> 'rows'"));
        var wrong = new IllegalStateException("the work is broken");
        assertEquals(wrong, assertThrows(IllegalStateException.class, () -> client.acquireAll(both()).call(leases -> {
            throw wrong;
        })));
        assertEquals("free|failed|java.lang.IllegalStateException: the work is broken\n".repeat(2).strip(), states("state, last_outcome, last_error"));
    }

    @Test
    void explain_says_who_holds() throws Exception {
        LeaseClient client = site.client();
        Explanation free = client.explain("cases", site.key);
        assertEquals(Explanation.State.FREE, free.state());
        assertTrue(free.liveness().isEmpty() && free.holders() == 0 && free.advice().startsWith("free: acquire it"), free.toString());
        Lease lease = site.lease(client).owner("somebody").acquire();
        var waiter = site.queue(client, 1);
        Explanation held = client.explain("cases", site.key);
        assertEquals(Explanation.State.HELD, held.state());
        assertEquals(Explanation.Liveness.ALIVE, held.liveness().orElseThrow());
        assertEquals("somebody", held.holder());
        assertEquals(lease.token(), held.token());
        assertTrue(held.holders() == 1 && held.waiters() == 1 && held.units() == 0 && held.since().isPresent(), held.toString());
        assertTrue(held.advice().startsWith("wait: somebody is alive"), held.advice());
        waiter.thread.interrupt();
        assertInstanceOf(InterruptedException.class, waiter.trouble());
        await("an empty queue", () -> site.waiters().equals("0"));
        lease.release();
        site.lease(client).shared(3).acquire();
        site.lease(client).shared(3).acquire();
        Explanation shared = client.explain("cases", site.key);
        assertEquals(Explanation.State.SHARED, shared.state());
        assertTrue(shared.holders() == 2 && shared.units() == 6 && shared.advice().startsWith("acquire it shared"), shared.toString());
        assertThrows(LeaseException.InvalidArgument.class, () -> client.explain("cases", ""));
    }

    @Test
    void callbacks_tell_of_a_lease() throws Exception {
        List<String> told = java.util.Collections.synchronizedList(new ArrayList<>());
        LeaseListener listener = new LeaseListener() {
            @Override
            public void granted(Lease lease) {
                told.add("granted");
            }

            @Override
            public void renewed(Lease lease) {
                told.add("renewed");
                throw new IllegalStateException("the listener is broken");
            }

            @Override
            public void released(Lease lease) {
                told.add("released");
            }

            @Override
            public void lost(Lease lease, LeaseException.Lost lost) {
                told.add(lost.reason().toString());
            }
        };
        LeaseRequest request = site.lease(site.client()).duration(seconds(20)).tell(listener);
        Lease lease = request.acquire();
        await("two renewals", () -> java.util.Collections.frequency(told, "renewed") >= 2);
        lease.release();
        await("the release", () -> told.contains("released"));
        request.acquire();
        site.forceRelease("cases");
        await("the loss", () -> told.contains("FORCED"));
        String all = String.join(" ", told);
        assertTrue(all.matches("granted( renewed){2,} released granted( renewed)* FORCED"), all);
    }

    @Test
    void lost_lease_ends_nested_calls() throws Exception {
        LeaseClient client = site.client();
        Lease other = client.lease("cases", site.key + " other").acquire();
        String waiters = "select count(*) from leasehold.queue where key = '" + other.key() + "'";
        var breaker = new Site.Later<>(() -> {
            await("a waiter", () -> site.sql(waiters).equals("1"));
            site.forceRelease("cases");
            return true;
        });
        var lost = assertThrows(LeaseException.Lost.class, () -> site.lease(client).duration(seconds(20)).call(
                lease -> client.lease("cases", other.key()).waitForever().acquire()));
        assertTrue(breaker.get());
        assertInstanceOf(InterruptedException.class, lost.getSuppressed()[0]);
        await("an empty queue", () -> site.sql(waiters).equals("0"));
        other.release();
        assertEquals("free", site.sql("select state from leasehold.scope where key = '%s'", other.key()));
    }
}
