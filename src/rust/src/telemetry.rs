//! Spans and metrics by OpenTelemetry's API, of the global providers. That of metrics is the one which is set when the client is made.
//!
//! Spans: leasehold.acquire, until the lease is granted or refused; leasehold.hold, from the grant to the end; leasehold.release. All are below the
//! caller's span. A metric has the namespace and the mode. The key is on spans alone: nothing bounds how many there are. The lease key, which is the
//! credential, is nowhere.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

use opentelemetry::context::FutureExt;
use opentelemetry::metrics::{Counter, Histogram, UpDownCounter};
use opentelemetry::trace::{Status, TraceContextExt, Tracer};
use opentelemetry::{Context, KeyValue, global};

use crate::error::{Error, Lost};
use crate::request::{Ref, Request};

pub(crate) type Around = Context;

pub(crate) struct Instruments {
    waiting: UpDownCounter<i64>,
    held: UpDownCounter<i64>,
    duration: Histogram<f64>,
    failures: Counter<u64>,
}

impl Instruments {
    pub fn new() -> Arc<Instruments> {
        let meter = global::meter("leasehold");
        let gauge = |name, unit, text| meter.i64_up_down_counter(name).with_unit(unit).with_description(text).build();
        Arc::new(Instruments {
            waiting: gauge("leasehold.waiting", "{acquire}", "Acquires that are under way"),
            held: gauge("leasehold.held", "{lease}", "Leases that this process holds"),
            duration: meter
                .f64_histogram("leasehold.acquire.duration")
                .with_unit("s")
                .with_description("From an acquire to its grant or refusal")
                .build(),
            failures: meter
                .u64_counter("leasehold.acquire.failures")
                .with_unit("{acquire}")
                .with_description("Acquires that were not granted")
                .build(),
        })
    }
}

fn names_of(namespace: &str, is_shared: bool) -> Vec<KeyValue> {
    let mode = if is_shared { "shared" } else { "exclusive" };
    vec![KeyValue::new("leasehold.namespace", namespace.to_string()), KeyValue::new("leasehold.mode", mode)]
}

fn begin(around: &Context, name: &'static str, key: &str, names: &[KeyValue]) -> Context {
    let tracer = global::tracer("leasehold");
    let attributes = names.iter().cloned().chain([KeyValue::new("leasehold.key", key.to_string())]);
    let span = tracer.span_builder(name).with_attributes(attributes);
    around.with_span(tracer.build_with_context(span, around))
}

fn error_type(error: &Error) -> &'static str {
    match error {
        Error::Held(_) => "held",
        Error::Lost(_) | Error::Released => "lost",
        Error::Denied { .. } => "denied",
        Error::Unavailable(_) => "unavailable",
        Error::InvalidArgument(_) => "invalid",
        Error::Closed => "closed",
        _ => "_OTHER", // OpenTelemetry's word for what is not listed
    }
}

/// Runs work below a span.
pub(crate) async fn within<F: Future>(around: Around, work: F) -> F::Output {
    work.with_context(around).await
}

/// What a daemon reads of the caller's context (W3C Trace Context).
pub(crate) fn traceparent() -> Option<String> {
    let context = Context::current();
    let span = context.span().span_context().clone();
    span.is_valid().then(|| format!("00-{}-{}-{:02x}", span.trace_id(), span.span_id(), span.trace_flags()))
}

/// One acquisition, of several scopes with the first one. It ends with a grant or a refusal; one that is dropped before was cancelled.
pub(crate) struct Acquiring {
    instruments: Arc<Instruments>,
    around: Context,
    span: Context,
    names: Vec<KeyValue>,
    begun: Instant,
    is_over: bool,
}

impl Acquiring {
    pub fn begin(instruments: &Arc<Instruments>, request: &Request) -> Acquiring {
        let is_shared = request.scopes.first().map_or(request.units > 0, |first| first.units.is_some());
        let (around, names) = (Context::current(), names_of(&request.scope.namespace, is_shared));
        let span = begin(&around, "leasehold.acquire", &request.scope.key, &names);
        instruments.waiting.add(1, &names);
        Acquiring { instruments: instruments.clone(), around, span, names, begun: Instant::now(), is_over: false }
    }

    pub fn around(&self) -> Around {
        self.span.clone()
    }

