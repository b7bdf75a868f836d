package leasehold;

import java.time.Duration;
import java.time.Instant;
import java.util.List;
import java.util.Map;
import java.util.function.BooleanSupplier;

/**
 * What a client asks a server: PostgreSQL itself, or daemons. It is for the artifacts of Leasehold, and changes with them; programs use {@link LeaseClient}.
 *
 * <p>Each call is one try. Times are nanoseconds on the clock of {@link #now}. Any thread may call.
 */
public interface Transport {
    /** A time that does not come. */
    long NEVER = Clock.NEVER;

    /** Why a lease is released that was granted to a caller who had given up. */
    String UNHEARD = "the caller gave up before it heard of the grant";

    /** A wait that does not end. */
    Duration FOREVER = Duration.ofSeconds(Long.MAX_VALUE);

    /**
     * A clock that runs while the machine is suspended, as leases do.
     *
     * @return nanoseconds since a point in the past
     */
    static long now() {
        return Clock.now();
    }

    /** Connects a client. */
    @FunctionalInterface
    interface Factory {
        /**
         * Makes a transport, which connects when it is first used.
         *
         * @param patience how long the server may take to answer
         * @param telemetry of the client
         * @return the transport
         */
        Transport open(Duration patience, Telemetry telemetry);
    }

    /**
     * Names a lease for its holder.
     *
     * @param namespace of the scope
     * @param key of the scope
     * @param leaseKey a UUID, the credential to renew and to release
     * @param listens to requests to hand over
     */
    record Ref(String namespace, String key, String leaseKey, boolean listens) {
        /**
         * Of one that does not listen.
         *
         * @param namespace of the scope
         * @param key of the scope
         * @param leaseKey a UUID
         */
        public Ref(String namespace, String key, String leaseKey) {
            this(namespace, key, leaseKey, false);
        }
    }

    /**
     * What a request asks for.
     *
     * @param duration of the lease
     * @param longest wait, or {@link #FOREVER}
     * @param atLeast zero: the policy's
     * @param units of a shared lease; 0: an exclusive one
     * @param priority of a waiter
     * @param owner for people; may be null
     * @param labels for people
     * @param whileAlive the wait begins to count when the holder is not alive any more
     * @param isHold the server is to notice when this process dies
     * @param asksHandOver while it waits, each holder that it waits behind
     */
    record Terms(Duration duration, Duration longest, Duration atLeast, int units, int priority, String owner, Map<String, String> labels, boolean whileAlive,
            boolean isHold, boolean asksHandOver) {
    }

    /**
     * A lease that was granted.
     *
     * @param token for fencing
     * @param deadline when it ends unless it is renewed
     * @param units of a shared lease; 0: an exclusive one
     * @param slots of a shared lease, where the scope has a capacity
     * @param isFinal the policy ends it at the deadline
     * @param stream holds it; null: it is renewed by {@link #heartbeat}
     */
    record Grant(long token, long deadline, int units, List<Integer> slots, boolean isFinal, Stream stream) {
    }

    /**
     * A tick that was claimed.
     *
     * @param grant of its lease
     * @param key of its lease
     * @param at the instant
     * @param attempt 1 for the first
     */
    record Claimed(Grant grant, String key, Instant at, int attempt) {
    }

    /**
     * The answer to one renewal; without a loss and trouble it was renewed.
     *
     * @param remaining to the new deadline, from the time when the renewal was sent
     * @param given what the lease was renewed for: less than its duration where the policy ends it at the deadline
     * @param lost how it had ended
     * @param trouble why nothing is known
     * @param asked the holder is asked to hand over; null: it is not
     */
    record Beat(long remaining, long given, LeaseException.Reason lost, String trouble, HandOver asked) {
        static Beat lost(LeaseException.Reason lost) {
            return new Beat(0, 0, lost, null, null);
        }

        static Beat trouble(String trouble) {
            return new Beat(0, 0, null, trouble, null);
        }

        boolean isOk() {
            return lost == null && trouble == null;
        }
    }

    /**
     * One release: as failed where there is a failure.
     *
     * @param ref of the lease
     * @param result JSON, or null
     * @param failure words for people, or null
     */
    record Ending(Ref ref, String result, String failure) {
    }

    /**
     * The answer to one release; without a loss and trouble it is released.
     *
     * @param lost how it had ended
     * @param trouble what was wrong
     */
    record Answer(LeaseException.Reason lost, RuntimeException trouble) {
        /** One whose first answer got lost finds that the lease has been released. */
        boolean isEndOfRelease() {
            return lost == LeaseException.Reason.RELEASED || lost == LeaseException.Reason.FAILED;
        }
    }

    /** A stream that holds a lease: the server renews it while this process says that it is alive. */
    interface Stream {
        /**
         * Renews until the lease is over. It has a thread of the client's for as long.
         *
         * @param holder is told
         */
        void follow(Holder holder);

        /** The lease is over: ends the stream, from any thread. */
        void end();
    }

    /** The holder of a lease, as its stream sees it. */
    interface Holder {
        /**
         * Whether the lease is lost or released.
         *
         * @return true: the stream may end
         */
        boolean isOver();

        /**
         * Whether a release is on its way: then no other stream may be made.
         *
         * @return true until the release has been answered
         */
        boolean isEnding();

