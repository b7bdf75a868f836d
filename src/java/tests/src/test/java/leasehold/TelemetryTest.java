package leasehold;

import static leasehold.Site.seconds;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.grpc.CallOptions;
import io.grpc.Channel;
import io.grpc.ClientCall;
import io.grpc.ClientInterceptor;
import io.grpc.ForwardingClientCall;
import io.grpc.Metadata;
import io.grpc.MethodDescriptor;
import io.opentelemetry.api.common.AttributeKey;
import io.opentelemetry.api.common.Attributes;
import io.opentelemetry.api.trace.Span;
import io.opentelemetry.context.Scope;
import io.opentelemetry.sdk.OpenTelemetrySdk;
import io.opentelemetry.sdk.metrics.SdkMeterProvider;
import io.opentelemetry.sdk.testing.exporter.InMemoryMetricReader;
import io.opentelemetry.sdk.testing.exporter.InMemorySpanExporter;
import io.opentelemetry.sdk.trace.SdkTracerProvider;
import io.opentelemetry.sdk.trace.data.SpanData;
import io.opentelemetry.sdk.trace.export.SimpleSpanProcessor;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import leasehold.grpc.Daemons;
import leasehold.opentelemetry.LeaseholdTelemetry;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.condition.EnabledIfEnvironmentVariable;

/** Spans and metrics, in the exporters of OpenTelemetry's SDK. */
@EnabledIfEnvironmentVariable(named = "LEASEHOLD_TEST_SQL", matches = ".+", disabledReason = "tests/clients/java/run starts the databases")
class TelemetryTest {
    private static final String NAMESPACE = "telemetry.java";
    private final InMemorySpanExporter spans = InMemorySpanExporter.create();
    private final InMemoryMetricReader metrics = InMemoryMetricReader.create();
    private final OpenTelemetrySdk sdk = OpenTelemetrySdk.builder().setTracerProvider(SdkTracerProvider.builder().addSpanProcessor(SimpleSpanProcessor.create(spans)).build())
            .setMeterProvider(SdkMeterProvider.builder().registerMetricReader(metrics).build()).build();
    private final List<String> sent = new CopyOnWriteArrayList<>(); // the last part of each method, and traceparent

    @Test
    void telemetry_over_sql() throws Exception {
        telemetry("sql", LeaseClient.builder(System.getenv("LEASEHOLD_TEST_SQL")), LeaseClient.builder("jdbc:postgresql://127.0.0.1:1/none?user=none"));
    }

    @Test
    void telemetry_over_grpc() throws Exception {
        Daemons daemons = Daemons.at(System.getenv("LEASEHOLD_TEST_DAEMON")).channels(each -> each.intercept(new Noting()));
        telemetry("grpc", LeaseClient.builder(daemons), LeaseClient.builder(Daemons.at("127.0.0.1:1")));
        Set<String> acquires = Set.copyOf(spans.getFinishedSpanItems().stream().filter(each -> each.getName().equals("leasehold.acquire"))
                .map(each -> "AcquireStream 00-" + each.getTraceId() + "-" + each.getSpanId()).toList());
        // Each once, however often a slow answer makes the client ask.
        List<String> streams = sent.stream().filter(each -> each.startsWith("AcquireStream")).map(each -> each.replaceFirst("-\\w\\w$", "")).distinct().toList();
        assertEquals(5, streams.size(), sent.toString());
        assertTrue(acquires.containsAll(streams), sent.toString());
        assertTrue(sent.contains("Heartbeat null"), sent.toString()); // those are of all leases
        assertEquals(0, sent.stream().filter(each -> each.startsWith("Heartbeat 0")).count(), sent.toString());
    }

    @Test
    void tick_is_below_the_caller_over_sql() throws Exception {
        tick("sql", LeaseClient.builder(System.getenv("LEASEHOLD_TEST_SQL")));
    }

