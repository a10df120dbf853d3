package ipaccess

import (
	"context"
	"flag"
	"net/netip"
	"strings"
	"testing"

	"github.com/weft-proxy/weft/pkg/filter/filtertest"
	"github.com/weft-proxy/weft/pkg/protocol"
)

var update = flag.Bool("update", false, "write the tables of README.md")

func TestReadme(t *testing.T) {
	examples := filtertest.CheckReadme(t, Factory(), *update)
	if len(examples) != 2 {
		t.Fatalf("%d examples, want 2", len(examples))
	}
	for _, test := range []struct {
		settings filtertest.Settings
		x        *protocol.Exchange
		want     protocol.Reason
	}{
		{examples[0], requestFrom("10.1.2.3:1"), protocol.ReasonNone},
		{examples[0], requestFrom("10.0.0.66:1"), protocol.ReasonDenied},
		{examples[0], requestFrom("11.0.0.1:1"), protocol.ReasonDenied},
		{examples[0], requestFrom("[2001:db8::7]:1"), protocol.ReasonNone},
		{examples[1], requestFrom("10.0.0.1:1", "X-Forwarded-For: 203.0.113.9, 198.51.100.1"), protocol.ReasonNone},
		{examples[1], requestFrom("10.0.0.1:1", "X-Forwarded-For: 198.51.100.1, 203.0.113.9"), protocol.ReasonDenied},
	} {
		if got := serveRequest(t, test.settings, test.x); got != test.want {
			t.Errorf("%s from %v %q: %v, want %v", test.settings, test.x.Meta.Conn.Remote, test.x.Request.Header.Get("x-forwarded-for"), got, test.want)
		}
	}
}

// requestFrom returns a request from an address with headers "name: value".
func requestFrom(address string, fields ...string) *protocol.Exchange {
	x := new(protocol.Exchange)
	x.Request.Method = "GET"
	x.Meta.Conn = new(protocol.ConnMeta)
	if address != "" {
		x.Meta.Conn.Remote = netip.MustParseAddrPort(address)
	}
	filtertest.AddHeaders(&x.Request.Header, fields...)
	return x
}

// serveRequest serves x and returns the Reason of its error. It checks that a denied request is
// counted.
func serveRequest(t *testing.T, s filtertest.Settings, x *protocol.Exchange) protocol.Reason {
	t.Helper()
	f, counts := filtertest.Build(t, Factory(), s)
	called := false
	err := x.Serve(t.Context(), f(protocol.BlockingFunc(func(context.Context, *protocol.Exchange) error {
		called = true
		return nil
	})))
	reason := protocol.ReasonOf(err)
	if called != (reason == protocol.ReasonNone) {
		t.Errorf("next service called: %t, Serve = %v; want %t", called, err, reason == protocol.ReasonNone)
	}
	if got := counts.Value(deniedMetric()) == 1; got == called {
		t.Errorf("counted as denied: %t, Serve = %v; want %t", got, err, !called)
	}
	return reason
}

