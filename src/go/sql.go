package leasehold

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
)

// direct uses the SQL functions. It has connections of its own, made with the settings of the application's: one that renews, one for each
// acquire that waits, and at most two that are idle.
type direct struct {
	db       *sql.DB
	settings settings
	ctx      context.Context // ends with close
	cancel   context.CancelFunc
	work     sync.WaitGroup
	renewal  chan *session // has one item, nil before the first use
	mu       sync.Mutex
	config   *pgx.ConnConfig
	idle     []*session
	closed   bool
	once     sync.Once // for the sentence about a pooler
	deaf     sync.Once // for the one about requests that cannot be read
}

// session is a connection. Behind a pooler it is another one for each transaction, and hears no notification.
type session struct {
	*pgx.Conn
	isPooled bool
	isBroken bool
}

// Over makes a client of a database that has the schema leasehold; it needs no daemon. The driver of db is pgx
// (github.com/jackc/pgx/v5/stdlib). Its pool is used once, to learn how to connect: leases are renewed and waited for on connections of
// their own.
func Over(db *sql.DB, options ...ClientOption) (*Client, error) {
	s := newSettings(options)
	if err := s.check(); err != nil {
		return nil, err
	}
	d := &direct{db: db, settings: s, renewal: make(chan *session, 1)}
	d.ctx, d.cancel = context.WithCancel(context.Background())
	d.renewal <- nil
	return newClient(d, s), nil
}

func (d *direct) close() {
	d.mu.Lock()
	d.closed = true
	d.mu.Unlock()
	// Acquires that were given up end what they began, if the database answers.
	patience := time.AfterFunc(time.Second, d.cancel)
	d.work.Wait()
	patience.Stop()
	d.cancel()
	if s := <-d.renewal; s != nil && !s.isBroken {
		d.end(s)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, s := range d.idle {
		d.end(s)
	}
	d.idle = nil
}

// start runs f on a goroutine that close waits for; false: it is closed.
func (d *direct) start(f func()) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return false
	}
	d.work.Add(1)
	go func() {
		defer d.work.Done()
		f()
	}()
	return true
}

// end closes a connection, also one whose statement is still unanswered.
func (d *direct) end(s *session) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	s.Close(ctx)
	select {
	case <-s.PgConn().CleanupDone():
	case <-ctx.Done():
	}
}

func (d *direct) learn(ctx context.Context) (*pgx.ConnConfig, error) {
	d.mu.Lock()
	config := d.config
	d.mu.Unlock()
	if config != nil {
		return config, nil
	}
	conn, err := d.db.Conn(ctx)
	if err != nil {
		return nil, fromSQL(ref{}, err)
	}
	defer conn.Close()
	err = conn.Raw(func(driver any) error {
		of, ok := driver.(*stdlib.Conn)
		if !ok {
			return &ArgumentError{Field: "db", Bound: "pgx", Message: fmt.Sprintf("the driver of db must be pgx v5's stdlib; it is %T", driver)}
		}
		config = of.Conn().Config()
		return nil
	})
	if err != nil {
		return nil, err
	}
	config.DefaultQueryExecMode = pgx.QueryExecModeExec // no prepared statements, which some poolers do not know
	config.ConnectTimeout = d.settings.patience
	if config.ValidateConnect == nil { // of several servers the first may be a standby
		config.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsReadWrite
	}
	config.OnNotice, config.OnNotification = nil, nil
	d.mu.Lock()
	d.config = config
	d.mu.Unlock()
	return config, nil
}

func (d *direct) connect(ctx context.Context) (*session, error) {
	config, err := d.learn(ctx)
	if err != nil {
		return nil, err
	}
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return nil, fromSQL(ref{}, err)
	}
	s := &session{Conn: conn}
	var pid uint32
	if err := s.QueryRow(ctx, "select pg_backend_pid()").Scan(&pid); err != nil {
		d.end(s)
		return nil, fromSQL(ref{}, err)
	}
	s.isPooled = pid != conn.PgConn().PID()
	return s, nil
}

func (d *direct) get(ctx context.Context) (*session, error) {
	d.mu.Lock()
	for n := len(d.idle); n > 0; n = len(d.idle) {
		s := d.idle[n-1]
		d.idle = d.idle[:n-1]
		if s.isUsable() {
			d.mu.Unlock()
			return s, nil
		}
	}
	d.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, d.settings.patience)
	defer cancel()
	return d.connect(ctx)
}

