package filter

import (
	"testing"

	"github.com/weft-proxy/weft/pkg/protocol"
)

func TestRequestURL(t *testing.T) {
	for _, test := range []struct{ scheme, authority, path, want string }{
		{"https", "a.test:444", "/p?x=1", "https://a.test:444/p?x=1"},
		{"", "a.test", "/", "http://a.test/"},
		{"http", "a.test", `/"a\b"`, "http://a.test/%22a%5Cb%22"},
	} {
		x := new(protocol.Exchange)
		x.Request.Scheme, x.Request.Authority, x.Request.Path = test.scheme, test.authority, test.path
		if got := RequestURL(x); got != test.want {
			t.Errorf("RequestURL = %q, want %q", got, test.want)
		}
	}
	x := new(protocol.Exchange)
	x.Request.Authority, x.Request.Path, x.Record.OriginalPath = "new.test", "/new", "/old"
	x.Record.OriginalAuthority = "old.test"
	if got := RequestURL(x); got != "http://old.test/old" {
		t.Errorf("RequestURL of a rewritten request = %q, want that of the client", got)
	}
}
