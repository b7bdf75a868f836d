package leaseholdtest_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"

	leasehold "leasehold.example/go"
	"leasehold.example/go/leaseholdtest"
)

// The parent kills such a program, and looks what is left.
func TestMain(m *testing.M) {
	if os.Getenv("LEASEHOLD_CHILD") != "" {
		os.Args = []string{os.Args[0], "-test.run=TestChild", "-test.v"}
	}
	os.Exit(m.Run())
}

func TestChild(t *testing.T) {
	if os.Getenv("LEASEHOLD_CHILD") == "" {
		return
	}
	fmt.Println("at", leaseholdtest.Start(t).SQL("show data_directory;"))
	time.Sleep(10 * time.Minute)
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
	for end := time.Now().Add(time.Minute); !condition(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s did not come true within a minute", what)
		}
	}
}

func overGRPC(_ *testing.T, w *leaseholdtest.World) (*leasehold.Client, error) {
	return leasehold.Dial(w.Server)
}

func inSQL(t *testing.T, w *leaseholdtest.World) (*leasehold.Client, error) {
	db, err := sql.Open("pgx", w.Database)
	must(t, err)
	t.Cleanup(func() { db.Close() })
	return leasehold.Over(db)
}

func begin(t *testing.T, client func(*testing.T, *leaseholdtest.World) (*leasehold.Client, error)) (*leaseholdtest.World, *leasehold.Client) {
	w := leaseholdtest.Start(t)
	c, err := client(t, w)
	must(t, err)
	t.Cleanup(func() { c.Close() })
	return w, c
}

// both runs a test with a client of the daemon, and with one of its database.
func both(t *testing.T, test func(*testing.T, *leaseholdtest.World, *leasehold.Client)) {
	for _, client := range []func(*testing.T, *leaseholdtest.World) (*leasehold.Client, error){overGRPC, inSQL} {
		t.Run("", func(t *testing.T) {
			w, c := begin(t, client)
			test(t, w, c)
		})
	}
}

func acquire(t *testing.T, w *leaseholdtest.World, c *leasehold.Client, options ...leasehold.Option) *leasehold.Lease {
	t.Helper()
	l, err := c.Acquire(context.Background(), w.Namespace, "k", options...)
	must(t, err)
	return l
}

func row(w *leaseholdtest.World, columns string) string {
	return w.SQL("select " + columns + " from leasehold.scope where namespace = :'namespace' and key = 'k';")
}

func lost(t *testing.T, l *leasehold.Lease) leasehold.Reason {
	t.Helper()
	wait(t, "the loss", func() bool { return l.Context().Err() != nil })
	var lost *leasehold.LostError
	if !errors.As(leasehold.Cause(l.Context()), &lost) {
		t.Fatal("the cause is", leasehold.Cause(l.Context()))
	}
	return lost.Reason
}

func is[T comparable](t *testing.T, got, want T) {
	t.Helper()
	if got != want {
		t.Fatalf("%v instead of %v", got, want)
	}
}

func TestWorldsDoNotSeeEachOther(t *testing.T) {
	w, c := begin(t, overGRPC)
	other := leaseholdtest.Start(t)
	acquire(t, w, c)
	acquire(t, other, c)
	_, err := c.Acquire(context.Background(), w.Namespace, "k")
	var held *leasehold.HeldError
	is(t, errors.As(err, &held), true)
}

func TestALeaseThatIsLostIsTold(t *testing.T) {
	w, c := begin(t, overGRPC)
	l := acquire(t, w, c, leasehold.Duration(6*time.Second))
	is(t, w.Lose("k"), true)
	is(t, lost(t, l), leasehold.Forced)
	is(t, w.Lose("k"), false)
}

func TestTimePassesForThisWorldAlone(t *testing.T) {
	w, c := begin(t, overGRPC)
	other := leaseholdtest.Start(t)
	l := acquire(t, w, c, leasehold.Duration(6*time.Second))
	beside := acquire(t, other, c)
	w.Pass(time.Hour)
	is(t, row(w, "state"), "free")
	is(t, lost(t, l), leasehold.Expired)
	must(t, beside.Release(context.Background()))
}

func TestAnAnswerThatIsLostCostsNothing(t *testing.T) {
	both(t, func(t *testing.T, w *leaseholdtest.World, c *leasehold.Client) {
		acquire(t, leaseholdtest.Start(t), c) // connects
		w.Drop()
		l := acquire(t, w, c)
		is(t, row(w, "token"), fmt.Sprint(l.Token()))
		w.Drop()
		must(t, l.Release(context.Background()))
		is(t, row(w, "state"), "free")
	})
}

func TestALateAnswerLeavesLessOfTheLease(t *testing.T) {
	both(t, func(t *testing.T, w *leaseholdtest.World, c *leasehold.Client) {
		w.Delay(2 * time.Second)
		l := acquire(t, w, c, leasehold.Duration(20*time.Second))
		if left := l.Remaining(); left <= 0 || left > 14*time.Second { // a fifth is the margin
			t.Fatal(left)
		}
	})
}

func TestSilenceIsToldBeforeTheDeadline(t *testing.T) {
	both(t, func(t *testing.T, w *leaseholdtest.World, c *leasehold.Client) {
		l := acquire(t, w, c, leasehold.Duration(6*time.Second))
		w.Silence(true)
		is(t, lost(t, l), leasehold.Unreachable)
		w.Silence(false)
	})
}

func TestAFailoverKeepsLeases(t *testing.T) {
	w, c := begin(t, overGRPC)
	l := acquire(t, w, c)
	timeline := w.SQL("select timeline from leasehold.incarnation;")
	w.FailOver()
	if w.SQL("select timeline from leasehold.incarnation;") == timeline {
		t.Fatal("no new timeline")
	}
	beats := row(w, "heartbeats")
	wait(t, "a renewal", func() bool { return row(w, "heartbeats > "+beats) == "t" })
	is(t, row(w, "token"), fmt.Sprint(l.Token()))
	must(t, l.Release(context.Background()))
	if next := acquire(t, w, c); next.Token()-l.Token() < 1<<24 {
		t.Fatal("what was drawn and lost stays behind by a jump alone")
	}
}

func TestTheDaemonEndsWhenItsProgramIsKilled(t *testing.T) {
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), "LEASEHOLD_CHILD=1")
	out, err := child.StdoutPipe()
	must(t, err)
	must(t, child.Start())
	var directory, all string
	for buffer := make([]byte, 4096); directory == ""; {
		n, err := out.Read(buffer)
		must(t, err)
		all += string(buffer[:n])
		if _, rest, found := strings.Cut(all, "at /"); found && strings.Contains(rest, "/state/data") {
			directory, _, _ = strings.Cut("/"+rest, "/state/data")
		}
	}
	is(t, exec.Command("pgrep", "-f", directory).Run(), nil)
	must(t, child.Process.Signal(syscall.SIGKILL))
	child.Wait()
	wait(t, "the end of the daemon", func() bool {
		_, err := os.Stat(directory)
		return os.IsNotExist(err) && exec.Command("pgrep", "-f", directory).Run() != nil
	})
}