func TestLists(t *testing.T) {
	const byHeader = `{"header": "x-real-ip", "ips": [{"action": "deny", "addrs": ["10.0.0.0/8"]}]}`
	rpcCall := requestFrom("10.0.0.1:1", "X-Real-IP: 192.0.2.1")
	rpcCall.Request.Method = ""
	for _, test := range []struct {
		name     string
		settings filtertest.Settings
		x        *protocol.Exchange
		want     protocol.Reason
	}{
		{"attachment of an RPC call is ignored", byHeader, rpcCall, protocol.ReasonDenied},
		{"empty settings", `{}`, requestFrom("10.0.0.1:1"), protocol.ReasonNone},
		{"default deny", `{"default_action": "deny"}`, requestFrom("10.0.0.1:1"), protocol.ReasonDenied},
		{"list without an action allows", `{"default_action": "deny", "ips": [{"addrs": ["10.0.0.1"]}]}`, requestFrom("10.0.0.1:1"), protocol.ReasonNone},
		{"first list has precedence over the longest prefix",
			`{"ips": [{"action": "allow", "addrs": ["10.0.0.0/8"]}, {"action": "deny", "addrs": ["10.0.0.1"]}]}`, requestFrom("10.0.0.1:1"), protocol.ReasonNone},
		{"IPv4 address on an IPv6 socket", `{"ips": [{"action": "deny", "addrs": ["10.0.0.0/8"]}]}`, requestFrom("[::ffff:10.0.0.1]:1"), protocol.ReasonDenied},
		{"link-local address with a zone", `{"ips": [{"action": "deny", "addrs": ["fe80::/10"]}]}`, requestFrom("[fe80::1%eth0]:1"), protocol.ReasonDenied},
		{"unix socket", `{}`, requestFrom(""), protocol.ReasonDenied},
		{"configured header", byHeader, requestFrom("192.0.2.1:1", "X-Real-IP: 10.0.0.1"), protocol.ReasonDenied},
		{"configured header replaces the connection's address", byHeader, requestFrom("10.0.0.1:1", "X-Real-IP: 192.0.2.1"), protocol.ReasonNone},
		{"configured header missing", byHeader, requestFrom("10.0.0.1:1"), protocol.ReasonDenied},
		{"configured header is not an address", byHeader, requestFrom("192.0.2.1:1", "X-Real-IP: localhost"), protocol.ReasonDenied},
		{"header that is not configured", `{"ips": [{"action": "deny", "addrs": ["10.0.0.0/8"]}]}`, requestFrom("10.0.0.1:1", "X-Forwarded-For: 192.0.2.1"), protocol.ReasonDenied},
		{"addresses before the trusted hops are ignored",
			`{"header": "x-forwarded-for", "xff_num_trusted_hops": 1, "default_action": "deny", "ips": [{"addrs": ["10.0.0.1"]}]}`,
			requestFrom("192.0.2.1:1", "X-Forwarded-For: 10.0.0.1, 203.0.113.1, 192.0.2.1"), protocol.ReasonDenied},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := serveRequest(t, test.settings, test.x); got != test.want {
				t.Errorf("reason = %v, want %v", got, test.want)
			}
		})
	}
}

func TestInvalidSettingsAreRejected(t *testing.T) {
	for name, test := range map[string]struct {
		settings filtertest.Settings
		want     string
	}{
		"invalid address":       {`{"ips": [{}, {"addrs": ["10.0.0.1", "10.0.0.300"]}]}`, "ips[1].addrs[1]"},
		"invalid prefix":        {`{"ips": [{"addrs": ["10.0.0.0/33"]}]}`, "ips[0].addrs[0]"},
		"invalid action":        {`{"ips": [{"action": "block"}]}`, "block"},
		"invalid default":       {`{"default_action": "ask"}`, "ask"},
		"hops without a header": {`{"xff_num_trusted_hops": 1}`, "header"},
		"unknown key":           {`{"ip": []}`, "ips"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := filtertest.DecodeErrors(t, Factory(), test.settings); !strings.Contains(got, test.want) {
				t.Errorf("rejected with %q, want an error with %q", got, test.want)
			}
		})
	}
}

func newService(t testing.TB) (protocol.Service, *protocol.Exchange) {
	f, _ := filtertest.Build(t, Factory(), `{
		"default_action": "deny", "header": "x-forwarded-for", "xff_num_trusted_hops": 1,
		"ips": [{"action": "deny", "addrs": ["192.0.2.0/24", "198.51.100.7"]}, {"addrs": ["10.0.0.0/8", "2001:db8::/32", "172.16.0.0/12"]}]}`)
	s := f(protocol.BlockingFunc(func(context.Context, *protocol.Exchange) error { return nil }))
	return s, requestFrom("127.0.0.1:1", "X-Forwarded-For: 10.1.2.3, 127.0.0.1")
}

func TestPassingDoesNotAllocate(t *testing.T) {
	s, x := newService(t)
	filtertest.CheckNoAllocs(t, s, x)
}

func BenchmarkServe(b *testing.B) {
	s, x := newService(b)
	filtertest.Bench(b, s, x)
}