func (d *direct) put(s *session) {
	d.mu.Lock()
	if s.isUsable() && len(d.idle) < 2 && !d.closed {
		d.idle = append(d.idle, s)
		s = nil
	}
	d.mu.Unlock()
	if s != nil && !s.isBroken {
		d.end(s)
	}
}

func (s *session) isUsable() bool { return !s.isBroken && !s.IsClosed() }

// failed makes an error of this package, and closes a connection whose trouble is more than PostgreSQL's refusal of a statement.
func (d *direct) failed(s *session, it ref, err error) error {
	if !errors.As(err, new(*pgconn.PgError)) && !s.isBroken {
		s.isBroken = true
		if !d.start(func() { d.end(s) }) {
			d.end(s)
		}
	}
	return fromSQL(it, err)
}

// row runs a statement that answers one row; false: none. The statement has its own time: a caller who gives up does not cut it off.
func (d *direct) row(s *session, it ref, into []any, statement string, args ...any) (bool, error) {
	ctx, cancel := context.WithTimeout(d.ctx, d.settings.patience)
	defer cancel()
	err := s.QueryRow(ctx, statement, args...).Scan(into...)
	if errors.Is(err, pgx.ErrNoRows) {
		return false, nil
	}
	if err != nil {
		return false, d.failed(s, it, err)
	}
	return true, nil
}

type acquired struct {
	grant
	err error
}

// acquire runs on a goroutine of its own, which outlives a caller who gives up and releases what it then gets. r.queued is called on the
// caller's, which it may panic on, or close the client from.
func (d *direct) acquire(ctx context.Context, r request, wait time.Duration) (grant, error) {
	answer, news, tell := make(chan acquired), make(chan *HeldError), r.queued
	if tell != nil {
		r.queued = func(h *HeldError) {
			select {
			case news <- h:
			case <-ctx.Done():
			}
		}
	}
	if !d.start(func() {
		s, err := d.get(ctx)
		if err != nil {
			select {
			case answer <- acquired{err: err}:
			case <-ctx.Done():
			}
			return
		}
		g, err := d.queueFor(ctx, s, r, wait)
		select {
		case answer <- acquired{g, err}:
		case <-ctx.Done():
			d.undo(s, r.ref())
		}
		d.put(s)
	}) {
		return grant{}, ErrClosed
	}
	for {
		select {
		case a := <-answer:
			return a.grant, a.err
		case h := <-news:
			tell(h)
		case <-ctx.Done():
			return grant{}, ctx.Err()
		}
	}
}

func (d *direct) try(s *session, r request) (g grant, granted bool, err error) {
	into, args, err := r.inSQL()
	if err != nil {
		return g, false, err
	}
	sent := clock()
	granted, err = d.row(s, r.ref(), into.columns(), acquiring, args...)
	return into.grant(sent), granted, err
}

// granting is what is read of a lease.
const granting = `select g.token, g.left_s, g.units, to_json(g.slots)::text, g.is_final`

const acquiring = granting + `
  from leasehold.acquire_one($1::text, $2::text, $3::float8, $4::text, $5::text::uuid, $6::text::jsonb, $7::float8, $8::text, $9::integer, $10::integer) g`

// grantRow is a row of granting.
type grantRow struct {
	g       grant
	seconds float64
	slots   *string
}

func (row *grantRow) columns() []any {
	return []any{&row.g.token, &row.seconds, &row.g.units, &row.slots, &row.g.final}
}

func (row *grantRow) grant(sent time.Duration) grant {
	row.g.deadline = sent + time.Duration(row.seconds*float64(time.Second))
	if row.slots != nil {
		_ = json.Unmarshal([]byte(*row.slots), &row.g.slots) // of integers, by to_json
	}
	return row.g
}

// inSQL are the parameters of acquiring, and what its row is read into.
func (r request) inSQL() (*grantRow, []any, error) {
	labels := []byte("{}")
	if r.labels != nil {
		var err error
		if labels, err = json.Marshal(r.labels); err != nil {
			return nil, nil, err
		}
	}
	var atLeast *float64
	if r.atLeast != nil {
		value := r.atLeast.Seconds()
		atLeast = &value
	}
	return &grantRow{}, []any{r.namespace, r.key, r.duration.Seconds(), r.owner, r.leaseKey, string(labels), atLeast, string(r.mode), r.unitsInSQL(),
		r.priority}, nil
}

