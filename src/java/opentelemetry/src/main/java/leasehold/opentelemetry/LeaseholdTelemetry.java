package leasehold.opentelemetry;

import io.opentelemetry.api.OpenTelemetry;
import io.opentelemetry.api.common.AttributeKey;
import io.opentelemetry.api.common.Attributes;
import io.opentelemetry.api.metrics.DoubleHistogram;
import io.opentelemetry.api.metrics.LongCounter;
import io.opentelemetry.api.metrics.LongUpDownCounter;
import io.opentelemetry.api.metrics.Meter;
import io.opentelemetry.api.trace.Span;
import io.opentelemetry.api.trace.StatusCode;
import io.opentelemetry.api.trace.Tracer;
import io.opentelemetry.api.trace.propagation.W3CTraceContextPropagator;
import io.opentelemetry.context.Context;
import io.opentelemetry.context.Scope;
import java.util.HashMap;
import java.util.Locale;
import java.util.Map;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.function.Supplier;
import leasehold.Lease;
import leasehold.LeaseException;
import leasehold.Telemetry;

/**
 * Tells OpenTelemetry of leases: {@code LeaseClient.builder(...).telemetry(LeaseholdTelemetry.of(GlobalOpenTelemetry.get()))}.
 *
 * <p>Spans: leasehold.acquire, until the lease is granted or refused; leasehold.hold, from the grant to the end; leasehold.release. All are below the
 * caller's span. A metric has the namespace and the mode. The key is on spans alone: nothing bounds how many there are. The lease key, which is the
 * credential, is nowhere.
 */
public final class LeaseholdTelemetry implements Telemetry {
    private static final AttributeKey<String> NAMESPACE = AttributeKey.stringKey("leasehold.namespace");
    private static final AttributeKey<String> MODE = AttributeKey.stringKey("leasehold.mode");
    private static final AttributeKey<String> KEY = AttributeKey.stringKey("leasehold.key");
    private static final AttributeKey<Long> TOKEN = AttributeKey.longKey("leasehold.token");
    private static final AttributeKey<Double> WAITED = AttributeKey.doubleKey("leasehold.waited");
    private static final AttributeKey<String> REASON = AttributeKey.stringKey("leasehold.reason");
    private static final AttributeKey<String> ERROR = AttributeKey.stringKey("error.type");

    private final Tracer tracer;
    private final LongUpDownCounter waiting;
    private final LongUpDownCounter held;
    private final DoubleHistogram duration;
    private final LongCounter failures;

    private LeaseholdTelemetry(OpenTelemetry api) {
        Meter meter = api.getMeter("leasehold");
        tracer = api.getTracer("leasehold");
        waiting = meter.upDownCounterBuilder("leasehold.waiting").setUnit("{acquire}").setDescription("Acquires that are under way").build();
        held = meter.upDownCounterBuilder("leasehold.held").setUnit("{lease}").setDescription("Leases that this process holds").build();
        duration = meter.histogramBuilder("leasehold.acquire.duration").setUnit("s").setDescription("From an acquire to its grant or refusal").build();
        failures = meter.counterBuilder("leasehold.acquire.failures").setUnit("{acquire}").setDescription("Acquires that were not granted").build();
    }

    /**
     * Tells these providers.
     *
     * @param api the program's, such as {@code GlobalOpenTelemetry.get()}
     * @return for LeaseClient.Builder.telemetry
     */
    public static LeaseholdTelemetry of(OpenTelemetry api) {
        return new LeaseholdTelemetry(api);
    }

    private static Attributes names(String namespace, Lease.Mode mode) {
        return Attributes.of(NAMESPACE, namespace, MODE, mode.name().toLowerCase(Locale.ROOT));
    }

    private Span begin(Context around, String name, String key, Attributes names) {
        return tracer.spanBuilder("leasehold." + name).setParent(around).setAllAttributes(names).setAttribute(KEY, key).startSpan();
    }

    @Override
    public Acquisition acquire(String namespace, String key, Lease.Mode mode) {
        return new Acquiring(key, names(namespace, mode));
    }

    @Override
    public Runnable here(Runnable work) {
        return Context.current().wrap(work);
    }

    /** What the daemon reads: traceparent, and nothing else of the caller's context. */
    @Override
    public Map<String, String> outgoing() {
        Map<String, String> all = new HashMap<>();
        W3CTraceContextPropagator.getInstance().inject(Context.current(), all, (to, name, value) -> to.put(name, value));
        all.keySet().retainAll(java.util.Set.of("traceparent"));
        return all;
    }

