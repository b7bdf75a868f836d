package leasehold;

import java.time.Duration;
import java.util.Optional;
import java.util.OptionalInt;

/** What can go wrong with a lease: {@link Held}, {@link Lost}, {@link Denied}, {@link Unavailable} or {@link UnknownOutcome}. */
public abstract sealed class LeaseException extends RuntimeException {
    private static final long serialVersionUID = 1;

    private LeaseException(String message, Throwable cause) {
        super(message, cause);
    }

    /** As errors name a scope. A namespace that has a slash stands in quotes: a/b/k would name two scopes. */
    static String scopeName(String namespace, String key) {
        return (namespace.contains("/") ? "\"" + namespace + "\"" : namespace) + "/" + key;
    }

    /** Another holds the lease, or waits for it, and the time to wait has passed. */
    public static final class Held extends LeaseException {
        private static final long serialVersionUID = 1;
        private final String holder;
        private final int ahead;
        private final int holders;
        private final Integer unitsFree;
        private final boolean isAlive;
        private final Duration silent;
        private final Duration heldFor;

        /**
         * As a transport answers it.
         *
         * @param message for people
         * @param holder of the name; null: none
         * @param ahead how many wait before the caller
         * @param holders how many hold it
         * @param unitsFree null: there is no capacity
         * @param isAlive whether the holder renews
         * @param silent seconds since its last renewal, or null
         * @param heldFor seconds since it was acquired, or null
         */
        public Held(String message, String holder, int ahead, int holders, Integer unitsFree, Boolean isAlive, Double silent, Double heldFor) {
            super(message, null);
            this.holder = holder;
            this.ahead = ahead;
            this.holders = holders;
            this.unitsFree = unitsFree;
            this.isAlive = Boolean.TRUE.equals(isAlive);
            this.silent = seconds(silent);
            this.heldFor = seconds(heldFor);
        }

        private static Duration seconds(Double value) {
            return value == null ? null : Duration.ofNanos(Math.round(value * 1e9));
        }

        /**
         * Whether the holder renews.
         *
         * @return false too when it is not held
         */
        public boolean isAlive() {
            return isAlive;
        }

        /**
         * The time since the holder's last renewal.
         *
         * @return empty when it is not held
         */
        public Optional<Duration> silent() {
            return Optional.ofNullable(silent);
        }

        /**
         * The time since it was acquired.
         *
         * @return empty when it is not held
         */
        public Optional<Duration> heldFor() {
            return Optional.ofNullable(heldFor);
        }

        /**
         * How many hold it.
         *
         * @return 1 for an exclusive lease, else the number of shared ones
         */
        public int holders() {
            return holders;
        }

        /**
         * How many units of the capacity are free.
         *
         * @return a number of units; empty where the namespace has no capacity
         */
        public OptionalInt unitsFree() {
            return unitsFree == null ? OptionalInt.empty() : OptionalInt.of(unitsFree);
        }

        /**
         * What the holder says of itself, the oldest of several.
         *
         * @return the owner; null when the scope is free, but others wait for it
         */
        public String holder() {
            return holder;
        }

        /**
         * How many waiters come before this caller.
         *
         * @return a number of waiters, without the holder
         */
        public int ahead() {
            return ahead;
        }
    }

    /** The lease ended before its holder released it. */
    public static final class Lost extends LeaseException {
        private static final long serialVersionUID = 1;
        private final Reason reason;

        /**
         * As a transport answers it.
         *
         * @param namespace of the lease
         * @param key of the lease
         * @param reason how it ended
         * @param more words for people, or null
         */
        public Lost(String namespace, String key, Reason reason, String more) {
            super("the lease " + scopeName(namespace, key) + " is lost: " + reason.toString().toLowerCase(java.util.Locale.ROOT)
                    + (more == null ? "" : ": " + more), null);
            this.reason = reason;
        }

        /**
         * How it ended.
         *
         * @return the reason, as far as the database knows it
         */
        public Reason reason() {
            return reason;
        }
    }

