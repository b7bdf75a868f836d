package leasehold;

import java.time.Duration;
import java.util.Collections;
import java.util.List;
import java.util.Objects;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.function.Consumer;

/** Leases that were acquired in one step. They are held together: the loss of one is the loss of all, and they are released as one. Any thread may use it. */
public final class Leases implements AutoCloseable {
    private final LeaseClient client;
    private final List<Lease> leases;

    Leases(LeaseClient client, List<Lease> leases) {
        this.client = client;
        this.leases = List.copyOf(leases);
    }

    /**
     * The leases.
     *
     * @return one for each name, in their order; each has a token and a mode of its own
     */
    public List<Lease> leases() {
        return leases;
    }

    /**
     * How long work under them may still take if no further renewal succeeds.
     *
     * @return zero when one is lost, or they were released
     */
    public Duration remaining() {
        return Collections.min(leases.stream().map(Lease::remaining).toList());
    }

    /**
     * Whether all are held.
     *
     * @return false when one is lost, or they were released
     */
    public boolean isHeld() {
        return leases.stream().allMatch(Lease::isHeld);
    }

    /**
     * Does nothing while all are held.
     *
     * @throws LeaseException.Lost one is lost, or they were released
     */
    public void check() {
        leases.forEach(Lease::check);
    }

    static LeaseException.Lost lost(List<Lease> leases) {
        return leases.stream().map(Lease::lost).filter(Objects::nonNull).findFirst().orElse(null);
    }

    /**
     * Tells of a loss, once, as {@link Lease#onLost} does.
     *
     * @param listener is called in a thread of its own, when the first is lost
     */
    public void onLost(Consumer<LeaseException.Lost> listener) {
        AtomicBoolean isTold = new AtomicBoolean();
        leases.forEach(each -> each.onLost(lost -> {
            if (!isTold.getAndSet(true)) {
                listener.accept(lost);
            }
        }));
    }

    /**
     * Runs work in this thread, which a loss interrupts, and releases all: as failed when the work throws.
     *
     * @param <T> what the work returns
     * @param <E> what the work throws
     * @param work the work
     * @return what the work returned
     * @throws E what the work threw
     * @throws LeaseException.Lost one was lost; what the work threw is among the suppressed exceptions
     */
    public <T, E extends Exception> T call(Work<T, E> work) throws E {
        return Interrupter.run(client, leases, () -> work.run(this));
    }

    /**
     * Work under several leases.
     *
     * @param <T> what it returns
     * @param <E> what it throws
     */
    @FunctionalInterface
    public interface Work<T, E extends Exception> {
        /**
         * Does the work.
         *
         * @param leases which are held
         * @return what the caller gets
         * @throws E whatever goes wrong
         */
        T run(Leases leases) throws E;
    }

    /**
     * Releases all as done, in one transaction, with a result that is kept with each name.
     *
     * @param json at most 8 KiB
     * @throws LeaseException.Lost one was lost; the others are released
     * @throws LeaseException as {@link Lease#release()} does
     */
    public void release(String json) {
        Lease.release(client, leases, json, null);
    }

    /**
     * Releases all as failed, in one transaction.
     *
     * @param error for people, at most 8 KiB
     * @throws LeaseException as {@link #release} does
     */
    public void fail(String error) {
        Lease.release(client, leases, null, error);
    }

    /**
     * Gives all back without waiting, as {@link Lease#tryRelease} does.
     *
     * @throws LeaseException.Lost one was lost, or released before; the others are given back
     */
    public void tryRelease() {
        LeaseException.Lost lost = null;
        for (Lease lease : leases) {
            try {
                lease.tryRelease();
            } catch (LeaseException.Lost e) {
                lost = e;
            }
        }
        if (lost != null) {
            throw lost;
        }
    }

    /** Releases all as done, unless they were released before. Errors are those of {@link #release}. */
    @Override
    public void close() {
        Lease.release(client, leases, null, null);
    }
}
