package leasehold_test

import (
	"bufio"
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"

	leasehold "leasehold.example/go"
)

// ask calls tests/clients/control.py.
func ask(t testing.TB, what string, with, into any) {
	t.Helper()
	body, err := json.Marshal(with)
	must(t, err)
	answer, err := http.Post(os.Getenv("LEASEHOLD_CONTROL")+"/"+what, "application/json", bytes.NewReader(body))
	must(t, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	must(t, err)
	if answer.StatusCode != 200 {
		t.Fatalf("%s %s: %s", what, body, text)
	}
	if into != nil {
		must(t, json.Unmarshal(text, into))
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// wait is a bound, not a measurement.
func wait(t testing.TB, what string, condition func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !condition(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s did not come true within a minute", what)
		}
	}
}

type object map[string]any

// site is one transport, and the scope of one test.
type site struct {
	*testing.T
	on, key     string
	target, dsn string
	port        int
}

func newSite(t *testing.T, on string) *site {
	var all struct {
		GRPC, SQL, Pooler string
		GRPCSQL           string `json:"grpc_sql"`
		Port              int
	}
	ask(t, "site", object{}, &all)
	s := &site{T: t, on: on, key: t.Name(), target: all.GRPC, port: all.Port}
	s.dsn = map[string]string{"grpc": all.GRPCSQL, "sql": all.SQL, "pooler": all.Pooler}[on]
	t.Cleanup(func() {
		wait(t, "the end of all goroutines of the package", func() bool { return leaked() == "" })
	})
	return s
}

// leaked is the stack of a goroutine of the package's.
func leaked() string {
	all := make([]byte, 1<<20)
	for _, stack := range strings.Split(string(all[:runtime.Stack(all, true)]), "\n\n") {
		if strings.Contains(stack, "leasehold.example/go.") {
			return stack
		}
	}
	return ""
}

func (s *site) db() *sql.DB { return s.dbAt(s.dsn) }

func (s *site) application() string { return "go-" + s.Name()[len("TestCases/"):] }

func (s *site) dbAt(dsn string) *sql.DB {
	db, err := sql.Open("pgx", dsn+" application_name="+s.application())
	must(s, err)
	s.Cleanup(func() { db.Close() })
	return db
}

// client has nothing in its way, and the time that a busy machine takes.
func (s *site) client(options ...leasehold.ClientOption) *leasehold.Client {
	return s.clientAt(s.target, append([]leasehold.ClientOption{leasehold.Patience(20 * time.Second)}, options...)...)
}

// clientAt uses another target: of the daemon, or a DSN.
func (s *site) clientAt(target string, options ...leasehold.ClientOption) *leasehold.Client {
	var c *leasehold.Client
	var err error
	switch {
	case s.on == "grpc":
		c, err = leasehold.Dial(target, options...)
	case target == s.target:
		c, err = leasehold.Over(s.db(), options...)
	default:
		c, err = leasehold.Over(s.dbAt(target), options...)
	}
	must(s, err)
	s.Cleanup(func() { c.Close() })
	return c
}

func (s *site) psql(format string, with ...any) (out string) {
	s.Helper()
	ask(s, "psql", object{"on": s.on, "sql": fmt.Sprintf(format, with...)}, &out)
	return out
}

func (s *site) row(columns string) string {
	s.Helper()
	return s.psql("select %s from leasehold.scope where namespace = 'cases' and key = '%s'", columns, s.key)
}

func (s *site) waiters() string {
	return s.psql("select count(*) from leasehold.queue where namespace = 'cases' and key = '%s'", s.key)
}

func (s *site) beats() (n int) {
	fmt.Sscan(s.row("heartbeats"), &n)
	return n
}

func (s *site) acquire(c *leasehold.Client, options ...leasehold.Option) *leasehold.Lease {
	s.Helper()
	l, err := c.Acquire(context.Background(), "cases", s.key, options...)
	must(s, err)
	return l
}

func (s *site) release(l *leasehold.Lease) {
	s.Helper()
	must(s, l.Release(context.Background()))
}

// later is the outcome of an acquire that waits.
type later struct {
	l   *leasehold.Lease
	err error
}

// queue starts an acquire, and returns when it has the nth place.
func (s *site) queue(ctx context.Context, c *leasehold.Client, n int, options ...leasehold.Option) chan later {
	s.Helper()
	done := make(chan later, 1)
	go func() {
		l, err := c.Acquire(ctx, "cases", s.key, append([]leasehold.Option{leasehold.Wait(time.Minute)}, options...)...)
		done <- later{l, err}
	}()
	wait(s, "a place in the queue", func() bool { return s.waiters() == fmt.Sprint(n) })
	return done
}

func (s *site) lost(l *leasehold.Lease) *leasehold.LostError {
	s.Helper()
	select {
	case <-l.Context().Done():
	case <-time.After(time.Minute):
		s.Fatal("nobody said that the lease is lost")
	}
	var lost *leasehold.LostError
	if !errors.As(leasehold.Cause(l.Context()), &lost) {
		s.Fatal("the cause is", leasehold.Cause(l.Context()))
	}
	return lost
}

// proxy before a daemon or the database; what the tests ask of both.
type proxy interface {
	address() string
	freeze(bool)
}

func (s *site) proxy() proxy {
	if s.on == "grpc" {
		return s.flaky(0)
	}
	return s.pipe()
}

// flaky is tests/lib/flaky_proxy.py.
type flaky struct {
	s      *site
	ID     int
	Target string
}

func (s *site) flaky(daemon int) *flaky {
	p := &flaky{s: s}
	ask(s, "proxy", object{"id": daemon}, p)
	return p
}

func (p *flaky) address() string { return p.Target }
func (p *flaky) freeze(on bool)  { ask(p.s, "proxy/set", object{"id": p.ID, "frozen": on}, nil) }
func (p *flaky) actAsHTTP()      { ask(p.s, "proxy/set", object{"id": p.ID, "http": true}, nil) }
func (p *flaky) cut()            { ask(p.s, "proxy/cut", object{"id": p.ID}, nil) }
func (p *flaky) state() (state struct {
	Accepted, Requests, Replies, Held int
	Sent                              int `json:"messages_sent"`
}) {
	ask(p.s, "proxy/state", object{"id": p.ID}, &state)
	return state
}
func (p *flaky) letRequestsGo() { ask(p.s, "proxy/let_requests_go", object{"id": p.ID}, nil) }
func (p *flaky) decideRequest(actions ...any) {
	ask(p.s, "proxy/set", object{"id": p.ID, "decide_request": actions}, nil)
}
func (p *flaky) decide(actions ...any) {
	ask(p.s, "proxy/set", object{"id": p.ID, "decide": actions}, nil)
}

// pipe is a proxy before PostgreSQL. While it is frozen, answers do not pass; while it refuses, there are no connections.
type pipe struct {
	s        *site
	listener net.Listener
	mu       sync.Mutex
	goes     *sync.Cond
	frozen   bool
	refusing bool
	said     bytes.Buffer // by clients
	answered bytes.Buffer // of that
	conns    []net.Conn
	held     string   // a statement with this is late
	late     net.Conn // its connection to the server
	lateData []byte
}

func (s *site) pipe() *pipe {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(s, err)
	p := &pipe{s: s, listener: listener}
	p.goes = sync.NewCond(&p.mu)
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", fmt.Sprint("127.0.0.1:", s.port))
			if err != nil {
				client.Close()
				continue
			}
			p.mu.Lock()
			p.conns = append(p.conns, client, server)
			if p.refusing {
				client.Close()
			}
			p.mu.Unlock()
			var asked bytes.Buffer
			go p.copy(server, client, func(data []byte) bool {
				p.said.Write(data)
				asked.Write(data)
				return !p.isLate(server, data)
			})
			go p.copy(client, server, func([]byte) bool {
				for p.frozen {
					p.goes.Wait()
				}
				asked.WriteTo(&p.answered)
				return true
			})
		}
	}()
	s.Cleanup(func() {
		listener.Close()
		p.freeze(false)
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, conn := range p.conns {
			conn.Close()
		}
	})
	return p
}

