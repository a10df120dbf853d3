package http1

import (
	"testing"

	"github.com/weft-proxy/weft/pkg/protocol/xprotocol"
)

func TestMatchKnowsHTTPByItsFirstBytes(t *testing.T) {
	const yes, no, unsure = xprotocol.MatchYes, xprotocol.MatchNo, xprotocol.MatchNeedMore
	for _, test := range []struct {
		name, bytes string
		want        xprotocol.MatchResult
	}{
		{"nothing", "", unsure},
		{"a path", "GET / HTTP/1.1\r\n", yes},
		{"a method and a space", "POST ", yes},
		{"a method without a space", "DELETE", unsure},
		{"the beginning of a method", "OPTI", unsure},
		{"an authority", "CONNECT shop.test:443 HTTP/1.1\r\n", yes},
		{"an asterisk", "OPTIONS * HTTP/1.1\r\n", yes},
		{"an absolute form", "GET http://shop.test/ HTTP/1.1\r\n", yes},
		{"what is no target, to be refused by the parser", "GET \x00", yes},
		{"a method of another RFC", "PROPFIND /a HTTP/1.1\r\n", yes},
		{"the longest registered method", "UPDATEREDIRECTREF /a HTTP/1.1\r\n", yes},
		{"an unregistered method", "X-PURGE /a HTTP/1.1\r\n", yes},
		{"such a method before its target", "PURGE ", unsure},
		{"such a method without a path", "PURGE x", no},
		{"a method that is too long", "AAAAAAAAAAAAAAAAAAAAAAAAA", no},
		{"an empty line first", "\r\nGET / HTTP/1.1\r\n", yes},
		{"half an empty line", "\r", unsure},
		{"an empty line alone", "\r\n", unsure},
		{"two empty lines", "\r\n\r\nGET /", yes},
		{"many empty lines", "\r\n\r\n\r\n\r\nGET /", yes},
		{"an empty line and a half", "\r\n\r", unsure},
		{"a bare CR behind an empty line", "\r\n\rGET /", no},
		{"a bare CR", "\rGET /", no},
		{"a bare LF", "\nGET /", no},
		{"small letters", "get / HTTP/1.1\r\n", yes},
		{"small letters without a path", "get key\r\n", no},
		{"a space", " GET / HTTP/1.1\r\n", no},
		{"the HTTP/2 preface", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", no},
		{"the beginning of that", "PRI ", unsure},
		{"Dubbo", "\xda\xbb\xc2\x00", no},
		{"Bolt", "\x01\x01\x00\x01", no},
		{"Bolt v2", "\x02\x01\x01\x00", no},
		{"TLS", "\x16\x03\x01\x02\x00", no},
		{"SSH", "SSH-2.0-OpenSSH_9.6\r\n", no},
		{"SMTP", "EHLO mail.test\r\n", no},
		{"Redis", "*1\r\n$4\r\nPING\r\n", no},
		{"Redis in a line", "PING\r\n", no},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := Match([]byte(test.bytes)); got != test.want {
				t.Errorf("Match(%q) = %v, want %v", test.bytes, got, test.want)
			}
			for n := range len(test.bytes) {
				if got := Match([]byte(test.bytes[:n])); got != unsure && got != test.want {
					t.Errorf("Match(%q) = %v, of all it is %v", test.bytes[:n], got, test.want)
				}
			}
		})
	}
}

func TestMatchAllocatesNothing(t *testing.T) {
	b := []byte("OPTIONS * HTTP/1.1\r\nHost: shop.test\r\n\r\n")
	if n := testing.AllocsPerRun(100, func() { _ = Match(b) }); n != 0 {
		t.Errorf("Match allocates %v times", n)
	}
}
