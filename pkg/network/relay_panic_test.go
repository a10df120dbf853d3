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

// panickingStream is a stream that panics in the method at.
type panickingStream struct {
	at    string
	ended chan struct{}
	once  sync.Once
}

func (b *panickingStream) panicAt(at string) {
	if b.at == at {
		panic("a defect in " + at)
	}
}

func (b *panickingStream) Read([]byte) (int, error) {
	b.panicAt("Read")
	if b.at == "Close" {
		return 0, io.ErrUnexpectedEOF
	}
	<-b.ended
	return 0, io.EOF
}

func (b *panickingStream) Write(p []byte) (int, error) {
	b.panicAt("Write")
	return len(p), nil
}

func (b *panickingStream) CloseWrite() error {
	b.panicAt("CloseWrite")
	return nil
}

func (b *panickingStream) Close() error {
	b.once.Do(func() { close(b.ended) })
	b.panicAt("Close")
	return nil
}

// TestRelayPanicReachesCaller verifies that both directions end when one panics, and that Relay
// panics in the goroutine that called it.
func TestRelayPanicReachesCaller(t *testing.T) {
	for _, at := range []string{"Read", "Write", "CloseWrite", "Close"} {
		t.Run(at, func(t *testing.T) {
			conn, peer := pair(t)
			if _, err := peer.Write([]byte("x")); err != nil {
				t.Fatal(err)
			}
			_ = peer.(interface{ CloseWrite() error }).CloseWrite()
			err := recoverPanic(func() error {
				Relay(conn, &panickingStream{at: at, ended: make(chan struct{})}, 0)
				return nil
			})
			var p *panicError
			if !errors.As(err, &p) || !strings.HasPrefix(p.value.(string), "a defect in "+at) {
				t.Errorf("Relay ended with %v, want the panic", err)
			}
		})
	}
}

// panickingGoAway is a goAwayHandler whose SendGoAway panics.
type panickingGoAway struct{ *goAwayHandler }

func (panickingGoAway) SendGoAway() { panic("a defect in SendGoAway") }

// ServeConn is that of goAwayHandler, except that p handles the parked connection.
func (p panickingGoAway) ServeConn(ctx context.Context, conn *Conn) error {
	err := p.goAwayHandler.ServeConn(ctx, conn)
	conn.Handler = p
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
		t.Errorf("%d connections were force-closed", forceClosed)
	}
	if rest, err := io.ReadAll(conn); len(rest) != 0 || err != nil {
		t.Errorf("read %q, %v, want EOF", rest, err)
	}
}
