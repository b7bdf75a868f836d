package leasehold;

/**
 * A grant or an end of a lease, as {@link LeaseWatch} tells it.
 *
 * @param type what happened
 * @param namespace of the lease; empty for SYNCED, as all that follows
 * @param key of the lease
 * @param owner of the lease
 * @param token of the lease
 * @param units of a shared lease; 0: an exclusive one
 * @param result JSON, of RELEASED
 * @param message the error of FAILED and EXPIRED, the administrator's words of FORCED
 */
public record LeaseEvent(Type type, String namespace, String key, String owner, long token, int units, String result, String message) {
    /** What happened. */
    public enum Type {
        /** It is held: when the watch begins, and again after each break. */
        HELD,
        /** That was all that is held. */
        SYNCED,
        /** It was granted. */
        ACQUIRED,
        /** It was released as done. */
        RELEASED,
        /** It was released as failed. */
        FAILED,
        /** It was not renewed in time. */
        EXPIRED,
        /** The policy of the namespace ended it. */
        MAX_HOLD,
        /** An administrator ended it. */
        FORCED,
        /** It became shared, or gave units back. */
        DOWNGRADED
    }
}
