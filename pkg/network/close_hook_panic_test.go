package network

import (
	"context"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
)

// closeHookPanicHandler sets a close hook that panics on each connection.
type closeHookPanicHandler struct{ called chan struct{} }

func (h closeHookPanicHandler) ServeConn(_ context.Context, conn *Conn) error {
	conn.OnClose(func() { panic("close hook") })
	conn.OnClose(func() { close(h.called) })
	return nil
}

// logBuffer is an io.Writer for a log. Safe for concurrent use.
type logBuffer struct {
	mu  sync.Mutex
	buf strings.Builder // guarded by mu
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// TestCloseHookPanicIsRecovered verifies that the other close hooks still run, and that the
// listener removes the connection and logs the panic.
func TestCloseHookPanicIsRecovered(t *testing.T) {
	handler, log := closeHookPanicHandler{make(chan struct{})}, new(logBuffer)
	l := listen(t, ListenOptions{Name: "l", Log: slog.New(slog.NewTextHandler(log, nil))}, handler)
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if rest, err := io.ReadAll(conn); len(rest) != 0 || err != nil {
		t.Errorf("read %q, %v; want EOF", rest, err)
	}
	<-handler.called
	if forceClosed := l.Drain(t.Context()); forceClosed != 0 {
		t.Errorf("%d connections were force-closed, want 0", forceClosed)
	}
	if n := l.Connections(); n != 0 {
		t.Errorf("%d connections are open, want 0", n)
	}
	if !strings.Contains(log.String(), "close hook") {
		t.Errorf("log %q, want the panic of the close hook", log)
	}
}
