package leasehold;

import java.time.Duration;
import java.util.EnumSet;
import java.util.Optional;
import java.util.Set;
import java.util.function.BooleanSupplier;

/** One request that may be repeated, and what its strategy says. */
final class Retrying {
    private static final long BLOCKED = 1_000_000_000; // a server that blocked for so long is asked again at once
    private static final long SLICE = 100_000_000; // how soon a caller who has given up is seen
    private final LeaseClient client;
    private final LeaseRequest request;
    private final String verb;
    private final EnumSet<Retry.Reason> reasons = EnumSet.noneOf(Retry.Reason.class);
    private int attempts;
    private int failures;
    private long begun = Clock.now(); // the attempt

    Retrying(LeaseClient client, LeaseRequest request, String verb) {
        this.client = client;
        this.request = request;
        this.verb = verb;
    }

    /** Whether another attempt follows before `end`; waits for it. */
    boolean again(LeaseException e, long end, BooleanSupplier isGivenUp) {
        long left = end == Clock.NEVER ? end : end - Clock.now();
        if (left <= 0 || isGivenUp.getAsBoolean()) {
            return false;
        }
        Retry.Reason reason = e instanceof LeaseException.Unavailable unavailable ? unavailable.reason() : Retry.Reason.LEASE_HELD;
        attempts++;
        failures++;
        reasons.add(reason);
        Retry retry = new Retry(verb, request.namespace, request.key, reason, e, attempts, failures, Set.copyOf(reasons), Duration.ofNanos(left),
                e instanceof LeaseException.Unavailable unavailable ? unavailable.retryAfter() : Duration.ZERO);
        Optional<Duration> delay = decide(retry);
        Lease.safely(() -> client.retryLog.accept(retry, delay));
        long until = Clock.in(delay.orElse(Duration.ZERO));
        for (long rest = until - Clock.now(); rest > 0 && !isGivenUp.getAsBoolean(); rest = until - Clock.now()) {
            Clock.pause(Clock.millis(Math.min(rest, SLICE)));
        }
        begun = Clock.now();
        return delay.isPresent();
    }

    private Optional<Duration> decide(Retry retry) {
        if (retry.reason() == Retry.Reason.BLOCKING_TIMEOUT && Clock.now() - begun >= BLOCKED) {
            failures = 0;
            return Optional.of(Duration.ZERO);
        }
        if (retry.reason().isAlways()) {
            return Optional.of(Retry.controlledBackoff(retry.failures()));
        }
        Retry.Strategy strategy = request.strategy == null ? client.strategy : request.strategy;
        return strategy.next(retry).filter(each -> each.compareTo(retry.remaining()) <= 0);
    }
}
