package leasehold;

import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.SQLException;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.List;
import java.util.function.BiConsumer;
import java.util.function.Consumer;

/**
 * A lease that this process holds until it is released or lost. Any thread may use it.
 *
 * <p>The end of a try-with-resources block releases it as done; {@link LeaseRequest#call} releases it as failed when the work throws.
 */
public final class Lease implements AutoCloseable {
    private final LeaseClient client;
    private final LeaseRequest request;
    private final Transport.Ref ref;

    // Guarded by client.lock. Times are on the Clock.
    private long token;
    private int units; // 0: exclusive
    private List<Integer> slots;
    private final List<Consumer<LeaseException.Lost>> listeners = new ArrayList<>();
    private long duration;
    private long deadline;
    private boolean isFinal; // the policy ends it at the deadline
    private long margin; // before the deadline
    private long next; // renewal
    private String trouble; // of the last renewal
    private LeaseException.Lost lost;
    private boolean isReleased;
    private boolean ends; // is being released: renewed no more
    private boolean isOpen; // the transaction that is to acquire it is not committed yet
    private int sent; // releases of it
    private boolean isAsked; // its renewal is in flight
    private final Transport.Stream stream; // holds it; null: the renewer renews it
    private final LeaseListener listener;
    private final ArrayDeque<Runnable> news = new ArrayDeque<>(); // for the listener
    private boolean isTelling;
    private Telemetry.Hold told = Silent.ONE;
    private Instant askedAt; // the last request to hand it over

    Lease(LeaseClient client, LeaseRequest request, Transport.Ref ref, Transport.Grant grant) {
        this.client = client;
        this.request = request;
        this.ref = ref;
        this.duration = Clock.nanos(request.duration);
        this.listener = request.listener;
        this.stream = grant.stream();
        take(grant);
    }

    /** Telemetry is told from now on; null: the acquisition begins and ends with the grant. Under client.lock. */
    void begin(Telemetry.Acquisition acquisition) {
        Telemetry.Acquisition one = acquisition == null ? client.telemetry.acquire(ref.namespace(), ref.key(), mode()) : acquisition;
        told = one.granted(ref.namespace(), ref.key(), mode(), token);
    }

    private void take(Transport.Grant grant) {
        token = grant.token();
        units = grant.units();
        slots = grant.slots();
        believe(grant.deadline());
        isFinal = grant.isFinal();
        // One that is final may be for much less than its duration.
        long left = isFinal ? Math.min(duration, Math.max(deadline - Clock.now(), 0)) : duration;
        margin = request.isRenewed ? left / 5 : 0;
        next = isFinal ? Clock.now() + left / 3 : deadline - duration / 3 * 2;
    }

    /** No answer makes it last longer than its duration. */
    private void believe(long until) {
        deadline = Math.min(until, Clock.now() + duration);
    }

    /** Whether others may hold the name too. */
    public enum Mode {
        /** They may not. */
        EXCLUSIVE,
        /** Other shared leases may. */
        SHARED
    }

    /**
     * The namespace.
     *
     * @return segments with dots between
     */
    public String namespace() {
        return ref.namespace();
    }

    /**
     * The name inside of the namespace.
     *
     * @return the key
     */
    public String key() {
        return ref.key();
    }

    /**
     * The fencing token, which grows with each grant: pass it to whatever must refuse a holder that is late. {@link #downgrade} changes it.
     *
     * @return the token
     */
    public long token() {
        synchronized (client.lock) {
            return token;
        }
    }

    /**
     * Whether it is shared.
     *
     * @return the mode
     */
    public Mode mode() {
        return units() > 0 ? Mode.SHARED : Mode.EXCLUSIVE;
    }

    /**
     * What a shared lease takes of the capacity that the namespace's policy sets.
     *
     * @return a number of units; 0 for an exclusive lease
     */
    public int units() {
        synchronized (client.lock) {
            return units;
        }
    }

    /**
     * Numbers from 1 to the capacity that no other holder has, as many as there are units, ascending.
     *
     * @return the numbers; none for an exclusive lease, and where there is no capacity
     */
    public List<Integer> slots() {
        synchronized (client.lock) {
            return slots;
        }
    }

    /**
     * How long work under the lease may still take if no further renewal succeeds.
     *
     * @return zero when it is lost or released
     */
    public Duration remaining() {
        synchronized (client.lock) {
            return isHeld() ? Duration.ofNanos(stop() - Clock.now()) : Duration.ZERO;
        }
    }

