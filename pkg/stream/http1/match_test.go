package http1

import (
	"testing"

	"github.com/weft-proxy/weft/pkg/protocol/xprotocol"
)

func TestMatch(t *testing.T) {
	const yes, no, needMore = xprotocol.MatchYes, xprotocol.MatchNo, xprotocol.MatchNeedMore
	for _, test := range []struct {
		name, bytes string
		want        xprotocol.MatchResult
	}{
		{"empty", "", needMore},
		{"path", "GET / HTTP/1.1\r\n", yes},
		{"method and space", "POST ", yes},
		{"method without a space", "DELETE", needMore},
		{"prefix of a method", "OPTI", needMore},
		{"authority", "CONNECT shop.test:443 HTTP/1.1\r\n", yes},
		{"asterisk", "OPTIONS * HTTP/1.1\r\n", yes},
		{"absolute form", "GET http://shop.test/ HTTP/1.1\r\n", yes},
		{"invalid target, rejected by the parser", "GET \x00", yes},
		{"method of another RFC", "PROPFIND /a HTTP/1.1\r\n", yes},
		{"longest registered method", "UPDATEREDIRECTREF /a HTTP/1.1\r\n", yes},
		{"unregistered method", "X-PURGE /a HTTP/1.1\r\n", yes},
		{"unregistered method before its target", "PURGE ", needMore},
		{"unregistered method without a path", "PURGE x", no},
		{"method too long", "AAAAAAAAAAAAAAAAAAAAAAAAA", no},
		{"empty line first", "\r\nGET / HTTP/1.1\r\n", yes},
		{"CR of an empty line", "\r", needMore},
		{"only an empty line", "\r\n", needMore},
		{"two empty lines", "\r\n\r\nGET /", yes},
		{"many empty lines", "\r\n\r\n\r\n\r\nGET /", yes},
		{"empty line and CR", "\r\n\r", needMore},
		{"bare CR after an empty line", "\r\n\rGET /", no},
		{"bare CR", "\rGET /", no},
		{"bare LF", "\nGET /", no},
		{"lowercase method", "get / HTTP/1.1\r\n", yes},
		{"lowercase method without a path", "get key\r\n", no},
		{"leading space", " GET / HTTP/1.1\r\n", no},
		{"HTTP/2 preface", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", no},
		{"prefix of the HTTP/2 preface", "PRI ", needMore},
		{"Dubbo", "\xda\xbb\xc2\x00", no},
		{"Bolt", "\x01\x01\x00\x01", no},
		{"Bolt v2", "\x02\x01\x01\x00", no},
		{"TLS", "\x16\x03\x01\x02\x00", no},
		{"SSH", "SSH-2.0-OpenSSH_9.6\r\n", no},
		{"SMTP", "EHLO mail.test\r\n", no},
		{"Redis", "*1\r\n$4\r\nPING\r\n", no},
		{"Redis inline command", "PING\r\n", no},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := Match([]byte(test.bytes)); got != test.want {
				t.Errorf("Match(%q) = %v, want %v", test.bytes, got, test.want)
			}
			for n := range len(test.bytes) {
				if got := Match([]byte(test.bytes[:n])); got != needMore && got != test.want {
					t.Errorf("Match(%q) = %v, but the complete input gives %v", test.bytes[:n], got, test.want)
				}
			}
		})
	}
}

func TestMatchDoesNotAllocate(t *testing.T) {
	b := []byte("OPTIONS * HTTP/1.1\r\nHost: shop.test\r\n\r\n")
	if n := testing.AllocsPerRun(100, func() { _ = Match(b) }); n != 0 {
		t.Errorf("%v allocations per Match, want 0", n)
	}
}
