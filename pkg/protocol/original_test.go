package protocol

import "testing"

func TestOriginalPathAndAuthority(t *testing.T) {
	var x Exchange
	x.Request.Path, x.Request.Authority = "/a?b", "shop.test"
	if x.OriginalPath() != "/a?b" || x.OriginalAuthority() != "shop.test" {
		t.Errorf("before a rewrite: original target %s%s, want shop.test/a?b", x.OriginalAuthority(), x.OriginalPath())
	}
	x.Request.Path, x.Record.OriginalPath = "/c", x.Request.Path
	x.RewriteAuthority("one.test")
	x.RewriteAuthority("two.test")
	if x.OriginalPath() != "/a?b" || x.OriginalAuthority() != "shop.test" || x.Request.Authority != "two.test" {
		t.Errorf("after rewrites: original target %s%s, authority %s; want shop.test/a?b, two.test", x.OriginalAuthority(), x.OriginalPath(), x.Request.Authority)
	}
	x.Reset()
	if x.OriginalAuthority() != "" {
		t.Errorf("OriginalAuthority after Reset = %s, want \"\"", x.OriginalAuthority())
	}
}
