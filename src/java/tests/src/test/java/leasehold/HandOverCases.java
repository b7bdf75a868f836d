package leasehold;

import static leasehold.Site.await;
import static leasehold.Site.seconds;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.List;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.function.Executable;

/** The cases about requests to hand a lease over. */
abstract class HandOverCases extends TickCases {
    /** Keeps what it hears. */
    static final class Told implements LeaseListener {
        final LinkedBlockingQueue<HandOver> requests = new LinkedBlockingQueue<>();

        @Override
        public void asked(Lease lease, HandOver request) {
            requests.add(request);
        }

        HandOver next() throws InterruptedException {
            HandOver request = requests.poll(3, TimeUnit.MINUTES);
            assertNotNull(request, "the holder did not hear of the request");
            return request;
        }
    }

    private HandOver ask(LeaseClient client, Lease lease, String reason, String refusal) {
        List<HandOver> found = client.askHandOver("cases", site.key, reason);
        assertEquals(List.of("worker-1 " + lease.token() + " " + refusal),
                found.stream().map(each -> each.owner() + " " + each.token() + " " + each.refusal()).toList());
        return found.get(0);
    }

    @Test
    void holder_is_asked() throws Exception {
        LeaseClient client = site.client();
        Told told = new Told();
        Lease lease = site.lease(client).duration(seconds(15)).owner("worker-1").tell(told).acquire();
        assertFalse(lease.refuseHandOver("too early"));
        HandOver asked = ask(client, lease, "its host is drained", "");
        assertEquals("its host is drained", asked.reason());
        assertTrue(asked.answerIn().compareTo(seconds(0)) > 0 && asked.answerIn().compareTo(seconds(30)) <= 0, asked.toString());
        HandOver heard = told.next();
        assertEquals(asked.reason() + asked.askedBy() + asked.askedAt(), heard.reason() + heard.askedBy() + heard.askedAt());
        assertTrue(heard.answerIn().compareTo(seconds(0)) > 0, heard.toString());
        int beats = site.beats();
        await("two renewals", () -> site.beats() >= beats + 2);
        assertTrue(told.requests.isEmpty());
        assertTrue(lease.refuseHandOver("in a minute"));
        assertTrue(lease.refuseHandOver("and again"));
        assertEquals(asked.askedAt(), ask(client, lease, "well?", "in a minute").askedAt());
        // The time to answer has passed: it may be asked again.
        site.sql("with x as (update leasehold.hand_over set answer_by = now() - interval '1 s' where namespace = 'cases' and key = '%s' returning 1) "
                + "select count(*) from x", site.key);
        ask(client, lease, "and now?", "");
        assertEquals("and now?", told.next().reason());
        assertTrue(lease.isHeld());
        lease.release();
        assertEquals(List.of(), client.askHandOver("cases", site.key, "nobody"));
    }

    @Test
    void waiter_asks_the_holder() throws Exception {
        Told told = new Told();
        Lease holder = site.lease(site.client()).duration(seconds(30)).tell(told).acquire();
        var waiter = site.queue(site.lease(site.client()).owner("worker-2").askHandOver().waitFor(seconds(300)), 1);
        HandOver request = told.next();
        assertEquals("", request.refusal());
        if (on().equals("grpc")) {
            assertEquals("worker-2", request.askedBy());
        } else {
            assertFalse(request.askedBy().isEmpty());
        }
        holder.release();
        waiter.get().release();
    }

    @Test
    void refusal_of_an_ended_lease_is_false() throws Exception {
        LeaseClient client = site.client();
        Lease lease = site.lease(client).duration(seconds(300)).acquire(); // no renewal tells of the end
        assertEquals(1, client.askHandOver("cases", site.key, "").size());
        site.forceRelease("cases");
        assertFalse(lease.refuseHandOver("not now"));
    }

    void unreadable_requests_cost_no_lease() throws Exception {
        LeaseClient client = site.client();
        List<String> said = site.log(client);
        Told told = new Told();
        Lease lease = site.lease(client).duration(seconds(20)).tell(told).acquire();
        request("'infinity'"); // from which asked() cannot subtract
        await("a renewal after more than the duration", () -> site.row("heartbeat_at > acquired_at + interval '22 s'").equals("t"));
        assertTrue(lease.isHeld() && told.requests.isEmpty());
        assertEquals(List.of("requests to hand over are not heard"), said);
        request("now() + interval '30 s'");
        assertEquals("well?", told.next().reason());
        lease.release();
    }

    private void request(String answerBy) {
        site.sql("with a as materialized (select * from leasehold.ask_hand_over('cases', '%1$s', reason => 'well?')) select count(*) from a", site.key);
        site.sql("with x as (update leasehold.hand_over set answer_by = %2$s where namespace = 'cases' and key = '%1$s' returning 1) select count(*) from x",
                site.key, answerBy);
    }

    private static void named(String field, String words, Executable wrong) {
        var refusal = assertThrows(LeaseException.InvalidArgument.class, wrong);
        assertEquals(field + ": " + words, refusal.field() + ": " + refusal.getMessage());
    }

    @Test
    void wrong_words_are_named() throws Exception {
        LeaseClient client = site.client();
        named("reason", "reason must be at most 1024 bytes, has 1025", () -> client.askHandOver("cases", site.key, "x".repeat(1025)));
        named("ask_hand_over", "ask_hand_over must be absent without a wait", () -> site.lease(client).askHandOver().acquire());
        named("key", "key must be 1 to 1024 bytes, has 0", () -> client.askHandOver("cases", "", "x"));
        Lease lease = site.lease(client).acquire();
        named("reason", "reason must be 1 to 1024 bytes, has 0", () -> lease.refuseHandOver(""));
        lease.release();
        assertThrows(LeaseException.Lost.class, () -> lease.refuseHandOver("too late"));
    }
}