// copy passes on what `look` says.
func (p *pipe) copy(to, from net.Conn, look func([]byte) bool) {
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.late != to {
			to.Close()
		}
	}()
	buffer := make([]byte, 65536)
	for {
		n, err := from.Read(buffer)
		if err != nil {
			return
		}
		p.mu.Lock()
		passes := look(buffer[:n])
		p.mu.Unlock()
		if !passes {
			continue
		}
		if _, err := to.Write(buffer[:n]); err != nil {
			return
		}
	}
}

// hold has the next statement with these words wait for letGo, though its connection ends; the others pass.
func (p *pipe) hold(words string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held = words
	p.answered.Reset()
}

func (p *pipe) isLate(server net.Conn, data []byte) bool {
	if p.held != "" && p.late == nil && bytes.Contains(data, []byte(p.held)) {
		p.late = server
	}
	if p.late != server {
		return false
	}
	p.lateData = append(p.lateData, data...)
	return true
}

func (p *pipe) letGo() {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, err := p.late.Write(p.lateData)
	must(p.s, err)
}

func (p *pipe) hasAnswered(words string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return bytes.Contains(p.answered.Bytes(), []byte(words))
}

func (p *pipe) address() string {
	dsn := p.s.dsn[strings.Index(p.s.dsn, "dbname="):]
	return fmt.Sprintf("host=127.0.0.1 port=%d user=postgres %s sslmode=disable", p.listener.Addr().(*net.TCPAddr).Port, dsn)
}