    @Test
    void tick_is_below_the_caller_over_grpc() throws Exception {
        tick("grpc", LeaseClient.builder(Daemons.at(System.getenv("LEASEHOLD_TEST_DAEMON")).channels(each -> each.intercept(new Noting()))));
        assertTrue(sent.stream().anyMatch(each -> each.startsWith("ClaimTick 00-")), sent.toString());
    }

    private void tick(String on, LeaseClient.Builder builder) throws Exception {
        Span caller = sdk.getTracer("program").spanBuilder("caller").startSpan();
        Site site = new Site(on, "telemetry");
        LeaseClient client = builder.patience(seconds(60)).telemetry(LeaseholdTelemetry.of(sdk)).build();
        String name = "telemetry-tick-java";
        site.sql("select from leasehold.set_schedule('%s', 'every 365 d', starts_at => '2100-01-01Z'); select leasehold.run_schedule_now('%s')", name, name);
        try (site; client; Scope scope = caller.makeCurrent()) {
            assertTrue(scope != null);
            assertThrows(InterruptedException.class, () -> client.ticks(name, request -> request.duration(seconds(300)), tick -> {
                sdk.getTracer("program").spanBuilder("work").startSpan().end();
                Thread.currentThread().interrupt(); // the end of the loop
                return null;
            }));
        }
        caller.end();
        List<SpanData> all = spans.getFinishedSpanItems().stream().filter(each -> !each.getName().equals("caller")).toList();
        assertEquals(List.of("leasehold.acquire", "leasehold.hold", "leasehold.release", "work"), all.stream().map(SpanData::getName).sorted().toList());
        all.forEach(each -> assertEquals(caller.getSpanContext().getTraceId() + " " + caller.getSpanContext().getSpanId(),
                each.getTraceId() + " " + each.getParentSpanId(), each.getName()));
    }

    /** Notes what calls carry. */
    private final class Noting implements ClientInterceptor {
        @Override
        public <Q, A> ClientCall<Q, A> interceptCall(MethodDescriptor<Q, A> method, CallOptions options, Channel next) {
            return new ForwardingClientCall.SimpleForwardingClientCall<>(next.newCall(method, options)) {
                @Override
                public void start(Listener<A> listener, Metadata headers) {
                    sent.add(method.getBareMethodName() + " " + headers.get(Metadata.Key.of("traceparent", Metadata.ASCII_STRING_MARSHALLER)));
                    super.start(listener, headers);
                }
            };
        }
    }

