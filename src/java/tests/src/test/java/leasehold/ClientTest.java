package leasehold;

import static leasehold.Site.await;
import static leasehold.Site.seconds;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.protobuf.Any;
import com.google.rpc.ErrorInfo;
import com.google.rpc.RetryInfo;
import io.grpc.Server;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import io.grpc.netty.shaded.io.grpc.netty.NettyServerBuilder;
import io.grpc.protobuf.StatusProto;
import io.grpc.stub.StreamObserver;
import java.sql.Connection;
import java.sql.Statement;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.CountDownLatch;
import java.util.function.Supplier;
import leasehold.grpc.Daemons;
import leasehold.v1.AcquireAllRequest;
import leasehold.v1.AcquireAllResponse;
import leasehold.v1.AcquireEvent;
import leasehold.v1.AcquireRequest;
import leasehold.v1.LeaseServiceGrpc;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestInfo;
import org.junit.jupiter.api.condition.EnabledIfEnvironmentVariable;

/** What the list of cases does not have. */
@EnabledIfEnvironmentVariable(named = "LEASEHOLD_TEST_SQL", matches = ".+", disabledReason = "tests/clients/java/run starts the databases")
class ClientTest {
    private Site site;

    @BeforeEach
    void begin(TestInfo test) {
        site = new Site("sql", test.getTestMethod().orElseThrow().getName());
    }

    @AfterEach
    void end() throws Exception {
        site.close();
    }

    @Test
    void loss_interrupts_the_work_once() {
        var started = new CountDownLatch(1);
        var breaker = new Site.Later<>(() -> {
            started.await();
            site.forceRelease("cases");
            return true;
        });
        var lost = assertThrows(LeaseException.Lost.class, () -> site.lease(site.client()).duration(seconds(30)).call(lease -> {
            started.countDown();
            Thread.sleep(300_000);
            return null;
        }));
        assertTrue(breaker.result.isDone());
        assertEquals(LeaseException.Reason.FORCED, lost.reason());
        assertEquals(InterruptedException.class, lost.getSuppressed()[0].getClass());
        assertFalse(Thread.currentThread().isInterrupted());
    }

    @Test
    void a_namespace_with_a_slash_stands_in_quotes() throws Exception {
        LeaseRequest request = site.client().lease("cases/slash", site.key).duration(seconds(30));
        String name = "the lease \"cases/slash\"/" + site.key + " is ";
        try (Lease lease = request.acquire()) {
            var held = assertThrows(LeaseException.Held.class, () -> request.acquire());
            assertTrue(held.getMessage().startsWith(name + "held by "), held.getMessage());
            site.forceRelease("cases/slash");
            await("the loss", () -> !lease.isHeld());
            var lost = assertThrows(LeaseException.Lost.class, lease::check);
            assertTrue(lost.getMessage().startsWith(name + "lost: "), lost.getMessage());
        } catch (LeaseException.Lost closing) {
            assertTrue(closing.getMessage().startsWith(name), closing.getMessage());
        }
    }

    @Test
    void a_block_that_finds_the_loss_gets_one_exception() {
        var lost = assertThrows(LeaseException.Lost.class, () -> {
            try (Lease lease = site.lease(site.client()).duration(seconds(30)).acquire()) {
                site.forceRelease("cases");
                await("the loss", () -> !lease.isHeld());
                lease.check();
            }
        });
        assertEquals(1, lost.getSuppressed().length);
    }

    @Test
    void at_least_outlives_the_client() throws Exception {
        LeaseClient client = site.client();
        Lease lease = site.lease(client).duration(seconds(600)).atLeast(seconds(4)).acquire();
        String acquired = site.row("acquired_at");
        lease.release();
        assertEquals("free|ok", site.row("state, last_outcome"));
        var held = assertThrows(LeaseException.Held.class, () -> site.lease(client).acquire());
        assertTrue(held.getMessage().contains("is resting"), held.getMessage());
        client.close();
        Lease next = site.lease(site.client()).waitFor(seconds(180)).acquire();
        assertEquals("t", site.row("acquired_at >= '" + acquired + "'::timestamptz + interval '4 s'"));
        assertTrue(next.token() > lease.token());
    }

