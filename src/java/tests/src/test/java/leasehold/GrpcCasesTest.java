package leasehold;

import static leasehold.Site.await;
import static leasehold.Site.field;
import static leasehold.Site.lost;
import static leasehold.Site.seconds;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.grpc.CallOptions;
import io.grpc.Channel;
import io.grpc.ClientCall;
import io.grpc.ClientInterceptor;
import io.grpc.Context;
import io.grpc.ForwardingClientCall;
import io.grpc.ManagedChannel;
import io.grpc.MethodDescriptor;
import io.grpc.TlsChannelCredentials;
import io.grpc.netty.shaded.io.grpc.netty.NettyChannelBuilder;
import io.grpc.netty.shaded.io.grpc.netty.NettyServerBuilder;
import io.grpc.stub.StreamObserver;
import java.io.File;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.regex.Pattern;
import java.util.stream.Stream;
import leasehold.grpc.Daemons;
import leasehold.grpc.LeaseDeadline;
import leasehold.v1.GetLeaseRequest;
import leasehold.v1.GetLeaseResponse;
import leasehold.v1.HeartbeatRequest;
import leasehold.v1.LeaseServiceGrpc;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.condition.EnabledIfEnvironmentVariable;

/** The cases of a daemon. */
@EnabledIfEnvironmentVariable(named = "LEASEHOLD_TEST_SQL", matches = ".+", disabledReason = "tests/clients/java/run starts the servers")
class GrpcCasesTest extends DirectCases {
    @Override
    public String on() {
        return "grpc";
    }

    @Override
    Flaky way() throws Exception {
        return new Flaky();
    }

    @Override
    LeaseClient.Builder nowhere() {
        return Site.builder("127.0.0.1:1");
    }

    private static final String OTHER = "\"lease_key\": \"6f1ed002-ab5f-4cbc-9c4a-3b1e0a2f9b10\"";

    @Test
    void answers_for_other_leases_are_refused() throws Exception {
        Liar liar = new Liar();
        LeaseClient client = site.client(Site.builder(liar.target).strategy(Retry.FAIL_FAST));
        Lease kept = site.lease(client).duration(seconds(300)).acquire();
        Lease renewed = site.lease(client).duration(seconds(3)).acquire();
        Lease streaming = site.lease(client).duration(seconds(3)).hold().acquire();
        liar.lie(OTHER);
        assertThrows(LeaseException.Unavailable.class, () -> kept.downgrade(1));
        assertThrows(LeaseException.Unavailable.class, kept::release);
        lost(renewed);
        lost(streaming);
    }

    @Test
    void doubtful_grants_are_given_back() throws Exception {
        Liar liar = new Liar();
        LeaseClient client = site.client(Site.builder(liar.target).strategy(Retry.FAIL_FAST));
        for (String lies : List.of(OTHER, "\"status\": \"UNAVAILABLE\"", "\"is_garbage\": true", "\"leases\": 1")) {
            liar.lie(lies);
            assertThrows(LeaseException.Unavailable.class, () -> client.acquireAll(both()));
            await("the release of both", liar::isGivenBack);
            if (!lies.contains("leases")) {
                assertThrows(LeaseException.Unavailable.class, () -> site.lease(client).acquire());
                await("the release", liar::isGivenBack);
            }
        }
        liar.lie("\"status\": \"UNAVAILABLE\"");
        LeaseClient denied = site.client(Site.builder(liar.target).strategy(retry -> {
            try {
                liar.lie("\"status\": \"PERMISSION_DENIED\"");
            } catch (Exception e) {
                throw new IllegalStateException(e);
            }
            return Optional.of(Duration.ZERO);
        }));
        assertThrows(LeaseException.Denied.class, () -> site.lease(denied).waitFor(seconds(60)).acquire());
        await("the release of what was denied", liar::isGivenBack);
    }

    @Test
    void times_are_believed_as_far_as_they_can_be_true() throws Exception {
        Liar liar = new Liar();
        LeaseClient client = site.client(Site.builder(liar.target));
        String longest = "\"waited\": " + Long.MAX_VALUE + ", \"remaining\": " + Long.MAX_VALUE;
        for (String lies : List.of("\"waited\": 9000000000", "\"remaining\": 9000000000", longest, longest + ", \"to\": \"a stream\"")) {
            liar.lie(lies);
            boolean isStream = lies.contains("stream");
            LeaseRequest request = site.lease(client).duration(seconds(3));
            Lease lease = (isStream ? request.hold() : request).acquire();
            Runnable isTrue = () -> assertTrue(lease.isHeld() && lease.remaining().compareTo(seconds(3)) <= 0, lies + " " + lease.remaining());
            isTrue.run();
            int before = liar.renewals();
            await("two renewals", () -> liar.renewals() >= before + 2);
            isTrue.run();
            if (!isStream) {
                lease.downgrade(1);
                isTrue.run();
            }
            lease.release();
        }
        liar.lie("\"waited\": -9000000000, \"remaining\": -9000000000");
        try {
            assertFalse(site.lease(client).acquire().isHeld());
        } catch (LeaseException.Lost over) {
            assertTrue(over.getMessage().contains(site.key), over.getMessage());
        }
    }