func (p *pipe) freeze(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.frozen = on
	p.goes.Broadcast()
}

// refuse breaks the connections that there are too.
func (p *pipe) refuse(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refusing = on
	for _, conn := range p.conns {
		conn.Close()
	}
}

// lock keeps the row of the scope locked until what it returns is called.
func (s *site) lock() (end func()) {
	tx, err := s.db().Begin()
	must(s, err)
	_, err = tx.Exec(fmt.Sprintf("select from leasehold.scope where namespace = 'cases' and key = '%s' for update", s.key))
	must(s, err)
	return func() { must(s, tx.Rollback()) }
}

// daemon is one more.
type daemon struct {
	s      *site
	ID     int
	Target string
}

func (s *site) daemon() *daemon {
	d := &daemon{s: s}
	ask(s, "daemon", object{}, d)
	s.Cleanup(func() { d.signal("SIGCONT") })
	return d
}

func (d *daemon) signal(name string) {
	ask(d.s, "daemon/signal", object{"id": d.ID, "signal": name}, nil)
}

// program is this test program as a child, doing one of `children`.
type program struct {
	s *site
	*exec.Cmd
	mu    sync.Mutex
	lines []string
	ended chan struct{}
}

func (s *site) program(what string, duration time.Duration) *program {
	if s.on != "grpc" {
		return s.programAt(what, duration, s.dsn)
	}
	return s.programAt(what, duration, s.target)
}

func (s *site) programAt(what string, duration time.Duration, target string) *program {
	p := &program{s: s, Cmd: exec.Command(os.Args[0]), ended: make(chan struct{})}
	p.Env = append(os.Environ(), "LEASEHOLD_CHILD="+strings.Join([]string{what, s.on, target, s.key, duration.String()}, "\n"))
	p.Stderr = os.Stderr
	out, err := p.StdoutPipe()
	must(s, err)
	must(s, p.Start())
	go func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			p.mu.Lock()
			p.lines = append(p.lines, lines.Text())
			p.mu.Unlock()
		}
		p.Wait()
		close(p.ended)
	}()
	s.Cleanup(func() {
		p.Process.Kill()
		<-p.ended
	})
	return p
}