// unitsInSQL is 1 for an exclusive lease.
func (r request) unitsInSQL() int {
	if r.mode == ModeShared {
		return r.units
	}
	return 1
}

// acquireAll does not wait: SQL has no place in several queues.
func (d *direct) acquireAll(ctx context.Context, r request, wait time.Duration) ([]grant, error) {
	if r.wait != 0 {
		return nil, wrongTime("wait", "0 for several scopes in SQL", r.wait)
	}
	s, err := d.get(ctx)
	if err != nil {
		return nil, err
	}
	defer d.put(s)
	grants, err := d.tryAll(s, r)
	if err == nil && len(grants) == 0 {
		err = d.heldOf(s, r)
	}
	return grants, err
}

func (d *direct) tryAll(s *session, r request) ([]grant, error) {
	namespaces, keys, modes, units := r.arrays()
	_, args, err := r.inSQL()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(d.ctx, d.settings.patience)
	defer cancel()
	sent := clock()
	rows, err := s.Query(ctx, granting+`
	  from leasehold.acquire_all($1::text[], $2::text[], make_interval(secs => $3::float8), $4::text, $5::text::uuid, $6::text::jsonb,
	                             $7::text[], $8::integer[]) l, leasehold.granted(l) g`,
		namespaces, keys, args[2], r.owner, r.leaseKey, args[5], modes, units)
	if err != nil {
		return nil, d.failed(s, ref{}, err)
	}
	grants, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (grant, error) {
		var into grantRow
		err := row.Scan(into.columns()...)
		return into.grant(sent), err
	})
	if err != nil {
		return nil, d.failed(s, ref{}, err)
	}
	return grants, nil
}

// arrays are what AcquireAll has in place of namespace, key, mode and units.
func (r request) arrays() (namespaces, keys, modes []string, units []int32) {
	for _, each := range r.scopes {
		mode, n := ModeExclusive, int32(1)
		if each.Units > 0 {
			mode, n = ModeShared, int32(each.Units)
		}
		namespaces, keys = append(namespaces, each.Namespace), append(keys, each.Key)
		modes, units = append(modes, string(mode)), append(units, n)
	}
	return namespaces, keys, modes, units
}

// heldOf is about the first scope that is in the way.
func (d *direct) heldOf(s *session, r request) error {
	namespaces, keys, modes, _ := r.arrays()
	held := heldRow{HeldError: &HeldError{retry: RetryLeaseHeld}}
	if _, err := d.row(s, ref{}, held.columns(), contending, namespaces, keys, modes); err != nil {
		return err
	}
	held.Namespace, held.Key = namespaces[held.n-1], keys[held.n-1]
	return held.error()
}

// downgrade gives up soon where somebody keeps the row locked.
func (d *direct) downgrade(ctx context.Context, it ref, units int) (grant, error) {
	s, err := d.get(ctx)
	if err != nil {
		return grant{}, err
	}
	defer d.put(s)
	var row grantRow
	sent := clock()
	_, err = d.row(s, it, row.columns(), granting+
		" from leasehold.downgrade_soon($1::text, $2::text, $3::text::uuid, $4::integer) l, leasehold.granted(l) g",
		it.namespace, it.key, it.leaseKey, units)
	return row.grant(sent), err
}

