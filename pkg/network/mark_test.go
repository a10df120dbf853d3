package network

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// socketMark returns the mark (SO_MARK) of the socket of c.
func socketMark(c *Conn) (value int, err error) {
	controlErr := c.raw.Control(func(fd uintptr) {
		value, err = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_MARK)
	})
	return value, errors.Join(controlErr, err)
}

func TestSocketMarks(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("socket marks need a capability: run as root")
	}
	accepted := make(chan int, 1)
	l := listen(t, ListenOptions{Network: "tcp", Address: "127.0.0.1:0", Mark: 0x77}, handlerFunc(func(_ context.Context, c *Conn) error {
		value, err := socketMark(c)
		accepted <- value
		return err
	}))
	conn, err := Dialer{Mark: 0x88}.Dial(t.Context(), "tcp", l.Addr().String(), time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if got, err := socketMark(conn); got != 0x88 || err != nil {
		t.Errorf("mark of a dialed connection: %#x, %v; want 0x88", got, err)
	}
	if got := <-accepted; got != 0x77 {
		t.Errorf("mark of an accepted connection: %#x, want 0x77 of its listener", got)
	}
}
