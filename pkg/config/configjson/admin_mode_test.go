package configjson

import (
	"fmt"
	"io/fs"
	"strings"
	"testing"
)

// TestAdminSocketMode verifies that the mode of the admin socket follows Envoy's bootstrap,
// and that by default only the owner may connect.
func TestAdminSocketMode(t *testing.T) {
	for mode, want := range map[string]fs.FileMode{"": 0, `, "mode": 0`: 0, `, "mode": 432`: 0o660, `, "mode": 511`: 0o777} {
		s, diags := Parse("a.json", []byte(`{"servers": [{}], "admin": {"address": {"pipe": {"path": "/run/admin"`+mode+`}}}}`), testCapabilities(), Options{})
		if s == nil || s.Admin.Mode != want {
			t.Errorf("%s: got %+v, %v, want the mode %v", mode, s, diags, want)
		}
		if text := fmt.Sprint(diags); strings.Contains(text, "mode") {
			t.Errorf("%s: %s", mode, text)
		}
	}
	s, diags := Parse("a.json", []byte(`{"servers": [{}], "admin": {"address": {"pipe": {"path": "/run/admin", "mode": 512}}}}`), testCapabilities(), Options{})
	if s != nil || !strings.Contains(fmt.Sprint(diags), "admin.address.pipe.mode") {
		t.Errorf("a mode above 0777: got %v, want an error", diags)
	}
}