    private static <T> T within(Context context, Span span, Supplier<T> work) {
        try (Scope scope = context.with(span).makeCurrent()) {
            return scope == null ? null : work.get();
        }
    }

    private static void end(Span span, Throwable error) {
        if (error != null) {
            span.setStatus(StatusCode.ERROR, String.valueOf(error.getMessage()));
        }
        span.end();
    }

    private static String errorType(Throwable error) {
        return error instanceof LeaseException.Held ? "held" : error instanceof LeaseException.Lost ? "lost"
                : error instanceof LeaseException.Denied ? "denied" : error instanceof LeaseException.Unavailable ? "unavailable"
                : error instanceof LeaseException.InvalidArgument ? "invalid" : error instanceof InterruptedException ? "cancelled"
                : error instanceof IllegalStateException && "the client is closed".equals(error.getMessage()) ? "closed"
                : "_OTHER"; // OpenTelemetry's word for what is not listed
    }

    private final class Acquiring implements Acquisition {
        private final Context around = Context.current();
        private final String key;
        private final Attributes names;
        private final long begun = System.nanoTime();
        private final Span span;
        private final AtomicBoolean isOver = new AtomicBoolean();

        Acquiring(String key, Attributes names) {
            this.key = key;
            this.names = names;
            span = begin(around, "acquire", key, names);
            waiting.add(1, names, around);
        }

        @Override
        public <T> T during(Supplier<T> work) {
            return within(around, span, work);
        }

        private void end(Throwable error, Attributes more) {
            if (isOver.getAndSet(true)) {
                return;
            }
            double seconds = (System.nanoTime() - begun) / 1e9;
            Attributes labels = error == null ? names : names.toBuilder().put(ERROR, errorType(error)).build();
            if (error != null) {
                failures.add(1, labels, around);
                span.setAttribute(ERROR, errorType(error));
            }
            waiting.add(-1, names, around);
            duration.record(seconds, labels, around);
            span.setAllAttributes(more).setAttribute(WAITED, seconds);
            LeaseholdTelemetry.end(span, error instanceof LeaseException.Held ? null : error); // losing a race is an outcome
        }

        @Override
        public void refused(Throwable error) {
            end(error, Attributes.empty());
        }

        @Override
        public Hold granted(String namespace, String each, Lease.Mode mode, long token) {
            end(null, Attributes.of(TOKEN, token));
            return new Holding(around, each, names(namespace, mode), token);
        }
    }

    /** Called by one at a time, but for during. */
    private final class Holding implements Hold {
        private final Context around; // of the acquire
        private final String key;
        private Attributes names;
        private final Span span;
        private volatile Span release; // null: there is none

        Holding(Context around, String key, Attributes names, long token) {
            this.around = around;
            this.key = key;
            this.names = names;
            span = begin(around, "hold", key, names).setAttribute(TOKEN, token);
            held.add(1, names, around);
        }

        @Override
        public void downgraded(long token) {
            held.add(-1, names, around);
            names = names(names.get(NAMESPACE), Lease.Mode.SHARED);
            held.add(1, names, around);
            span.setAllAttributes(names).setAttribute(TOKEN, token);
        }

        @Override
        public void releasing() {
            if (release == null) {
                Context here = Context.current();
                release = begin(Span.fromContext(here).getSpanContext().isValid() ? here : around, "release", key, names);
            }
        }

        @Override
        public <T> T during(Supplier<T> work) {
            Span now = release;
            return now == null ? work.get() : within(Context.current(), now, work);
        }

        @Override
        public void stayed(Throwable error) {
            endRelease(error);
        }

        private void endRelease(Throwable error) {
            if (release != null) {
                LeaseholdTelemetry.end(tell(release, error), error);
                release = null;
            }
        }

        private static Span tell(Span span, Throwable error) {
            if (error instanceof LeaseException.Lost lost) {
                span.setAttribute(REASON, lost.reason().name().toLowerCase(Locale.ROOT));
            }
            return error == null ? span : span.setAttribute(ERROR, errorType(error));
        }

        @Override
        public void ended(Throwable error) {
            endRelease(error);
            LeaseholdTelemetry.end(tell(span, error), error);
            held.add(-1, names, around);
        }
    }
}
