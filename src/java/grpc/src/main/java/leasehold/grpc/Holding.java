package leasehold.grpc;

import java.util.List;
import java.util.TreeMap;
import java.util.function.BooleanSupplier;
import leasehold.LeaseException;
import leasehold.Retry;
import leasehold.Transport;
import leasehold.v1.Alive;
import leasehold.v1.HoldEvent;
import leasehold.v1.HoldRequest;
import leasehold.v1.LeaseServiceGrpc;

/**
 * A stream that holds a lease: the daemon renews it while this process says that it is alive, and releases it as failed when the connection breaks, as it
 * does when the process dies. One thread at a time reads and says: that of the acquire, then that of {@link #follow}.
 */
final class Holding implements Transport.Stream {
    private static final long MOST_SILENCE = 15_000_000_000L; // proxies end streams on which nothing is sent for 50 or 60 s
    private static final int MOST_KEPT = 100; // of a long wait
    private static final long RETRY_MILLIS = 100;

    private final RpcTransport all;
    private final Transport.Ref ref;
    private final Transport.Terms terms;
    private final long duration;
    private final TreeMap<Long, Long> said = new TreeMap<>(); // when which `alive` was sent
    private final Server server;
    private final Call<HoldRequest, HoldEvent> call;
    private volatile Holding successor; // after the stream broke
    private volatile boolean isEnded;
    private long sequence;
    private long nextAlive = Transport.now();

    private Holding(RpcTransport all, Transport.Ref ref, Transport.Terms terms) {
        this.all = all;
        this.ref = ref;
        this.terms = terms;
        duration = terms.duration().toNanos();
        server = all.pick();
        call = new Call<>(server, LeaseServiceGrpc.getHoldMethod(), new Errors(ref));
    }

    /** Acquires, with at most so long until the first answer. */
    static Transport.Grant begin(RpcTransport all, Transport.Ref ref, Transport.Terms terms, long until, long first, BooleanSupplier isGivenUp) {
        Holding holding = new Holding(all, ref, terms);
        long sent = Transport.now();
        boolean isGranted = false;
        try {
            holding.call.say(HoldRequest.newBuilder().setAcquire(Messages.acquire(ref, terms, until)).build());
            for (long limit = sent + first;; limit = Transport.now() + RpcTransport.SILENCE) {
                HoldEvent event = holding.next(limit, isGivenUp);
                if (event == null) {
                    throw isGivenUp.getAsBoolean() ? new LeaseException.Unavailable("the caller has given up", null,
                            Retry.Reason.SOCKET_CLOSED_WHILE_IN_FLIGHT) : holding.call.silent();
                }
                if (event.hasGranted()) {
                    isGranted = true;
                    return Messages.grant(event.getGranted(), ref.leaseKey(), sent, event.getWaited(), holding);
                }
            }
        } finally {
            if (!isGranted) {
                holding.call.close();
            }
        }
    }

    /** The next event, or null as Call.next; meanwhile it says `alive`. */
    private HoldEvent next(long until, BooleanSupplier isGivenUp) {
        while (true) {
            long now = Transport.now();
            if (now >= nextAlive) {
                said.put(++sequence, now);
                said.remove(sequence - MOST_KEPT);
                call.say(HoldRequest.newBuilder().setAlive(Alive.newBuilder().setSequence(sequence)).build());
                nextAlive = now + Math.min(MOST_SILENCE, Math.max(duration / 6, 1_000_000));
            }
            HoldEvent event = call.next(Math.min(until, nextAlive), isGivenUp);
            if (event != null || Transport.now() >= until || isGivenUp.getAsBoolean()) {
                return event;
            }
        }
    }

    @Override
    public void follow(Transport.Holder holder) {
        for (Holding current = this; current != null; current = current.next(holder)) {
            current.run(holder);
            current.call.close();
        }
    }

    /** Takes in what the daemon says, until the stream ends or the lease is over. */
    private void run(Transport.Holder holder) {
        try {
            // The next renewal comes after a third of the duration.
            for (long limit = Transport.now() + duration / 2;;) {
                HoldEvent event = next(limit, () -> isEnded || holder.isOver());
                if (event == null) {
                    return;
                }
                if (event.hasLost()) {
                    holder.lost(Messages.reason(event.getLost().getEndReason()), event.getLost().getMessage());
                }
                if (event.hasAsked()) {
                    holder.asked(Messages.handOver(event.getAsked(), "", 0));
                }
                if (event.hasRenewed()) {
                    Messages.check(List.of(ref.leaseKey()), List.of(event.getRenewed().getLeaseKey()));
                    limit = Transport.now() + duration / 2;
                    Long at = said.get(event.getAliveSequence()); // older ones are forgotten
                    if (at != null) {
                        said.headMap(event.getAliveSequence()).clear();
                        holder.renewed(at + Messages.remaining(event.getRenewed().getRemaining()), event.getRenewed().getDeadlineIsFinal());
                    }
                }
            }
        } catch (RuntimeException broken) { // another stream finds the lease again
            return;
        }
    }

    /** Another stream, perhaps to another daemon, which finds the lease again; null: it is over. */
    private Holding next(Transport.Holder holder) {
        if (!isEnded && !holder.isOver()) {
            server.leave();
        }
        while (!isEnded && !holder.isOver()) {
            if (!holder.isEnding()) {
                try {
                    Transport.Grant grant = begin(all, ref, new Transport.Terms(terms.duration(), java.time.Duration.ZERO, terms.atLeast(), terms.units(), 0,
                            terms.owner(), terms.labels(), false, true, false), Transport.now(), Math.max(duration / 6, 10_000_000), () -> isEnded || holder.isOver());
                    successor = (Holding) grant.stream();
                    if (isEnded) {
                        successor.end();
                    }
                    holder.renewed(grant.deadline(), grant.isFinal());
                    return successor;
                } catch (LeaseException.Held | LeaseException.Denied e) {
                    if (e instanceof LeaseException.Held || ((LeaseException.Denied) e).reason().equals("LEASE_ENDED")) {
                        holder.lost(reason(), null);
                    }
                } catch (RuntimeException e) { // as long as the lease lasts
                    if (holder.isOver()) {
                        return null;
                    }
                }
            }
            pause(Math.min(RETRY_MILLIS, Math.max(duration / 20_000_000, 1)));
        }
        return null;
    }

    /** How the lease has ended. */
    private LeaseException.Reason reason() {
        try {
            LeaseException.Reason reason = all.heartbeat(java.util.List.of(ref), Math.max(duration / 6, 10_000_000)).get(0).lost();
            boolean isDaemons = reason == LeaseException.Reason.RELEASED || reason == LeaseException.Reason.FAILED; // because the stream broke
            return reason == null ? LeaseException.Reason.UNKNOWN : isDaemons ? LeaseException.Reason.UNREACHABLE : reason;
        } catch (RuntimeException e) {
            return LeaseException.Reason.UNKNOWN;
        }
    }

    private static void pause(long millis) {
        boolean isInterrupted = Thread.interrupted();
        try {
            Thread.sleep(millis);
        } catch (InterruptedException e) {
            isInterrupted = true;
        }
        if (isInterrupted) {
            Thread.currentThread().interrupt();
        }
    }

    @Override
    public void end() {
        isEnded = true;
        call.close();
        Holding next = successor;
        if (next != null) {
            next.end();
        }
    }
}