    @Test
    void late_request_is_given_back() throws Exception {
        Flaky proxy = way();
        LeaseClient client = site.client(proxy.builder().patience(seconds(60)));
        site.lease(client).acquire().release(); // connects
        String before = site.row("token");
        int replies = proxy.count("replies");
        proxy.decideRequests("\"hold\", \"pass\"");
        var acquire = new Site.Later<>(() -> site.lease(client).duration(seconds(300)).acquire());
        await("a request that is held up", () -> proxy.count("held") > 0);
        acquire.thread.interrupt();
        assertInstanceOf(InterruptedException.class, acquire.trouble());
        await("the answer to the release of what is not granted yet", () -> proxy.count("replies") > replies);
        proxy.letRequestsGo();
        await("the late grant", () -> !site.row("token").equals(before));
        await("the release", () -> site.row("state").equals("free"));
        assertEquals("failed", site.row("last_outcome"));
    }

    @Test
    void grant_taken_back_is_acquired_anew() throws Exception {
        Flaky proxy = way();
        proxy.decide("\"drop\"");
        LeaseClient client = site.client(proxy.builder());
        var acquire = new Site.Later<>(() -> site.lease(client).waitFor(seconds(180)).acquire());
        await("the grant", () -> site.row("state").equals("held"));
        String first = site.row("lease_key");
        proxy.refuse(true);
        await("the end of the connection", () -> proxy.count("connections") == 0);
        // The daemon took it back, or wrote its answer before the connection broke.
        site.sql("select leasehold.release_ok('cases', '%s', '%s')", site.key, first);
        proxy.decide("\"pass\"");
        proxy.refuse(false);
        Lease lease = acquire.get();
        assertNotEquals(first, site.row("lease_key"));
        assertEquals(String.valueOf(lease.token()), site.row("token"));
    }

    @Test
    void what_is_left_of_several_is_given_back() throws Exception {
        Flaky proxy = way();
        proxy.decide("\"drop\"");
        LeaseClient client = site.client(proxy.builder());
        var acquire = new Site.Later<>(() -> client.acquireAll(both(), request -> request.waitFor(seconds(120)).duration(seconds(300))));
        await("the lost answer", () -> proxy.state().contains("\"drop\"") && states("state").equals("held\nheld"));
        String before = site.row("lease_key");
        site.forceRelease("cases");
        proxy.decide("\"pass\"");
        proxy.cut();
        List<Lease> both = acquire.get().leases();
        String after = site.row("lease_key");
        assertNotEquals(before, after);
        assertEquals("held|%d|%s\nheld|%d|%2$s".formatted(both.get(0).token(), after, both.get(1).token()), states("state, token, lease_key"));
    }

    @Test
    @Tag("libraries")
    void lost_replies_cost_no_lease() throws Exception {
        Flaky proxy = way();
        Lease lease = site.lease(site.client(proxy.builder().patience(seconds(5)))).duration(seconds(30)).acquire();
        proxy.decide("\"pass\", \"drop\", \"pass\", \"cut\", \"pass\", [\"delay\", 0.2], \"pass\", \"truncate\", \"cycle\"");
        await("four renewals", () -> site.beats() >= 4);
        assertTrue(proxy.state().contains("\"drop\"") && proxy.state().contains("\"cut\""), proxy.state());
        assertEquals("held|" + lease.token(), site.row("state, token"));
        lease.release();
        assertEquals("free|ok", site.row("state, last_outcome"));
    }

    @Test
    void lost_release_is_repeated() throws Exception {
        Flaky proxy = way();
        Lease lease = site.lease(site.client(proxy.builder())).acquire();
        proxy.decide("\"cut\", \"pass\"");
        lease.release();
        assertEquals("free|ok", site.row("state, last_outcome"));
    }

    @Test
    void lost_downgrade_is_repeated() throws Exception {
        Flaky proxy = way();
        Lease lease = site.lease(site.client(proxy.builder())).acquire();
        long first = lease.token();
        proxy.decide("\"cut\", \"pass\"");
        lease.downgrade();
        assertTrue(lease.token() > first);
        assertEquals(lease.token() + "|1", site.shares());
        lease.release();
    }

