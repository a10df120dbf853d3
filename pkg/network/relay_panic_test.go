package network

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
)

// panickingStream is a stream that panics in one of its methods.
type panickingStream struct {
	method string
	done   chan struct{}
	once   sync.Once
}

func (s *panickingStream) panicIn(method string) {
	if s.method == method {
		panic("a defect in " + method)
	}
}

func (s *panickingStream) Read([]byte) (int, error) {
	s.panicIn("Read")
	if s.method == "Close" {
		return 0, io.ErrUnexpectedEOF
	}
	<-s.done
	return 0, io.EOF
}

func (s *panickingStream) Write(p []byte) (int, error) {
	s.panicIn("Write")
	return len(p), nil
}

func (s *panickingStream) CloseWrite() error {
	s.panicIn("CloseWrite")
	return nil
}

func (s *panickingStream) Close() error {
	s.once.Do(func() { close(s.done) })
	s.panicIn("Close")
	return nil
}

// TestRelayPanicReachesCaller verifies that both directions end when one panics, and that Relay
// panics in the goroutine that called it.
func TestRelayPanicReachesCaller(t *testing.T) {
	for _, method := range []string{"Read", "Write", "CloseWrite", "Close"} {
		t.Run(method, func(t *testing.T) {
			conn, peer := pair(t)
			if _, err := peer.Write([]byte("x")); err != nil {
				t.Fatal(err)
			}
			_ = peer.(interface{ CloseWrite() error }).CloseWrite()
			err := recoverPanic(func() error {
				Relay(conn, &panickingStream{method: method, done: make(chan struct{})}, 0)
				return nil
			})
			var p *panicError
			if !errors.As(err, &p) || !strings.HasPrefix(p.value.(string), "a defect in "+method) {
				t.Errorf("Relay ended with %v, want the panic", err)
			}
		})
	}
}

// panickingGoAway is a goAwayHandler whose SendGoAway panics.
type panickingGoAway struct{ *goAwayHandler }

func (panickingGoAway) SendGoAway() { panic("a defect in SendGoAway") }

// ServeConn calls goAwayHandler.ServeConn, and makes h handle the parked connection.
func (h panickingGoAway) ServeConn(ctx context.Context, conn *Conn) error {
	err := h.goAwayHandler.ServeConn(ctx, conn)
	conn.Handler = h
	return err
}

func TestSendGoAwayPanicEndsConnection(t *testing.T) {
	h := panickingGoAway{&goAwayHandler{parked: make(chan struct{})}}
	l := listen(t, ListenOptions{Name: "l"}, h)
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	<-h.parked
	if forceClosed := l.Drain(t.Context()); forceClosed != 0 {
		t.Errorf("%d connections were force-closed, want 0", forceClosed)
	}
	if rest, err := io.ReadAll(conn); len(rest) != 0 || err != nil {
		t.Errorf("read %q, %v, want EOF", rest, err)
	}
}