// queueFor acquires, and waits in the queue meanwhile.
func (d *direct) queueFor(ctx context.Context, s *session, r request, wait time.Duration) (grant, error) {
	g, granted, err := d.try(s, r)
	if err != nil || granted {
		return g, err
	}
	until := Forever
	if now := clock(); wait < Forever-now {
		until = now + wait
	}
	poll := d.settings.poll
	if s.isPooled {
		d.once.Do(func() {
			d.settings.logf("leasehold: behind a connection pooler waiters hear no notifications: they poll")
		})
		poll = min(poll, 200*time.Millisecond)
	}
	isListening, asked := false, ""
	for until > clock() {
		var position int
		var channel string
		_, err := d.row(s, r.ref(), []any{&position, &channel},
			`select position, channel
			   from leasehold.join_queue($1::text, $2::text, $3::text::uuid, make_interval(secs => $4::float8), $5::text, $6::integer,
			                           $7::integer)`,
			r.namespace, r.key, r.leaseKey, max(10*time.Second, min(2*d.settings.poll, 24*time.Hour)).Seconds(), string(r.mode), r.unitsInSQL(), r.priority)
		if err != nil {
			return g, err
		}
		if !isListening && !s.isPooled {
			isListening = true
			defer d.unlisten(s)
			if err := d.listen(s, r, channel); err != nil {
				return g, err
			}
		}
		if g, granted, err = d.try(s, r); err != nil || granted {
			return g, err
		}
		if r.askHandOver {
			if asked, err = d.askOnce(s, r, asked); err != nil {
				return g, err
			}
		}
		if r.whileAlive {
			if held := d.held(s, r); held.Alive || held.HolderCount == 0 {
				until = Forever
			} else if now := clock(); until > now+r.wait {
				until = now + r.wait
			}
		}
		if r.queued != nil {
			held := d.held(s, r)
			held.Ahead = position - 1
			r.queued(held)
		}
		if err := d.listenFor(ctx, s, r.ref(), min(poll, until-clock())); err != nil {
			return g, err
		}
	}
	held := d.held(s, r)
	if r.wait == 0 {
		held.retry = RetryLeaseHeld
	}
	if wait > 0 {
		if err := d.leave(s, r.ref()); err != nil {
			return g, err
		}
	}
	return g, held
}

func (d *direct) listen(s *session, r request, channel string) error {
	ctx, cancel := context.WithTimeout(d.ctx, d.settings.patience)
	defer cancel()
	if _, err := s.Exec(ctx, "listen "+pgx.Identifier{channel}.Sanitize()); err != nil {
		return d.failed(s, r.ref(), err)
	}
	return nil
}

// unlisten makes the connection fit for somebody else.
func (d *direct) unlisten(s *session) {
	ctx, cancel := context.WithTimeout(d.ctx, d.settings.patience)
	defer cancel()
	if !s.isUsable() {
		return
	}
	if _, err := s.Exec(ctx, "unlisten *"); err != nil {
		d.failed(s, ref{}, err)
	}
}

// listenFor waits for a notification, or until d has passed; an error says that the connection is broken, or the caller gone.
func (d *direct) listenFor(ctx context.Context, s *session, it ref, wait time.Duration) error {
	if s.isPooled {
		pause(ctx, wait)
		return ctx.Err()
	}
	limit, cancel := context.WithTimeout(ctx, max(wait, time.Millisecond))
	defer cancel()
	_, err := s.WaitForNotification(limit)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil && limit.Err() == nil:
		return d.failed(s, it, err)
	}
	return nil
}

// held is who holds it, as far as that can be learnt.
func (d *direct) held(s *session, r request) *HeldError {
	held := r.heldRow()
	if _, err := d.row(s, r.ref(), held.columns(), contending, []string{r.namespace}, []string{r.key}, nil); err != nil {
		return held.HeldError
	}
	return held.error()
}

const contending = `
select n, coalesce(holder, ''), waiters, holders, units_free, coalesce(is_alive, false), coalesce(silent_s, 0), coalesce(held_s, 0), holders_now
  from leasehold.contention($1::text[], $2::text[], $3::text[])`

// heldRow is a row of contending.
type heldRow struct {
	*HeldError
	n               int
	silent, heldFor float64
	holders         string // another where others hold it
}

func (r request) heldRow() *heldRow {
	return &heldRow{HeldError: &HeldError{Namespace: r.namespace, Key: r.key}}
}

func (row *heldRow) columns() []any {
	return []any{&row.n, &row.Holder, &row.Ahead, &row.HolderCount, &row.UnitsFree, &row.Alive, &row.silent, &row.heldFor, &row.holders}
}

func (row *heldRow) error() *HeldError {
	row.Silent, row.HeldFor = time.Duration(row.silent*float64(time.Second)), time.Duration(row.heldFor*float64(time.Second))
	return row.HeldError
}

func (d *direct) leave(s *session, it ref) error {
	var was bool
	_, err := d.row(s, it, []any{&was}, "select leasehold.leave_queue($1::text, $2::text, $3::text::uuid)",
		it.namespace, it.key, it.leaseKey)
	return err
}

