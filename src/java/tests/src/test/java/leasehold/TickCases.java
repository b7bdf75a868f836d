package leasehold;

import static leasehold.Site.await;
import static leasehold.Site.seconds;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import org.junit.jupiter.api.Test;

/** The cases about the ticks of schedules. */
abstract class TickCases extends Cases {
    private static final String NEVER = "starts_at => '2100-01-01Z', backoff => '0'"; // no tick of its own in this century

    /** A loop over a schedule's ticks, in a thread of its own. */
    final class Worker implements AutoCloseable {
        final LinkedBlockingQueue<Tick> got;
        final Site.Later<Boolean> loop;

        Worker(LeaseClient client, String name, LinkedBlockingQueue<Tick> got, Consumer<LeaseRequest> options, TickWork work) {
            this.got = got;
            loop = new Site.Later<>(() -> {
                client.ticks(name, options, tick -> {
                    got.add(tick);
                    return work.run(tick);
                });
                return true;
            });
            site.atEnd(this);
        }

        Worker(LeaseClient client, String name, TickWork work) {
            this(client, name, new LinkedBlockingQueue<>(), request -> { }, work);
        }

        Tick next() throws Exception {
            return TickCases.next(got);
        }

        /** How it has ended: by an interrupt. */
        void leave() throws Exception {
            loop.thread.interrupt();
            assertInstanceOf(InterruptedException.class, loop.trouble());
        }

        @Override
        public void close() {
            loop.thread.interrupt();
        }
    }

    private static Tick next(LinkedBlockingQueue<Tick> got) throws Exception {
        Tick tick = got.poll(2, TimeUnit.MINUTES);
        assertTrue(tick != null, "no tick within two minutes");
        return tick;
    }

    private static String well(Tick tick) {
        return null;
    }

    private String schedule(String expression, String settings) {
        String name = "ticks-" + site.key;
        site.sql("select from leasehold.set_schedule('%s', '%s', %s); update leasehold.schedule set look_at = '-infinity' where name = '%s'",
                name, expression, settings, name);
        return name;
    }

    private Instant runNow(String name) {
        return Instant.ofEpochSecond(Long.parseLong(site.sql("select extract(epoch from leasehold.run_schedule_now('%s'))::bigint", name)));
    }

    private String ticks(String name, String columns) {
        return site.sql("select %s from (select * from leasehold.tick where schedule = '%s' order by at) t", columns, name);
    }

    /** A worker has looked for a tick in vain. */
    private void awaitLook(String name) throws Exception {
        await("a look", () -> site.sql("select look_at > now() from leasehold.schedule where name = '%s'", name).equals("t"));
    }

    @Test
    void tick_is_claimed_once() throws Exception {
        String name = schedule("every 365 d", NEVER);
        CountDownLatch finish = new CountDownLatch(1);
        LinkedBlockingQueue<Tick> got = new LinkedBlockingQueue<>();
        for (int i = 0; i < 2; i++) {
            new Worker(site.client(), name, got, request -> request.owner("worker-1").labels(Map.of("kind", "report")), tick -> {
                finish.await();
                return "{\"rows\": 3}";
            });
        }
        Instant at = runNow(name);
        Tick first = next(got);
        assertEquals(at + " 1 " + name + " " + at, first.at() + " " + first.attempt() + " " + first.lease().namespace() + " " + first.lease().key());
        assertTrue(first.lease().isHeld());
        assertEquals("running|1|" + first.lease().token() + "|worker-1", ticks(name, "state, attempts, token, owner"));
        assertEquals("report", site.sql("select labels ->> 'kind' from leasehold.lease where namespace = '%s'", name));
        finish.countDown();
        await("the end of the tick", () -> ticks(name, "state, result ->> 'rows'").equals("done|3"));
        Instant again = runNow(name);
        Tick second = next(got);
        assertEquals(again + " 1", second.at() + " " + second.attempt());
        assertTrue(second.lease().token() > first.lease().token());
        await("the end of both", () -> ticks(name, "state").equals("done\ndone"));
        assertTrue(got.isEmpty());
    }