        /**
         * The server has renewed the lease.
         *
         * @param deadline the new one
         * @param isFinal the policy ends it at the deadline
         */
        void renewed(long deadline, boolean isFinal);

        /**
         * The server says that somebody asks to hand the lease over.
         *
         * @param request who, and why
         */
        void asked(HandOver request);

        /**
         * The lease is lost.
         *
         * @param reason how it ended
         * @param more words for people, or null
         */
        void lost(LeaseException.Reason reason, String more);
    }

    /** What happens to leases, as it happens. One thread uses it. */
    interface Events extends AutoCloseable {
        /**
         * Waits for the next event.
         *
         * @param isGivenUp is looked at now and then, and when the thread is interrupted
         * @return null: the caller has given up
         * @throws LeaseException.Unavailable the stream broke
         */
        LeaseEvent next(BooleanSupplier isGivenUp);

        @Override
        void close();
    }

    /**
     * Acquires, and waits until `until`.
     *
     * @param ref the lease key makes a repetition the same acquisition
     * @param terms of the request
     * @param until when the wait ends, or {@link #NEVER}
     * @param isGivenUp is looked at now and then; true ends the wait with any exception but Held
     * @return the lease
     * @throws LeaseException it is not granted
     */
    Grant acquire(Ref ref, Terms terms, long until, BooleanSupplier isGivenUp);

    /**
     * Acquires all, or none: then the exception names the first that is in the way.
     *
     * @param scopes the names
     * @param leaseKey of all
     * @param terms of the request
     * @param until when the wait ends, or {@link #NEVER}
     * @param isGivenUp as with {@link #acquire}
     * @return a lease for each
     * @throws LeaseException they are not granted
     */
    List<Grant> acquireAll(List<LeaseScope> scopes, String leaseKey, Terms terms, long until, BooleanSupplier isGivenUp);

    /**
     * Waits for a tick of a schedule, and claims it.
     *
     * @param schedule its namespace
     * @param leaseKey makes a repetition the same claim
     * @param terms duration, owner and labels
     * @param isGivenUp as with {@link #acquire}; then nothing is claimed any more
     * @return the tick
     * @throws LeaseException there is none
     */
    Claimed claim(String schedule, String leaseKey, Terms terms, BooleanSupplier isGivenUp);

    /**
     * Whether {@link #acquireAll} can wait.
     *
     * @return false: the caller refuses a wait
     */
    boolean waitsForAll();

    /**
     * Renews with another duration.
     *
     * @param ref of the lease
     * @param terms with the new duration, and the units that the lease has
     * @param token of the lease
     * @return null: the lease key does not hold the lease any more
     * @throws LeaseException nothing is known
     */
    Grant extend(Ref ref, Terms terms, long token);

    /**
     * Makes a lease shared, or gives units back.
     *
     * @param ref of the lease
     * @param units from then on
     * @return the lease as it is now
     * @throws LeaseException it is not done
     */
    Grant downgrade(Ref ref, int units);

    /**
     * Renews.
     *
     * @param refs of at most 10,000 leases
     * @param limit nanoseconds that the answer may take
     * @return an answer for each
     * @throws LeaseException there is no answer
     */
    List<Beat> heartbeat(List<Ref> refs, long limit);

    /**
     * Releases. What goes wrong is in the answers.
     *
     * @param endings at most 10,000
     * @return an answer for each
     */
    List<Answer> release(List<Ending> endings);

    /**
     * Ends what acquires may have left: places in the queue, and grants. What goes wrong is in the answers.
     *
     * @param refs of the acquires
     * @return an answer for each; with the reason UNKNOWN the request of the acquire may still be on its way
     */
    List<Answer> undo(List<Ref> refs);

    /**
     * The same, of one.
     *
     * @param ref of the acquire
     * @throws LeaseException it is not known whether there was something
     */
    default void undo(Ref ref) {
        Answer answer = undo(List.of(ref)).get(0);
        if (answer.trouble() != null) {
            throw answer.trouble();
        }
    }

    /**
     * Tells who holds a name.
     *
     * @param namespace of the scope
     * @param key of the scope
     * @return the answer
     * @throws LeaseException there is no answer
     */
    Explanation explain(String namespace, String key);

    /**
     * Asks the holders of a name to hand over, as an administrator.
     *
     * @param namespace of the scope
     * @param key of the scope
     * @param reason words for the holders
     * @param owner the asker, for people
     * @return a request for each; none: nobody holds it
     * @throws LeaseException there is no answer
     */
    List<HandOver> askHandOver(String namespace, String key, String reason, String owner);

    /**
     * Refuses to hand a lease over.
     *
     * @param ref of the lease
     * @param words for the asker
     * @return false: nobody has asked, or the lease has ended
     * @throws LeaseException there is no answer
     */
    boolean refuseHandOver(Ref ref, String words);

    /**
     * Tells what is held, and then what happens.
     *
     * @param namespace empty: all
     * @param key empty: all of the namespace
     * @param withChildren those of the namespaces below it, too
     * @return the events
     * @throws LeaseException the server refuses, or did not answer
     */
    Events watch(String namespace, String key, boolean withChildren);

    /** Breaks what is in flight; from now on each call fails. */
    void abort();

    /** Ends all connections. */
    void close();
}