// undo ends what an acquire may have left.
func (d *direct) undo(s *session, it ref) error {
	if err := d.leave(s, it); err != nil {
		return err
	}
	return d.releaseAll(s, unheardEndings([]ref{it}), 0)[0]
}

func (d *direct) giveUp(ctx context.Context, refs []ref) []error {
	s, err := d.get(ctx)
	if err != nil {
		return slices.Repeat([]error{err}, len(refs))
	}
	defer d.put(s)
	for _, it := range refs {
		_ = d.leave(s, it) // a place that stays is free soon: nobody asks for it again
	}
	return d.releaseAll(s, unheardEndings(refs), 200*time.Millisecond)
}

// heartbeat renews all in one transaction, and one by one if that fails for one of them.
func (d *direct) heartbeat(ctx context.Context, refs []ref) ([]beat, error) {
	var s *session
	select {
	case s = <-d.renewal:
	case <-ctx.Done():
		return nil, &UnavailableError{Err: ctx.Err()}
	}
	defer func() { d.renewal <- s }()
	if s == nil || !s.isUsable() {
		var err error
		if s, err = d.connect(ctx); err != nil {
			s = nil
			return nil, err
		}
	}
	beats, err := d.renew(ctx, s, refs)
	if err != nil && s.isUsable() && len(refs) > 1 {
		beats = make([]beat, len(refs))
		for i, it := range refs {
			one, err := d.renew(ctx, s, []ref{it})
			if err != nil {
				beats[i].message = err.Error()
				continue
			}
			beats[i] = one[0]
		}
		err = nil
	}
	return beats, err
}

// columns are what the functions for several leases take.
func columns(refs []ref) []any {
	var namespaces, keys, leaseKeys []string
	for _, it := range refs {
		namespaces, keys, leaseKeys = append(namespaces, it.namespace), append(keys, it.key), append(leaseKeys, it.leaseKey)
	}
	return []any{namespaces, keys, leaseKeys}
}

// renew is one transaction; a row that somebody keeps locked makes it fail.
func (d *direct) renew(ctx context.Context, s *session, refs []ref) ([]beat, error) {
	rows, _ := s.Query(ctx, `select coalesce(left_s, 0), coalesce(given_s, 0), coalesce(reason, '')
	                           from leasehold.heartbeat_each($1::text[], $2::text[], $3::text[]::uuid[])`, columns(refs)...)
	var beats []beat
	var left, given float64
	var reason Reason
	_, err := pgx.ForEachRow(rows, []any{&left, &given, &reason}, func() error {
		beats = append(beats, beat{ok: reason == "", lost: reason != "", reason: reason, final: given < refs[len(beats)].duration.Seconds(),
			remaining: time.Duration(left * float64(time.Second))})
		return nil
	})
	if err != nil {
		return nil, d.failed(s, refs[0], err)
	}
	d.asked(ctx, s, refs, beats)
	return beats, nil
}

func (d *direct) release(ctx context.Context, items []ending) []error {
	s, err := d.get(ctx)
	if err != nil {
		return slices.Repeat([]error{err}, len(items))
	}
	defer d.put(s)
	if len(items) == 1 { // it waits for somebody who keeps the row locked
		return d.releaseAll(s, items, 0)
	}
	return d.releaseAll(s, items, 200*time.Millisecond)
}

// releaseAll ends all in one transaction, and one by one if that fails for one of them.
func (d *direct) releaseAll(s *session, items []ending, patience time.Duration) []error {
	reasons, err := d.releaseTogether(s, items, patience)
	errs := make([]error, len(items))
	for i, it := range items {
		switch {
		case err != nil && len(items) > 1 && s.isUsable():
			errs[i] = d.releaseAll(s, items[i:i+1], 50*time.Millisecond)[0]
		case err != nil:
			errs[i] = err
		case reasons[i] != "":
			errs[i] = &LostError{Namespace: it.namespace, Key: it.key, Reason: reasons[i]}
		}
	}
	return errs
}

