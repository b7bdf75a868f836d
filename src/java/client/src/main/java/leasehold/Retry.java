package leasehold;

import java.time.Duration;
import java.util.Optional;
import java.util.Set;

/**
 * A request whose attempt has failed. All requests are idempotent by their lease keys.
 *
 * @param verb Acquire, AcquireAll, Downgrade or Release
 * @param namespace of several leases the first
 * @param key of several leases the first
 * @param reason why the attempt failed
 * @param cause what it failed with
 * @param attempts so far
 * @param failures that the backoff counts, from 1 on: a wait that the server cut begins anew
 * @param reasons of the attempts so far
 * @param remaining of the request's time
 * @param retryAfter what the server advises; zero: nothing
 */
public record Retry(String verb, String namespace, String key, Reason reason, LeaseException cause, int attempts, int failures, Set<Reason> reasons,
        Duration remaining, Duration retryAfter) {
    private static final int[] CONTROLLED = {1, 10, 50, 100, 500, 1000};

    /** The default: repeats all but LEASE_HELD, after 1, 2, 4 ... 256, 500 ms. */
    public static final Strategy BEST_EFFORT = retry -> retry.reason == Reason.LEASE_HELD ? Optional.empty()
            : Optional.of(Duration.ofMillis(Math.min(1L << Math.min(retry.failures - 1, 9), 500)));

    /** Repeats nothing. */
    public static final Strategy FAIL_FAST = retry -> Optional.empty();

    /** Decides whether and when another attempt follows. */
    @FunctionalInterface
    public interface Strategy {
        /**
         * Decides. It may be called in a thread of the client's; what it throws ends the request.
         *
         * @param retry the request
         * @return the delay before the next attempt; empty, or longer than what remains: the request fails
         */
        Optional<Duration> next(Retry retry);
    }

    /** Why an attempt failed, as in leasehold_retry.h. */
    public enum Reason {
        /** The daemon's answer has a reason that this client does not know. */
        UNKNOWN(false),
        /** There is no connection. */
        SOCKET_NOT_AVAILABLE(true),
        /** No address can be asked. */
        ENDPOINT_NOT_AVAILABLE(true),
        /** The connection broke, or was too slow, after the statement was sent: it may have been done. */
        SOCKET_CLOSED_WHILE_IN_FLIGHT(false),
        /** The addresses have failed too often, and are left alone for a while. */
        CIRCUIT_BREAKER_OPEN(true),
        /** The daemon has waited for as long as it may: the request goes on with what is left of its wait, whatever the strategy says. */
        BLOCKING_TIMEOUT(true),
        /** The daemon shuts down: the request goes on with another, whatever the strategy says. */
        SHUTTING_DOWN(true),
        /** The database answers that it cannot serve now. */
        DATABASE_UNAVAILABLE(true),
        /**
         * Too many releases of this client wait to be sent, which is not repeated; too many requests wait in the daemon; or PostgreSQL lacks memory or
         * disk space, or cancelled the statement.
         */
        OVERLOADED(true),
        /** Somebody keeps the row of the name locked. */
        SCOPE_BUSY(true),
        /** The daemon answers that it has not been done. */
        OUTCOME_RETRY(true),
        /** Another holds the lease, and the request does not wait. */
        LEASE_HELD(true),
        /** The daemon's answer has a reason that this client does not know, and says when to ask again. */
        RETRY_INFO(true);

        private final boolean isUnsent;

        Reason(boolean isUnsent) {
            this.isUnsent = isUnsent;
        }

        /**
         * Whether nothing was done.
         *
         * @return true: also a request that is not idempotent may be repeated
         */
        public boolean isUnsent() {
            return isUnsent;
        }

        /**
         * Whether it is repeated whatever the strategy says.
         *
         * @return true for BLOCKING_TIMEOUT and SHUTTING_DOWN
         */
        public boolean isAlways() {
            return this == BLOCKING_TIMEOUT || this == SHUTTING_DOWN;
        }
    }

    /**
     * Delays that grow quickly: 1, 10, 50, 100, 500, then 1000 ms.
     *
     * @param failures so far, from 1 on
     * @return the delay
     */
    public static Duration controlledBackoff(int failures) {
        return Duration.ofMillis(CONTROLLED[Math.min(Math.max(failures, 1), CONTROLLED.length) - 1]);
    }
}
