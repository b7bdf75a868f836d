package leasehold;

import java.time.Duration;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.PriorityQueue;
import java.util.concurrent.CompletableFuture;

/**
 * What may have been granted to callers who have given up. A release is repeated until the server has answered it. A lease that the server does not know may
 * still be granted, because its request may arrive after its release: that is released again after 1, 2, 4 ... s, until the lease would have ended by
 * itself. One thread of the client's does all this; it runs while there is any. Guarded by client.lock.
 */
final class GivenUp implements Runnable {
    private static final int MOST_IN_REQUEST = 1000;
    private static final int MOST_DOUBTED = 100_000;
    private static final long AGAIN = 200_000_000; // what was not answered
    private static final long DOUBT_FIRST = 1_000_000_000;

    private final LeaseClient client;
    private final PriorityQueue<Item> items = new PriorityQueue<>(Comparator.comparingLong(each -> each.due));
    private boolean isRunning;
    private boolean hasEnded;

    private static final class Item {
        final Transport.Ref ref;
        final long until;
        final CompletableFuture<Void> answered = new CompletableFuture<>();
        long due = Clock.now();
        long doubt = DOUBT_FIRST;

        Item(Transport.Ref ref, long until) {
            this.ref = ref;
            this.until = until;
        }
    }

    GivenUp(LeaseClient client) {
        this.client = client;
    }

    /**
     * Ends when each has been answered once, or is left to expire. Once the client is closed it takes the caller's thread.
     */
    CompletableFuture<Void> add(List<Transport.Ref> refs, Duration duration) {
        long until = Clock.in(duration);
        // Nobody knows the key of a tick that was claimed unheard: it is left to expire.
        List<Item> added = refs.stream().filter(each -> !each.key().isEmpty()).map(each -> new Item(each, until)).toList();
        boolean isToRun;
        synchronized (client.lock) {
            items.addAll(added);
            isToRun = !isRunning && !added.isEmpty();
            isRunning |= isToRun;
            client.lock.notifyAll();
        }
        if (isToRun && !client.execute(this)) {
            run();
        }
        return CompletableFuture.allOf(added.stream().map(each -> each.answered).toArray(CompletableFuture<?>[]::new));
    }

    /** What is there now, or comes later, is left to expire: the transport ends. */
    void end() {
        synchronized (client.lock) {
            hasEnded = true;
            client.lock.notifyAll();
        }
    }

    @Override
    public void run() {
        for (List<Item> due = next(); !due.isEmpty(); due = next()) {
            List<Transport.Answer> answers = client.transport.undo(due.stream().map(each -> each.ref).toList());
            synchronized (client.lock) {
                for (int i = 0; i < due.size(); i++) {
                    take(due.get(i), answers.get(i));
                }
            }
        }
    }

    /** Those that are due now; none: there are none any more. */
    private List<Item> next() {
        synchronized (client.lock) {
            while (true) {
                if (hasEnded) {
                    items.forEach(each -> each.answered.complete(null));
                    items.clear();
                } else if (client.isClosed()) {
                    items.removeIf(each -> each.answered.isDone());
                }
                List<Item> due = new ArrayList<>();
                while (!items.isEmpty() && items.peek().due <= Clock.now() && due.size() < MOST_IN_REQUEST) {
                    due.add(items.poll());
                }
                isRunning = !due.isEmpty() || !items.isEmpty();
                if (!due.isEmpty() || !isRunning) {
                    return due;
                }
                try {
                    client.lock.wait(Clock.millis(items.peek().due - Clock.now()));
                } catch (InterruptedException e) { // as by a container that interrupts all threads: it looks again
                    continue;
                }
            }
        }
    }

    private void take(Item item, Transport.Answer answer) {
        boolean isUnanswered = answer.trouble() instanceof LeaseException.Unavailable;
        boolean isDoubted = answer.lost() == LeaseException.Reason.UNKNOWN && !client.isClosed() && items.size() < MOST_DOUBTED;
        item.due = Clock.now() + (isDoubted ? item.doubt : AGAIN);
        boolean isOver = !isUnanswered && !isDoubted || item.due >= item.until;
        if (isDoubted) {
            item.doubt *= 2;
        }
        if (!isUnanswered || isOver) {
            item.answered.complete(null);
        }
        if (!isOver) {
            items.add(item);
        }
    }
}
