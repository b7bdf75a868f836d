package leaseholdotel_test

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	leasehold "leasehold.example/go"
	"leasehold.example/go/leaseholdotel"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// ask calls tests/clients/control.py.
func ask(t testing.TB, what string, with, into any) {
	t.Helper()
	body, err := json.Marshal(with)
	must(t, err)
	answer, err := http.Post(os.Getenv("LEASEHOLD_CONTROL")+"/"+what, "application/json", bytes.NewReader(body))
	must(t, err)
	defer answer.Body.Close()
	if answer.StatusCode != 200 {
		t.Fatal(what, answer.Status)
	}
	must(t, json.NewDecoder(answer.Body).Decode(into))
}

func wait(t testing.TB, what string, done <-chan struct{}) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatal(what, "did not come true within a minute")
	}
}

// carried has what each call to the daemon carried, by the last part of its method. Renewals are calls of another goroutine.
type carried struct {
	mutex sync.Mutex
	by    map[string][]string
}

func (c *carried) note(ctx context.Context, method string) {
	sent, _ := metadata.FromOutgoingContext(ctx)
	name := method[strings.LastIndex(method, "/")+1:]
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.by[name] = append(c.by[name], strings.Join(sent.Get("traceparent"), " "))
}

func (c *carried) options() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, request, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
			c.note(ctx, method)
			return invoke(ctx, method, request, reply, conn, options...)
		}),
		grpc.WithChainStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, begin grpc.Streamer, options ...grpc.CallOption) (grpc.ClientStream, error) {
			c.note(ctx, method)
			return begin(ctx, desc, conn, method, options...)
		}),
	}
}

// clients are one of the site, and one that reaches nobody.
func clients(t *testing.T, on string, sent *carried) (*leasehold.Client, *leasehold.Client) {
	site := map[string]any{}
	ask(t, "site", struct{}{}, &site)
	patience := leasehold.Patience(300 * time.Millisecond)
	if on == "grpc" {
		client, err := leasehold.Dial(site["grpc"].(string), leaseholdotel.With(), leasehold.GRPC(sent.options()...))
		must(t, err)
		nowhere, err := leasehold.Dial("127.0.0.1:1", leaseholdotel.With(), patience)
		must(t, err)
		return client, nowhere
	}
	open := func(dsn string) *sql.DB {
		db, err := sql.Open("pgx", dsn)
		must(t, err)
		t.Cleanup(func() { db.Close() })
		return db
	}
	client, err := leasehold.Over(open(site["sql"].(string)), leaseholdotel.With())
	must(t, err)
	nowhere, err := leasehold.Over(open("host=127.0.0.1 port=1 user=nobody"), leaseholdotel.With(), patience)
	must(t, err)
	return client, nowhere
}

func TestTelemetry_spans_and_metrics_tell_of_each_lease(t *testing.T) {
	for _, on := range []string{"grpc", "sql"} {
		t.Run(on, func(t *testing.T) { tellsOfEachLease(t, on) })
	}
}

