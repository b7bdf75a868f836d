package leasehold;

import java.util.Map;
import java.util.function.Supplier;

/** Tells nobody. */
final class Silent implements Telemetry, Telemetry.Acquisition, Telemetry.Hold {
    static final Silent ONE = new Silent();

    private Silent() {
    }

    @Override
    public Acquisition acquire(String namespace, String key, Lease.Mode mode) {
        return this;
    }

    @Override
    public Runnable here(Runnable work) {
        return work;
    }

    @Override
    public Map<String, String> outgoing() {
        return Map.of();
    }

    @Override
    public <T> T during(Supplier<T> work) {
        return work.get();
    }

    @Override
    public Hold granted(String namespace, String key, Lease.Mode mode, long token) {
        return this;
    }

    @Override
    public void refused(Throwable error) {
    }

    @Override
    public void downgraded(long token) {
    }

    @Override
    public void releasing() {
    }

    @Override
    public void stayed(Throwable error) {
    }

    @Override
    public void ended(Throwable error) {
    }
}