    @Test
    void no_renewal_after_release() throws Exception {
        var renewed = new CopyOnWriteArrayList<String>();
        ClientInterceptor reader = new ClientInterceptor() {
            @Override
            public <Q, A> ClientCall<Q, A> interceptCall(MethodDescriptor<Q, A> method, CallOptions options, Channel next) {
                return new ForwardingClientCall.SimpleForwardingClientCall<>(next.newCall(method, options)) {
                    @Override
                    public void sendMessage(Q request) {
                        if (request instanceof HeartbeatRequest beat) {
                            beat.getLeasesList().forEach(each -> renewed.add(each.getScope().getKey()));
                        }
                        super.sendMessage(request);
                    }
                };
            }
        };
        Flaky proxy = way();
        LeaseClient client = site.client(LeaseClient.builder(Daemons.at(proxy.target).channels(each -> each.intercept(reader))));
        Lease lease = site.lease(client).duration(seconds(20)).acquire();
        await("a renewal", () -> site.beats() >= 1);
        proxy.decide("[\"delay\", 0.5], \"pass\"");
        int before = site.beats();
        await("a renewal in flight", () -> site.beats() > before);
        lease.release();
        assertTrue(renewed.contains(site.key));
        renewed.clear();
        Lease other = client.lease("cases", site.key + " other").duration(seconds(20)).acquire();
        await("renewals of another lease", () -> site.beats(other) >= 2);
        assertFalse(renewed.contains(site.key), "it was renewed after its release");
        assertNull(lease.lost());
        other.release();
    }

    private record Daemon(String id, String target) {
        static Daemon start() throws Exception {
            String answer = Site.ask("daemon", "{}");
            return new Daemon(field(answer, "id"), field(answer, "target"));
        }

        void does(String what) throws Exception {
            Site.ask("daemon/" + what, "{\"id\": " + id + ", \"signal\": \"SIGSTOP\"}");
        }
    }

    @Test
    @Tag("libraries")
    void daemon_restarts() throws Exception {
        Daemon daemon = Daemon.start();
        Lease lease = site.lease(site.client(Site.builder(daemon.target))).duration(seconds(45)).acquire();
        daemon.does("kill");
        daemon.does("start");
        int before = site.beats();
        await("two renewals", () -> site.beats() > before + 1);
        assertEquals("held|" + lease.token(), site.row("state, token"));
        lease.release();
    }

    @Test
    void hanging_daemon_is_left() throws Exception {
        Daemon daemon = Daemon.start();
        LeaseClient client = site.client(Site.builder(daemon.target + "," + System.getenv("LEASEHOLD_TEST_DAEMON")).patience(seconds(5)));
        Lease lease = site.lease(client).duration(seconds(30)).acquire();
        daemon.does("signal");
        int before = site.beats();
        await("renewals elsewhere", () -> site.beats() >= before + 2 || !lease.isHeld());
        assertEquals("held|" + lease.token(), site.row("state, token"));
        lease.release();
    }

    @Test
    void dead_address_is_spared() throws Exception {
        Flaky proxy = new Flaky();
        proxy.refuse(true);
        var asked = new AtomicInteger();
        LeaseClient client = site.client(proxy.builder().strategy(retry -> {
            asked.incrementAndGet();
            return Optional.of(Duration.ofMillis(1));
        }));
        var waiter = new Site.Later<>(() -> site.lease(client).waitFor(seconds(180)).acquire());
        await("three hundred retries", () -> asked.get() >= 300);
        assertTrue(proxy.count("accepted") < 100, proxy.state());
        proxy.refuse(false);
        waiter.get().release();
    }

    /** Another candidate, with the nth place in the queue: its token, once it leads. It leads until the test ends. */
    private CompletableFuture<Long> stand(int n) throws Exception {
        var token = new CompletableFuture<Long>();
        var stops = new CountDownLatch(1);
        LeaseClient client = site.client();
        var candidate = new Site.Later<>(() -> site.lease(client).duration(seconds(60)).lead(lease -> {
            token.complete(lease.token());
            stops.await();
            return null;
        }));
        site.atEnd(() -> {
            stops.countDown();
            candidate.thread.interrupt();
        });
        await("place " + n + " in the queue", () -> site.waiters().equals(String.valueOf(n)));
        return token;
    }

    @Test
    void leader_is_asked_on_its_stream() throws Exception {
        Told told = new Told();
        var leads = new CountDownLatch(1);
        var resigns = new CountDownLatch(1);
        LeaseClient client = site.client();
        var leader = new Site.Later<>(() -> site.lease(client).duration(seconds(300)).tell(told).lead(lease -> {
            leads.countDown();
            resigns.await();
            return lease.isHeld();
        }));
        leads.await();
        site.client().askHandOver("cases", site.key, "a better one is there");
        assertEquals("a better one is there", told.next().reason()); // long before its next renewal
        resigns.countDown();
        assertTrue(leader.get());
    }

