package leasehold

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"log"
	"math"
	"os"
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/grpc"
)

// Forever waits until the lease is granted or the context ends: Wait(Forever).
const Forever = time.Duration(math.MaxInt64)

// settings of a client.
type settings struct {
	tls       *tls.Config
	tokenFile string
	grpc      []grpc.DialOption
	patience  time.Duration
	poll      time.Duration
	flush     time.Duration
	logf      func(format string, args ...any)
	strategy  Strategy // nil: BestEffort
	retryLog  func(RetryStep)
	telemetry Telemetry
}

// ClientOption changes what [Dial] and [Over] make.
type ClientOption func(*settings)

func newSettings(options []ClientOption) settings {
	s := settings{patience: 5 * time.Second, poll: 5 * time.Second, flush: 5 * time.Second, logf: log.Printf, telemetry: silent{}}
	for _, option := range options {
		option(&s)
	}
	return s
}

// TLS encrypts the connections to daemons.
func TLS(config *tls.Config) ClientOption { return func(s *settings) { s.tls = config } }

// TokenFile sends the bearer token in this file with each call. The file is read each time, so that it can be replaced. A token is sent
// over TLS, unix sockets and loopback only: with another address [Dial] fails.
func TokenFile(path string) ClientOption { return func(s *settings) { s.tokenFile = path } }

// GRPC adds options to each connection to a daemon, such as grpc.WithKeepaliveParams.
func GRPC(options ...grpc.DialOption) ClientOption {
	return func(s *settings) { s.grpc = append(s.grpc, options...) }
}

// Patience is how long one server may stay silent before the next address is tried, and how long an acquire goes on without any
// server, after its wait has passed; 5 s by default. Renewals have less: a sixth of the duration.
func Patience(d time.Duration) ClientOption { return func(s *settings) { s.patience = d } }

// Poll is how often a waiter of [Over] looks although no notification has come; 5 s by default. Behind a pooler, where none can come,
// it looks every 0.2 s, or at this interval if it is shorter.
func Poll(d time.Duration) ClientOption { return func(s *settings) { s.poll = d } }

// FlushTimeout is how long [Client.Close] sends what [Lease.TryRelease] left; 5 s by default. What is not sent by then ends by its deadline.
func FlushTimeout(d time.Duration) ClientOption { return func(s *settings) { s.flush = d } }

// Logf gets the few sentences for the operator; log.Printf by default.
func Logf(f func(format string, args ...any)) ClientOption { return func(s *settings) { s.logf = f } }

// request is one acquisition.
type request struct {
	namespace, key, leaseKey, owner string
	duration, wait                  time.Duration
	whileAlive                      bool           // wait counts once the holder is not alive
	atLeast                         *time.Duration // nil: the policy's
	mode                            Mode
	units                           int // of a shared lease
	priority                        int
	askHandOver                     bool // while it waits
	labels                          map[string]string
	scopes                          []Scope // of AcquireAll, in place of namespace, key, mode and units
	listener                        Listener
	strategy                        Strategy // nil: the client's
	told                            Acquisition
	isHold                          bool             // over a stream, where there are streams
	isTick                          bool             // namespace is a schedule
	queued                          func(*HeldError) // told while it waits; may be nil
}

// Option changes an acquisition.
type Option func(*request)

func defaultOwner() string {
	host, err := os.Hostname()
	if err != nil {
		host = "localhost"
	}
	return fmt.Sprintf("%s pid %d", host, os.Getpid())
}

// Duration is how long the lease lives without a renewal; 30 s by default. It is renewed at a third of it.
func Duration(d time.Duration) Option { return func(r *request) { r.duration = d } }

// Wait is how long to queue for a lease that is held; 0, the default, does not wait.
func Wait(d time.Duration) Option { return func(r *request) { r.wait = d } }

// Owner says who holds the lease, for people; host and pid by default. At most 255 bytes.
func Owner(owner string) Option { return func(r *request) { r.owner = owner } }

// Labels are shown with the lease; at most 16.
func Labels(labels map[string]string) Option { return func(r *request) { r.labels = labels } }

// WaitWhileAlive waits as long as the holder is alive; then the time of [Wait] begins to count.
func WaitWhileAlive() Option { return func(r *request) { r.whileAlive = true } }

// WhileConnected has the daemon release the lease, as failed, as soon as the connection breaks: when this process dies, the next holder does not
// wait for the deadline. [Client.Lead] does this by itself. It changes nothing with [Over].
func WhileConnected() Option { return func(r *request) { r.isHold = true } }

