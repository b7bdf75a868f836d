//! Spans and metrics, in the exporters of OpenTelemetry's SDK.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use leasehold::{Client, Error, Outcome, fail_fast};
use opentelemetry::trace::{FutureExt, Status, TraceContextExt, Tracer};
use opentelemetry::{Context, KeyValue, global};
use opentelemetry_sdk::metrics::data::{AggregatedMetrics, MetricData};
use opentelemetry_sdk::metrics::{InMemoryMetricExporter, PeriodicReader, SdkMeterProvider};
use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider, SpanData};

use crate::case;
use crate::kit::*;

static SPANS: LazyLock<InMemorySpanExporter> = LazyLock::new(InMemorySpanExporter::default);
static METRICS: LazyLock<InMemoryMetricExporter> = LazyLock::new(InMemoryMetricExporter::default);
static METERS: LazyLock<SdkMeterProvider> =
    LazyLock::new(|| SdkMeterProvider::builder().with_reader(PeriodicReader::builder(METRICS.clone()).build()).build());

/// Before there is a client.
pub fn set_up() {
    global::set_tracer_provider(SdkTracerProvider::builder().with_simple_exporter(SPANS.clone()).build());
    global::set_meter_provider(METERS.clone());
}

fn attribute<'a>(attributes: impl IntoIterator<Item = &'a KeyValue>, name: &str) -> String {
    attributes.into_iter().find(|each| each.key.as_str() == name).map(|each| each.value.to_string()).unwrap_or_default()
}

/// By name, key and error.
fn spans(namespace: &str) -> Vec<(String, SpanData)> {
    let all = SPANS.get_finished_spans().expect("spans").into_iter().filter(|each| attribute(&each.attributes, "leasehold.namespace") == namespace);
    let named = all.map(|each| {
        let words = [attribute(&each.attributes, "leasehold.key"), attribute(&each.attributes, "error.type")];
        (format!("{} {}", each.name, words.join(" ")).trim_end().to_string(), each)
    });
    let mut named: Vec<_> = named.collect();
    named.sort_by(|one, other| one.0.cmp(&other.0));
    named
}

/// By metric, mode and error.
fn points(namespace: &str) -> BTreeMap<String, String> {
    METERS.force_flush().expect("metrics");
    let mut found = BTreeMap::new();
    let mut add = |name: &str, attributes: Vec<KeyValue>, value: String| {
        if attribute(&attributes, "leasehold.namespace") == namespace {
            let words = [name.to_string(), attribute(&attributes, "leasehold.mode"), attribute(&attributes, "error.type")];
            assert_eq!(attributes.len(), 1 + words[1..].iter().filter(|each| !each.is_empty()).count(), "{name} {attributes:?}"); // no key, above all
            found.insert(words.join(" ").trim_end().to_string(), value);
        }
    };
    let all = METRICS.get_finished_metrics().expect("metrics").pop().expect("one");
    for metric in all.scope_metrics().flat_map(|scope| scope.metrics()) {
        let (name, unit) = (metric.name(), metric.unit());
        match metric.data() {
            AggregatedMetrics::I64(MetricData::Sum(sum)) => {
                sum.data_points().for_each(|each| add(name, each.attributes().cloned().collect(), each.value().to_string()));
            }
            AggregatedMetrics::U64(MetricData::Sum(sum)) => {
                sum.data_points().for_each(|each| add(name, each.attributes().cloned().collect(), each.value().to_string()));
            }
            AggregatedMetrics::F64(MetricData::Histogram(all)) => {
                all.data_points().for_each(|each| add(name, each.attributes().cloned().collect(), format!("{} in {unit}", each.count())));
            }
            other => panic!("{name} {other:?}"),
        }
    }
    found
}

async fn work(s: &Site, namespace: &str) {
    let client = s.client();
    let lease = |key: &str| client.lease(namespace, key).duration(seconds(6));
    let state =
        |key: &str, columns: &str| s.psql(&format!("select {columns} from leasehold.scope where namespace = '{namespace}' and key = '{key}'"));
    let plain = lease("plain").run(|_| async {
        assert!(matches!(lease("plain").acquire().await, Err(Error::Held(_))));
        until("a renewal", || state("plain", "heartbeats > 0") == "t").await;
        Ok::<_, Error>(())
    });
    plain.await.expect("no loss");
    let forced = lease("forced").acquire().await.expect("the lease");
    s.psql(&format!("select from leasehold.force_release('{namespace}', 'forced', 'a test')"));
    lost(&forced).await;
    let nowhere = s.made(Client::builder().patience(std::time::Duration::from_millis(300)), &s.nowhere());
    let refused = nowhere.lease(namespace, "nowhere").acquire().await;
    assert!(matches!(refused, Err(Error::Unavailable(_))), "{refused:?}");
    let downgraded = lease("downgraded").acquire().await.expect("the lease");
    downgraded.downgrade(1).await.expect("a downgrade");
    downgraded.try_release(Outcome::success()).expect("it was held");
    until("the answer to the release", || spans(namespace).iter().any(|each| each.0 == "leasehold.release downgraded")).await;
    let left = lease("left").acquire().await.expect("the lease");
    let waiter = tokio::spawn(lease("left").wait(MINUTE).acquire().with_context(Context::current()));
    until("a waiter", || s.psql(&format!("select count(*) from leasehold.queue where namespace = '{namespace}'")) == "1").await;
    waiter.abort();
    assert!(waiter.await.expect_err("an end").is_cancelled());
    client.close().await;
    drop(left);
}

