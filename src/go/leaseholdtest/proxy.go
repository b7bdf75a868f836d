package leaseholdtest

import (
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

const (
	headers = 1       // an answer begins with this frame (RFC 9113)
	largest = 1 << 24 // bytes of a frame
)

var errDropped = errors.New("the test drops this answer")

// proxy is between a client and the daemon.
type proxy struct {
	listener net.Listener
	server   string
	mu       sync.Mutex
	speaks   *sync.Cond
	silent   bool
	closed   bool
	faults   []time.Duration // for the next answers; 0: it is lost
	open     []*net.TCPConn
}

func newProxy(server string) (*proxy, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &proxy{listener: listener, server: server}
	p.speaks = sync.NewCond(&p.mu)
	go p.accept()
	return p, nil
}

func (p *proxy) address() string { return p.listener.Addr().String() }

func (p *proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", p.server)
		if err != nil { // it starts again
			client.Close()
			continue
		}
		p.mu.Lock()
		a, b := client.(*net.TCPConn), server.(*net.TCPConn)
		p.open = append(p.open, a, b)
		p.mu.Unlock()
		go func() {
			defer cut(a, b)
			io.Copy(b, a)
		}()
		go func() {
			defer cut(a, b)
			p.answers(a, b)
		}()
	}
}

// cut ends them at once: nothing that is on its way arrives.
func cut(conns ...*net.TCPConn) {
	for _, conn := range conns {
		conn.SetLinger(0)
		conn.Close()
	}
}

// answers passes whole frames on; those that begin an answer meet the faults.
func (p *proxy) answers(client, server *net.TCPConn) error {
	frame := make([]byte, 9, largest+9)
	for {
		if _, err := io.ReadFull(server, frame[:9]); err != nil {
			return err
		}
		frame = frame[:9+int(frame[0])<<16+int(frame[1])<<8+int(frame[2])]
		if _, err := io.ReadFull(server, frame[9:]); err != nil {
			return err
		}
		if err := p.meet(frame[3] == headers); err != nil {
			return err
		}
		if _, err := client.Write(frame); err != nil {
			return err
		}
	}
}

// meet is nil when the frame may go on.
func (p *proxy) meet(begins bool) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if begins && len(p.faults) > 0 {
		delay := p.faults[0]
		p.faults = p.faults[1:]
		if delay == 0 {
			return errDropped
		}
		p.mu.Unlock()
		time.Sleep(delay)
		p.mu.Lock()
	}
	for p.silent && !p.closed {
		p.speaks.Wait()
	}
	return nil
}

func (p *proxy) add(fault time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults = append(p.faults, fault)
}

func (p *proxy) silence(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.silent = on
	p.speaks.Broadcast()
}

func (p *proxy) close() {
	p.listener.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	p.speaks.Broadcast()
	cut(p.open...)
}
