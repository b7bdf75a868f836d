package leasehold_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"

	leasehold "leasehold.example/go"
)

// The case about what holders left to expire.
var reapCases = []testCase{
	{"reaping_calls_back", "sql", func(s *site) {
		ctx, namespace := context.Background(), "reaped.go"
		s.psql("create table public.reaped (key text primary key)")
		s.Cleanup(func() { s.psql("drop table public.reaped") })
		holder, err := leasehold.Over(s.db())
		must(s, err)
		for _, key := range []string{"broken", "twice", "well"} {
			_, err := holder.Acquire(ctx, namespace, key, leasehold.Owner("somebody"))
			must(s, err)
		}
		must(s, holder.Close())
		s.psql("update leasehold.scope set acquired_at = acquired_at - interval '1 h', heartbeat_at = heartbeat_at - interval '1 h', "+
			"deadline = deadline - interval '1 h', check_at = check_at - interval '1 h' where namespace = '%s'", namespace)
		broken := errors.New("it cannot be put back")
		end := func(ctx context.Context, tx *sql.Tx, it leasehold.StaleLease) error {
			if it.Namespace != namespace || it.Owner != "somebody" || it.Token == 0 || !it.Deadline.After(it.AcquiredAt) {
				s.Errorf("%+v", it)
			}
			if _, err := tx.ExecContext(ctx, "insert into public.reaped values ($1)", it.Key); err != nil {
				return err
			}
			switch it.Key {
			case "broken":
				return broken
			case "twice": // a statement that fails
				_, err := tx.ExecContext(ctx, "insert into public.reaped values ($1)", it.Key)
				return err
			}
			return nil
		}
		var done leasehold.Reaped
		wait(s, "the end of the lease", func() bool {
			some, err := leasehold.ReapStale(ctx, s.db(), []string{"reaped"}, true, end)
			must(s, err)
			done.Ended, done.Failed = done.Ended+some.Ended, done.Failed+some.Failed
			return done.Ended == 1 && done.Failed >= 2
		})
		s.is(s.psql("select key from public.reaped"), "well")
		s.is(s.psql("select key, state, last_outcome from leasehold.scope where namespace = '%s' order by key", namespace), "broken|held|\ntwice|held|\nwell|free|expired")
		if words := s.psql("select error from leasehold.reap_failure where namespace = '%s' order by key", namespace); !strings.HasPrefix(words, broken.Error()+"\n") ||
			!strings.Contains(words, "duplicate key") {
			s.Fatal(words)
		}
		some, err := leasehold.ReapStale(ctx, s.db(), []string{namespace}, false, func(context.Context, *sql.Tx, leasehold.StaleLease) error { return nil })
		must(s, err)
		if some.Ended != 2 || some.Failed != 0 {
			s.Fatalf("%+v", some)
		}
		if _, err := leasehold.ReapStale(ctx, s.db(), []string{""}, false, end); !errors.As(err, new(*leasehold.ArgumentError)) {
			s.Fatal(err)
		}
	}},
}
