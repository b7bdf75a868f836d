// Package leaseholdotel tells OpenTelemetry of leases.
//
//	client, err := leasehold.Dial("", leaseholdotel.With())
//
// Spans: leasehold.acquire, until the lease is granted or refused; leasehold.hold, from the grant to the end; leasehold.release. All are below
// the caller's span. A metric has the namespace and the mode. The key is on spans alone: nothing bounds how many there are. The lease key, which
// is the credential, is nowhere.
package leaseholdotel

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc/metadata"

	leasehold "leasehold.example/go"
)

// With tells the global providers of OpenTelemetry, also those that are set later.
func With() leasehold.ClientOption {
	meter := otel.Meter("leasehold")
	t := &telemetry{tracer: otel.Tracer("leasehold")}
	var errs [4]error
	t.waiting, errs[0] = meter.Int64UpDownCounter("leasehold.waiting", metric.WithUnit("{acquire}"), metric.WithDescription("Acquires that are under way"))
	t.held, errs[1] = meter.Int64UpDownCounter("leasehold.held", metric.WithUnit("{lease}"), metric.WithDescription("Leases that this process holds"))
	t.duration, errs[2] = meter.Float64Histogram("leasehold.acquire.duration", metric.WithUnit("s"), metric.WithDescription("From an acquire to its grant or refusal"))
	t.failures, errs[3] = meter.Int64Counter("leasehold.acquire.failures", metric.WithUnit("{acquire}"), metric.WithDescription("Acquires that were not granted"))
	if err := errors.Join(errs[:]...); err != nil { // what OpenTelemetry returns beside it does nothing
		otel.Handle(err)
	}
	return leasehold.WithTelemetry(t)
}

type telemetry struct {
	tracer        trace.Tracer
	waiting, held metric.Int64UpDownCounter
	duration      metric.Float64Histogram
	failures      metric.Int64Counter
}

// names are what the metrics have.
func names(namespace string, mode leasehold.Mode) []attribute.KeyValue {
	return []attribute.KeyValue{attribute.String("leasehold.namespace", namespace), attribute.String("leasehold.mode", string(mode))}
}

func (t *telemetry) begin(ctx context.Context, name, key string, names []attribute.KeyValue) (context.Context, trace.Span) {
	return t.tracer.Start(ctx, "leasehold."+name, trace.WithAttributes(names...), trace.WithAttributes(attribute.String("leasehold.key", key)))
}

// Outgoing gives the daemon what it reads: traceparent, and nothing else of the caller's context.
func (t *telemetry) Outgoing(ctx context.Context) context.Context {
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	parent := carrier["traceparent"]
	if parent == "" {
		return ctx
	}
	sent, _ := metadata.FromOutgoingContext(ctx)
	sent = sent.Copy()
	sent.Set("traceparent", parent)
	return metadata.NewOutgoingContext(ctx, sent)
}

type acquisition struct {
	t      *telemetry
	around context.Context
	names  []attribute.KeyValue
	begun  time.Time
	once   sync.Once
	span   trace.Span
}

func (t *telemetry) Acquire(ctx context.Context, namespace, key string, mode leasehold.Mode) (context.Context, leasehold.Acquisition) {
	a := &acquisition{t: t, around: trace.ContextWithSpan(context.Background(), trace.SpanFromContext(ctx)), names: names(namespace, mode), begun: time.Now()}
	t.waiting.Add(ctx, 1, metric.WithAttributes(a.names...))
	calls, span := t.begin(ctx, "acquire", key, a.names)
	a.span = span
	return calls, a
}

func (a *acquisition) end(err error, more ...attribute.KeyValue) {
	a.once.Do(func() {
		seconds, labels := time.Since(a.begun).Seconds(), a.names
		if err != nil {
			kind := attribute.String("error.type", errorType(err))
			labels, more = append(labels[:len(labels):len(labels)], kind), append(more, kind)
			a.t.failures.Add(a.around, 1, metric.WithAttributes(labels...))
			if !errors.As(err, new(*leasehold.HeldError)) { // losing a race is an outcome
				a.span.SetStatus(codes.Error, err.Error())
			}
		}
		a.t.waiting.Add(a.around, -1, metric.WithAttributes(a.names...))
		a.t.duration.Record(a.around, seconds, metric.WithAttributes(labels...))
		a.span.SetAttributes(append(more, attribute.Float64("leasehold.waited", seconds))...)
		a.span.End()
	})
}

func (a *acquisition) Refused(err error) { a.end(err) }

func (a *acquisition) Granted(namespace, key string, mode leasehold.Mode, token int64) leasehold.Hold {
	number := attribute.Int64("leasehold.token", token)
	a.end(nil, number)
	h := &hold{t: a.t, around: a.around, key: key, names: names(namespace, mode)}
	_, h.span = a.t.begin(a.around, "hold", key, h.names)
	h.span.SetAttributes(number)
	a.t.held.Add(a.around, 1, metric.WithAttributes(h.names...))
	return h
}

// hold is called by one at a time.
type hold struct {
	t       *telemetry
	around  context.Context // of the acquire
	key     string
	names   []attribute.KeyValue
	span    trace.Span
	release trace.Span // nil: there is none
}

func (h *hold) Downgraded(token int64) {
	h.t.held.Add(context.Background(), -1, metric.WithAttributes(h.names...))
	h.names = []attribute.KeyValue{h.names[0], attribute.String("leasehold.mode", string(leasehold.ModeShared))}
	h.t.held.Add(context.Background(), 1, metric.WithAttributes(h.names...))
	h.span.SetAttributes(h.names[1], attribute.Int64("leasehold.token", token))
}

func (h *hold) Releasing(ctx context.Context) context.Context {
	if !trace.SpanContextFromContext(ctx).IsValid() { // the client's own, as at the end of Do
		ctx = trace.ContextWithSpan(ctx, trace.SpanFromContext(h.around))
	}
	ctx, h.release = h.t.begin(ctx, "release", h.key, h.names)
	return ctx
}

func (h *hold) Stayed(err error) { h.endRelease(err) }

func (h *hold) endRelease(err error, more ...attribute.KeyValue) {
	if h.release != nil {
		fail(h.release, err, more)
		h.release = nil
	}
}

func fail(span trace.Span, err error, more []attribute.KeyValue) {
	if err != nil {
		span.SetStatus(codes.Error, err.Error())
		span.SetAttributes(more...)
	}
	span.End()
}

func (h *hold) Ended(err error) {
	var more []attribute.KeyValue
	if err != nil {
		more = append(more, attribute.String("error.type", errorType(err)))
	}
	var lost *leasehold.LostError
	if errors.As(err, &lost) {
		more = append(more, attribute.String("leasehold.reason", string(lost.Reason)))
	}
	h.endRelease(err, more...)
	fail(h.span, err, more)
	h.t.held.Add(context.Background(), -1, metric.WithAttributes(h.names...))
}

func errorType(err error) string {
	switch {
	case errors.As(err, new(*leasehold.HeldError)):
		return "held"
	case errors.As(err, new(*leasehold.LostError)):
		return "lost"
	case errors.As(err, new(*leasehold.DeniedError)):
		return "denied"
	case errors.As(err, new(*leasehold.UnavailableError)):
		return "unavailable"
	case errors.As(err, new(*leasehold.ArgumentError)):
		return "invalid"
	case errors.Is(err, leasehold.ErrClosed):
		return "closed"
	case errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded):
		return "cancelled"
	}
	return "_OTHER" // OpenTelemetry's word for what is not listed
}
