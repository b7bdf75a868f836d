package leasehold;

import java.lang.management.ManagementFactory;
import java.sql.Connection;
import java.sql.SQLException;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.UUID;

/** What to acquire, and how; made by {@link LeaseClient#lease}. Use one from one thread. */
public final class LeaseRequest {
    private static final String PROCESS = ManagementFactory.getRuntimeMXBean().getName(); // PID@HOST

    final String namespace;
    final String key;
    Duration duration = Duration.ofSeconds(30);
    Duration wait = Duration.ZERO;
    Duration atLeast = Duration.ZERO; // the policy's
    int units; // of a shared lease; 0: exclusive
    int priority;
    boolean asksHandOver;
    String owner = PROCESS;
    Map<String, String> labels = Map.of();
    boolean isRenewed = true;
    boolean whileAlive;
    boolean isHold;
    LeaseListener listener;
    Retry.Strategy strategy; // null: the client's
    private final LeaseClient client;

    LeaseRequest(LeaseClient client, String namespace, String key) {
        this.client = client;
        this.namespace = Bounds.namespace(Objects.requireNonNull(namespace, "namespace"));
        this.key = Bounds.key(Objects.requireNonNull(key, "key"));
    }

    private static Duration within(String field, Duration value, Duration most) {
        if (Objects.requireNonNull(value, field).isNegative() || value.compareTo(most) > 0) {
            throw new LeaseException.InvalidArgument(field, "zero to " + most.toDays() + " days; it is " + value, null);
        }
        return value;
    }

    /**
     * How long the lease lives without a renewal. The client renews it at a third of this.
     *
     * @param value at least 1 s, unless the namespace's policy says something else; 30 s by default
     * @return this
     * @throws LeaseException.InvalidArgument it is not more than zero
     */
    public LeaseRequest duration(Duration value) {
        if (within("duration", value, Duration.ofDays(365)).isZero()) {
            throw new LeaseException.InvalidArgument("duration", "more than zero; it is " + value, null);
        }
        duration = value;
        return this;
    }

    /**
     * How long to queue while another holds the lease.
     *
     * @param value zero, the default, does not wait
     * @return this
     * @throws LeaseException.InvalidArgument it is negative, or above 100 years
     */
    public LeaseRequest waitFor(Duration value) {
        wait = within("wait", value, Duration.ofDays(36_500));
        return this;
    }

    /**
     * Queues as long as the holder is alive; then the time of {@link #waitFor} begins to count.
     *
     * @return this
     */
    public LeaseRequest waitWhileAlive() {
        whileAlive = true;
        return this;
    }

    /**
     * Queues until the lease is granted or the thread is interrupted.
     *
     * @return this
     */
    public LeaseRequest waitForever() {
        wait = Transport.FOREVER;
        return this;
    }

    /**
     * Grants the name to nobody else before so long after this grant, however early the lease ends: a job that is short does not run
     * again on a machine whose clock is late.
     *
     * @param value at most a day; zero, the default, leaves it to the namespace's policy
     * @return this
     * @throws LeaseException.InvalidArgument it is negative
     */
    public LeaseRequest atLeast(Duration value) {
        atLeast = within("at_least", value, Duration.ofDays(1));
        return this;
    }

    /**
     * Leaves room for other shared leases: this one takes one unit of the capacity that the namespace's policy sets. Without a capacity any
     * number of them hold the name together.
     *
     * @return this
     */
    public LeaseRequest shared() {
        return shared(1);
    }

    /**
     * The same, with so many units.
     *
     * @param value 1 to 1,000,000, at most the capacity
     * @return this
     * @throws LeaseException.InvalidArgument it is out of bounds
     */
    public LeaseRequest shared(int value) {
        units = units(value);
        return this;
    }

    /**
     * Overtakes, while it waits, each waiter of a lower priority that came less than the policy's ageing before it, 10 s by default, for each step
     * between them. The server denies one above the policy's max_priority: ACCESS_DENIED.
     *
     * @param value 0, the default, to 1000
     * @return this
     * @throws LeaseException.InvalidArgument it is out of bounds
     */
    public LeaseRequest priority(int value) {
        if (value < 0 || value > 1000) {
            throw new LeaseException.InvalidArgument("priority", "0 to 1000; it is " + value, null);
        }
        priority = value;
        return this;
    }