// releaseTogether is one transaction; a row that is locked for longer than `patience`, if that is not 0, makes it fail.
func (d *direct) releaseTogether(s *session, items []ending, patience time.Duration) ([]Reason, error) {
	ctx, cancel := context.WithTimeout(d.ctx, d.settings.patience)
	defer cancel()
	var namespaces, keys, leaseKeys, values []string
	var failed []bool
	for _, it := range items {
		namespaces, keys, leaseKeys = append(namespaces, it.namespace), append(keys, it.key), append(leaseKeys, it.leaseKey)
		values, failed = append(values, it.value), append(failed, it.failed)
	}
	rows, _ := s.Query(ctx, `select coalesce(reason, '')
	                           from leasehold.release_each($1::text[], $2::text[], $3::text[]::uuid[], $4::boolean[], $5::text[], $6::text::interval) reason`,
		namespaces, keys, leaseKeys, failed, values, patience.String())
	reasons, err := pgx.CollectRows(rows, pgx.RowTo[Reason])
	if err != nil {
		return nil, d.failed(s, items[0].ref, err)
	}
	return reasons, nil
}

func (d *direct) holder(ctx context.Context, namespace, key string) (*Holder, error) {
	s, err := d.get(ctx)
	if err != nil {
		return nil, err
	}
	defer d.put(s)
	var h Holder
	var owner *string
	var token *int64
	var seconds float64
	var labels string
	found, err := d.row(s, ref{namespace: namespace, key: key},
		[]any{&owner, &token, &seconds, &h.AcquiredAt, &h.HeartbeatAt, &h.Heartbeats, &h.Expired, &h.Units, &labels},
		`select l.owner, l.token, extract(epoch from l.duration)::float8, l.acquired_at, l.heartbeat_at, l.heartbeats,
		        l.liveness = 'expired', l.units, l.labels::text
		   from leasehold.lease l where l.namespace = $1::text and l.key = $2::text order by l.acquired_at, l.token limit 1`, namespace, key)
	if err != nil || !found {
		return nil, err
	}
	if owner != nil {
		h.Owner = *owner
	}
	if token != nil {
		h.Token = *token
	}
	h.Mode = modeOf(h.Units)
	h.Duration = time.Duration(seconds * float64(time.Second))
	return &h, json.Unmarshal([]byte(labels), &h.Labels)
}

// fromSQL makes an error of this package from one of PostgreSQL's, or of the connection's.
func fromSQL(it ref, err error) error {
	var e *pgconn.PgError
	if !errors.As(err, &e) {
		reason := RetrySocketClosedWhileInFlight
		if errors.As(err, new(*pgconn.ConnectError)) {
			reason = RetrySocketNotAvailable
		}
		return &UnavailableError{Err: err, Reason: reason}
	}
	// A condition of Leasehold's: its message begins with the name.
	words := strings.TrimPrefix(e.Message, strings.SplitN(e.Message, " ", 2)[0]+" ")
	switch e.Code {
	case "LH001":
		return &LostError{it.namespace, it.key, Unknown, words}
	case "LH002":
		return &ArgumentError{e.Detail, e.Hint, words}
	case "LH003":
		return &DeniedError{"NAMESPACE_FROZEN", words}
	case "LH004":
		return &DeniedError{"QUOTA_EXCEEDED", words}
	case "LH005":
		return &DeniedError{"HOOK_REJECTED", words}
	case "LH006":
		return &DeniedError{"LEASE_ENDED", words}
	case "LH007", "42501":
		return &DeniedError{"ACCESS_DENIED", e.Message}
	}
	if strings.HasPrefix(e.Code, "28") {
		return &DeniedError{"UNAUTHENTICATED", e.Message}
	}
	for _, s := range passing {
		if strings.HasPrefix(e.Code, s.state) {
			return &UnavailableError{Err: err, Reason: s.reason}
		}
	}
	return &DeniedError{e.Code, e.Message}
}

// passing are SQLSTATEs, by their beginning, after which a repetition may succeed; the first that fits counts.
var passing = []struct {
	state  string
	reason RetryReason
}{
	{"08", RetryDatabaseUnavailable}, {"57P", RetryDatabaseUnavailable}, {"53300", RetryDatabaseUnavailable},
	{"25P03", RetryDatabaseUnavailable}, {"25P04", RetryDatabaseUnavailable}, // a limit of the server ended the session
	{"25006", RetryDatabaseUnavailable}, {"0A000", RetryDatabaseUnavailable}, // a standby
	{"53", RetryOverloaded}, {"58", RetryOverloaded}, {"57014", RetryOverloaded},
	{"40", RetryScopeBusy}, {"55P03", RetryScopeBusy},
}