    fn end(&mut self, kind: Option<&'static str>) {
        if std::mem::replace(&mut self.is_over, true) {
            return;
        }
        let (seconds, span) = (self.begun.elapsed().as_secs_f64(), self.span.span());
        let mut labels = self.names.clone();
        if let Some(kind) = kind {
            labels.push(KeyValue::new("error.type", kind));
            span.set_attribute(KeyValue::new("error.type", kind));
            self.instruments.failures.add(1, &labels);
        }
        self.instruments.waiting.add(-1, &self.names);
        self.instruments.duration.record(seconds, &labels);
        span.set_attribute(KeyValue::new("leasehold.waited", seconds));
        span.end();
    }

    pub fn granted(&mut self, token: i64) {
        self.span.span().set_attribute(KeyValue::new("leasehold.token", token));
        self.end(None);
    }

    pub fn refused(&mut self, error: &Error) {
        if !matches!(error, Error::Held(_)) {
            self.span.span().set_status(Status::error(error.to_string())); // losing a race is an outcome
        }
        self.end(Some(error_type(error)));
    }

    /// By an error of the program's own.
    #[cfg_attr(not(feature = "sql"), allow(dead_code))]
    pub fn failed(&mut self) {
        self.end(Some("_OTHER"));
    }
}

impl Drop for Acquiring {
    fn drop(&mut self) {
        self.end(Some("cancelled"));
    }
}

struct Holding {
    instruments: Arc<Instruments>,
    /// Of the acquire.
    around: Context,
    names: Vec<KeyValue>,
    key: String,
    token: i64,
    span: Context,
    release: Option<Context>,
}

/// Of a lease. Nothing is told before it begins, and after it has ended.
#[derive(Default)]
pub(crate) struct Story(Mutex<Option<Holding>>);

impl Story {
    fn holding(&self) -> MutexGuard<'_, Option<Holding>> {
        self.0.lock().expect("no code panics under this lock")
    }

    pub fn begin(&self, acquired: &Acquiring, scope: &Ref, token: i64, units: u32) {
        let (instruments, around) = (acquired.instruments.clone(), acquired.around.clone());
        let names = names_of(&scope.namespace, units > 0);
        // A downgrade changes mode and token, and the SDK keeps each value of an attribute that is set twice: they come with the end.
        let span = begin(&around, "leasehold.hold", &scope.key, &names[..1]);
        instruments.held.add(1, &names);
        *self.holding() = Some(Holding { instruments, around, names, key: scope.key.clone(), token, span, release: None });
    }

    pub fn downgraded(&self, namespace: &str, token: i64) {
        if let Some(holding) = &mut *self.holding() {
            let shared = names_of(namespace, true);
            holding.instruments.held.add(-1, &std::mem::replace(&mut holding.names, shared.clone()));
            holding.instruments.held.add(1, &shared);
            holding.token = token;
        }
    }

    /// A release begins, below the caller's span, or else the acquire's.
    pub fn releasing(&self) {
        if let Some(holding) = &mut *self.holding() {
            let here = Context::current();
            let around = if here.span().span_context().is_valid() { &here } else { &holding.around };
            holding.release.get_or_insert_with(|| begin(around, "leasehold.release", &holding.key, &holding.names));
        }
    }

    /// For the requests of the release.
    pub fn around(&self) -> Around {
        self.holding().as_ref().and_then(|holding| holding.release.clone()).unwrap_or_else(Context::current)
    }

    /// The release was not done.
    pub fn stayed(&self, error: Option<&Error>) {
        if let Some(release) = self.holding().as_mut().and_then(|holding| holding.release.take()) {
            end(&release, error);
        }
    }

    /// It is over: with how it was lost, or why its release was not delivered.
    pub fn ended(&self, error: Option<&Error>) {
        if let Some(holding) = self.holding().take() {
            if let Some(release) = &holding.release {
                end(release, error);
            }
            let mode_and_token = holding.names[1..].iter().cloned().chain([KeyValue::new("leasehold.token", holding.token)]);
            holding.span.span().set_attributes(mode_and_token);
            end(&holding.span, error);
            holding.instruments.held.add(-1, &holding.names);
        }
    }
}

fn end(context: &Context, error: Option<&Error>) {
    let span = context.span();
    if let Some(Error::Lost(Lost { reason, .. })) = error {
        span.set_attribute(KeyValue::new("leasehold.reason", reason.to_string()));
    }
    if let Some(error) = error {
        span.set_attribute(KeyValue::new("error.type", error_type(error)));
        span.set_status(Status::error(error.to_string()));
    }
    span.end();
}