    @Test
    @Tag("libraries")
    void leader_killed_is_followed() throws Exception {
        Program leader = new Program(site, "lead", seconds(300));
        String first = leader.line("token");
        var next = stand(1);
        leader.signal("KILL");
        assertTrue(next.get(3, TimeUnit.MINUTES) > Long.parseLong(first.substring("token ".length())));
    }

    @Test
    @Tag("libraries")
    void holder_killed_is_followed() throws Exception {
        Program holder = new Program(site, "hold", seconds(300));
        String first = holder.line("token");
        var waiter = site.queue(site.lease(site.client()).duration(seconds(300)).hold().waitFor(seconds(300)), 1);
        holder.signal("KILL");
        Lease next = waiter.result.get(2, TimeUnit.MINUTES); // long before the first lease would end by itself
        assertTrue(next.token() > Long.parseLong(first.substring("token ".length())));
        assertEquals("held|" + next.token(), site.row("state, token"));
        next.release();
    }

    @Test
    void stream_that_fails_costs_no_lease() throws Exception {
        var failures = new AtomicInteger(); // that are to come
        ClientInterceptor failing = new ClientInterceptor() {
            @Override
            public <Q, A> ClientCall<Q, A> interceptCall(MethodDescriptor<Q, A> method, CallOptions options, Channel next) {
                if (method.getBareMethodName().equals("Hold") && failures.getAndUpdate(n -> Math.max(0, n - 1)) > 0) {
                    throw new LeaseException.Unavailable("the token's file is empty", null, Retry.Reason.SOCKET_NOT_AVAILABLE);
                }
                return next.newCall(method, options);
            }
        };
        Flaky proxy = way();
        proxy.actAsHttp();
        LeaseClient client = site.client(LeaseClient.builder(Daemons.at(proxy.target).channels(each -> each.intercept(failing))).patience(seconds(20)));
        Lease other = client.lease("cases", site.key + " other").duration(seconds(30)).acquire();
        site.lease(client).duration(seconds(30)).lead(lease -> {
            String token = site.row("token");
            failures.set(2);
            proxy.cut();
            await("two failures", () -> failures.get() == 0);
            int beats = site.beats();
            int before = site.beats(other);
            await("renewals of both", () -> site.beats() > beats + 1 && site.beats(other) > before);
            lease.check();
            assertEquals("held|" + token, site.row("state, token"));
            return null;
        });
        other.release();
        assertEquals("free|ok", site.row("state, last_outcome"));
    }

    @Test
    void leader_stopped_is_followed() throws Exception {
        Program leader = new Program(site, "lead", seconds(15));
        leader.line("working");
        var next = stand(1);
        leader.signal("STOP");
        long token = next.get(3, TimeUnit.MINUTES);
        int before = leader.count("working");
        leader.signal("CONT");
        leader.line("lost");
        assertTrue(leader.count("working") <= before + 1, "it went on with its work"); // but for a step that had begun
        assertEquals("held|" + token, site.row("state, token"));
    }

    @Test
    void candidate_says_alive_while_it_waits() throws Exception {
        site.lease(site.client()).acquire();
        Flaky proxy = way();
        new Program(site, "lead", seconds(15), proxy.target);
        await("a candidate", () -> site.waiters().equals("1"));
        int sent = proxy.count("messages_sent");
        await("its messages", () -> proxy.count("messages_sent") >= sent + 4);
        assertEquals("1", site.waiters());
    }

    @Test
    void stopped_candidate_is_passed_over() throws Exception {
        Program leader = new Program(site, "lead", seconds(300));
        leader.line("token");
        Flaky proxy = way();
        proxy.actAsHttp();
        Program stopped = new Program(site, "lead", seconds(15), proxy.target);
        await("a candidate", () -> site.waiters().equals("1"));
        var next = stand(2);
        stopped.signal("STOP");
        leader.signal("KILL");
        next.get(3, TimeUnit.MINUTES);
    }

    @Test
    void leader_goes_on_after_a_reset() throws Exception {
        Flaky proxy = way();
        proxy.actAsHttp();
        Program leader = new Program(site, "lead", seconds(20), proxy.target);
        leader.line("working");
        stand(1);
        String token = site.row("token");
        int beats = site.beats();
        int asked = proxy.count("requests");
        proxy.cut();
        await("renewals over another connection", () -> site.beats() > beats + 3 && proxy.count("requests") > asked);
        assertEquals(token, site.row("token"));
        assertEquals("1", site.waiters());
    }

    @Test
    void reset_is_no_release() throws Exception {
        Flaky proxy = way();
        Program leader = new Program(site, "lead", seconds(30), proxy.target);
        leader.line("working");
        proxy.cut();
        assertTrue(leader.line("lost").contains("unreachable"), leader.line("lost"));
    }