    @Test
    void failed_tick_is_tried_again() throws Exception {
        String name = schedule("every 365 d", "starts_at => '2100-01-01Z', backoff => '1 h'");
        Instant at = runNow(name);
        Worker worker = new Worker(site.client(site.builder().poll(Duration.ofMillis(200))), name, tick -> {
            if (tick.attempt() == 1) {
                throw new IllegalStateException("the disk is full");
            }
            return tick.attempt() == 2 ? "no JSON" : null;
        });
        Tick first = worker.next();
        assertEquals(at + " 1", first.at() + " " + first.attempt());
        await("the failure", () -> ticks(name, "state, attempts, error").equals("failed|1|java.lang.IllegalStateException: the disk is full"));
        site.sql("update leasehold.tick set next_try_at = now() where schedule = '%s'", name);
        Tick second = worker.next();
        assertEquals(at + " 2", second.at() + " " + second.attempt());
        await("the failure of a result that is none", () -> ticks(name, "state, attempts").equals("failed|2"));
        site.sql("update leasehold.tick set next_try_at = now() where schedule = '%s'", name);
        assertEquals(3, worker.next().attempt());
        await("the end", () -> ticks(name, "state, attempts").equals("done|3"));
    }

    @Test
    void lost_tick_lets_the_loop_go_on() throws Exception {
        String name = schedule("every 365 d", NEVER);
        runNow(name);
        LinkedBlockingQueue<String> told = new LinkedBlockingQueue<>();
        Worker worker = new Worker(site.client(), name, new LinkedBlockingQueue<>(), request -> request.duration(seconds(30)), tick -> {
            if (tick.attempt() == 1) {
                tick.lease().onLost(lost -> told.add(lost.reason().name()));
                new CountDownLatch(1).await();
            }
            return null;
        });
        Tick first = worker.next();
        await("a renewal", () -> site.sql("select heartbeats > 0 from leasehold.scope where namespace = '%s'", name).equals("t"));
        site.sql("select from leasehold.force_release('%s', '%s', 'a test')", name, first.lease().key());
        assertEquals("FORCED", told.poll(2, TimeUnit.MINUTES));
        assertEquals(2, worker.next().attempt());
        await("the end", () -> ticks(name, "state, attempts").equals("done|2"));
    }

    @Test
    void missed_tick_is_not_yielded() throws Exception {
        String name = schedule("every 365 d", NEVER);
        Instant missed = runNow(name);
        site.sql("update leasehold.tick set claim_until = now() - interval '1 s' where schedule = '%s'; "
                + "update leasehold.schedule set look_at = now() where name = '%s'", name, name);
        Worker worker = new Worker(site.client(), name, TickCases::well);
        await("the miss", () -> ticks(name, "state, attempts").equals("missed|0"));
        await("another second", () -> site.sql("select clock_timestamp() >= to_timestamp(%d)", missed.getEpochSecond() + 1).equals("t"));
        assertEquals(runNow(name), worker.next().at());
    }

    @Test
    void leaving_the_loop_releases_the_tick() throws Exception {
        String name = schedule("every 365 d", NEVER);
        LeaseClient client = site.client();
        Consumer<LeaseRequest> lasting = request -> request.duration(seconds(300));
        runNow(name);
        Worker worker = new Worker(client, name, new LinkedBlockingQueue<>(), lasting, tick -> {
            new CountDownLatch(1).await();
            return null;
        });
        worker.next();
        worker.leave();
        assertEquals("failed|1|java.lang.InterruptedException", ticks(name, "state, attempts, error"));
        assertThrows(AssertionError.class, () -> client.ticks(name, lasting, tick -> {
            throw new AssertionError("the work is broken");
        }));
        assertEquals("failed|2", ticks(name, "state, attempts"));
        assertThrows(InterruptedException.class, () -> client.ticks(name, lasting, tick -> {
            Thread.currentThread().interrupt();
            return null;
        }));
        assertEquals("done|3", ticks(name, "state, attempts"));
        runNow(name);
        assertEquals(1, new Worker(site.client(), name, TickCases::well).next().attempt());
    }