    /**
     * Whether the lease is held.
     *
     * @return false when it is lost or released
     */
    public boolean isHeld() {
        synchronized (client.lock) {
            expire();
            return lost == null && !isReleased && !ends && !isOpen;
        }
    }

    /**
     * Does nothing while the lease is held.
     *
     * @throws LeaseException.Lost it is lost, or was released
     */
    public void check() {
        synchronized (client.lock) {
            LeaseException.Lost loss = lost();
            if (loss != null) {
                throw loss;
            }
            if (ends) {
                throw new LeaseException.Lost(ref.namespace(), ref.key(), LeaseException.Reason.RELEASED, "by its holder");
            }
        }
    }

    void throwIfLost() {
        LeaseException.Lost loss = lost();
        if (loss != null) {
            throw loss;
        }
    }

    /** A new exception that says how it was lost, or null: one that is thrown twice cannot be suppressed by itself. */
    LeaseException.Lost lost() {
        synchronized (client.lock) {
            expire();
            return lost == null ? null : new LeaseException.Lost(ref.namespace(), ref.key(), lost.reason(), trouble);
        }
    }

    /**
     * Tells of a loss, once, before the deadline: when the lease has ended, or a fifth of its duration before the deadline if no renewal
     * was answered. Without renewal, at the deadline.
     *
     * @param listener is called in a thread of its own; at once if the lease is lost already
     */
    public void onLost(Consumer<LeaseException.Lost> listener) {
        synchronized (client.lock) {
            expire();
            if (lost == null) {
                listeners.add(listener);
            } else {
                tell(listener);
            }
        }
    }

    /**
     * In a transaction of yours, on a connection to the same database: if it passes, the lease passes to nobody else before the
     * transaction ends.
     *
     * @param connection with a transaction: auto-commit is off
     * @throws LeaseException.Lost it is lost; the transaction has failed
     * @throws IllegalStateException auto-commit is on
     * @throws SQLException anything else that goes wrong
     */
    public void guard(Connection connection) throws SQLException {
        if (connection.getAutoCommit()) {
            throw new IllegalStateException("guard needs a transaction: call connection.setAutoCommit(false) before");
        }
        try (PreparedStatement statement = connection.prepareStatement("select leasehold.guard(?, ?, ?)")) {
            statement.setString(1, ref.namespace());
            statement.setString(2, ref.key());
            statement.setLong(3, token());
            statement.execute();
        } catch (SQLException e) {
            if ("LH001".equals(e.getSQLState())) {
                throw Session.exception(ref.namespace(), ref.key(), e);
            }
            throw e;
        }
    }

    /**
     * Renews the lease now, with another duration from now on.
     *
     * @param value at least 1 s, unless the namespace's policy says something else
     * @throws LeaseException.Lost it is lost
     * @throws LeaseException.Unavailable the database did not answer; the lease keeps what it had
     * @throws LeaseException.InvalidArgument the duration is out of bounds
     * @throws IllegalStateException it was acquired with {@link LeaseRequest#hold}
     */
    public void extend(Duration value) {
        check();
        if (stream != null) {
            throw new IllegalStateException("a lease of hold() keeps the duration that it was acquired with");
        }
        Transport.Grant grant;
        for (long until = Clock.now() + client.patience;; Clock.pause(50)) {
            try {
                grant = client.transport.extend(ref, request.terms(value, units()), token());
                break;
            } catch (LeaseException.Unavailable e) {
                if (e.reason() != Retry.Reason.SCOPE_BUSY || Clock.now() >= until) {
                    throw e;
                }
            }
        }
        synchronized (client.lock) {
            expire();
            if (grant == null) {
                lose(LeaseException.Reason.UNKNOWN, null);
            } else if (lost == null) {
                duration = Clock.nanos(value);
                take(grant);
                client.lock.notifyAll();
            }
        }
        throwIfLost();
    }

