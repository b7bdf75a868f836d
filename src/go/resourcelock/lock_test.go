package resourcelock_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/leaderelection"

	leasehold "leasehold.example/go"
	"leasehold.example/go/resourcelock"
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
	if into != nil {
		must(t, json.NewDecoder(answer.Body).Decode(into))
	}
}

func target(t testing.TB) string {
	var site struct{ GRPC string }
	ask(t, "site", struct{}{}, &site)
	return site.GRPC
}

// candidate is client-go's own elector on a Lock.
type candidate struct {
	client         *leasehold.Client
	lock           *resourcelock.Lock
	leads          chan int64 // the token
	stopped, ended chan struct{}
	resign         context.CancelFunc
}

func stand(target, key, identity string, duration time.Duration) (*candidate, error) {
	client, err := leasehold.Dial(target)
	if err != nil {
		return nil, err
	}
	ctx, resign := context.WithCancel(context.Background())
	c := &candidate{client, resourcelock.New(client, "controllers", key, identity), make(chan int64, 10), make(chan struct{}),
		make(chan struct{}), resign}
	go func() {
		defer close(c.ended)
		leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{
			Lock: c.lock, LeaseDuration: duration, RenewDeadline: duration * 2 / 3, RetryPeriod: 200 * time.Millisecond, ReleaseOnCancel: true,
			Callbacks: leaderelection.LeaderCallbacks{
				OnStartedLeading: func(context.Context) { c.leads <- c.lock.Token() },
				OnStoppedLeading: func() { close(c.stopped) },
			},
		})
	}()
	return c, nil
}

func (c *candidate) close() {
	c.resign()
	<-c.ended
	c.client.Close()
}

func receive[T any](t testing.TB, from <-chan T) (got T) {
	t.Helper()
	select {
	case got = <-from:
	case <-time.After(time.Minute):
		t.Fatal("nothing came within a minute")
	}
	return got
}

func TestALeaderThatResignsIsFollowedWithALargerToken(t *testing.T) {
	first, err := stand(target(t), t.Name(), "first", 5*time.Minute)
	must(t, err)
	defer first.close()
	token := receive(t, first.leads)
	second, err := stand(target(t), t.Name(), "second", 5*time.Minute)
	must(t, err)
	defer second.close()
	record, _, err := second.lock.Get(context.Background())
	must(t, err)
	if record.HolderIdentity != "first" || int64(record.LeaderTransitions) != token {
		t.Fatal(record, token)
	}
	first.resign()
	receive(t, first.stopped)
	if next := receive(t, second.leads); next <= token {
		t.Fatal(token, next)
	}
}

func TestALeaderThatIsKilledIsFollowed(t *testing.T) {
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), "LEASEHOLD_CHILD="+target(t)+" "+t.Name())
	out, err := child.StdoutPipe()
	must(t, err)
	must(t, child.Start())
	var token int64
	_, err = fmt.Fscan(bufio.NewReader(out), &token)
	must(t, err)
	next, err := stand(target(t), t.Name(), "next", 5*time.Minute)
	must(t, err)
	defer next.close()
	must(t, child.Process.Kill())
	child.Wait()
	if later := receive(t, next.leads); later <= token {
		t.Fatal(token, later)
	}
}

func TestALeaderThatIsCutOffStopsBeforeTheNextOneLeads(t *testing.T) {
	var proxy struct {
		ID     int
		Target string
	}
	ask(t, "proxy", map[string]int{"id": 0}, &proxy)
	first, err := stand(proxy.Target, t.Name(), "first", 6*time.Second)
	must(t, err)
	defer first.close()
	receive(t, first.leads)
	next, err := stand(target(t), t.Name(), "next", 6*time.Second)
	must(t, err)
	defer next.close()
	ask(t, "proxy/set", map[string]any{"id": proxy.ID, "frozen": true}, nil)
	receive(t, next.leads)
	if first.lock.Token() != 0 {
		t.Fatal("two lead")
	}
	receive(t, first.stopped)
	ask(t, "proxy/set", map[string]any{"id": proxy.ID, "frozen": false}, nil)
}

func TestMain(m *testing.M) {
	if args := strings.Fields(os.Getenv("LEASEHOLD_CHILD")); len(args) == 2 {
		c, err := stand(args[0], args[1], "child", 5*time.Minute)
		if err != nil {
			panic(err)
		}
		fmt.Println(<-c.leads)
		select {}
	}
	os.Exit(m.Run())
}
