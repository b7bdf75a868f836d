package leaseholdtest

import (
	"bytes"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

const (
	headers = 1       // an answer begins with this frame (RFC 9113)
	largest = 1 << 24 // bytes of a frame
)

var errDropped = errors.New("the test drops this answer")

// faults are what happens to the answers of one world, whichever way they come.
type faults struct {
	mu     sync.Mutex
	speaks *sync.Cond
	silent bool
	closed bool
	next   []time.Duration // 0: the answer is lost
}

func newFaults() *faults {
	f := &faults{}
	f.speaks = sync.NewCond(&f.mu)
	return f
}

// meet is nil when what has come may go on. What begins an answer of Leasehold's meets the next fault.
func (f *faults) meet(begins bool) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if begins && len(f.next) > 0 {
		delay := f.next[0]
		f.next = f.next[1:]
		if delay == 0 {
			return errDropped
		}
		f.mu.Unlock()
		time.Sleep(delay)
		f.mu.Lock()
	}
	for f.silent && !f.closed {
		f.speaks.Wait()
	}
	return nil
}

func (f *faults) add(fault time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.next = append(f.next, fault)
}

func (f *faults) silence(on bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.silent = on
	f.speaks.Broadcast()
}

func (f *faults) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	f.speaks.Broadcast()
}

// proxy is between clients and the daemon or, at a unix socket, its PostgreSQL.
type proxy struct {
	listener        net.Listener
	network, server string
	faults          *faults
	mu              sync.Mutex
	open            []net.Conn
}

func newProxy(network, server string, f *faults) (*proxy, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &proxy{listener: listener, network: network, server: server, faults: f}
	go p.accept()
	return p, nil
}

func (p *proxy) address() *net.TCPAddr { return p.listener.Addr().(*net.TCPAddr) }

func (p *proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial(p.network, p.server)
		if err != nil { // it starts again
			client.Close()
			continue
		}
		p.mu.Lock()
		p.open = append(p.open, client, server)
		p.mu.Unlock()
		var asked atomic.Bool // something of Leasehold's, in SQL
		go func() {
			defer cut(client, server)
			p.pass(server, client, func(data []byte) error {
				if bytes.Contains(data, []byte("leasehold.")) {
					asked.Store(true)
				}
				return nil
			})
		}()
		go func() {
			defer cut(client, server)
			if p.network == "unix" {
				p.pass(client, server, func([]byte) error { return p.faults.meet(asked.Swap(false)) })
			} else {
				p.answers(client, server)
			}
		}()
	}
}

// cut ends them at once: nothing that is on its way arrives.
func cut(conns ...net.Conn) {
	for _, conn := range conns {
		if tcp, ok := conn.(*net.TCPConn); ok {
			tcp.SetLinger(0)
		}
		conn.Close()
	}
}

// pass copies what `look` lets go on.
func (p *proxy) pass(to, from net.Conn, look func([]byte) error) {
	buffer := make([]byte, 65536)
	for {
		n, err := from.Read(buffer)
		if err != nil || look(buffer[:n]) != nil {
			return
		}
		if _, err := to.Write(buffer[:n]); err != nil {
			return
		}
	}
}

// answers passes whole frames on; those that begin an answer meet the faults.
func (p *proxy) answers(client, server net.Conn) error {
	frame := make([]byte, 9, largest+9)
	for {
		if _, err := io.ReadFull(server, frame[:9]); err != nil {
			return err
		}
		frame = frame[:9+int(frame[0])<<16+int(frame[1])<<8+int(frame[2])]
		if _, err := io.ReadFull(server, frame[9:]); err != nil {
			return err
		}
		if err := p.faults.meet(frame[3] == headers); err != nil {
			return err
		}
		if _, err := client.Write(frame); err != nil {
			return err
		}
	}
}

func (p *proxy) close() {
	p.listener.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	cut(p.open...)
}