    @Test
    void a_deadline_ends_nested_calls() throws Exception {
        LeaseClient client = site.client();
        client.lease("cases", site.key + " other").duration(seconds(300)).acquire();
        var lost = assertThrows(LeaseException.Lost.class, () -> site.lease(client).duration(seconds(2)).withoutRenewal().call(
                lease -> client.lease("cases", site.key + " other").waitForever().acquire()));
        assertEquals(LeaseException.Reason.EXPIRED, lost.reason());
        assertEquals(InterruptedException.class, lost.getSuppressed()[0].getClass());
        await("an empty queue", () -> site.sql("select count(*) from leasehold.queue where key = '%s other'", site.key).equals("0"));
    }

    /** A daemon that refuses every acquire, with the next reason; the last is for ever. It keeps the lease keys. */
    private final class Refusing extends LeaseServiceGrpc.LeaseServiceImplBase {
        final List<String> keys = new CopyOnWriteArrayList<>();
        final ArrayDeque<Supplier<StatusRuntimeException>> next;

        Refusing(List<Supplier<StatusRuntimeException>> all) {
            next = new ArrayDeque<>(all);
        }

        private synchronized StatusRuntimeException refuse(String key) {
            keys.add(key);
            return (next.size() > 1 ? next.remove() : next.element()).get();
        }

        @Override
        public void acquireStream(AcquireRequest request, StreamObserver<AcquireEvent> answer) {
            answer.onError(refuse(request.getLeaseKey()));
        }

        @Override
        public void acquireAll(AcquireAllRequest request, StreamObserver<AcquireAllResponse> answer) {
            answer.onError(refuse(request.getLeaseKey()));
        }

        LeaseClient.Builder client() throws Exception {
            Server server = NettyServerBuilder.forPort(0).addService(this).build().start();
            site.atEnd(server::shutdownNow);
            return LeaseClient.builder(Daemons.at("127.0.0.1:" + server.getPort() + ",127.0.0.1:1")); // nobody listens at the second
        }
    }

    private static StatusRuntimeException aborted(String reason, Duration after) {
        return StatusProto.toStatusRuntimeException(com.google.rpc.Status.newBuilder().setCode(Status.Code.ABORTED.value()).setMessage("no")
                .addDetails(Any.pack(ErrorInfo.newBuilder().setReason(reason).setDomain("leasehold").build()))
                .addDetails(Any.pack(RetryInfo.newBuilder().setRetryDelay(com.google.protobuf.Duration.newBuilder().setNanos(after.getNano())).build())).build());
    }

    @Test
    void an_unknown_reason_with_an_advice_is_the_strategys() throws Exception {
        var asked = new CopyOnWriteArrayList<String>();
        LeaseClient client = site.atEnd(new Refusing(List.of(() -> aborted("FULL_MOON", Duration.ofMillis(250)), () -> aborted("LEASE_HELD", Duration.ZERO))).client()
                .patience(seconds(60)).strategy(retry -> {
                    asked.add(retry.reason() + " " + retry.retryAfter());
                    return retry.reason() == Retry.Reason.RETRY_INFO ? Optional.of(Duration.ofMillis(1)) : Optional.empty();
                }).build());
        assertThrows(LeaseException.Held.class, () -> site.lease(client).acquire());
        assertEquals(List.of("RETRY_INFO PT0.25S", "LEASE_HELD PT0S"), asked);
    }

