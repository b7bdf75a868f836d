package leasehold

// Listener is told what happens to a lease: of the grant, each renewal, and the release or the loss, each once and in this order. Any of the
// functions may be nil. They run on a goroutine of their own, one after the other, and may use the client; what they say may be late, so work is
// stopped by [Lease.Context].
type Listener struct {
	Granted, Renewed, Released func(*Lease)
	Lost                       func(*Lease, *LostError)
	// Asked is told of each request to hand the lease over, once; in SQL with the next renewal. It releases the lease, answers by
	// [Lease.RefuseHandOver], or does nothing.
	Asked func(*Lease, HandOver)
}

// tell tells the listener later. The caller has c.mu.
func (l *Lease) tell(news func(*Lease)) {
	if news == nil || !l.isTold {
		return
	}
	l.news = append(l.news, func() { news(l) })
	if !l.telling {
		l.telling = true
		go l.tellAll()
	}
}

func (l *Lease) tellAll() {
	for {
		l.c.mu.Lock()
		if l.telling = len(l.news) > 0; !l.telling {
			l.c.mu.Unlock()
			return
		}
		news := l.news[0]
		l.news = l.news[1:]
		l.c.mu.Unlock()
		news()
	}
}
