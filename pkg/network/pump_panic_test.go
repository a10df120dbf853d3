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

// bomb is a stream that panics at one of its methods.
type bomb struct {
	at    string
	ended chan struct{}
	once  sync.Once
}

func (b *bomb) boom(at string) {
	if b.at == at {
		panic("a defect in " + at)
	}
}

func (b *bomb) Read([]byte) (int, error) {
	b.boom("Read")
	if b.at == "Close" {
		return 0, io.ErrUnexpectedEOF
	}
	<-b.ended
	return 0, io.EOF
}

func (b *bomb) Write(p []byte) (int, error) {
	b.boom("Write")
	return len(p), nil
}

func (b *bomb) CloseWrite() error {
	b.boom("CloseWrite")
	return nil
}

func (b *bomb) Close() error {
	b.once.Do(func() { close(b.ended) })
	b.boom("Close")
	return nil
}

// TestAPanicOfAStreamIsItsCallersOnly checks that both directions end whichever one panics,
// and that Pump panics in the goroutine that called it.
func TestAPanicOfAStreamIsItsCallersOnly(t *testing.T) {
	for _, at := range []string{"Read", "Write", "CloseWrite", "Close"} {
		t.Run(at, func(t *testing.T) {
			conn, peer := pair(t)
			if _, err := peer.Write([]byte("x")); err != nil {
				t.Fatal(err)
			}
			_ = peer.(interface{ CloseWrite() error }).CloseWrite()
			err := contain(func() error {
				Relay(conn, &bomb{at: at, ended: make(chan struct{})}, 0)
				return nil
			})
			var p *contained
			if !errors.As(err, &p) || !strings.HasPrefix(p.value.(string), "a defect in "+at) {
				t.Errorf("Pump ended with %v, want the panic", err)
			}
		})
	}
}

// partingBomb panics when it says goodbye.
type partingBomb struct{ *parter }

func (partingBomb) SendGoAway() { panic("a defect in Part") }

// ServeConn is parter's, but for who says goodbye.
func (p partingBomb) ServeConn(ctx context.Context, conn *Conn) error {
	err := p.parter.ServeConn(ctx, conn)
	conn.Handler = p
	return err
}

func TestAPanicOfAGoodbyeCostsItsConnection(t *testing.T) {
	h := partingBomb{&parter{parked: make(chan struct{})}}
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
	if cut := l.Drain(t.Context()); cut != 0 {
		t.Errorf("%d connections were cut", cut)
	}
	if rest, err := io.ReadAll(conn); len(rest) != 0 || err != nil {
		t.Errorf("heard %q, %v, want the end", rest, err)
	}
}
