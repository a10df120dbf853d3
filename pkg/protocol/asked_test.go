package protocol

import "testing"

func TestWhatWasAskedForIsKept(t *testing.T) {
	var x Exchange
	x.Request.Path, x.Request.Authority = "/a?b", "shop.test"
	if x.AskedPath() != "/a?b" || x.AskedAuthority() != "shop.test" {
		t.Errorf("before a rewrite: %s%s", x.AskedAuthority(), x.AskedPath())
	}
	x.Request.Path, x.Record.OriginalPath = "/c", x.Request.Path
	x.RewriteAuthority("one.test")
	x.RewriteAuthority("two.test")
	if x.AskedPath() != "/a?b" || x.AskedAuthority() != "shop.test" || x.Request.Authority != "two.test" {
		t.Errorf("after rewrites: asked for %s%s, goes to %s", x.AskedAuthority(), x.AskedPath(), x.Request.Authority)
	}
	x.Reset()
	if x.AskedAuthority() != "" {
		t.Errorf("the next request is for %s", x.AskedAuthority())
	}
}
