package leasehold

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	pb "leasehold.example/go/leaseholdv1"
)

// HandOver is a request to a holder to give its lease back. The holder releases, refuses in its words, or does not answer: nothing ends the lease
// for it. A request ends with the holder's lease.
type HandOver struct {
	AskedAt   time.Time
	AskedBy   string        // the asker, in its own words
	Principal string        // the asker, as proved
	Reason    string        // in the asker's words, at most 1024 bytes
	AnswerBy  time.Time     // as the policy says, 30 s after AskedAt by default
	AnswerIn  time.Duration // what was left when the server answered; 0: the holder has not answered in time
	Refusal   string        // the holder's words; empty: it has not refused
	Owner     string        // of the lease, as [Client.AskHandOver] tells; so is the next
	Token     int64         // 0 where the role may not see it
}

// AskHandOver has a request that waits ask each holder that it waits behind to hand over, once.
func AskHandOver() Option { return func(r *request) { r.askHandOver = true } }

// AskHandOver asks the holders of namespace/key to give it back, and says why, in at most 1024 bytes. It returns a request for each of them, with
// the words of one that has refused, and none where nobody holds it. One that has refused is asked anew once its time to answer has passed.
// It needs the right admin.
func (c *Client) AskHandOver(ctx context.Context, namespace, key, reason string) (found []HandOver, err error) {
	if err := first(first(checkNamespace(namespace), checkKey(key)), checkWords(reason, 0)); err != nil {
		return nil, err
	}
	err = c.answer(ctx, "AskHandOver", ref{namespace: namespace, key: key}, nil, func(call context.Context) error {
		found, err = c.t.askHandOver(call, namespace, key, reason)
		return err
	})
	if errors.As(err, new(*LostError)) { // nobody holds it
		return nil, nil
	}
	return found, err
}

// AskHandOver is [Client.AskHandOver].
func (d *Declared) AskHandOver(ctx context.Context, key, reason string) ([]HandOver, error) {
	return d.c.AskHandOver(ctx, d.namespace, key, reason)
}

// RefuseHandOver answers a request to hand the lease over, of which [Listener] tells, in 1 to 1024 bytes that the asker reads; false: nobody
// has asked, or the lease has ended. What was refused stays so: the words of a second call count for nothing.
func (l *Lease) RefuseHandOver(ctx context.Context, words string) (was bool, err error) {
	if err := checkWords(words, 1); err != nil {
		return false, err
	}
	if err := l.isHeld(); err != nil {
		return false, err
	}
	err = l.c.answer(ctx, "RefuseHandOver", l.ref, l.strategy, func(call context.Context) error {
		was, err = l.c.t.refuseHandOver(call, l.ref, words)
		return err
	})
	return was, err
}

// isHeld: nil, or why it is not.
func (l *Lease) isHeld() error {
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	l.expire()
	switch {
	case l.lost != nil:
		return l.lost
	case l.released || l.ends:
		return ErrReleased
	}
	return nil
}

// wasAsked tells of each request once, though renewals and a stream have it again and again. The caller has c.mu.
func (l *Lease) wasAsked(request *HandOver) {
	if request == nil || request.AskedAt.Equal(l.askedAt) || l.listener.Asked == nil || l.lost != nil || l.ends {
		return
	}
	l.askedAt = request.AskedAt
	l.tell(func(l *Lease) { l.listener.Asked(l, *request) })
}

// answer tries a request that may be repeated until it is answered, for as long as the client's patience lasts.
func (c *Client) answer(ctx context.Context, verb string, it ref, strategy Strategy, try func(context.Context) error) error {
	ctx, cancel, err := c.callContext(ctx)
	if err != nil {
		return err
	}
	defer cancel()
	until := clock() + c.settings.patience
	for retry := c.retrying(verb, it, strategy); ; {
		call, cancel := within(ctx, c.settings.patience)
		err := try(call)
		cancel()
		switch {
		case !errors.As(err, new(*UnavailableError)):
			return err
		case c.ctx.Err() != nil:
			return ErrClosed
		case ctx.Err() != nil:
			return ctx.Err()
		case clock() >= until || !retry.again(ctx, err, until-clock()):
			return err
		}
	}
}

func checkWords(reason string, least int) error {
	switch {
	case !isText(reason):
		return wrong("reason", "a string of UTF-8 without NUL", reason)
	case len(reason) < least:
		return outOfBounds("reason", "reason", "must be %d to 1024 bytes, has %d", least, len(reason))
	}
	return checkText("reason", "reason", reason, 1024)
}

func handOverOf(request *pb.HandOver) *HandOver {
	if request == nil {
		return nil
	}
	return &HandOver{AskedAt: request.GetAskedAt().AsTime(), AskedBy: request.GetAskedBy(), Principal: request.GetPrincipal(),
		Reason: request.GetReason(), AnswerBy: request.GetAnswerBy().AsTime(), AnswerIn: request.GetAnswerIn().AsDuration(),
		Refusal: request.GetRefusal()}
}