async fn look(s: &Site, namespace: &str) {
    let context = Context::current_with_span(global::tracer("cases").start("caller"));
    let caller = context.span().span_context().span_id();
    work(s, namespace).with_context(context).await;
    let found = spans(namespace);
    let names: Vec<_> = found.iter().map(|each| &*each.0).collect();
    assert_eq!(
        names,
        [
            "leasehold.acquire downgraded",
            "leasehold.acquire forced",
            "leasehold.acquire left",
            "leasehold.acquire left cancelled",
            "leasehold.acquire nowhere unavailable",
            "leasehold.acquire plain",
            "leasehold.acquire plain held",
            "leasehold.hold downgraded",
            "leasehold.hold forced lost",
            "leasehold.hold left lost",
            "leasehold.hold plain",
            "leasehold.release downgraded",
            "leasehold.release plain",
        ]
    );
    let wrong = ["leasehold.acquire nowhere unavailable", "leasehold.hold forced lost", "leasehold.hold left lost"];
    for (name, span) in &found {
        assert_eq!(span.parent_span_id, caller, "{name}");
        assert_eq!(matches!(span.status, Status::Error { .. }), wrong.contains(&&**name), "{name} {:?}", span.status);
        assert!(!span.attributes.iter().any(|each| each.key.as_str().contains("lease_key")), "{name}");
    }
    let of = |name: &str, what: &str| attribute(&found.iter().find(|each| each.0 == name).expect("a span").1.attributes, what);
    assert_eq!(
        (of("leasehold.hold forced lost", "leasehold.reason"), of("leasehold.hold left lost", "leasehold.reason")),
        ("forced".into(), "closed".into())
    );
    assert_eq!(of("leasehold.hold downgraded", "leasehold.mode"), "shared");
    let twice =
        found.iter().find(|each| each.1.attributes.iter().any(|one| each.1.attributes.iter().filter(|other| other.key == one.key).count() > 1));
    assert!(twice.is_none(), "{twice:?}");
    assert!(of("leasehold.acquire plain", "leasehold.token").parse::<i64>().expect("a token") > 0);
    assert!(of("leasehold.acquire plain", "leasehold.waited").parse::<f64>().expect("seconds") > 0.0);
    let expected = [
        ("leasehold.acquire.duration exclusive", "4 in s"),
        ("leasehold.acquire.duration exclusive cancelled", "1 in s"),
        ("leasehold.acquire.duration exclusive held", "1 in s"),
        ("leasehold.acquire.duration exclusive unavailable", "1 in s"),
        ("leasehold.acquire.failures exclusive cancelled", "1"),
        ("leasehold.acquire.failures exclusive held", "1"),
        ("leasehold.acquire.failures exclusive unavailable", "1"),
        ("leasehold.held exclusive", "0"),
        ("leasehold.held shared", "0"),
        ("leasehold.waiting exclusive", "0"),
    ];
    assert_eq!(points(namespace), expected.map(|(name, value)| (name.to_string(), value.to_string())).into());
}

pub const CASES: &[crate::Case] = &[
    case!(rust_telemetry, "", s => {
        look(&s, "telemetry.rust").await;
        look(&Site::new("sql", "telemetry"), "telemetry.sql.rust").await;
    }),
    case!(rust_traceparent, "", s => {
        let (address, mut heard) = noting("traceparent").await;
        let client = s.client_at(&address);
        let lease = |key| client.lease("telemetry.heard", key).retries(fail_fast());
        lease("apart").acquire().await.expect_err("no method");
        let context = Context::current_with_span(global::tracer("cases").start("caller"));
        lease("below").acquire().with_context(context.clone()).await.expect_err("no method");
        let mut sent = vec![];
        while let Ok(header) = heard.try_recv() {
            sent.extend(header);
        }
        for (name, span) in spans("telemetry.heard") {
            let its = format!("00-{}-{}-01", span.span_context.trace_id(), span.span_context.span_id());
            assert!(sent.contains(&its), "{name} {its} {sent:?}");
        }
        let (trace, of) = (context.span().span_context().trace_id(), spans("telemetry.heard"));
        assert_eq!(of.iter().map(|each| each.1.span_context.trace_id() == trace).collect::<Vec<_>>(), [false, true]);
    }),
];