    /**
     * Makes an exclusive lease shared, in one step: shared requests that wait behind it are let in, and no exclusive one comes between. A
     * shared lease gives units back. The lease goes on under another token.
     *
     * @param value its units from then on: 1 to 1,000,000, at most the capacity, at most what a shared lease has
     * @throws LeaseException.Lost it is lost
     * @throws LeaseException.Unavailable the database did not answer; it may have been done, and may be repeated
     * @throws LeaseException.InvalidArgument the number is out of bounds
     * @throws IllegalStateException it was released
     */
    public void downgrade(int value) {
        LeaseRequest.units(value);
        Transport.Grant grant;
        Retrying retrying = new Retrying(client, request, "Downgrade");
        for (long until = Clock.now() + client.patience;;) {
            throwIfLost();
            if (!isHeld()) {
                throw new IllegalStateException("the lease " + LeaseException.scopeName(ref.namespace(), ref.key()) + " was released");
            }
            try {
                grant = client.transport.downgrade(ref, value);
                break;
            } catch (LeaseException.Lost e) {
                synchronized (client.lock) {
                    lose(e.reason(), null);
                }
            } catch (LeaseException.Unavailable e) {
                if (!retrying.again(e, until, () -> false)) {
                    throw e;
                }
            }
        }
        synchronized (client.lock) {
            expire();
            if (lost == null) {
                take(grant);
                told.downgraded(token);
                client.lock.notifyAll();
            }
        }
        throwIfLost();
    }

    /**
     * Makes an exclusive lease shared, with one unit.
     *
     * @throws LeaseException as {@link #downgrade(int)} does
     */
    public void downgrade() {
        downgrade(1);
    }

    /**
     * Answers a request to hand the lease over, of which {@link LeaseListener#asked} tells.
     *
     * @param words for the asker: 1 to 1024 bytes. What was refused stays so: those of a second call count for nothing
     * @return false: nobody has asked, or the lease has ended
     * @throws LeaseException.Lost it is lost, or was released
     * @throws LeaseException.InvalidArgument the words are out of bounds
     * @throws LeaseException.Unavailable the server did not answer; it may have been done, and may be repeated
     */
    public boolean refuseHandOver(String words) {
        String checked = Bounds.reason(words, 1);
        check();
        return client.answered(request, "RefuseHandOver", () -> client.transport.refuseHandOver(ref, checked));
    }

    /** Tells of each request once, though renewals and the stream have it again and again. */
    private void wasAsked(HandOver asked) {
        if (asked != null && !asked.askedAt().equals(askedAt)) {
            askedAt = asked.askedAt();
            tell((each, lease) -> each.asked(lease, asked));
        }
    }

    /**
     * Releases the lease as done. Work under it must have stopped before.
     *
     * @throws LeaseException.Lost it was lost
     * @throws LeaseException.Unavailable the database did not answer; the lease is renewed no more
     */
    public void release() {
        release(null, null);
    }

    /**
     * Releases the lease as done, with a result that is kept with the name.
     *
     * @param json at most 8 KiB
     * @throws LeaseException as {@link #release()} does
     */
    public void release(String json) {
        release(json, null);
    }

    /**
     * Releases the lease as failed.
     *
     * @param error for people, at most 8 KiB
     * @throws LeaseException as {@link #release()} does
     */
    public void fail(String error) {
        release(null, error);
    }

    /** Releases the lease as done, unless it was released before. Errors are those of {@link #release()}. */
    @Override
    public void close() {
        release(null, null);
    }

    /**
     * Releases the lease as done, in a transaction that this begins, and commits when the work has ended. An exception rolls back: then the
     * lease goes on, and is renewed. When the connection breaks at COMMIT the outcome is looked up.
     *
     * @param <T> what the work returns
     * @param <E> what the work throws
     * @param connection to the same database, with no transaction open
     * @param work the rest of the transaction
     * @return what the work returned
     * @throws E what the work threw
     * @throws SQLException what else went wrong on the connection; nothing is committed
     * @throws IllegalStateException a transaction is open
     * @throws LeaseException.Lost it is lost; nothing is committed
     * @throws LeaseException.UnknownOutcome COMMIT was not answered, and could not be looked up; the lease counts as lost
     */
    public <T, E extends Exception> T releaseIn(Connection connection, LeaseWork<T, E> work) throws E, SQLException {
        return releaseIn(connection, null, null, work);
    }

    /**
     * The same, with a result.
     *
     * @param <T> what the work returns
     * @param <E> what the work throws
     * @param connection to the same database, with no transaction open
     * @param json at most 8 KiB
     * @param work the rest of the transaction
     * @return what the work returned
     * @throws E what the work threw
     * @throws SQLException what else went wrong on the connection; nothing is committed
     */
    public <T, E extends Exception> T releaseIn(Connection connection, String json, LeaseWork<T, E> work) throws E, SQLException {
        return releaseIn(connection, json, null, work);
    }