    @Test
    @Tag("libraries")
    void held_lease_is_released_with_its_result() throws Exception {
        LeaseClient client = site.client();
        for (boolean waits : new boolean[] {true, false}) {
            Lease lease = site.lease(client).duration(seconds(20)).hold().acquire();
            await("two renewals", () -> site.beats() >= 2);
            assertThrows(IllegalStateException.class, () -> lease.extend(seconds(6)));
            if (waits) {
                lease.release("{\"rows\": 3}");
            } else {
                lease.tryRelease("{\"rows\": 3}");
            }
            await("the release", () -> site.row("state, last_outcome, last_result ->> 'rows'").equals("free|ok|3"));
        }
        Lease lease = site.lease(client).duration(seconds(30)).hold().acquire();
        site.forceRelease("cases");
        assertEquals(LeaseException.Reason.FORCED, lost(lease).reason());
    }

    @Test
    void undelivered_release_is_logged() throws Exception {
        Flaky proxy = way();
        LeaseClient client = site.client(proxy.builder().flushTimeout(Duration.ofMillis(300)));
        List<String> said = site.log(client);
        Lease lease = site.lease(client).acquire();
        proxy.freeze(true);
        lease.tryRelease();
        client.close();
        await("a word", () -> !said.isEmpty());
        assertTrue(said.get(0).contains("cases/" + site.key + " was not delivered, and the lease is left to expire"), said.toString());
        assertThrows(LeaseException.Lost.class, () -> lease.tryRelease());
        assertEquals("held", site.row("state"));
        proxy.freeze(false);
    }

    @Test
    @Tag("libraries")
    void all_wait_together() throws Exception {
        LeaseClient client = site.client();
        Leases first = client.acquireAll(both());
        List<LeaseScope> reversed = new ArrayList<>(both());
        Collections.reverse(reversed);
        var second = new Site.Later<>(() -> client.acquireAll(reversed, request -> request.waitFor(seconds(180))));
        await("a waiter", () -> site.waiters().equals("1"));
        var third = new Site.Later<>(() -> client.acquireAll(both(), request -> request.waitForever()));
        await("two waiters", () -> site.waiters().equals("2"));
        first.leases().get(0).release();
        assertEquals("0", site.sql("select count(*) from leasehold.scope where namespace = 'cases' and key = '%s' and state = 'held'", site.key));
        assertFalse(second.result.isDone());
        first.leases().get(1).release();
        Leases now = second.get();
        assertEquals(List.of(site.key + " 2", site.key), now.leases().stream().map(Lease::key).toList());
        assertFalse(third.result.isDone());
        now.release(null);
        third.get().close();
        assertEquals("free", site.row("state"));
    }

    private static LeaseEvent is(LeaseWatch watch, LeaseEvent.Type type, String with) throws Exception {
        LeaseEvent event = new Site.Later<>(watch::next).get();
        assertEquals(type + " " + with, event.type() + " " + event.key() + " " + event.token() + " " + event.result() + event.message());
        return event;
    }

    @Test
    void watch_begins_with_what_is_held() throws Exception {
        LeaseClient client = site.client();
        Lease first = client.lease("watched.begin", "first").owner("somebody").acquire();
        LeaseWatch watch = site.atEnd(client.watch("watched"));
        assertEquals("somebody", is(watch, LeaseEvent.Type.HELD, "first " + first.token() + " ").owner());
        is(watch, LeaseEvent.Type.SYNCED, " 0 ");
        Lease second = client.lease("watched.begin", "second").acquire();
        is(watch, LeaseEvent.Type.ACQUIRED, "second " + second.token() + " ");
        second.release("{\"rows\": 3}");
        is(watch, LeaseEvent.Type.RELEASED, "second " + second.token() + " {\"rows\": 3}");
        Lease third = client.lease("watched.begin", "third").acquire();
        is(watch, LeaseEvent.Type.ACQUIRED, "third " + third.token() + " ");
        third.fail("broken");
        is(watch, LeaseEvent.Type.FAILED, "third " + third.token() + " broken");
        site.sql("select from leasehold.force_release('watched.begin', 'first', 'a test')");
        is(watch, LeaseEvent.Type.FORCED, "first " + first.token() + " a test");
        Lease one = client.lease("watched.begin", "one").acquire();
        LeaseWatch alone = site.atEnd(client.watch("watched.begin", "one"));
        is(alone, LeaseEvent.Type.HELD, "one " + one.token() + " ");
        is(alone, LeaseEvent.Type.SYNCED, " 0 ");
        var waiting = new Site.Later<>(alone::next);
        waiting.thread.interrupt();
        assertInstanceOf(InterruptedException.class, waiting.trouble());
        var open = new Site.Later<>(alone::next);
        alone.close();
        assertInstanceOf(IllegalStateException.class, open.trouble());
        LeaseClient nowhere = site.client(nowhere().patience(Duration.ofMillis(300)));
        assertThrows(LeaseException.Unavailable.class, () -> nowhere.watch("").next());
    }

