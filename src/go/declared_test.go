package leasehold_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"time"

	leasehold "leasehold.example/go"
)

// The cases about what is declared, and its bounds.
var declaredCases = []testCase{
	{"declared_lease_is_used_everywhere", "grpc sql pooler", func(s *site) {
		ctx, c := context.Background(), s.client()
		cases := c.Declare("cases", leasehold.Owner("declared"), leasehold.Duration(time.Minute))
		l, err := cases.Acquire(ctx, s.key)
		must(s, err)
		s.is(s.row("owner, duration"), "declared|00:01:00")
		s.release(l)
		must(s, cases.Do(ctx, s.key, func(context.Context, *leasehold.Lease) error {
			s.is(s.row("owner, duration"), "its own|00:01:00")
			return nil
		}, leasehold.Owner("its own")))
		must(s, cases.Lead(ctx, s.key, leasehold.Elector{Lead: func(context.Context, *leasehold.Lease) error {
			s.is(s.row("owner, duration"), "declared|00:01:00")
			return nil
		}}))
		l, err = cases.Acquire(ctx, s.key)
		must(s, err)
		s.is(s.row("owner, duration"), "declared|00:01:00")
		s.release(l)
	}},
	{"bounds_are_told_before_any_request", "grpc sql", func(s *site) {
		text, err := os.ReadFile(filepath.Join(filepath.Dir(os.Getenv("LEASEHOLD_CASES")), "../lib/bounds.json"))
		must(s, err)
		var rows []struct {
			Kind, Value, Words string
			Times              int
		}
		must(s, json.Unmarshal(text, &rows))
		target := "127.0.0.1:1"
		if s.on == "sql" {
			target = "host=127.0.0.1 port=1 user=postgres dbname=none"
		}
		c := s.clientAt(target, leasehold.Patience(time.Millisecond))
		for _, row := range rows {
			value, namespace, key := strings.Repeat(row.Value, row.Times), "cases", "any"
			var options []leasehold.Option
			switch row.Kind {
			case "namespace":
				namespace = value
			case "key":
				key = value
			case "owner":
				options = append(options, leasehold.Owner(value))
			case "label_name":
				options = append(options, leasehold.Labels(map[string]string{value: ""}))
			case "label_value":
				options = append(options, leasehold.Labels(map[string]string{"n": value}))
			default:
				continue
			}
			declared := declare(c, namespace, options)
			err := declared
			if declared == nil {
				_, err = c.Declare(namespace, options...).Acquire(context.Background(), key)
			}
			var wrong *leasehold.ArgumentError
			switch {
			case row.Words == "" && !errors.As(err, new(*leasehold.UnavailableError)):
				s.Fatal(row, err)
			case row.Words != "" && (!errors.As(err, &wrong) || wrong.Message != row.Words || (declared != nil) == (row.Kind == "key")):
				s.Fatal(row, err, declared)
			}
		}
	}},
}

// declare is what Declare panics with.
func declare(c *leasehold.Client, namespace string, options []leasehold.Option) (err error) {
	defer func() {
		if trouble := recover(); trouble != nil {
			err = trouble.(error)
		}
	}()
	c.Declare(namespace, options...)
	return nil
}