    /**
     * The same, as failed.
     *
     * @param <T> what the work returns
     * @param <E> what the work throws
     * @param connection to the same database, with no transaction open
     * @param error for people, at most 8 KiB
     * @param work the rest of the transaction
     * @return what the work returned
     * @throws E what the work threw
     * @throws SQLException what else went wrong on the connection; nothing is committed
     */
    public <T, E extends Exception> T failIn(Connection connection, String error, LeaseWork<T, E> work) throws E, SQLException {
        return releaseIn(connection, null, error, work);
    }

    private <T, E extends Exception> T releaseIn(Connection connection, String result, String failure, LeaseWork<T, E> work)
            throws E, SQLException {
        check();
        Transaction transaction = Transaction.begin(connection);
        T value;
        try {
            value = work.run(this);
            leave();
        } catch (Throwable e) {
            transaction.rollback();
            throw e;
        }
        boolean isDone = false;
        try {
            if (!transaction.release(ref, result, failure)) {
                transaction.rollback();
                lookUp(null, failure);
            }
            SQLException unanswered = transaction.commit();
            if (unanswered != null) {
                lookUp(unanswered, failure);
            }
            isDone = true;
        } catch (SQLException e) {
            transaction.rollback();
            throw Transaction.translate(ref, e);
        } finally {
            left(isDone);
        }
        return value;
    }

    /** No renewal comes after the release, which is the next statement of the transaction. */
    private void leave() {
        synchronized (client.lock) {
            check();
            ends = true;
            told.releasing();
            client.await(() -> !isAsked);
        }
    }

    /** Or else it goes on. */
    private void left(boolean isDone) {
        synchronized (client.lock) {
            ends = isDone;
            if (isDone) {
                setReleased();
                ended(null);
                endStream();
            } else {
                told.stayed(new IllegalStateException("the transaction was rolled back"));
                expire();
                client.lock.notifyAll();
            }
        }
    }

    /** Throws, unless the transaction was committed. */
    private void lookUp(SQLException unanswered, String failure) throws SQLException {
        long sent = Clock.now();
        Transport.Beat beat = client.settle(ref);
        if (unanswered != null && beat.lost() == (failure == null ? LeaseException.Reason.RELEASED : LeaseException.Reason.FAILED)) {
            return;
        }
        boolean isUnknown = beat.lost() == LeaseException.Reason.UNKNOWN && unanswered != null;
        synchronized (client.lock) {
            if (beat.isOk() && unanswered != null) {
                believe(sent + beat.remaining());
            } else {
                lose(isUnknown ? LeaseException.Reason.UNREACHABLE : beat.isOk() ? LeaseException.Reason.UNKNOWN : beat.lost(), null);
            }
        }
        if (isUnknown) {
            client.undoLater(request, ref);
            throw new LeaseException.UnknownOutcome(ref.namespace(), ref.key(), unanswered);
        }
        if (unanswered == null) {
            throwIfLost();
        }
        throw unanswered;
    }

    void setOpen(boolean value) {
        synchronized (client.lock) {
            isOpen = value;
        }
    }

    /** After a COMMIT that nobody answered. */
    boolean isStillThere() {
        long sent = Clock.now();
        Transport.Beat beat = client.settle(ref);
        synchronized (client.lock) {
            if (beat.isOk()) {
                believe(sent + beat.remaining());
            }
        }
        return beat.isOk();
    }

    private void release(String result, String failure) {
        release(client, List.of(this), result, failure);
    }

