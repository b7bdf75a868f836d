// Package leaseholdtest is for tests of code that holds leases: a daemon with an embedded PostgreSQL for the test program, and a namespace
// of its own for each test.
//
//	world := leaseholdtest.Start(t)
//	client, err := leasehold.Dial(world.Server)
//	lease, err := client.Acquire(ctx, world.Namespace, "invoice-42")
//	world.Lose("invoice-42")
//
// The daemon is that of the environment's LEASEHOLDD, else leaseholdd in PATH. It ends when the program ends, also when that is killed.
package leaseholdtest

import (
	"bufio"
	_ "embed"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

//go:embed keeper.sh
var keeper string

const (
	longest = 365 * 24 * time.Hour
	force   = "select count(*) from leasehold.force_release(:'namespace', :'key', 'a test', all_holders => true);"
	reap    = "select count(*) from leasehold.reap();"
	age     = "update leasehold.%s set acquired_at = acquired_at - :'by'::interval, heartbeat_at = heartbeat_at - :'by'::interval," +
		" deadline = deadline - :'by'::interval, ended_at = ended_at - :'by'::interval, check_at = check_at - :'by'::interval" +
		" where namespace = :'namespace' or starts_with(namespace, :'namespace' || '.');"
)

// daemon is that of the program.
type daemon struct {
	commands  io.WriteCloser
	answers   *bufio.Reader
	server    string
	directory string // of PostgreSQL's socket
	worlds    int
}

var (
	mu      sync.Mutex // guards what follows, and the daemon's commands
	running *daemon
)

func start() (*daemon, error) {
	name := os.Getenv("LEASEHOLDD")
	if name == "" {
		name = "leaseholdd"
	}
	program, err := exec.LookPath(name)
	if err != nil {
		return nil, fmt.Errorf("no daemon: put leaseholdd into PATH, or name it in LEASEHOLDD: %w", err)
	}
	command := exec.Command("/bin/sh", "-c", keeper, "keeper.sh", program)
	command.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // it ends the daemon after an interrupt, too
	command.Stderr = os.Stderr
	commands, err := command.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := command.Start(); err != nil {
		return nil, err
	}
	d := &daemon{commands: commands, answers: bufio.NewReader(out)}
	line, err := d.answers.ReadString('\n')
	if err != nil {
		return nil, fmt.Errorf("leaseholdd does not start: its log is above: %w", err)
	}
	d.server, d.directory, _ = strings.Cut(strings.TrimSpace(line), " ")
	d.directory += "/state/run"
	return d, nil
}

// World is the namespace of one test, and what the test does to those who hold leases there.
type World struct {
	Namespace string
	Server    string // for leasehold.Dial; Drop, Delay and Silence work on both
	Database  string // a DSN, for leasehold.Over
	t         testing.TB
	direct    string
	faults    *faults
}

// Start makes a world that ends with the test; the first one starts the daemon.
func Start(t testing.TB) *World {
	t.Helper()
	mu.Lock()
	defer mu.Unlock()
	if running == nil {
		d, err := start()
		if err != nil {
			t.Fatal(err)
		}
		running = d
	}
	running.worlds++
	w := &World{Namespace: fmt.Sprintf("test-%d", running.worlds), t: t, faults: newFaults()}
	to := func(network, server string) *net.TCPAddr {
		p, err := newProxy(network, server, w.faults)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(p.close)
		return p.address()
	}
	w.direct = "host=" + running.directory + " user=leasehold dbname=leasehold"
	w.Server = to("tcp", running.server).String()
	w.Database = fmt.Sprintf("host=127.0.0.1 port=%d user=leasehold dbname=leasehold sslmode=disable", to("unix", running.directory+"/.s.PGSQL.5432").Port)
	t.Cleanup(w.faults.close)
	return w
}

// SQL is what psql prints. :'namespace' is the world's.
func (w *World) SQL(script string, values ...string) string {
	w.t.Helper()
	arguments := []string{"-qAtX", "--set=ON_ERROR_STOP=1", "--set=namespace=" + w.Namespace}
	for _, value := range values {
		arguments = append(arguments, "--set="+value)
	}
	command := exec.Command("psql", append(arguments, w.direct)...)
	command.Stdin = strings.NewReader(script)
	out, err := command.CombinedOutput()
	if err != nil {
		w.t.Fatalf("psql: %v: %s", err, out)
	}
	return strings.TrimSpace(string(out))
}

// Lose has an administrator end the lease of this key. False: nobody has it.
func (w *World) Lose(key string) bool {
	w.t.Helper()
	return w.SQL(force, "key="+key) != "0"
}

// Pass makes the leases here so much older. Those whose time is over end.
func (w *World) Pass(d time.Duration) {
	w.t.Helper()
	if d <= 0 || d > longest {
		w.t.Fatalf("the time that passes must be above 0, at most %v, not %v", longest, d)
	}
	w.SQL("begin;"+fmt.Sprintf(age, "scope")+fmt.Sprintf(age, "share")+"commit;"+reap, fmt.Sprintf("by=%d us", d.Microseconds()))
}

// FailOver breaks every connection of every test; the daemon and its PostgreSQL start again, on the same address and a new timeline.
func (w *World) FailOver() {
	w.t.Helper()
	mu.Lock()
	defer mu.Unlock()
	if _, err := io.WriteString(running.commands, "fail over\n"); err != nil {
		w.t.Fatal(err)
	}
	if _, err := running.answers.ReadString('\n'); err != nil {
		w.t.Fatal("leaseholdd does not start again: its log is above")
	}
}

// Drop: what is asked of Leasehold next is done, its answer gets lost, and the connection is cut.
func (w *World) Drop() { w.faults.add(0) }

// Delay lets the next answer of Leasehold come that much later, and what comes behind it on its connection.
func (w *World) Delay(d time.Duration) {
	w.t.Helper()
	if d <= 0 || d > longest {
		w.t.Fatalf("a delay must be above 0, at most %v, not %v", longest, d)
	}
	w.faults.add(d)
}

// Silence keeps every answer back; with false they arrive, late.
func (w *World) Silence(on bool) { w.faults.silence(on) }
