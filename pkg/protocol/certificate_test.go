package protocol

import (
	"encoding/pem"
	"net/url"
	"strings"
	"testing"
)

func TestEscapedPEM(t *testing.T) {
	c := &Certificate{Raw: [][]byte{{0xfb, 0xff, 1}, {2}}}
	for _, test := range []struct {
		chain bool
		want  int
	}{{false, 1}, {true, 2}} {
		got := c.EscapedPEM(test.chain)
		if strings.ContainsAny(got, " \n+/=,;\"") {
			t.Errorf("%q cannot stand in a field", got)
		}
		text, err := url.QueryUnescape(got)
		if err != nil {
			t.Fatal(err)
		}
		rest, n := []byte(text), 0
		for ; len(rest) > 0; n++ {
			block, more := pem.Decode(rest)
			if block == nil || string(block.Bytes) != string(c.Raw[n]) {
				t.Fatalf("certificate %d is %v", n, block)
			}
			rest = more
		}
		if n != test.want {
			t.Errorf("%d certificates, want %d", n, test.want)
		}
	}
	if got := new(Certificate).EscapedPEM(true); got != "" {
		t.Errorf("of unknown bytes %q", got)
	}
}
