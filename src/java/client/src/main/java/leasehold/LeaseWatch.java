package leasehold;

import java.util.function.BooleanSupplier;

/**
 * Tells first what is held, then {@link LeaseEvent.Type#SYNCED}, then each grant and end; made by {@link LeaseClient#watch}. When the connection breaks it
 * begins again with what is held then. One thread reads it; any thread may close it.
 */
public final class LeaseWatch implements AutoCloseable {
    private static final long RETRY_MILLIS = 100;
    private final LeaseClient client;
    private final String namespace;
    private final String key;
    private final boolean withChildren;
    private volatile Transport.Events events; // null: they are to begin
    private boolean hasBegun;
    private volatile boolean isClosed;

    LeaseWatch(LeaseClient client, String namespace, String key, boolean withChildren) {
        this.client = client;
        this.namespace = namespace;
        this.key = key;
        this.withChildren = withChildren;
    }

    /**
     * Waits for the next event.
     *
     * @return the event
     * @throws InterruptedException the thread was interrupted
     * @throws IllegalStateException this watch, or the client, is closed
     * @throws LeaseException.Unavailable no server could be reached at the beginning
     * @throws LeaseException.Denied the server refuses
     */
    public LeaseEvent next() throws InterruptedException {
        BooleanSupplier isGivenUp = () -> isClosed || client.isClosed() || Thread.currentThread().isInterrupted();
        for (long until = Clock.now() + client.patience;; Thread.sleep(RETRY_MILLIS)) {
            try {
                events = events == null ? client.transport.watch(namespace, key, withChildren) : events;
                LeaseEvent event = events.next(isGivenUp);
                if (event != null) {
                    hasBegun = true;
                    return event;
                }
            } catch (LeaseException.Unavailable e) {
                stop();
                if (!hasBegun && Clock.now() >= until) {
                    throw e;
                }
            }
            if (Thread.interrupted()) {
                throw new InterruptedException();
            }
            if (isClosed || client.isClosed()) {
                stop();
                throw new IllegalStateException(isClosed ? "the watch is closed" : "the client is closed");
            }
        }
    }

    private void stop() {
        if (events != null) {
            events.close();
            events = null;
        }
    }

    /** Ends it: {@link #next} throws from now on. */
    @Override
    public void close() {
        isClosed = true;
        Transport.Events open = events;
        if (open != null) {
            open.close();
        }
    }
}