    @Test
    void watch_goes_on_after_a_restart() throws Exception {
        Daemon daemon = Daemon.start();
        LeaseClient client = site.client(Site.builder(daemon.target));
        LeaseWatch watch = site.atEnd(client.watch("watched_restart"));
        is(watch, LeaseEvent.Type.SYNCED, " 0 ");
        daemon.does("kill");
        Lease lease = site.client().lease("watched_restart", "k").acquire();
        daemon.does("start");
        is(watch, LeaseEvent.Type.HELD, "k " + lease.token() + " ");
        is(watch, LeaseEvent.Type.SYNCED, " 0 ");
    }

    @Test
    void strategy_decides_about_retries() throws Exception {
        Flaky proxy = way();
        var asked = new CopyOnWriteArrayList<Retry>();
        Retry.Strategy patient = retry -> {
            asked.add(retry);
            if (asked.size() == 3) {
                refuse(proxy, false);
            }
            return Optional.of(Duration.ofMillis(20));
        };
        LeaseClient client = site.client(proxy.builder().strategy(Retry.FAIL_FAST));
        refuse(proxy, true);
        var unavailable = assertThrows(LeaseException.Unavailable.class, () -> site.lease(client).waitFor(seconds(180)).acquire());
        assertEquals(Retry.Reason.SOCKET_NOT_AVAILABLE, unavailable.reason());
        Lease lease = site.lease(client).retries(patient).acquire(); // counts before the client's
        assertTrue(asked.size() >= 3, asked.toString());
        for (int i = 0; i < asked.size(); i++) {
            Retry retry = asked.get(i);
            assertEquals("Acquire " + site.key + " SOCKET_NOT_AVAILABLE " + (i + 1), retry.verb() + " " + retry.key() + " " + retry.reason() + " "
                    + retry.attempts());
            assertTrue(retry.reasons().size() == 1 && retry.remaining().compareTo(Duration.ZERO) > 0, retry.toString());
        }
        proxy.decide("\"cut\", \"pass\""); // the answer
        asked.clear();
        lease.release(); // by the strategy of its acquire
        assertEquals(1, asked.size());
        assertEquals("Release SOCKET_CLOSED_WHILE_IN_FLIGHT", asked.get(0).verb() + " " + asked.get(0).reason());
        Lease held = site.lease(client).acquire();
        Lease next = site.lease(client).retries(retry -> {
            assertEquals(Retry.Reason.LEASE_HELD, retry.reason());
            held.release();
            return Optional.of(Duration.ofMillis(1));
        }).acquire();
        assertThrows(LeaseException.Held.class, () -> site.lease(client).retries(Retry.BEST_EFFORT).acquire());
        next.release();
    }

    private static void refuse(Flaky proxy, boolean on) {
        try {
            proxy.refuse(on);
        } catch (Exception e) {
            throw new IllegalStateException(e);
        }
    }

    @Test
    void retry_reasons_are_those_of_c() throws Exception {
        String header = Files.readString(Path.of(System.getenv("LEASEHOLD_CASES")).resolveSibling("../../src/leasehold_retry.h"));
        List<String> names = Pattern.compile("(?m)^ {4}LH_RETRY_(\\w+),$").matcher(header).results().map(each -> each.group(1)).toList();
        assertEquals(names, Stream.of(Retry.Reason.values()).map(Enum::name).toList());
        var rows = Pattern.compile("(?m)^ \\*   ([A-Z_, ]+?) {2,}(yes|no) +(yes|no) +the (next|same)$").matcher(header);
        var seen = new ArrayList<String>();
        while (rows.find()) {
            for (String name : rows.group(1).split(", ")) {
                Retry.Reason reason = Retry.Reason.valueOf(name);
                assertEquals(rows.group(2) + rows.group(3), (reason.isUnsent() ? "yes" : "no") + (reason.isAlways() ? "yes" : "no"), name);
                seen.add(name);
            }
        }
        assertEquals(names.size(), seen.size());
    }

