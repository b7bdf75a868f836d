package leasehold;

import java.util.Map;
import java.util.function.Supplier;

/**
 * Is told of each acquisition. The artifact leasehold-opentelemetry is one for OpenTelemetry. What is told must not call the client: the client's lock
 * is held.
 */
public interface Telemetry {
    /**
     * Begins an acquisition, of several names with the first one; in the thread of the caller, or in the work of {@link #here}: a tick is told of once it
     * is claimed.
     *
     * @param namespace of the lease
     * @param key of the lease
     * @param mode of the lease
     * @return what is told of it
     */
    Acquisition acquire(String namespace, String key, Lease.Mode mode);

    /**
     * Takes the caller's context along to another thread.
     *
     * @param work of another thread
     * @return the work in the context of the thread that calls this
     */
    Runnable here(Runnable work);

    /**
     * What a call to a daemon takes along, in the thread that makes it. Renewals, which are for many leases, have no caller's context.
     *
     * @return headers
     */
    Map<String, String> outgoing();

    /** It ends with a grant or a refusal: an error after a grant is none of its own. */
    interface Acquisition {
        /**
         * Makes its requests.
         *
         * @param <T> what the work returns
         * @param work the requests
         * @return what the work returned
         */
        <T> T during(Supplier<T> work);

        /**
         * It was granted: called once for each name.
         *
         * @param namespace of the lease
         * @param key of the lease
         * @param mode of the lease
         * @param token of the lease
         * @return what is told of the lease
         */
        Hold granted(String namespace, String key, Lease.Mode mode, long token);

        /**
         * It was not granted.
         *
         * @param error which the caller gets
         */
        void refused(Throwable error);
    }

    /** A lease that is held. */
    interface Hold {
        /**
         * It is shared from now on.
         *
         * @param token its new one
         */
        void downgraded(long token);

        /** A release begins. */
        void releasing();

        /**
         * Makes the requests of the release.
         *
         * @param <T> what the work returns
         * @param work the requests
         * @return what the work returned
         */
        <T> T during(Supplier<T> work);

        /**
         * The release was not done.
         *
         * @param error why
         */
        void stayed(Throwable error);

        /**
         * It is over: called once.
         *
         * @param error how it was lost, or why its release was not delivered; null: it was released
         */
        void ended(Throwable error);
    }
}
