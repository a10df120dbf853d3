package pool

import (
	"testing"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
)

func TestRequestHostname(t *testing.T) {
	for _, test := range []struct{ authority, field, header, want string }{
		{"a.test", "", "", "a.test"},
		{"A.Test:8443", "", "", "a.test"},
		{"a.test.", "", "", "a.test"},
		{"127.0.0.1:80", "", "", "127.0.0.1"},
		{"[2001:DB8::1]:80", "", "", "2001:db8::1"},
		{"[::1]", "", "", "::1"},
		{"::1", "", "", "::1"},
		{"", "", "", ""},
		{"a.test", "x-host", "b.test:1", "b.test"},
		{"a.test", "x-host", "", "a.test"},
		{"a.test", "", "b.test", "a.test"},
	} {
		r := &protocol.Request{Authority: test.authority}
		if test.header != "" {
			r.Header.Add("X-Host", test.header)
		}
		if got := requestHostname(r, test.field); got != test.want {
			t.Errorf("requestHostname(%q, %q of %q) = %q, want %q", test.authority, test.header, test.field, got, test.want)
		}
	}
}

func TestRPCUsesNoNamePool(t *testing.T) {
	cfg := &config.Cluster{AutoSNI: config.AutoSNI{SendSNI: true}, TLS: new(config.TLS)}
	if usesNamePool(cfg, config.Dubbo) || !usesNamePool(cfg, config.HTTP2) {
		t.Error("usesNamePool: want false for RPC and true for HTTP/2")
	}
	cfg.TLS = nil
	if usesNamePool(cfg, config.HTTP1) {
		t.Error("usesNamePool is true without TLS")
	}
}
