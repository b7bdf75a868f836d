package leasehold;

/**
 * One of the names of {@link LeaseClient#acquireAll}.
 *
 * @param namespace 1 to 16 segments of 1 to 63 bytes with dots between
 * @param key 1 to 1,024 bytes
 * @param units of a shared lease, 1 to 1,000,000; 0: an exclusive one
 */
public record LeaseScope(String namespace, String key, int units) {
    /**
     * A name, to be leased exclusively or shared.
     *
     * @param namespace 1 to 16 segments of 1 to 63 bytes with dots between
     * @param key 1 to 1,024 bytes
     * @param units of a shared lease; 0: an exclusive one
     * @throws LeaseException.InvalidArgument an argument is out of bounds
     */
    public LeaseScope {
        Bounds.namespace(namespace);
        Bounds.key(key);
        if (units != 0) {
            LeaseRequest.units(units);
        }
    }

    /**
     * A name, to be leased exclusively.
     *
     * @param namespace 1 to 16 segments of 1 to 63 bytes with dots between
     * @param key 1 to 1,024 bytes
     */
    public LeaseScope(String namespace, String key) {
        this(namespace, key, 0);
    }
}
