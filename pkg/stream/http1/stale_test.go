package http1

import (
	"context"
	"errors"
	"io"
	"testing"

	"github.com/weft-proxy/weft/pkg/protocol"
)

// TestStaleConnectionsAreDistinguishedFromBroken verifies that the error has ErrNotReceived only if
// the host had closed the connection before it received the request. Only then is a retry safe.
func TestStaleConnectionsAreDistinguishedFromBroken(t *testing.T) {
	for name, test := range map[string]struct {
		action func(t *testing.T, remote *peer) // nil: the host closes before the request
		want   bool
	}{
		"closed before the request":         {nil, true},
		"closed after the request was read": {func(t *testing.T, remote *peer) { readHead(t, remote); remote.Close() }, false},
		"reset after the request was read":  {func(t *testing.T, remote *peer) { readHead(t, remote); remote.SetLinger(0); remote.Close() }, false},
		"closed within the response":        {func(t *testing.T, remote *peer) { readHead(t, remote); remote.send("HTTP/1.1 20"); remote.Close() }, false},
	} {
		t.Run(name, func(t *testing.T) {
			local, remote := tcpPair(t)
			c, reusable := newTestUpstreamConn(local)
			done := make(chan struct{})
			if test.action == nil {
				remote.Close()
				close(done)
			} else {
				go func() {
					defer close(done)
					test.action(t, remote)
				}()
			}
			err := c.Serve(context.Background(), newExchange("GET", nil))
			<-done
			if err == nil {
				t.Fatal("Serve = nil, want an error")
			}
			if got := errors.Is(err, protocol.ErrNotReceived); got != test.want {
				t.Errorf("Serve = %v, want one that wraps ErrNotReceived: %v", err, test.want)
			}
			if reason := protocol.ReasonOf(err); reason != protocol.UpstreamClosed && reason != protocol.UpstreamReset {
				t.Errorf("Serve = %v, want UpstreamClosed or UpstreamReset", err)
			}
			if <-reusable {
				t.Error("the connection was considered reusable")
			}
		})
	}
}

// readHead reads a request without a body.
func readHead(t *testing.T, remote *peer) {
	b := make([]byte, 1)
	for last := ""; last != "\r\n\r\n"; {
		if _, err := io.ReadFull(remote, b); err != nil {
			t.Error(err)
			return
		}
		if last += string(b); len(last) > 4 {
			last = last[1:]
		}
	}
}