    @Test
    void a_wait_that_the_server_cuts_goes_on() throws Exception {
        for (boolean isOfSeveral : new boolean[] {false, true}) {
            Supplier<StatusRuntimeException> cut = () -> aborted("BLOCKING_TIMEOUT", Duration.ofMillis(1));
            Refusing server = new Refusing(List.of(cut, cut, () -> {
                Site.sleep(1_100); // as a server that has blocked
                return cut.get();
            }, cut, () -> aborted("WAIT_TIMEOUT", Duration.ZERO)));
            var asked = new CopyOnWriteArrayList<Retry.Reason>();
            var delays = new CopyOnWriteArrayList<Duration>();
            var failures = new CopyOnWriteArrayList<Integer>();
            LeaseClient client = site.atEnd(server.client().patience(seconds(60)).strategy(retry -> {
                asked.add(retry.reason());
                return Optional.empty();
            }).retryLog((retry, delay) -> {
                failures.add(retry.failures());
                delays.add(delay.orElseThrow());
            }).build());
            assertThrows(LeaseException.Held.class, () -> {
                if (isOfSeveral) {
                    client.acquireAll(List.of(new LeaseScope("cases", "a"), new LeaseScope("cases", "b")), request -> request.waitFor(seconds(60)));
                } else {
                    site.lease(client).waitFor(seconds(60)).acquire();
                }
            });
            assertEquals(4, delays.size());
            for (int i = 0; i < 4; i++) { // a machine with other work may make each of them one that has blocked
                assertTrue(List.of(Duration.ZERO, Retry.controlledBackoff(failures.get(i))).contains(delays.get(i)), failures + " " + delays);
            }
            // At once where the server has blocked for a second; then the backoff begins anew.
            assertEquals("PT0S 1", delays.get(2) + " " + failures.get(3));
            assertEquals(List.of(), asked);
            assertEquals(1, Set.copyOf(server.keys).size());
        }
    }

    @Test
    void extend_changes_the_duration() throws Exception {
        Lease lease = site.lease(site.client()).duration(seconds(60)).withoutRenewal().labels(Map.of("host", "a \"b\"\n\\")).acquire();
        lease.extend(seconds(600));
        assertTrue(lease.remaining().compareTo(seconds(60)) > 0);
        assertEquals("00:10:00|a \"b\"\n\\", site.row("duration, labels ->> 'host'"));
        site.forceRelease("cases");
        assertThrows(LeaseException.Lost.class, () -> lease.extend(seconds(100)));
        assertFalse(lease.isHeld());
    }

    @Test
    void an_extension_that_finds_the_row_locked_loses_nothing() throws Exception {
        Lease lease = site.lease(site.client(LeaseClient.builder(site.url).patience(seconds(3)))).duration(seconds(100)).acquire();
        Connection other = site.connection();
        try (Statement statement = other.createStatement()) {
            statement.execute("select from leasehold.scope where namespace = 'cases' and key = '" + site.key + "' for update");
        }
        assertThrows(LeaseException.Unavailable.class, () -> lease.extend(seconds(200)));
        lease.check();
        other.rollback();
        lease.extend(seconds(200));
        assertEquals("00:03:20", site.row("duration"));
    }

    @Test
    void a_lease_without_renewal_ends() throws Exception {
        Lease lease = site.lease(site.client()).duration(seconds(1)).withoutRenewal().acquire();
        assertEquals(LeaseException.Reason.EXPIRED, Site.lost(lease).reason());
        assertEquals("0", site.row("heartbeats"));
        Lease next = site.lease(site.client()).waitFor(seconds(180)).acquire();
        assertTrue(next.token() > lease.token());
    }

    @Test
    void a_refused_release_keeps_no_other_lease() throws Exception {
        site.sql("drop schema if exists refused cascade; create schema refused; grant usage on schema refused to leasehold_owner");
        site.sql("create function refused.first(e leasehold.lease_event) returns void language plpgsql as "
                + "$$ begin if e.key = 'a' then raise exception 'not this one'; end if; end $$");
        site.sql("select leasehold.add_hook('refused', 'release_fail', 'refused.first(leasehold.lease_event)')");
        Pipe pipe = site.atEnd(new Pipe(site.url));
        LeaseClient client = site.client(LeaseClient.builder(pipe.url()).patience(seconds(5)));
        client.lease("refused", "c").acquire().release(); // connects
        pipe.keepAnswers(true);
        var acquire = new Site.Later<>(() -> client.acquireAll(List.of(new LeaseScope("refused", "a"), new LeaseScope("refused", "b")),
                request -> request.duration(seconds(300))));
        String states = "select string_agg(state, ' ' order by key) from leasehold.scope where namespace = 'refused' and key in ('a', 'b')";
        await("both grants", () -> site.sql(states).equals("held held"));
        acquire.thread.interrupt();
        assertEquals(InterruptedException.class, acquire.trouble().getClass());
        pipe.keepAnswers(false);
        await("the other's release", () -> site.sql(states).equals("held free"));
    }