// line is the first that begins with `word`, once there is one.
func (p *program) line(word string) (found string) {
	p.s.Helper()
	wait(p.s, "a line of "+word, func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, line := range p.lines {
			if strings.HasPrefix(line, word) {
				found = line
				return true
			}
		}
		return false
	})
	return found
}

func (p *program) count(word string) (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, line := range p.lines {
		if line == word {
			n++
		}
	}
	return n
}

func child(what, on, target, key, duration string) int {
	d, err := time.ParseDuration(duration)
	var c *leasehold.Client
	if on == "grpc" {
		c, err = leasehold.Dial(target)
	} else if db, trouble := sql.Open("pgx", target); trouble == nil {
		c, err = leasehold.Over(db)
	}
	if err != nil {
		panic(err)
	}
	work := func(ctx context.Context, l *leasehold.Lease) error {
		fmt.Println("token", l.Token())
		for ctx.Err() == nil {
			fmt.Println("working")
			time.Sleep(20 * time.Millisecond)
		}
		fmt.Println("lost", leasehold.Cause(ctx))
		os.Exit(4)
		return nil
	}
	switch what {
	case "work":
		fmt.Println(c.Do(context.Background(), "cases", key, work, leasehold.Duration(d)))
	case "hold":
		fmt.Println(c.Do(context.Background(), "cases", key, work, leasehold.Duration(d), leasehold.WhileConnected()))
	case "lead":
		fmt.Println(c.Lead(context.Background(), "cases", key, leasehold.Elector{Lead: work, Duration: d, Owner: "child"}))
	case "exit":
		if _, err := c.Acquire(context.Background(), "cases", key, leasehold.Duration(d)); err == nil {
			return 7
		}
	}
	return 1
}

func TestMain(m *testing.M) {
	if args := strings.Split(os.Getenv("LEASEHOLD_CHILD"), "\n"); len(args) == 5 {
		os.Exit(child(args[0], args[1], args[2], args[3], args[4]))
	}
	os.Exit(m.Run())
}

func (s *site) is(got, want string) {
	s.Helper()
	if got != want {
		s.Fatalf("%q instead of %q", got, want)
	}
}

// holdBack keeps answers from a client, or, before a daemon, drops them or has them come late.
func (s *site) holdBack(p proxy, on bool) {
	switch p := p.(type) {
	case *pipe:
		p.freeze(on)
	case *flaky:
		switch {
		case on && strings.Contains(s.Name(), "deadline"):
			p.decide([]any{"delay", 2}, "pass")
		case on:
			p.decide("drop")
		default:
			p.decide("pass")
		}
	}
}

// reap does what daemons do by themselves; without one cron does.
func (s *site) reap() {
	if s.on == "grpc" {
		return
	}
	done := make(chan bool)
	ended := make(chan bool)
	go func() {
		defer close(ended)
		for {
			select {
			case <-done:
				return
			case <-time.After(200 * time.Millisecond):
				s.psql("select count(*) from leasehold.reap()")
			}
		}
	}()
	s.Cleanup(func() { close(done); <-ended })
}

// stand makes another candidate, once `leader` leads (empty: anybody); it sends its token when it is elected, and leads until the test ends.
func (s *site) stand(leader string) chan int64 {
	seen, token, ended := make(chan string, 10), make(chan int64, 1), make(chan error)
	ctx, cancel := context.WithCancel(context.Background())
	c := s.client()
	go func() {
		ended <- c.Lead(ctx, "cases", s.key, leasehold.Elector{
			OnLeader: func(owner string) { seen <- owner },
			Lead: func(ctx context.Context, l *leasehold.Lease) error {
				token <- l.Token()
				<-ctx.Done()
				return nil
			}})
	}()
	s.Cleanup(func() { cancel(); <-ended })
	if leader != "" {
		s.is(<-seen, leader)
	}
	return token
}
