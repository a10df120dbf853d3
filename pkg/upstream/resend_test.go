package upstream

import (
	"testing"

	"github.com/weft-proxy/weft/pkg/protocol"
)

// TestResendAfterReusedConnectionFails verifies which requests are resent after a
// reused connection failed, depending on whether the host can have received them.
func TestResendAfterReusedConnectionFails(t *testing.T) {
	for name, test := range map[string]struct {
		method string
		body   protocol.Body
		err    error
		resent bool
	}{
		"GET, unknown whether received":             {"GET", nil, protocol.Faultf(protocol.UpstreamClosed, "EOF"), false},
		"GET, reset, unknown whether received":      {"GET", nil, protocol.Faultf(protocol.UpstreamReset, "reset"), false},
		"GET, not received":                         {"GET", nil, protocol.NewFault(protocol.UpstreamClosed, protocol.ErrNotReceived), true},
		"POST, not received":                        {"POST", nil, protocol.NewFault(protocol.UpstreamClosed, protocol.ErrNotReceived), false},
		"POST, not sent":                            {"POST", nil, protocol.NewFault(protocol.UpstreamReset, protocol.ErrNotSent), true},
		"POST with a body, not sent":                {"POST", protocol.NewStringBody("held"), protocol.NewFault(protocol.UpstreamReset, protocol.ErrNotSent), true},
		"POST with a streaming body":                {"POST", &oneShotBody{}, protocol.NewFault(protocol.UpstreamReset, protocol.ErrNotSent), false},
		"POST, connection ended before the request": {"POST", &oneShotBody{}, protocol.NewFault(protocol.ConnectFailure, nil), true},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFakeConnector()
			s, c := newTestCluster(t, f, cluster("web", "a"))
			serveOne(t, c)
			f.respond = func(conn *fakeConn, _ *protocol.Exchange) error {
				if conn == f.conns[0] {
					return test.err
				}
				return nil
			}
			x := newExchange()
			x.Request.Method, x.Request.Body = test.method, test.body
			err := c.Serve(t.Context(), x)
			if test.resent != (err == nil) {
				t.Errorf("Serve = %v, want resent = %v", err, test.resent)
			}
			want := uint64(0)
			if test.resent {
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
