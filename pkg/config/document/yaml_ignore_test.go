package document

import "testing"

// TestIgnoredYAMLKeys verifies that a key with the tag !ignore is omitted with its value, and that
// the anchors in the value exist.
func TestIgnoredYAMLKeys(t *testing.T) {
	r := &Report{}
	root := Parse("a.yaml", []byte("!ignore sockets:\n- &a {port: 1}\n- &b {port: 2}\nx: *b\n"), Options{}, r)
	if d := r.Diagnostics(); len(d) != 0 {
		t.Fatal(d)
	}
	if root.Len() != 1 || root.Get("x").Get("port").Text() != "2" {
		t.Errorf("the document has %d members and x.port %q, want 1 and 2", root.Len(), root.Get("x").Get("port").Text())
	}
}
