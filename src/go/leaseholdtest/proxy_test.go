package leaseholdtest

import (
	"bytes"
	"io"
	"net"
	"testing"
	"time"
)

func TestADroppedAnswerCutsItsConnection(t *testing.T) {
	server, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	p, err := newProxy("tcp", server.Addr().String(), newFaults())
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	frame := []byte{0, 0, 1, headers, 0, 0, 0, 0, 1, 7}
	answer := func() ([]byte, error) {
		client, err := net.Dial("tcp", p.address().String())
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		client.SetDeadline(time.Now().Add(time.Minute))
		conn, err := server.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		conn.Write(frame)
		got := make([]byte, len(frame))
		n, err := io.ReadFull(client, got)
		return got[:n], err
	}
	p.faults.add(0)
	if got, err := answer(); err == nil || len(got) != 0 {
		t.Fatalf("%v arrived: %v", got, err)
	}
	if got, err := answer(); err != nil || !bytes.Equal(got, frame) {
		t.Fatalf("%v arrived: %v", got, err)
	}
}