    /** How a lease ended without its holder's doing. */
    public enum Reason {
        /** It was renewed too late. Another may hold it. */
        EXPIRED,
        /** An administrator ended it. */
        FORCED,
        /** It was released: by its holder, or by somebody else who knows the lease key. */
        RELEASED,
        /** Somebody else who knows the lease key released it as failed. */
        FAILED,
        /** The policy of the namespace ends a lease after max_hold. */
        MAX_HOLD,
        /** No renewal was answered in time. */
        UNREACHABLE,
        /** The client was closed. */
        CLOSED,
        /** The database does not remember. */
        UNKNOWN
    }

    /** The database refuses, and another holder is not the reason. */
    public static final class Denied extends LeaseException {
        private static final long serialVersionUID = 1;
        private final String reason;

        /**
         * As a transport answers it.
         *
         * @param reason why
         * @param message for people
         * @param cause or null
         */
        public Denied(String reason, String message, Throwable cause) {
            super(reason + ": " + message, cause);
            this.reason = reason;
        }

        /**
         * Why.
         *
         * @return NAMESPACE_FROZEN, QUOTA_EXCEEDED, HOOK_REJECTED, ACCESS_DENIED, UNAUTHENTICATED, LEASE_ENDED, or an SQLSTATE, such as
         *     3F000 where the schema is missing
         */
        public String reason() {
            return reason;
        }
    }

    /** The database did not answer in time, or a transaction kept the row locked. A lease that was granted unheard is released as soon as the database answers. */
    public static final class Unavailable extends LeaseException {
        private static final long serialVersionUID = 1;
        private final Retry.Reason reason;
        private final Duration retryAfter;

        /**
         * As a transport answers it.
         *
         * @param message for people
         * @param cause or null
         * @param reason why the attempt failed
         */
        public Unavailable(String message, Throwable cause, Retry.Reason reason) {
            this(message, cause, reason, Duration.ZERO);
        }

        /**
         * As a transport answers it.
         *
         * @param message for people
         * @param cause or null
         * @param reason why the attempt failed
         * @param retryAfter what the server advises; zero: nothing
         */
        public Unavailable(String message, Throwable cause, Retry.Reason reason, Duration retryAfter) {
            super(message, cause);
            this.reason = reason;
            this.retryAfter = retryAfter;
        }

        /**
         * What the server advises to wait for before the next attempt.
         *
         * @return zero: nothing
         */
        public Duration retryAfter() {
            return retryAfter;
        }

        /**
         * Why the last attempt failed.
         *
         * @return the reason
         */
        public Retry.Reason reason() {
            return reason;
        }
    }

    /**
     * COMMIT was not answered, and its outcome could not be looked up. The lease of {@link Lease#releaseIn} counts as lost; what {@link
     * LeaseRequest#acquireIn} may have acquired is given back.
     */
    public static final class UnknownOutcome extends LeaseException {
        private static final long serialVersionUID = 1;

        UnknownOutcome(String namespace, String key, Throwable cause) {
            super("the outcome of the transaction with the lease " + scopeName(namespace, key) + " is unknown, for COMMIT was not answered: "
                    + cause.getMessage(), cause);
        }
    }

    /** An argument is out of bounds. Nothing was written. */
    public static final class InvalidArgument extends IllegalArgumentException {
        private static final long serialVersionUID = 1;
        private final String field;
        private final String bound;

        /**
         * An argument is out of bounds.
         *
         * @param field its name
         * @param bound what it must be
         * @param cause or null
         */
        public InvalidArgument(String field, String bound, Throwable cause) {
            this(field + " must be " + bound, field, bound, cause);
        }

        /**
         * As a transport answers it.
         *
         * @param message for people
         * @param field the argument
         * @param bound what it must be
         * @param cause or null
         */
        public InvalidArgument(String message, String field, String bound, Throwable cause) {
            super(message, cause);
            this.field = field;
            this.bound = bound;
        }

        /**
         * Which argument.
         *
         * @return its name
         */
        public String field() {
            return field;
        }

        /**
         * What it must be.
         *
         * @return the bound, in words
         */
        public String bound() {
            return bound;
        }
    }
}
