package leasehold_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"time"

	leasehold "leasehold.example/go"
)

// tables are those of tests/clients/cases.json.
func tables(s *site) (all struct {
	WrongArguments []struct {
		Argument string
		Value    any
		Typed    *bool
	} `json:"wrong_arguments"`
	TokenAddresses map[string]bool   `json:"token_addresses"`
	SQLStates      map[string]string `json:"sqlstates"`
}) {
	text, err := os.ReadFile(os.Getenv("LEASEHOLD_CASES"))
	must(s, err)
	must(s, json.Unmarshal(text, &all))
	return all
}

func (s *site) force() { s.psql("select from leasehold.force_release('cases', '%s', 'a test')", s.key) }

// The cases about what the end of work tells, and about arguments.
var lossCases = []testCase{
	{"unheard_loss_is_told_at_the_end", "grpc sql pooler", func(s *site) {
		c, broken := s.client(), errors.New("the disk is full")
		for _, result := range []error{nil, broken} {
			err := c.Do(context.Background(), "cases", s.key, func(context.Context, *leasehold.Lease) error {
				s.force()
				return result
			}, leasehold.Duration(5*time.Minute))
			var lost *leasehold.LostError
			if !errors.As(err, &lost) || lost.Reason != leasehold.Forced {
				s.Fatal(err)
			}
			if result != nil && !strings.Contains(err.Error(), result.Error()) {
				s.Fatal(err)
			}
		}
		s.is(s.row("last_outcome"), "forced")
	}},
	{"listener_that_throws_costs_nothing", "grpc sql", func(s *site) {
		ctx, c := context.Background(), s.client()
		l := s.acquire(c)
		for _, listener := range []func(c *leasehold.Client){
			func(*leasehold.Client) { panic("the listener is broken") },
			func(c *leasehold.Client) { must(s, c.Close()); panic("as it wished") },
		} {
			func() {
				defer func() {
					if recover() == nil {
						s.Error("no panic")
					}
				}()
				candidate := s.client()
				candidate.Lead(ctx, "cases", s.key, leasehold.Elector{OnLeader: func(string) { listener(candidate) },
					Lead: func(context.Context, *leasehold.Lease) error { return nil }})
			}()
			wait(s, "the end of the candidate", func() bool { return s.waiters() == "0" })
		}
		must(s, l.Release(ctx))
		must(s, s.acquire(c).Release(ctx))
	}},
	{"released_lease_is_not_held", "grpc sql pooler", func(s *site) {
		ctx := context.Background()
		must(s, s.client().Do(ctx, "cases", s.key, func(work context.Context, l *leasehold.Lease) error {
			// By several at once, and by one who gives up before the answer.
			hasty, cancel := context.WithTimeout(ctx, time.Microsecond)
			defer cancel()
			l.Release(hasty, leasehold.Result(map[string]int{"rows": 3}))
			var all sync.WaitGroup
			for i := 0; i < 3; i++ {
				all.Add(1)
				go func() {
					defer all.Done()
					if err := l.Release(ctx, leasehold.Result(map[string]int{"rows": 3})); err != nil {
						s.Error(err)
					}
				}()
			}
			all.Wait()
			if work.Err() == nil || l.Remaining() != 0 || l.Lost() != nil {
				s.Fatal(work.Err(), l.Remaining(), l.Lost())
			}
			return nil
		}))
		s.is(s.row("state, last_outcome, last_result ->> 'rows'"), "free|ok|3")
	}},
	{"dropped_lease_is_renewed", "grpc sql", func(s *site) {
		s.acquire(s.client(), leasehold.Duration(6*time.Second))
		wait(s, "two renewals", func() bool {
			runtime.GC()
			return s.beats() >= 2
		})
		s.is(s.row("state"), "held")
	}},
	{"wrong_arguments_are_named", "grpc sql", func(s *site) {
		c := s.client()
		for _, row := range tables(s).WrongArguments {
			if row.Typed != nil && !*row.Typed { // it does not compile
				continue
			}
			number, _ := row.Value.(float64)
			seconds := time.Duration(number) * time.Second
			namespace, key, field := "cases", s.key, row.Argument
			var options []leasehold.Option
			err := error(nil)
			switch row.Argument {
			case "namespace":
				namespace = row.Value.(string)
			case "key":
				key = row.Value.(string)
			case "owner":
				options = append(options, leasehold.Owner(row.Value.(string)))
			case "duration":
				options = append(options, leasehold.Duration(seconds))
			case "wait":
				options = append(options, leasehold.Wait(seconds))
			case "at_least":
				options = append(options, leasehold.AtLeast(seconds))
			case "units":
				options = append(options, leasehold.Shared(int(number)))
			case "timeout":
				field = "patience"
				if _, err = leasehold.Over(s.db(), leasehold.Patience(seconds)); s.on == "grpc" {
					_, err = leasehold.Dial(s.target, leasehold.Patience(seconds))
				}
			default:
				s.Fatal("not known:", row.Argument)
			}
			if field != "patience" {
				_, err = c.Acquire(context.Background(), namespace, key, options...)
			}
			var wrong *leasehold.ArgumentError
			if !errors.As(err, &wrong) || wrong.Field != field {
				s.Fatalf("%v: %#v", row, err)
			}
			shown := fmt.Sprintf("%q", row.Value)
			if _, isText := row.Value.(string); !isText {
				shown = seconds.String()
			}
			if field == "units" {
				shown = fmt.Sprint(int(number))
			}
			s.is(wrong.Message, fmt.Sprintf("%s must be %s, not %s", field, wrong.Bound, shown))
		}
		s.is(s.row("state"), "")
	}},
	{"token_goes_to_loopback_only", "grpc", func(s *site) {
		for address, isNear := range tables(s).TokenAddresses {
			for _, target := range []string{address, "127.0.0.1:7420," + address} {
				c, err := leasehold.Dial(target, leasehold.TokenFile("/nonexistent"))
				if isNear {
					must(s, err)
					must(s, c.Close())
					continue
				}
				var wrong *leasehold.ArgumentError
				if !errors.As(err, &wrong) || wrong.Field != "target" || !strings.Contains(wrong.Message, fmt.Sprintf("target %q: a token is sent over TLS", address)) {
					s.Fatal(target, err)
				}
			}
		}
	}},
	{"standby_is_left_out", "sql", func(s *site) {
		var standby struct {
			Host string
			Port int
		}
		ask(s, "standby", object{}, &standby)
		database := strings.Fields(s.dsn[strings.Index(s.dsn, "dbname="):])[0]
		both := fmt.Sprintf("host=%s,127.0.0.1 port=%d,%d user=postgres %s", standby.Host, standby.Port, s.port, database)
		l := s.acquire(s.clientAt(both), leasehold.Duration(6*time.Second))
		s.is(s.row("state, token"), fmt.Sprint("held|", l.Token()))
		wait(s, "a renewal", func() bool { return s.beats() >= 1 })
		s.release(l)
		alone := fmt.Sprintf("host=%s port=%d user=postgres %s", standby.Host, standby.Port, database)
		_, err := s.clientAt(alone, leasehold.Patience(10*time.Second)).Acquire(context.Background(), "cases", s.key)
		if !errors.As(err, new(*leasehold.UnavailableError)) || !strings.Contains(err.Error(), "read only") {
			s.Fatal(err)
		}
	}},
}
