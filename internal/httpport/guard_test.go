package httpport

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
)

// TestCheck verifies what a Guard passes to AllowHost, and the order of its checks.
func TestCheck(t *testing.T) {
	tcp, unix := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 80}, &net.UnixAddr{Name: "/run/a", Net: "unix"}
	guard := Guard{
		AllowHost: func(name string, local net.Addr) bool {
			return name == "weft.test" && (local == nil || local == net.Addr(tcp))
		},
		AllowPage: NoPages,
	}
	for _, test := range []struct {
		name, host, origin string
		local              net.Addr
		want               Violation
	}{
		{"allowed name", "weft.test", "", tcp, NoViolation},
		{"allowed name with a port and capitals", "Weft.Test:80", "", tcp, NoViolation},
		{"unknown local address", "weft.test", "", nil, NoViolation},
		{"foreign name", "evil.test", "", tcp, ForeignHost},
		{"foreign name on a unix socket", "evil.test", "", unix, NoViolation},
		{"web page", "weft.test", "http://evil.test", tcp, ForeignPage},
		{"web page on a unix socket", "weft.test", "http://evil.test", unix, ForeignPage},
		{"web page with a foreign name", "evil.test", "http://evil.test", tcp, ForeignHost},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
			r.Host = test.host
			if test.origin != "" {
				r.Header.Set("Origin", test.origin)
			}
			if test.local != nil {
				r = r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, test.local))
			}
			if got := guard.Check(r); got != test.want {
				t.Errorf("Check = %v, want %v", got, test.want)
			}
		})
	}
}