func tellsOfEachLease(t *testing.T, on string) {
	spans, reader := tracetest.NewInMemoryExporter(), sdkmetric.NewManualReader()
	tracers := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))
	otel.SetTracerProvider(tracers)
	otel.SetMeterProvider(sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)))
	carries, namespace := &carried{by: map[string][]string{}}, fmt.Sprintf("telemetry-%d", time.Now().UnixNano())
	client, nowhere := clients(t, on, carries)
	ctx, caller := tracers.Tracer("program").Start(context.Background(), "caller")

	renewed, lost := make(chan struct{}, 100), make(chan struct{})
	must(t, client.Do(ctx, namespace, "plain", func(context.Context, *leasehold.Lease) error {
		_, err := client.Acquire(ctx, namespace, "plain")
		if !errors.As(err, new(*leasehold.HeldError)) {
			t.Error("the lease is held, and the error", err)
		}
		wait(t, "a renewal", renewed)
		return nil
	}, leasehold.Duration(6*time.Second), leasehold.Tell(leasehold.Listener{Renewed: func(*leasehold.Lease) { renewed <- struct{}{} }})))
	_, err := client.Acquire(ctx, namespace, "forced", leasehold.Duration(6*time.Second),
		leasehold.Tell(leasehold.Listener{Lost: func(*leasehold.Lease, *leasehold.LostError) { close(lost) }}))
	must(t, err)
	ask(t, "psql", map[string]string{"on": on, "sql": "select leasehold.force_release('" + namespace + "', 'forced', 'a test')"}, new(string))
	wait(t, "the loss", lost)
	if _, err := nowhere.Acquire(ctx, namespace, "nowhere"); !errors.As(err, new(*leasehold.UnavailableError)) {
		t.Error("nobody is there, and the error", err)
	}
	downgraded, err := client.Acquire(ctx, namespace, "downgraded")
	must(t, err)
	must(t, downgraded.Downgrade(ctx, 1))
	must(t, downgraded.TryRelease())
	_, err = client.Acquire(ctx, namespace, "left")
	must(t, err)
	must(t, errors.Join(client.Close(), nowhere.Close()))

	found := map[string]map[string]string{}
	parents := map[string]bool{}
	for _, each := range spans.GetSpans() {
		attributes := map[string]string{"status": each.Status.Code.String()}
		for _, a := range each.Attributes {
			attributes[string(a.Key)] = a.Value.Emit()
		}
		if attributes["leasehold.namespace"] != namespace {
			t.Error(each.Name, "has", attributes)
		}
		name := strings.TrimSpace(each.Name + " " + attributes["leasehold.key"] + " " + attributes["error.type"])
		found[name] = attributes
		if each.Parent.SpanID() != caller.SpanContext().SpanID() {
			t.Error(name, "is not below the caller's span")
		}
		if each.Name == "leasehold.acquire" {
			parents[fmt.Sprintf("00-%s-%s", each.SpanContext.TraceID(), each.SpanContext.SpanID())] = true
		}
	}
	expect(t, slices.Sorted(maps.Keys(found)), []string{
		"leasehold.acquire downgraded", "leasehold.acquire forced", "leasehold.acquire left", "leasehold.acquire nowhere unavailable", "leasehold.acquire plain",
		"leasehold.acquire plain held", "leasehold.hold downgraded", "leasehold.hold forced lost", "leasehold.hold left lost", "leasehold.hold plain",
		"leasehold.release downgraded", "leasehold.release plain",
	})
	expect(t, len(spans.GetSpans()), 12)
	for name, status := range map[string]string{"acquire plain": "Unset", "acquire plain held": "Unset", "acquire nowhere unavailable": codes.Error.String(), "hold plain": "Unset", "hold forced lost": codes.Error.String()} {
		expect(t, name+found["leasehold."+name]["status"], name+status)
	}
	expect(t, found["leasehold.hold forced lost"]["leasehold.reason"], "forced")
	expect(t, found["leasehold.hold downgraded"]["leasehold.mode"], "shared")
	if plain := found["leasehold.acquire plain"]; len(plain["leasehold.token"]) < 2 || plain["leasehold.waited"] == "" {
		t.Error("the acquire has", plain)
	}
	expect(t, points(t, reader, namespace), map[string]string{
		"leasehold.waiting exclusive": "0", "leasehold.held exclusive": "0", "leasehold.held shared": "0",
		"leasehold.acquire.failures exclusive held": "1", "leasehold.acquire.failures exclusive unavailable": "1",
		"leasehold.acquire.duration exclusive": "4 in s", "leasehold.acquire.duration exclusive held": "1 in s", "leasehold.acquire.duration exclusive unavailable": "1 in s",
	})
	if on == "grpc" {
		carries.mutex.Lock()
		defer carries.mutex.Unlock()
		sent := carries.by
		acquires := map[string]bool{} // a slow answer makes the client ask again
		for _, each := range sent["AcquireStream"] {
			acquires[each] = true
			if len(each) != 55 || !parents[each[:52]] {
				t.Errorf("an acquire carries %q; its span is one of %v", each, parents)
			}
		}
		if len(acquires) != 5 || len(sent["Heartbeat"]) == 0 || slices.Max(sent["Heartbeat"]) != "" { // those are of all leases
			t.Error("the calls carry", sent)
		}
	}
}

func points(t *testing.T, reader sdkmetric.Reader, namespace string) map[string]string {
	var all metricdata.ResourceMetrics
	must(t, reader.Collect(context.Background(), &all))
	found := map[string]string{}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			switch data := m.Data.(type) {
			case metricdata.Sum[int64]:
				for _, each := range data.DataPoints {
					found[pointName(t, m.Name, each.Attributes, namespace)] = fmt.Sprint(each.Value)
				}
			case metricdata.Histogram[float64]:
				for _, each := range data.DataPoints {
					found[pointName(t, m.Name, each.Attributes, namespace)] = fmt.Sprintf("%d in %s", each.Count, m.Unit)
				}
			}
		}
	}
	return found
}

func pointName(t *testing.T, metric string, labels attribute.Set, namespace string) string {
	value := func(key attribute.Key) string {
		found, _ := labels.Value(key)
		return found.Emit()
	}
	words := []string{metric, value("leasehold.mode")}
	if labels.HasValue("error.type") {
		words = append(words, value("error.type"))
	}
	if labels.Len() != len(words) || value("leasehold.namespace") != namespace { // no key, above all
		t.Error(metric, "has", labels.ToSlice())
	}
	return strings.Join(words, " ")
}

func expect[T any](t *testing.T, is, wanted T) {
	t.Helper()
	if a, b := fmt.Sprint(is), fmt.Sprint(wanted); a != b {
		t.Errorf("is %s, not %s", a, b)
	}
}
