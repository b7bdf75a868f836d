package leasehold;

import java.util.function.Consumer;

/** A namespace with the options of its leases, written down once and used everywhere; made by {@link LeaseClient#declare}. Any thread may use it. */
public final class Declared {
    private final LeaseClient client;
    private final String namespace;
    private final Consumer<LeaseRequest> options;

    Declared(LeaseClient client, String namespace, Consumer<LeaseRequest> options) {
        this.client = client;
        this.namespace = namespace;
        this.options = options;
        lease("any");
    }

    /**
     * Begins a request for a lease, with the options that were declared.
     *
     * @param key 1 to 1,024 bytes
     * @return the request, to be followed by further options and {@link LeaseRequest#acquire}, call or lead
     * @throws LeaseException.InvalidArgument the key is out of bounds; nothing was asked
     */
    public LeaseRequest lease(String key) {
        LeaseRequest request = client.lease(namespace, key);
        options.accept(request);
        return request;
    }
}
