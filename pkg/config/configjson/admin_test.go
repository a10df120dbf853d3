package configjson

import (
	"fmt"
	"strings"
	"testing"
)

// TestAdminUnixSocket verifies the accepted and rejected addresses of the admin port.
func TestAdminUnixSocket(t *testing.T) {
	for address, want := range map[string]string{ // address in the model; "": rejected
		`{"pipe": {"path": "/run/admin"}}`:               "/run/admin",
		`{"pipe": {"path": "admin.sock"}}`:               "./admin.sock",
		`{"pipe": {"path": "run/admin"}}`:                "run/admin",
		`{"pipe": {"path": "@weft"}}`:                    "",
		`{"socket_address": {"address": "/run/admin"}}`:  "/run/admin",
		`{"socket_address": {"address": "./admin"}}`:     "./admin",
		`{"socket_address": {"address": "@weft"}}`:       "",
		`{"pipe": {"path": "unix:///run/weft/admin.s"}}`: "/run/weft/admin.s",
	} {
		s, diags := Parse("a.json", []byte(`{"servers": [{}], "admin": {"address": `+address+`}}`), testCapabilities(), Options{})
		switch {
		case want == "":
			if s != nil || !strings.Contains(fmt.Sprint(diags), "abstract socket") {
				t.Errorf("%s: got %v, want an error about the abstract socket", address, diags)
			}
		case s == nil || s.Admin == nil || s.Admin.Address != want:
			t.Errorf("%s: got %+v, %v, want the address %q", address, s, diags, want)
		}
	}
}