    /** Alike, in one transaction. Where one was lost the others are released all the same. */
    static void release(LeaseClient client, List<Lease> leases, String result, String failure) {
        List<Lease> open = new ArrayList<>();
        long until = Clock.now() + 2 * client.patience;
        for (Lease lease : leases) {
            if (lease.beginRelease(result, failure)) {
                open.add(lease);
                until = Math.min(until, lease.stopAt());
            }
        }
        RuntimeException trouble = null;
        Retrying retrying = new Retrying(client, leases.get(0).request, "Release");
        while (!open.isEmpty()) {
            open.forEach(Lease::sends);
            List<Transport.Ending> endings = open.stream().map(each -> new Transport.Ending(each.ref, result, failure)).toList();
            List<Transport.Answer> answers = open.get(0).told.during(() -> client.transport.release(endings));
            List<Lease> again = new ArrayList<>();
            LeaseException.Unavailable unanswered = null;
            for (int i = 0; i < answers.size(); i++) {
                if (answers.get(i).trouble() instanceof LeaseException.Unavailable e) {
                    again.add(open.get(i));
                    unanswered = e;
                } else if (answers.get(i).trouble() != null) {
                    trouble = trouble == null ? answers.get(i).trouble() : trouble;
                    open.get(i).stay(answers.get(i).trouble());
                } else {
                    open.get(i).endRelease(answers.get(i));
                }
            }
            open = again;
            if (unanswered != null && !retrying.again(unanswered, until, () -> false)) {
                trouble = trouble == null ? unanswered : trouble;
                for (Lease lease : open) {
                    lease.stay(unanswered);
                }
                break;
            }
        }
        leases.forEach(Lease::throwIfLost);
        if (trouble != null) {
            throw trouble;
        }
    }

    /** Whether there is something to release. */
    private boolean beginRelease(String result, String failure) {
        LeaseException.Lost before;
        synchronized (client.lock) {
            before = lost();
            if (isReleased || before != null && before.reason() != LeaseException.Reason.UNREACHABLE) {
                return false;
            }
            ends = true;
            if (before == null) {
                told.releasing();
            }
            // A renewal must not come after the release.
            client.await(() -> !isAsked);
        }
        if (before != null) { // perhaps it is still there
            client.execute(() -> client.transport.release(List.of(new Transport.Ending(ref, result, failure))));
        }
        return before == null;
    }

    private void stay(Throwable error) {
        synchronized (client.lock) {
            told.stayed(error);
        }
    }

    /** Telemetry is told once, and of nothing after it. Under client.lock. */
    void ended(Throwable error) {
        told.ended(error);
        told = Silent.ONE;
    }

    private void endRelease(Transport.Answer answer) {
        synchronized (client.lock) {
            // Another call may send one, too; its answer may come later.
            if (answer.lost() == null || sent > 1 && answer.isEndOfRelease()) {
                setReleased();
                ended(null);
                endStream();
            } else {
                lose(answer.lost(), null);
            }
        }
    }

    /**
     * Gives the lease back as done, without waiting for anything: from the call on it is neither held nor renewed. The client sends what is given
     * back in the background, all that there is in one statement. A release that fails is repeated until the lease's deadline, and at the client's
     * end for at most {@link LeaseClient.Builder#flushTimeout}; then the lease is left to expire, which is logged. An acquire of the same name by the
     * same client follows it.
     *
     * @throws LeaseException.Lost it was lost, or released before
     */
    public void tryRelease() {
        tryRelease(null, null);
    }

    /**
     * The same, with a result.
     *
     * @param json at most 8 KiB
     * @throws LeaseException.Lost it was lost, or released before
     */
    public void tryRelease(String json) {
        tryRelease(json, null);
    }

    /**
     * The same, as failed.
     *
     * @param error for people, at most 8 KiB
     * @throws LeaseException.Lost it was lost, or released before
     */
    public void tryFail(String error) {
        tryRelease(null, error);
    }

    private void tryRelease(String result, String failure) {
        synchronized (client.lock) {
            check();
            ends = true;
            setReleased();
            told.releasing();
            if (!client.releases.add(this, new Transport.Ending(ref, result, failure))) {
                LeaseException.Unavailable e = new LeaseException.Unavailable("too many releases wait to be sent: the lease is left to expire", null, Retry.Reason.OVERLOADED);
                ended(e);
                endStream(); // which would keep it alive
                throw e;
            }
        }
    }

    private void sends() {
        synchronized (client.lock) {
            sent++;
        }
    }

    private long stopAt() {
        synchronized (client.lock) {
            return stop();
        }
    }

    // What the renewer does. Its callers have client.lock.

    /** When the holder is told: a fifth of the duration before the deadline. */
    long stop() {
        return deadline - margin;
    }