    /**
     * Asks, while it waits, each holder that it waits behind to hand over, once: {@link LeaseListener#asked}.
     *
     * @return this
     */
    public LeaseRequest askHandOver() {
        asksHandOver = true;
        return this;
    }

    Lease.Mode mode() {
        return units > 0 ? Lease.Mode.SHARED : Lease.Mode.EXCLUSIVE;
    }

    Transport.Terms terms() {
        if (asksHandOver && wait.isZero() && !whileAlive) {
            throw new LeaseException.InvalidArgument("ask_hand_over", "absent without a wait", null);
        }
        return new Transport.Terms(duration, wait, atLeast, units, priority, owner, labels, whileAlive, isHold, asksHandOver);
    }

    /** As the lease that there is, with another duration. */
    Transport.Terms terms(Duration another, int unitsNow) {
        return new Transport.Terms(another, Duration.ZERO, atLeast, unitsNow, 0, owner, labels, false, false, false);
    }

    /** What is for single leases. */
    void checkAll(boolean mayWait) {
        if (!wait.isZero() && !mayWait || whileAlive || units > 0 || priority > 0 || asksHandOver || !atLeast.isZero() || !isRenewed || isHold) {
            throw new LeaseException.InvalidArgument("options", "none for single leases: no " + (mayWait ? "" : "wait, ")
                    + "waitWhileAlive, atLeast, shared, priority, askHandOver, hold or withoutRenewal", null);
        }
    }

    /** What is for ticks. */
    void checkTicks() {
        if (!wait.isZero() || whileAlive || units > 0 || priority > 0 || asksHandOver || !atLeast.isZero() || !isRenewed || isHold) {
            throw new LeaseException.InvalidArgument("options", "those of a tick: no wait, waitWhileAlive, atLeast, shared, priority, askHandOver, hold "
                    + "or withoutRenewal", null);
        }
    }

    static int units(int value) {
        if (value < 1 || value > 1_000_000) {
            throw new LeaseException.InvalidArgument("units", "1 to 1000000; it is " + value, null);
        }
        return value;
    }

    /**
     * Who holds the lease, for people.
     *
     * @param value at most 255 bytes; PID@HOST by default
     * @return this
     */
    public LeaseRequest owner(String value) {
        owner = value == null ? null : Bounds.owner(value);
        return this;
    }

    /**
     * Labels, which are shown with the lease.
     *
     * @param value at most 16, with names of at most 63 and values of at most 255 bytes
     * @return this
     */
    public LeaseRequest labels(Map<String, String> value) {
        value.forEach(Bounds::label);
        labels = Map.copyOf(value);
        return this;
    }

    /**
     * Has a listener told of the lease.
     *
     * @param value the listener
     * @return this
     */
    public LeaseRequest tell(LeaseListener value) {
        listener = value;
        return this;
    }

    /**
     * Has a strategy decide about the retries of the acquisition, and of what is done with its lease, in place of the client's.
     *
     * @param value the strategy
     * @return this
     */
    public LeaseRequest retries(Retry.Strategy value) {
        strategy = Objects.requireNonNull(value, "strategy");
        return this;
    }

    /**
     * Leaves the lease to end after its duration, unless {@link Lease#extend} renews it.
     *
     * @return this
     */
    public LeaseRequest withoutRenewal() {
        isRenewed = false;
        return this;
    }

    /**
     * Has the daemon notice when this process dies: it releases the lease as failed then, and the next waiter follows within milliseconds. The daemon
     * renews it while this process says that it is alive, over a stream, which has a thread. A client over JDBC holds it as any other lease: it is followed
     * after its duration. {@link #lead} does so by itself.
     *
     * @return this
     */
    public LeaseRequest hold() {
        isHold = true;
        return this;
    }

    /**
     * Acquires the lease. The client renews it until it is released or lost.
     *
     * @return the lease
     * @throws LeaseException.Held another holds it, and the wait has passed
     * @throws LeaseException.Denied the database refuses
     * @throws LeaseException.Unavailable the database did not answer within the client's patience after the wait
     * @throws LeaseException.InvalidArgument an argument is out of bounds
     * @throws InterruptedException the thread was interrupted; what was granted meanwhile is released
     */
    public Lease acquire() throws InterruptedException {
        return client.acquire(this);
    }

