package leasehold

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"
)

// StaleLease is a lease that its holder left to expire.
type StaleLease struct {
	Namespace, Key, Owner string
	Token                 int64
	AcquiredAt, Deadline  time.Time     // by the database's clock
	Limit                 time.Duration // of the callback: hook_timeout of the policy; 0: none
}

// Reaped counts leases.
type Reaped struct {
	Ended  int
	Failed int // a hook or the callback failed: the lease stays expired, and is reaped later
}

// ReapStale ends what has expired in these namespaces (none: in all but those with reaper = external), and with children also below them. It calls
// `end` for each lease in a transaction of its own, after the hooks in SQL: what that does through tx commits with the end of the lease. An error rolls both
// back, is written down in leasehold.reap_failure, and delays no other lease; it is tried again with backoff. What was not committed may be called again.
// The role is a member of leasehold_admin or leasehold_coordinator. Any number of reapers and daemons may run at once. It returns when no lease is due.
func ReapStale(ctx context.Context, db Beginner, namespaces []string, children bool, end func(context.Context, *sql.Tx, StaleLease) error) (Reaped, error) {
	for _, namespace := range namespaces {
		if err := first(checkNamespace(namespace), ctx.Err()); err != nil {
			return Reaped{}, err
		}
	}
	r := reaper{db: db, namespaces: namespaces, children: children, end: end}
	for before := -1; r.done.Ended > before; {
		before = r.done.Ended
		if err := r.sweep(ctx); err != nil {
			return r.done, err
		}
	}
	return r.done, nil
}

type reaper struct {
	db         Beginner
	namespaces []string
	children   bool
	end        func(context.Context, *sql.Tx, StaleLease) error
	done       Reaped
	until      sql.NullInt64 // a sweep by name passes over what has failed since the first began
}

// stale is a row of the list.
type stale struct {
	StaleLease
	isStale    bool
	checkAt    sql.NullInt64
	at         [2]sql.NullInt64
	limitMicro sql.NullInt64
	owner      sql.NullString
}

const mostInList = 1000

// sweep looks at everything once.
func (r *reaper) sweep(ctx context.Context) error {
	var after stale
	if len(r.namespaces) == 0 {
		r.until = sql.NullInt64{}
	}
	for {
		rows, err := r.list(ctx, after)
		if err != nil {
			return err
		}
		for _, row := range rows {
			if after = row; row.isStale {
				if err := r.visit(ctx, row.StaleLease); err != nil {
					return err
				}
			}
		}
		if len(rows) < mostInList {
			return nil
		}
	}
}

func (r *reaper) list(ctx context.Context, after stale) (found []stale, err error) {
	tx, err := beginSQL(ctx, r.db)
	if err != nil {
		return nil, err
	}
	defer tx.rollback()
	from := []any{nil, nil, nil, nil}
	if after.Key != "" {
		from = []any{after.checkAt, after.Namespace, after.Key, after.Token}
	}
	rows, err := tx.QueryContext(ctx, `
		select is_stale, until_us, check_at_us, namespace, key, token, owner, acquired_at_us, deadline_at_us, limit_us
		  from leasehold_internal.reap_stale_list($1::text[], $2, $3, $4::bigint, $5::bigint, $6::text, $7::text, $8::bigint)`,
		append([]any{r.namespaces, r.children, mostInList, r.until}, from...)...)
	if err != nil {
		return nil, inTransaction(ref{}, err)
	}
	defer rows.Close()
	for rows.Next() {
		var row stale
		if err := rows.Scan(&row.isStale, &r.until, &row.checkAt, &row.Namespace, &row.Key, &row.Token, &row.owner, &row.at[0], &row.at[1],
			&row.limitMicro); err != nil {
			return nil, err
		}
		row.Owner, row.AcquiredAt, row.Deadline = row.owner.String, time.UnixMicro(row.at[0].Int64), time.UnixMicro(row.at[1].Int64)
		row.Limit = time.Duration(row.limitMicro.Int64) * time.Microsecond
		found = append(found, row)
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil {
		return nil, err
	}
	return found, tx.commit(ctx) // a new life of the database may have been written down
}

// visit is one lease in one transaction; the error is of the whole.
func (r *reaper) visit(ctx context.Context, it StaleLease) error {
	trouble, err := r.tryEnd(ctx, it)
	if err != nil || trouble == nil {
		return err
	}
	tx, err := beginSQL(ctx, r.db)
	if err != nil {
		return err
	}
	defer tx.rollback()
	if _, err := tx.ExecContext(ctx, "select leasehold_internal.reap_failed(null, $1, $2, $3, $4)", it.Namespace, it.Key, it.Token,
		trouble.Error()); err != nil {
		return inTransaction(ref{}, err)
	}
	r.done.Failed++
	return tx.commit(ctx)
}

// tryEnd gives the callback's trouble, or what is wrong with all.
func (r *reaper) tryEnd(ctx context.Context, it StaleLease) (trouble, wrong error) {
	tx, err := beginSQL(ctx, r.db)
	if err != nil {
		return nil, err
	}
	defer tx.rollback()
	if _, err := tx.ExecContext(ctx, fmt.Sprintf("set local statement_timeout = %d", it.Limit.Milliseconds())); err != nil {
		return nil, err
	}
	kind := ""
	err = tx.row(ctx, []any{&kind}, "select kind from leasehold_internal.reap_hooked(null, null, $1, $2, $3)", it.Namespace, it.Key, it.Token)
	switch {
	case errors.Is(err, sql.ErrNoRows): // somebody else has ended it, or renewed it
		return nil, tx.commit(ctx)
	case err != nil && isAnswered(err) && ctx.Err() == nil: // a hook's time has passed, for instance
		return err, nil
	case err != nil:
		return nil, err
	case kind != "reaped": // a hook refused, and that is written down
		r.done.Failed++
		return nil, tx.commit(ctx)
	}
	if trouble := r.call(ctx, tx.Tx, it); trouble != nil {
		return trouble, ctx.Err()
	}
	if len(r.namespaces) > 0 {
		if _, err := tx.ExecContext(ctx, "select leasehold_internal.audit_reaped(array[$1::text])", it.Namespace); err != nil {
			return nil, err
		}
	}
	if err := tx.commit(ctx); isAnswered(err) { // a deferred constraint
		return err, nil
	} else if err != nil {
		return nil, err
	}
	r.done.Ended++
	return nil, nil
}

// call is the callback, within its limit.
func (r *reaper) call(ctx context.Context, tx *sql.Tx, it StaleLease) error {
	if it.Limit == 0 {
		return r.end(ctx, tx, it)
	}
	call, cancel := context.WithTimeout(ctx, it.Limit)
	defer cancel()
	if err := r.end(call, tx, it); err != nil || call.Err() == nil {
		return err
	}
	return fmt.Errorf("the callback ran over its limit of %s", it.Limit)
}