func (t *rpc) askHandOver(ctx context.Context, namespace, key, reason string) ([]HandOver, error) {
	s := t.pick()
	answer, err := s.lease.AskHandOver(ctx, &pb.AskHandOverRequest{Scope: scopeOf(namespace, key), Reason: reason, Owner: defaultOwner()})
	if err != nil {
		return nil, t.failed(s, ref{namespace: namespace, key: key}, err)
	}
	var found []HandOver
	for _, holder := range answer.GetHolders() {
		if request := handOverOf(holder.GetAsked()); request != nil {
			request.Owner, request.Token = holder.GetOwner(), holder.GetToken()
			found = append(found, *request)
		}
	}
	return found, nil
}

func (t *rpc) refuseHandOver(ctx context.Context, it ref, words string) (bool, error) {
	s := t.pick()
	_, err := s.lease.RefuseHandOver(ctx, &pb.RefuseHandOverRequest{Lease: it.message(), Reason: words})
	if err == nil {
		return true, nil
	}
	err = t.failed(s, it, err)
	var denied *DeniedError
	if errors.As(err, new(*LostError)) || errors.As(err, &denied) && denied.Reason == "NOT_ASKED" {
		return false, nil
	}
	return false, err
}

// handOvers reads the rows of ask_each or asked_each: the requests, and of which holder each is.
func handOvers(rows pgx.Rows) (found []HandOver, of []int, err error) {
	var h HandOver
	var n int
	var asked, by, in int64
	_, err = pgx.ForEachRow(rows, []any{&n, &asked, &h.AskedBy, &h.Principal, &h.Reason, &by, &in, &h.Refusal, &h.Owner, &h.Token}, func() error {
		h.AskedAt, h.AnswerBy, h.AnswerIn = time.UnixMicro(asked), time.UnixMicro(by), time.Duration(in)*time.Microsecond
		found, of = append(found, h), append(of, n)
		return nil
	})
	return found, of, err
}

func (d *direct) askHandOver(ctx context.Context, namespace, key, reason string) ([]HandOver, error) {
	s, err := d.get(ctx)
	if err != nil {
		return nil, err
	}
	defer d.put(s)
	return d.askHolders(s, ref{namespace: namespace, key: key}, reason)
}

// askHolders asks as the waiter with this lease key or, without one, as an administrator.
func (d *direct) askHolders(s *session, it ref, reason string) ([]HandOver, error) {
	ctx, cancel := context.WithTimeout(d.ctx, d.settings.patience)
	defer cancel()
	rows, _ := s.Query(ctx, "select * from leasehold.ask_each($1::text, $2::text, nullif($3::text, '')::uuid, $4::text)", it.namespace, it.key, it.leaseKey, reason)
	found, _, err := handOvers(rows)
	if err != nil {
		return nil, d.failed(s, it, err)
	}
	return found, nil
}

// askOnce asks whom a waiter waits behind. `asked` says whom it has asked, and so does the answer.
func (d *direct) askOnce(s *session, r request, asked string) (string, error) {
	held := r.heldRow()
	_, err := d.row(s, r.ref(), held.columns(), contending, []string{r.namespace}, []string{r.key}, nil)
	if err != nil || held.holders == asked {
		return asked, err
	}
	_, err = d.askHolders(s, r.ref(), "")
	if errors.As(err, new(*ArgumentError)) { // its place is lost; it joins again
		return asked, nil
	}
	return held.holders, err
}

// asked reads the requests to these holders, after their renewal, in half of the time that is left: the renewal must be heard of before the
// deadline. Without an answer the next renewal reads them.
func (d *direct) asked(ctx context.Context, s *session, refs []ref, beats []beat) {
	if !slices.ContainsFunc(refs, func(it ref) bool { return it.listens }) {
		return
	}
	if until, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Until(until)/2)
		defer cancel()
	}
	rows, _ := s.Query(ctx, "select * from leasehold.asked_each($1::text[], $2::text[], $3::text[]::uuid[])", columns(refs)...)
	found, of, err := handOvers(rows)
	for i, n := range of {
		if refs[n-1].listens {
			beats[n-1].asked = &found[i]
		}
	}
	if err != nil {
		err = d.failed(s, refs[0], err)
		d.deaf.Do(func() { d.settings.logf("leasehold: requests to hand over are not heard: %v", err) })
	}
}

func (d *direct) refuseHandOver(ctx context.Context, it ref, words string) (was bool, err error) {
	s, err := d.get(ctx)
	if err != nil {
		return false, err
	}
	defer d.put(s)
	_, err = d.row(s, it, []any{&was}, "select leasehold.refuse_hand_over($1::text, $2::text, $3::text::uuid, $4::text)",
		it.namespace, it.key, it.leaseKey, words)
	return was, err
}
