package leasehold;

import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.function.BooleanSupplier;

/**
 * Releases that nobody waits for. One thread of the client's sends them, all that there are in one statement; it runs while there are any.
 * Guarded by client.lock.
 */
final class Releases implements Runnable {
    private static final System.Logger LOG = System.getLogger("leasehold");
    private static final int MOST_IN_STATEMENT = 1000;
    private static final int RETRY_MILLIS = 100;

    private final LeaseClient client;
    int most = 1 << 21; // fewer in a test
    private final ArrayDeque<Parting> waiting = new ArrayDeque<>();
    private final Map<Name, Parting> last = new HashMap<>();
    private boolean isRunning;
    private boolean isOver; // nothing is repeated any more

    private record Name(String namespace, String key) {
        static Name of(Transport.Ref ref) {
            return new Name(ref.namespace(), ref.key());
        }
    }

    /** A lease that is given back. Its holder has been told. */
    private static final class Parting {
        final Lease lease;
        final Transport.Ending ending;
        boolean isRepeated;

        Parting(Lease lease, Transport.Ending ending) {
            this.lease = lease;
            this.ending = ending;
        }
    }

    Releases(LeaseClient client) {
        this.client = client;
    }

    /** False: there are too many. */
    boolean add(Lease lease, Transport.Ending ending) {
        if (waiting.size() >= most) {
            return false;
        }
        Parting parting = new Parting(lease, ending);
        waiting.add(parting);
        last.put(Name.of(ending.ref()), parting);
        if (!isRunning) {
            isRunning = client.execute(this);
        }
        return true;
    }

    @Override
    public void run() {
        for (List<Parting> some = next(); !some.isEmpty(); some = next()) {
            List<Transport.Answer> answers = client.transport.release(some.stream().map(each -> each.ending).toList());
            boolean isRepeated = false;
            synchronized (client.lock) {
                for (int i = 0; i < some.size(); i++) {
                    isRepeated |= !take(some.get(i), answers.get(i));
                }
                client.lock.notifyAll();
            }
            if (isRepeated) {
                Clock.pause(RETRY_MILLIS);
            }
        }
    }

    private List<Parting> next() {
        synchronized (client.lock) {
            List<Parting> some = new ArrayList<>();
            while (some.size() < MOST_IN_STATEMENT && !waiting.isEmpty()) {
                some.add(waiting.poll());
            }
            some.forEach(each -> client.await(() -> !each.lease.isAsked())); // a renewal must not come after the release
            isRunning = !some.isEmpty();
            if (!isRunning) {
                client.lock.notifyAll();
            }
            return some;
        }
    }

    /** False: it is to be repeated. */
    private boolean take(Parting parting, Transport.Answer answer) {
        boolean isUnanswered = answer.trouble() instanceof LeaseException.Unavailable;
        if (isUnanswered && !isOver && Clock.now() < parting.lease.deadline()) {
            parting.isRepeated = true;
            waiting.add(parting);
            return false;
        }
        if (answer.trouble() != null) {
            LOG.log(System.Logger.Level.WARNING, "the release of " + LeaseException.scopeName(parting.ending.ref().namespace(), parting.ending.ref().key())
                    + " was not delivered, and the lease is left to expire", answer.trouble());
        } else if (answer.lost() != null && !(parting.isRepeated && answer.isEndOfRelease())) {
            LOG.log(System.Logger.Level.WARNING, "the lease " + LeaseException.scopeName(parting.ending.ref().namespace(), parting.ending.ref().key())
                    + " was to be released, and had been lost before: " + answer.lost());
        }
        boolean isLost = answer.lost() != null && !(parting.isRepeated && answer.isEndOfRelease());
        Transport.Ref ref = parting.ending.ref();
        parting.lease.ended(isLost ? new LeaseException.Lost(ref.namespace(), ref.key(), answer.lost(), null) : answer.trouble());
        last.remove(Name.of(parting.ending.ref()), parting);
        parting.lease.endStream();
        return true;
    }

    /** Lets an acquire follow the client's own release of the same name. */
    void await(Transport.Ref ref, long nanos, BooleanSupplier isGivenUp) {
        synchronized (client.lock) {
            await(() -> !last.containsKey(Name.of(ref)) || isGivenUp.getAsBoolean(), nanos);
        }
    }

    /** Waits until all are sent, but not for long. False: this thread was interrupted. */
    boolean flush(long nanos) {
        synchronized (client.lock) {
            boolean isDone = await(() -> !isRunning, nanos);
            isOver = true;
            return isDone;
        }
    }

    private boolean await(BooleanSupplier condition, long nanos) {
        try {
            for (long until = Clock.now() + nanos; !condition.getAsBoolean() && Clock.now() < until;) {
                client.lock.wait(RETRY_MILLIS);
            }
            return true;
        } catch (InterruptedException e) {
            return false;
        }
    }
}