    /**
     * Acquires the lease in a transaction that this begins, and commits when the work has ended: from then on the lease is held, and renewed.
     * An exception of the work's rolls back, and nobody holds it. When the connection breaks at COMMIT the outcome is looked up.
     *
     * @param <E> what the work throws
     * @param connection to the same database, with no transaction open
     * @param work the rest of the transaction
     * @return the lease
     * @throws E what the work threw
     * @throws SQLException what else went wrong on the connection; nothing is committed
     * @throws IllegalStateException a transaction is open
     * @throws LeaseException.Held another holds it
     * @throws LeaseException.UnknownOutcome COMMIT was not answered, and could not be looked up; what was acquired is given back
     * @throws LeaseException.InvalidArgument an argument is out of bounds, or it is to wait
     * @throws LeaseException as {@link #acquire} does
     */
    public <E extends Exception> Lease acquireIn(Connection connection, LeaseWork<?, E> work) throws E, SQLException {
        if (!wait.isZero() || whileAlive) {
            throw new LeaseException.InvalidArgument("wait", "zero in a transaction; it is " + (wait == Transport.FOREVER ? "for ever" : wait), null);
        }
        Telemetry.Acquisition told = client.telemetry.acquire(namespace, key, mode());
        try {
            return acquireIn(connection, work, told);
        } catch (Throwable e) {
            told.refused(e);
            throw e;
        }
    }

    private <E extends Exception> Lease acquireIn(Connection connection, LeaseWork<?, E> work, Telemetry.Acquisition told) throws E, SQLException {
        Transport.Ref ref = new Transport.Ref(namespace, key, UUID.randomUUID().toString(), listener != null);
        Transaction transaction = Transaction.begin(connection);
        Lease lease = null;
        try {
            Transport.Grant grant = transaction.acquire(ref, this);
            if (grant == null) {
                throw transaction.held(ref);
            }
            lease = new Lease(client, this, ref, grant);
            lease.setOpen(true);
            work.run(lease);
            lease.throwIfLost(); // the transaction took longer than the lease lasts
        } catch (SQLException e) {
            transaction.rollback();
            throw Transaction.translate(ref, e);
        } catch (Throwable e) {
            transaction.rollback();
            throw e;
        }
        SQLException unanswered = transaction.commit();
        if (unanswered != null && !lease.isStillThere()) {
            client.undoLater(this, ref);
            throw new LeaseException.UnknownOutcome(namespace, key, unanswered);
        }
        lease.setOpen(false);
        client.hold(lease, told);
        return lease;
    }

    /**
     * Acquires the lease, runs work in this thread, and releases the lease: as failed, with the exception's words, when the work throws.
     * A loss interrupts the thread.
     *
     * @param <T> what the work returns
     * @param <E> what the work throws
     * @param work the work
     * @return what the work returned
     * @throws E what the work threw
     * @throws IllegalStateException the work returned a Future that is not done: what goes on would go on without the lease
     * @throws LeaseException.Lost the lease was lost; what the work threw is among the suppressed exceptions
     * @throws LeaseException as {@link #acquire} does
     * @throws InterruptedException the thread was interrupted while it waited for the lease
     */
    public <T, E extends Exception> T call(LeaseWork<T, E> work) throws E, InterruptedException {
        Lease lease = acquire();
        return Interrupter.run(client, List.of(lease), () -> work.run(lease));
    }

    /**
     * Stands for election: waits for the lease, runs work while this process leads, and stands again when leadership was lost. The end
     * of the work gives leadership up. A leader that dies is followed at once over gRPC, as {@link #hold} tells, and after its duration over JDBC.
     *
     * @param <T> what the work returns
     * @param <E> what the work throws
     * @param work the leader's work; its thread is interrupted when leadership is lost
     * @return what the work returned when it gave leadership up
     * @throws E what the work threw while it led
     * @throws LeaseException.Denied the database refuses
     * @throws LeaseException.Lost the client was closed
     * @throws InterruptedException the thread was interrupted while it waited
     */
    public <T, E extends Exception> T lead(LeaseWork<T, E> work) throws E, InterruptedException {
        waitForever().hold();
        while (true) {
            try {
                return call(work);
            } catch (LeaseException.Lost lost) {
                if (lost.reason() == LeaseException.Reason.CLOSED) {
                    throw lost;
                }
            }
        }
    }
}