    @Test
    @Tag("libraries")
    void retries_are_logged() throws Exception {
        record Step(Retry retry, Optional<Duration> delay) {
        }

        Flaky proxy = way();
        var log = new CopyOnWriteArrayList<Step>();
        LeaseClient client = site.client(proxy.builder().retryLog((retry, delay) -> log.add(new Step(retry, delay))));
        refuse(proxy, true);
        var waiter = new Site.Later<>(() -> site.lease(client).waitFor(seconds(180)).acquire());
        await("two retries", () -> log.size() >= 2);
        refuse(proxy, false);
        Lease lease = waiter.get();
        for (Step step : log) {
            Duration delay = Duration.ofMillis(Math.min(1L << Math.min(step.retry.failures() - 1, 9), 500));
            assertEquals("Acquire SOCKET_NOT_AVAILABLE " + Optional.of(delay), step.retry.verb() + " " + step.retry.reason() + " " + step.delay);
        }
        log.clear();
        assertThrows(LeaseException.Held.class, () -> site.lease(client).acquire());
        assertEquals(1, log.size());
        assertEquals("LEASE_HELD " + Optional.empty(), log.get(0).retry.reason() + " " + log.get(0).delay);
        lease.release();
    }

    @Test
    @Tag("libraries")
    void deadline_travels_in_metadata() throws Exception {
        var told = new LinkedBlockingQueue<Long>();
        var server = NettyServerBuilder.forPort(0).addService(new LeaseServiceGrpc.LeaseServiceImplBase() {
            @Override
            public void getLease(GetLeaseRequest request, StreamObserver<GetLeaseResponse> answer) {
                told.add(Context.current().getDeadline().timeRemaining(TimeUnit.NANOSECONDS));
                answer.onNext(GetLeaseResponse.getDefaultInstance());
                answer.onCompleted();
            }
        }).build().start();
        site.atEnd(server::shutdownNow);
        ManagedChannel channel = NettyChannelBuilder.forAddress("127.0.0.1", server.getPort()).usePlaintext().build();
        site.atEnd(channel::shutdownNow);
        LeaseClient client = site.client();
        Leases all = client.acquireAll(both(), request -> request.duration(seconds(300)));
        Lease inner = client.lease("cases", site.key + " inner").duration(Duration.ofHours(1)).acquire();
        for (List<ClientInterceptor> each : List.<List<ClientInterceptor>>of(List.of(LeaseDeadline.of(all.leases().get(0))), List.of(LeaseDeadline.of(all)),
                List.of(LeaseDeadline.of(all), LeaseDeadline.of(inner)), List.of(LeaseDeadline.of(inner), LeaseDeadline.of(all)))) {
            long most = all.remaining().toNanos();
            LeaseServiceGrpc.newBlockingStub(channel).withInterceptors(each.toArray(new ClientInterceptor[0])).getLease(GetLeaseRequest.getDefaultInstance());
            long left = told.poll(3, TimeUnit.MINUTES);
            assertTrue(left > 0 && left <= most + 1_000_000, left + " of " + most);
        }
    }

    @Test
    void token_goes_to_loopback_only() throws Exception {
        Path file = Files.createTempFile("leasehold", ".token");
        site.atEnd(() -> Files.delete(file));
        Files.writeString(file, "secret\n");
        String table = Files.readString(Path.of(System.getenv("LEASEHOLD_CASES")));
        table = table.substring(table.indexOf("\"token_addresses\""), table.indexOf("\"cases\": ["));
        var row = Pattern.compile("\"([^\"]+)\": (true|false)").matcher(table);
        int rows = 0;
        for (; row.find(); rows++) {
            String address = row.group(1);
            LeaseClient.Builder builder = LeaseClient.builder(Daemons.at(address).tokenFile(file));
            if (row.group(2).equals("true")) {
                builder.build().close();
            } else {
                var wrong = assertThrows(LeaseException.InvalidArgument.class, builder::build, address);
                assertEquals("target", wrong.field());
                assertTrue(wrong.getMessage().contains(address), wrong.getMessage());
            }
        }
        assertTrue(rows >= 15, table);
        // An empty file is being written: nothing is sent without its token.
        Files.writeString(file, "");
        LeaseClient client = site.client(LeaseClient.builder(Daemons.at(System.getenv("LEASEHOLD_TEST_DAEMON")).tokenFile(file)).patience(Duration.ofMillis(300)));
        var empty = assertThrows(LeaseException.Unavailable.class, () -> site.lease(client).acquire());
        assertTrue(empty.getMessage().contains("is empty"), empty.getMessage());
    }

    @Test
    @Tag("libraries")
    void daemon_at_a_unix_socket() throws Exception {
        Path directory = site.atEnd(new Directory(Files.createTempDirectory("leasehold"))).path;
        Path socket = directory.resolve("s");
        Process daemon = new ProcessBuilder(System.getenv("LEASEHOLDD"), "--listen", "unix:" + socket, "--admin", "127.0.0.1:0", "--database",
                System.getenv("LEASEHOLD_TEST_DAEMONS").replaceFirst("^jdbc:(.*)\\?user=postgres$", "$1").replace("//", "//postgres@"))
                .redirectErrorStream(true).redirectOutput(directory.resolve("log").toFile()).start();
        site.atEnd(() -> daemon.destroyForcibly().waitFor());
        Lease lease = site.lease(site.client(Site.builder("unix:" + socket).patience(seconds(60)))).acquire();
        assertEquals("held|" + lease.token(), site.row("state, token"));
        lease.release();
    }