    private void telemetry(String on, LeaseClient.Builder builder, LeaseClient.Builder toNobody) throws Exception {
        LeaseholdTelemetry telemetry = LeaseholdTelemetry.of(sdk);
        Span caller = sdk.getTracer("program").spanBuilder("caller").startSpan();
        Site site = new Site(on, "telemetry");
        LeaseClient client = builder.patience(seconds(60)).telemetry(telemetry).build();
        LeaseClient nowhere = toNobody.telemetry(telemetry).patience(java.time.Duration.ofMillis(300)).build();
        try (site; client; nowhere; Scope scope = caller.makeCurrent()) {
            assertTrue(scope != null);
            CountDownLatch renewed = new CountDownLatch(1);
            client.lease(NAMESPACE, "plain").duration(seconds(30)).tell(new LeaseListener() {
                @Override
                public void renewed(Lease lease) {
                    renewed.countDown();
                }
            }).call(lease -> {
                assertThrows(LeaseException.Held.class, () -> client.lease(NAMESPACE, "plain").acquire());
                assertTrue(renewed.await(3, TimeUnit.MINUTES));
                return null;
            });
            Lease forced = client.lease(NAMESPACE, "forced").duration(seconds(30)).acquire();
            site.sql("select from leasehold.force_release('%s', 'forced', 'a test')", NAMESPACE);
            Site.lost(forced);
            assertThrows(LeaseException.Unavailable.class, () -> nowhere.lease(NAMESPACE, "nowhere").acquire());
            Lease downgraded = client.lease(NAMESPACE, "downgraded").acquire();
            downgraded.downgrade();
            downgraded.tryRelease();
            client.lease(NAMESPACE, "left").acquire();
        }
        caller.end();
        Map<String, SpanData> found = new TreeMap<>();
        List<SpanData> all = spans.getFinishedSpanItems().stream().filter(each -> !each.getName().equals("caller")).toList();
        for (SpanData each : all) {
            String name = each.getName() + " " + attribute(each.getAttributes(), "leasehold.key") + " " + attribute(each.getAttributes(), "error.type");
            found.put(name.strip(), each);
            assertEquals(caller.getSpanContext().getSpanId(), each.getParentSpanId(), name);
            assertEquals(NAMESPACE, attribute(each.getAttributes(), "leasehold.namespace"), name);
        }
        assertEquals(List.of("leasehold.acquire downgraded", "leasehold.acquire forced", "leasehold.acquire left", "leasehold.acquire nowhere unavailable",
                "leasehold.acquire plain", "leasehold.acquire plain held", "leasehold.hold downgraded", "leasehold.hold forced lost", "leasehold.hold left lost",
                "leasehold.hold plain", "leasehold.release downgraded", "leasehold.release plain"), List.copyOf(found.keySet()));
        assertEquals(12, all.size());
        assertEquals(List.of("leasehold.acquire nowhere unavailable ERROR", "leasehold.hold forced lost ERROR", "leasehold.hold left lost ERROR"),
                found.entrySet().stream().filter(each -> !each.getValue().getStatus().getStatusCode().name().equals("UNSET"))
                        .map(each -> each.getKey() + " " + each.getValue().getStatus().getStatusCode()).toList());
        assertEquals("forced", attribute(found.get("leasehold.hold forced lost").getAttributes(), "leasehold.reason"));
        assertEquals("shared", attribute(found.get("leasehold.hold downgraded").getAttributes(), "leasehold.mode"));
        Attributes plain = found.get("leasehold.acquire plain").getAttributes();
        assertTrue(plain.get(AttributeKey.longKey("leasehold.token")) > 0 && plain.get(AttributeKey.doubleKey("leasehold.waited")) > 0, plain.toString());
        assertEquals(new TreeMap<>(Map.of("leasehold.waiting exclusive", "0", "leasehold.held exclusive", "0", "leasehold.held shared", "0",
                "leasehold.acquire.failures exclusive held", "1", "leasehold.acquire.failures exclusive unavailable", "1",
                "leasehold.acquire.duration exclusive", "4 in s", "leasehold.acquire.duration exclusive held", "1 in s",
                "leasehold.acquire.duration exclusive unavailable", "1 in s")), points());
    }

    private static String attribute(Attributes attributes, String name) {
        String value = attributes.get(AttributeKey.stringKey(name));
        return value == null ? "" : value;
    }

    private TreeMap<String, String> points() {
        TreeMap<String, String> found = new TreeMap<>();
        metrics.collectAllMetrics().forEach(metric -> {
            metric.getLongSumData().getPoints().forEach(each -> found.put(pointName(metric.getName(), each.getAttributes()), String.valueOf(each.getValue())));
            metric.getHistogramData().getPoints()
                    .forEach(each -> found.put(pointName(metric.getName(), each.getAttributes()), each.getCount() + " in " + metric.getUnit()));
        });
        return found;
    }

    private static String pointName(String metric, Attributes labels) {
        List<String> words = new ArrayList<>(List.of(metric, attribute(labels, "leasehold.mode")));
        if (!attribute(labels, "error.type").isEmpty()) {
            words.add(attribute(labels, "error.type"));
        }
        assertEquals(NAMESPACE, attribute(labels, "leasehold.namespace"));
        assertEquals(words.size(), labels.size(), metric + " has " + labels); // no key, above all
        return String.join(" ", words);
    }
}