    @Test
    void what_was_given_up_ends_with_the_client() throws Exception {
        Pipe pipe = site.atEnd(new Pipe(site.url));
        LeaseClient client = site.client(LeaseClient.builder(pipe.url()).patience(seconds(5)));
        site.lease(client).acquire().release(); // connects
        pipe.keepAnswers(true);
        var acquire = new Site.Later<>(() -> site.lease(client).duration(seconds(3600)).acquire());
        await("the grant", () -> site.row("state").equals("held"));
        acquire.thread.interrupt();
        assertEquals(InterruptedException.class, acquire.trouble().getClass());
        pipe.close(); // and nobody answers any more
        client.close();
        await("the end of the threads", () -> Site.threads(client).isEmpty());
    }

    @Test
    void too_many_releases_are_refused() throws Exception {
        Pipe pipe = site.atEnd(new Pipe(site.url));
        LeaseClient client = site.client(LeaseClient.builder(pipe.url()).flushTimeout(Duration.ofMillis(300)));
        List<Lease> leases = new ArrayList<>();
        for (int i = 0; i < 3; i++) {
            leases.add(client.lease("overloaded", String.valueOf(i)).acquire());
        }
        client.releases.most = 1;
        pipe.freeze(true);
        int before = pipe.said();
        leases.get(0).tryRelease();
        await("a release in flight", () -> pipe.said() > before);
        leases.get(1).tryRelease();
        var refused = assertThrows(LeaseException.Unavailable.class, () -> leases.get(2).tryRelease());
        assertEquals(Retry.Reason.OVERLOADED, refused.reason());
        assertFalse(leases.get(2).isHeld());
        pipe.freeze(false);
        await("the releases of the others", () -> site.sql("select string_agg(state, ' ' order by key) from leasehold.scope where namespace = 'overloaded'")
                .equals("free free held"));
    }

    @Test
    void a_unix_socket_is_enough() throws Exception {
        String more = "&socketFactory=leasehold.UnixSocketFactory&socketFactoryArg=";
        String nowhere = site.url.replaceFirst("//[^/]*/", "//localhost/") + more;
        LeaseClient client = site.client(LeaseClient.builder(nowhere + System.getenv("LEASEHOLD_TEST_SOCKET")).poll(Duration.ofMinutes(10)));
        Lease lease = site.lease(client).duration(seconds(30)).acquire();
        await("a renewal", () -> site.beats() >= 1);
        var waiter = site.queue(client, 1); // hears by LISTEN
        var other = site.queue(client, 2);
        other.thread.interrupt();
        assertEquals(InterruptedException.class, other.trouble().getClass());
        lease.release();
        Lease next = waiter.get();
        client.close(); // while its connections are in use
        assertEquals(LeaseException.Reason.CLOSED, assertThrows(LeaseException.Lost.class, next::check).reason());
        LeaseClient lost = site.client(LeaseClient.builder(nowhere + "/nonexistent").patience(seconds(1)));
        assertThrows(LeaseException.Unavailable.class, () -> site.lease(lost).acquire());
    }

    @Test
    void the_clock_agrees_with_the_system() {
        long before = Clock.now();
        Site.sleep(50);
        long passed = Clock.now() - before;
        assertTrue(passed >= 50_000_000, passed + " ns");
        assertEquals(Clock.NEVER, Clock.in(Duration.ofSeconds(Long.MAX_VALUE)));
    }
}
