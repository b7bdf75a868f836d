package leasehold;

import java.util.Comparator;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Set;

/**
 * Renews all leases of a client together, at a third of their durations, and tells a holder whose time is over. One thread looks at the
 * clock; the requests run in others, so that a database that does not answer delays nobody's loss. Guarded by client.lock.
 */
final class Renewer implements Runnable {
    static final long RETRY = 100_000_000;
    private static final int MOST_IN_REQUEST = 10_000;
    private static final long MINUTE = 60_000_000_000L;

    private final LeaseClient client;
    private final Set<Lease> leases = new LinkedHashSet<>();
    private Thread thread;
    private boolean isAsking;
    private boolean isClosed;

    Renewer(LeaseClient client) {
        this.client = client;
    }

    void add(Lease lease) {
        leases.add(lease);
        lease.setHeld();
        if (thread == null && !isClosed) {
            thread = client.thread(this, "renewal");
            thread.start();
        }
        client.lock.notifyAll();
    }

    void remove(Lease lease) {
        leases.remove(lease);
        client.lock.notifyAll();
    }

    /** The holders are told; the thread ends. */
    Thread close() {
        isClosed = true;
        for (Lease lease : List.copyOf(leases)) {
            lease.lose(LeaseException.Reason.CLOSED, null);
        }
        client.lock.notifyAll();
        return thread;
    }

    @Override
    public void run() {
        synchronized (client.lock) {
            while (!isClosed) {
                try {
                    client.lock.wait(Clock.millis(look()));
                } catch (InterruptedException e) { // as by a container that interrupts all threads: it looks again
                    continue;
                }
            }
        }
    }

    /** How long until there is something to do. */
    private long look() {
        long now = Clock.now();
        long wake = now + MINUTE;
        boolean isDue = false;
        for (Lease lease : List.copyOf(leases)) {
            lease.expire();
            if (lease.isLost()) {
                continue;
            }
            // A part of the margin at the most: wait() does not run while the machine is suspended.
            wake = Math.min(wake, Math.min(now + lease.duration() / 10, lease.stop()));
            if (lease.isRenewable() && !isAsking) {
                wake = Math.min(wake, lease.next());
                isDue |= lease.next() <= now;
            }
        }
        if (isDue) {
            ask(now);
        }
        return wake - now;
    }

    /** Renews what is due, and what will be soon, in one request. */
    private void ask(long now) {
        List<Lease> asked = leases.stream().filter(each -> each.isRenewable() && each.next() <= now + each.duration() / 6)
                .sorted(Comparator.comparingLong(Lease::next)).limit(MOST_IN_REQUEST).toList();
        // An answer that got lost must not cost the lease.
        long limit = client.patience;
        for (Lease lease : asked) {
            lease.ask();
            limit = Math.min(limit, Math.max(Math.min(lease.duration() / 6, lease.stop() - now), 10_000_000));
        }
        long patience = limit;
        isAsking = true;
        if (!client.execute(() -> request(asked, patience))) {
            isAsking = false;
        }
    }

    private void request(List<Lease> asked, long patience) {
        List<Transport.Beat> beats = null;
        String trouble = "";
        long sent = Clock.now();
        try {
            beats = client.transport.heartbeat(asked.stream().map(Lease::ref).toList(), patience);
        } catch (RuntimeException e) {
            trouble = e.getMessage();
        }
        synchronized (client.lock) {
            isAsking = false;
            for (int i = 0; i < asked.size(); i++) {
                asked.get(i).answered(sent, beats == null ? Transport.Beat.trouble(trouble) : beats.get(i));
            }
            client.lock.notifyAll();
        }
    }
}