// AtLeast has nobody else get the lease until this long after its grant, even if it is released or lost sooner, so that hosts whose
// clocks differ do not all run the same job. At most a day; without it the policy of the namespace counts.
func AtLeast(d time.Duration) Option { return func(r *request) { r.atLeast = &d } }

// Shared leaves room for other shared leases: this one takes so many units, 1 to 1,000,000, of the capacity that the policy of the namespace
// sets. Without a capacity any number of them hold the scope together.
func Shared(units int) Option { return func(r *request) { r.mode, r.units = ModeShared, units } }

// Priority has a waiter overtake each one of a lower priority that came less than the policy's ageing before it, 10 s by default, for each step
// between them. 0, the default, to 1000; one above the policy's max_priority is refused: *[DeniedError] with ACCESS_DENIED.
func Priority(priority int) Option { return func(r *request) { r.priority = priority } }

// Tell has the listener told of the lease.
func Tell(listener Listener) Option { return func(r *request) { r.listener = listener } }

func checkUnits(units int) error {
	if units < 1 || units > 1000000 {
		return wrong("units", "1 to 1000000", units)
	}
	return nil
}

func wrong(field, bound string, value any) error {
	return &ArgumentError{Field: field, Bound: bound, Message: fmt.Sprintf("%s must be %s, not %#v", field, bound, value)}
}

func wrongTime(field, bound string, value time.Duration) error {
	return &ArgumentError{Field: field, Bound: bound, Message: fmt.Sprintf("%s must be %s, not %s", field, bound, value)}
}

// isText: it arrives as it is.
func isText(s string) bool { return utf8.ValidString(s) && !strings.Contains(s, "\x00") }

// check looks at what can be seen here. The rest is for the server.
func (r request) check() error {
	const day = 24 * time.Hour
	if err := r.checkNames(); err != nil {
		return err
	}
	switch {
	case r.duration <= 0 || r.duration > 365*day:
		return wrongTime("duration", "more than 0, at most 365 days", r.duration)
	case r.wait < 0 || r.wait > 100*365*day && r.wait != Forever:
		return wrongTime("wait", "0 to 100 years, or Forever", r.wait)
	case r.whileAlive && r.wait == Forever:
		return wrongTime("wait", "less than Forever with WaitWhileAlive", r.wait)
	case r.atLeast != nil && (*r.atLeast < 0 || *r.atLeast > day):
		return wrongTime("at_least", "0 to a day", *r.atLeast)
	case r.priority < 0 || r.priority > 1000:
		return wrong("priority", "0 to 1000", r.priority)
	case r.askHandOver && r.wait == 0 && !r.whileAlive:
		return wrong("ask_hand_over", "absent without a wait", true)
	case r.mode == ModeShared:
		return checkUnits(r.units)
	}
	return nil
}

func (r request) checkNames() error {
	for _, each := range []struct {
		field, value string
		check        func(string) error
	}{{"namespace", r.namespace, checkNamespace}, {"key", r.key, checkKey}, {"owner", r.owner, checkOwner}} {
		if !isText(each.value) {
			return wrong(each.field, "a string of UTF-8 without NUL", each.value)
		}
		if err := each.check(each.value); err != nil {
			return err
		}
	}
	return checkLabels(r.labels)
}

func (s settings) check() error {
	switch {
	case s.patience <= 0:
		return wrongTime("patience", "more than 0", s.patience)
	case s.poll <= 0:
		return wrongTime("poll", "more than 0", s.poll)
	}
	return nil
}

// outcome is what a lease is released with.
type outcome struct {
	failed  bool
	value   string
	problem error
}

// statement releases in SQL.
func (o outcome) statement() string {
	if o.failed {
		return "select leasehold.release_fail($1::text, $2::text, $3::text::uuid, $4::text)"
	}
	return "select leasehold.release_ok($1::text, $2::text, $3::text::uuid, nullif($4::text, '')::jsonb)"
}

func outcomeOf(options []ReleaseOption) (o outcome) {
	for _, option := range options {
		option(&o)
	}
	return o
}

// ReleaseOption says how the work ended; without one it succeeded.
type ReleaseOption func(*outcome)

// Result is kept with the scope as JSON; at most 8 KiB.
func Result(v any) ReleaseOption {
	return func(o *outcome) {
		text, err := json.Marshal(v)
		*o = outcome{value: string(text), problem: err}
	}
}

// Failure releases the lease as failed, with the error's words.
func Failure(err error) ReleaseOption {
	return func(o *outcome) {
		words := err.Error()
		if len(words) > 8192 {
			words = strings.ToValidUTF8(words[:8192], "")
		}
		*o = outcome{failed: true, value: words}
	}
}