    private record Directory(Path path) implements AutoCloseable {
        @Override
        public void close() throws Exception {
            try (var files = Files.list(path)) {
                for (Path each : files.toList()) {
                    Files.delete(each);
                }
            }
            Files.delete(path);
        }
    }

    @Test
    @Tag("libraries")
    void lost_answer_of_a_claim_is_found() throws Exception {
        String name = "ticks-" + site.key;
        site.sql("select from leasehold.set_schedule('%s', 'every 365 d', starts_at => '2100-01-01Z'); select leasehold.run_schedule_now('%s')", name, name);
        Flaky proxy = way();
        proxy.decide("\"drop\", \"pass\"");
        LeaseClient client = site.client(proxy.builder().patience(seconds(5)));
        var attempts = new LinkedBlockingQueue<Integer>();
        var worker = new Site.Later<>(() -> {
            client.ticks(name, request -> request.duration(seconds(300)), tick -> {
                attempts.add(tick.attempt());
                new CountDownLatch(1).await();
                return null;
            });
            return true;
        });
        assertEquals(1, attempts.poll(2, TimeUnit.MINUTES));
        assertEquals("running|1", site.sql("select state, attempts from leasehold.tick where schedule = '%s'", name));
        assertEquals(1, proxy.count("drop"));
        worker.thread.interrupt();
        assertInstanceOf(InterruptedException.class, worker.trouble());
    }

    private String secured() throws Exception {
        return Site.ask("secure", "{}");
    }

    private LeaseClient secured(String facts, String authority, String token, String name) throws Exception {
        var tls = TlsChannelCredentials.newBuilder().trustManager(new File(field(facts, authority))).build();
        Daemons daemons = Daemons.at(field(facts, "target")).tls(tls).tokenFile(Path.of(field(facts, token)));
        if (name != null) {
            daemons.channels(each -> each.overrideAuthority(name));
        }
        return site.client(LeaseClient.builder(daemons).patience(seconds(name == null && authority.equals("ca") ? 60 : 10)));
    }

    @Override
    LeaseClient worker() throws Exception {
        return secured(secured(), "ca", "worker", null);
    }

    private void holdsAs(LeaseClient client, String principal) throws Exception {
        Lease lease = client.lease("secure", site.key).duration(seconds(30)).acquire();
        await("a renewal", () -> site.row("secure", "heartbeats >= 1").equals("t"));
        assertEquals(principal, site.row("secure", "principal"));
        lease.release();
        assertEquals("free|ok", site.row("secure", "state, last_outcome"));
    }

    @Test
    @Tag("libraries")
    void certificate_is_the_principal() throws Exception {
        String facts = secured();
        var tls = TlsChannelCredentials.newBuilder().trustManager(new File(field(facts, "ca")))
                .keyManager(new File(field(facts, "cert")), new File(field(facts, "key"))).build();
        holdsAs(site.client(LeaseClient.builder(Daemons.at(field(facts, "target")).tls(tls))), "dns:worker");
    }

    @Test
    void token_is_the_principal() throws Exception {
        holdsAs(secured(secured(), "ca", "worker", null), "token:worker");
    }

    private void unavailable(LeaseClient client, String words) {
        var trouble = assertThrows(LeaseException.Unavailable.class, () -> client.lease("secure", site.key).acquire());
        assertTrue(trouble.getMessage().contains(words), trouble.getMessage());
    }

    @Test
    @Tag("libraries")
    void wrong_authority_is_named() throws Exception {
        unavailable(secured(secured(), "other_ca", "worker", null), "certification path");
    }

    @Test
    void wrong_server_name_is_named() throws Exception {
        unavailable(secured(secured(), "ca", "worker", "leases.example"), "leases.example");
    }

    private LeaseException.Denied denied(LeaseClient client) {
        return assertThrows(LeaseException.Denied.class, () -> client.lease("secure", site.key).acquire());
    }

    @Test
    void revoked_token_is_denied() throws Exception {
        assertEquals("UNAUTHENTICATED", denied(secured(secured(), "ca", "revoked", null)).reason());
    }

    @Test
    void missing_right_is_denied() throws Exception {
        var denied = denied(secured(secured(), "ca", "stranger", null));
        assertEquals("ACCESS_DENIED", denied.reason());
        assertTrue(denied.getMessage().contains("token:stranger") && denied.getMessage().contains("right lease"), denied.getMessage());
    }
}