    @Test
    void cancelled_wait_claims_nothing() throws Exception {
        String name = schedule("every 365 d", NEVER);
        LeaseClient client = site.client();
        Worker worker = new Worker(client, name, TickCases::well);
        awaitLook(name);
        worker.leave();
        client.close();
        runNow(name);
        assertEquals(1, new Worker(site.client(), name, TickCases::well).next().attempt());
        assertTrue(worker.got.isEmpty());
    }

    /** Without a look of the worker's own, where there are notifications. */
    @Test
    void run_now_is_seen() throws Exception {
        String name = schedule("every 365 d", NEVER);
        Worker worker = new Worker(site.client(site.builder().poll(Duration.ofMinutes(10))), name, TickCases::well);
        awaitLook(name);
        assertEquals(runNow(name), worker.next().at());
    }

    private Instant pause(String name, boolean isPaused) {
        return Instant.ofEpochSecond(Long.parseLong(site.sql("select floor(extract(epoch from clock_timestamp()))::bigint from leasehold.pause_schedule('%s', %s)",
                name, isPaused)));
    }

    @Test
    void paused_schedule_waits() throws Exception {
        String name = schedule("every 1 s", "starts_at => '2020-01-01Z', tick_deadline => '1 h'");
        Instant paused = pause(name, true);
        Worker worker = new Worker(site.client(), name, TickCases::well);
        await("three seconds", () -> Instant.now().isAfter(paused.plusSeconds(4)));
        assertEquals("0", ticks(name, "count(*) filter (where state not in ('due', 'skipped'))"));
        Instant resumed = pause(name, false);
        for (Instant at = worker.next().at(); at.isBefore(resumed); at = worker.next().at()) {
            assertTrue(!at.isAfter(paused), "the last before the pause may have been due: " + at + " " + paused + " " + resumed);
        }
    }

    @Test
    void unknown_schedule_is_named() {
        LeaseClient client = site.client();
        var unknown = assertThrows(LeaseException.InvalidArgument.class, () -> client.ticks("no-such", TickCases::well));
        assertTrue(unknown.getMessage().contains("no-such"), unknown.getMessage());
        assertEquals("namespace", assertThrows(LeaseException.InvalidArgument.class, () -> client.ticks("a..b", TickCases::well)).field());
        assertEquals("options", assertThrows(LeaseException.InvalidArgument.class, () -> client.ticks("no-such", LeaseRequest::shared, TickCases::well)).field());
    }

    @Test
    void workers_share_ticks() throws Exception {
        String name = schedule("every 365 d", NEVER + ", overlap => 3");
        LinkedBlockingQueue<Tick> got = new LinkedBlockingQueue<>();
        for (int i = 0; i < 3; i++) {
            new Worker(site.client(), name, got, request -> { }, TickCases::well);
        }
        // As if nobody had looked for 8 s.
        site.sql("select from leasehold.set_schedule('%s', 'every 1 s', ends_at => now(), catch_up => 'all', overlap => 3, tick_deadline => '1 h'); "
                + "update leasehold.schedule set made_until = ends_at - interval '8 s', look_at = now() where name = '%s'", name, name);
        await("the first half", () -> ticks(name, "count(*) filter (where state = 'done') >= 4").equals("t"));
        await("8 ticks", () -> ticks(name, "count(*) >= 8 and bool_and(state = 'done') and max(attempts) = 1").equals("t"));
        List<Instant> all = new ArrayList<>(got.stream().map(Tick::at).toList());
        assertTrue(all.size() >= 8 && new HashSet<>(all).size() == all.size(), all.toString());
    }
}
