package leasehold;

/**
 * Is told what happens to a lease: of the grant, each renewal, and the release or the loss, each once and in this order. The calls come from threads of
 * the client's, one after the other, and may use the client. They may be late: {@link LeaseRequest#call} stops work.
 */
public interface LeaseListener {
    /**
     * It is held.
     *
     * @param lease the lease
     */
    default void granted(Lease lease) {
    }

    /**
     * It was renewed.
     *
     * @param lease the lease
     */
    default void renewed(Lease lease) {
    }

    /**
     * It was released, or given back.
     *
     * @param lease the lease
     */
    default void released(Lease lease) {
    }

    /**
     * It was lost.
     *
     * @param lease the lease
     * @param lost how
     */
    default void lost(Lease lease, LeaseException.Lost lost) {
    }

    /**
     * Somebody asks to hand it over: told once for each request, in SQL with the next renewal. Release the lease, answer by
     * {@link Lease#refuseHandOver}, or do nothing.
     *
     * @param lease the lease
     * @param request who asks, and why
     */
    default void asked(Lease lease, HandOver request) {
    }
}
