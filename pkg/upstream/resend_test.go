package upstream

import (
	"testing"

	"github.com/weft-proxy/weft/pkg/protocol"
)

// TestARequestIsSentAgainOnlyIfTheHostHasNotReadIt verifies which requests are sent again after a
// reused connection failed, depending on what the error says about the host.
func TestARequestIsSentAgainOnlyIfTheHostHasNotReadIt(t *testing.T) {
	for name, test := range map[string]struct {
		method string
		body   protocol.Body
		err    error
		again  bool
	}{
		"GET, unknown whether received":             {"GET", nil, protocol.Faultf(protocol.UpstreamClosed, "EOF"), false},
		"GET, reset, unknown whether received":      {"GET", nil, protocol.Faultf(protocol.UpstreamReset, "reset"), false},
		"GET, not received":                         {"GET", nil, protocol.NewFault(protocol.UpstreamClosed, protocol.ErrNotReceived), true},
		"POST, not received":                        {"POST", nil, protocol.NewFault(protocol.UpstreamClosed, protocol.ErrNotReceived), false},
		"POST, not sent":                            {"POST", nil, protocol.NewFault(protocol.UpstreamReset, protocol.ErrNotSent), true},
		"POST with a body, not sent":                {"POST", protocol.NewStringBody("held"), protocol.NewFault(protocol.UpstreamReset, protocol.ErrNotSent), true},
		"POST with a streaming body":                {"POST", &once{}, protocol.NewFault(protocol.UpstreamReset, protocol.ErrNotSent), false},
		"POST, connection ended before the request": {"POST", &once{}, protocol.NewFault(protocol.ConnectFailure, nil), true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFakeConnector()
			s, c := newTestCluster(t, w, cluster("web", "a"))
			serveOne(t, c)
			w.respond = func(conn *fakeConn, _ *protocol.Exchange) error {
				if conn == w.conns[0] {
					return test.err
				}
				return nil
			}
			x := get()
			x.Request.Method, x.Request.Body = test.method, test.body
			err := c.Serve(t.Context(), x)
			if test.again != (err == nil) {
				t.Errorf("Serve = %v, want it sent again: %v", err, test.again)
			}
			want := uint64(0)
			if test.again {
				want = 1
			}
			if got := s.Describe()[0].Resent; got != want {
				t.Errorf("Resent = %d, want %d", got, want)
			}
			x.ResetResponse()
			if n := c.InFlight(); n != 0 {
				t.Errorf("%d exchanges are counted, want 0", n)
			}
		})
	}
}