    void expire() {
        if (lost == null && !isReleased && Clock.now() >= stop() && isFinal) {
            lose(LeaseException.Reason.MAX_HOLD, "the policy of " + ref.namespace() + " ends a lease after max_hold");
        } else if (lost == null && !isReleased && Clock.now() >= stop()) {
            lose(request.isRenewed ? LeaseException.Reason.UNREACHABLE : LeaseException.Reason.EXPIRED, trouble);
        }
    }

    void lose(LeaseException.Reason reason, String more) {
        if (lost == null && !isReleased) {
            trouble = more;
            lost = new LeaseException.Lost(ref.namespace(), ref.key(), reason, more);
            ended(lost);
            client.forget(this);
            endStream();
            listeners.forEach(this::tell);
            LeaseException.Lost loss = lost;
            tell((each, lease) -> each.lost(lease, loss));
        }
    }

    private void tell(Consumer<LeaseException.Lost> listener) {
        client.execute(() -> safely(() -> listener.accept(lost)));
    }

    static void safely(Runnable listener) {
        try {
            listener.run();
        } catch (RuntimeException e) {
            System.getLogger("leasehold").log(System.Logger.Level.WARNING, "a listener failed", e);
        }
    }

    /** Tells the listener later, in order. */
    private void tell(BiConsumer<LeaseListener, Lease> what) {
        if (listener != null) {
            news.add(() -> what.accept(listener, this));
            if (!isTelling) {
                isTelling = client.execute(this::tellAll);
            }
        }
    }

    private void tellAll() {
        for (Runnable next = nextNews(); next != null; next = nextNews()) {
            safely(next);
        }
    }

    private Runnable nextNews() {
        synchronized (client.lock) {
            Runnable next = news.poll();
            isTelling = next != null;
            return next;
        }
    }

    void setHeld() {
        tell(LeaseListener::granted);
        if (stream != null) {
            client.execute(() -> stream.follow(new Followed()));
        }
    }

    /** Not before a release has been answered: the daemon would release it as failed. */
    void endStream() {
        if (stream != null) {
            stream.end();
        }
    }

    /** What the stream sees of it. */
    private final class Followed implements Transport.Holder {
        @Override
        public boolean isOver() {
            synchronized (client.lock) {
                expire();
                return lost != null; // after a release endStream comes with its answer
            }
        }

        @Override
        public boolean isEnding() {
            synchronized (client.lock) {
                return ends;
            }
        }

        @Override
        public void renewed(long until, boolean isFinalNow) {
            synchronized (client.lock) {
                expire(); // an answer that was read too late saves nothing
                if (lost == null && !ends) {
                    tell(LeaseListener::renewed);
                    believe(until);
                    isFinal = isFinalNow;
                    trouble = null;
                }
            }
        }

        @Override
        public void asked(HandOver asked) {
            synchronized (client.lock) {
                if (lost == null && !ends) {
                    wasAsked(asked);
                }
            }
        }

        @Override
        public void lost(LeaseException.Reason reason, String more) {
            synchronized (client.lock) {
                if (!ends) {
                    lose(reason, more);
                }
            }
        }
    }

    /** It is released, or the release is on its way. */
    private void setReleased() {
        isReleased = true;
        client.forget(this);
        tell(LeaseListener::released);
    }

    Transport.Ref ref() {
        return ref;
    }

    boolean isLost() {
        return lost != null;
    }

    boolean isAsked() {
        return isAsked;
    }

    long deadline() {
        return deadline;
    }

    boolean isRenewable() {
        return request.isRenewed && stream == null && !ends && !isAsked;
    }

    long next() {
        return next;
    }

    long duration() {
        return duration;
    }

    void ask() {
        isAsked = true;
    }

    /** Takes in the answer to a renewal that was sent at `sent`. */
    void answered(long sent, Transport.Beat beat) {
        isAsked = false;
        expire(); // an answer that was read too late saves nothing
        if (lost != null || isReleased) {
            return;
        }
        if (beat.isOk()) {
            tell(LeaseListener::renewed);
            believe(sent + beat.remaining());
            isFinal = beat.given() < duration - 2_000; // by more than PostgreSQL rounds
            next = sent + duration / 3;
            trouble = null;
            wasAsked(beat.asked());
        } else if (beat.lost() == null) { // no loss yet; the deadline is
            trouble = beat.trouble();
            next = Clock.now() + Math.min(Renewer.RETRY, duration / 20);
        } else if (!ends) {
            lose(beat.lost(), null);
        }
    }
}
