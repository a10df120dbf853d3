package protocol

import (
	"encoding/pem"
	"net/url"
	"strings"
	"testing"
)

func TestEscapedPEM(t *testing.T) {
	c := &Certificate{Raw: [][]byte{{0xfb, 0xff, 1}, {2}}}
	for _, tt := range []struct {
		chain bool
		want  int
	}{{false, 1}, {true, 2}} {
		got := c.EscapedPEM(tt.chain)
		if strings.ContainsAny(got, " \n+/=,;\"") {
			t.Errorf("%q contains characters that a header must not contain", got)
		}
		text, err := url.QueryUnescape(got)
		if err != nil {
			t.Fatal(err)
		}
		rest, n := []byte(text), 0
		for ; len(rest) > 0; n++ {
			block, after := pem.Decode(rest)
			if block == nil || string(block.Bytes) != string(c.Raw[n]) {
				t.Fatalf("certificate %d: PEM block %v, want the bytes %x", n, block, c.Raw[n])
			}
			rest = after
		}
		if n != tt.want {
			t.Errorf("%d certificates, want %d", n, tt.want)
		}
	}
	if got := new(Certificate).EscapedPEM(true); got != "" {
		t.Errorf("EscapedPEM without Raw = %q, want \"\"", got)
	}
}
