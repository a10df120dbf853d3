package configjson

import (
	"fmt"
	"io/fs"
	"strings"
	"testing"
)

// TestAdminUnixSocket verifies which unix sockets the admin port accepts.
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

// TestProfilerPort verifies which port serves profiles.
func TestProfilerPort(t *testing.T) {
	const admin = `"admin": {"address": {"socket_address": {"address": "127.0.0.1", "port_value": 9901}}}`
	for text, want := range map[string]struct {
		adminPort bool
		address   string
	}{
		`"pprof": {"debug": true}, ` + admin:                                                                   {adminPort: true},
		`"pprof": {"debug": true, "port_value": 9901}, ` + admin:                                               {adminPort: true},
		`"pprof": {"debug": true, "port_value": 9901, "endpoint": "127.0.0.1"}, ` + admin:                      {adminPort: true},
		`"pprof": {"debug": true, "port_value": 9901, "endpoint": "127.0.0.9"}, ` + admin:                      {address: "127.0.0.9:9901"},
		`"pprof": {"debug": true, "port_value": 9090, "endpoint": ""}, ` + admin:                               {address: "127.0.0.1:9090"},
		`"pprof": {"debug": true, "port_value": 9090}, ` + admin:                                               {address: "127.0.0.1:9090"},
		`"pprof": {"debug": true, "port_value": 9090, "endpoint": "0.0.0.0"}, ` + admin:                        {address: "0.0.0.0:9090"},
		`"pprof": {"debug": true, "port_value": 9090, "endpoint": "::1"}`:                                      {address: "[::1]:9090"},
		`"pprof": {"debug": true, "port_value": 9090}, "admin": {"address": {"pipe": {"path": "/run/admin"}}}`: {address: "127.0.0.1:9090"},
		`"pprof": {"debug": false, "port_value": 9090}, ` + admin:                                              {},
	} {
		s, diags := Parse("a.json", []byte(`{"servers": [{}], `+text+`}`), testCapabilities(), Options{})
		if s == nil {
			t.Errorf("%s: %v, want no error", text, diags)
			continue
		}
		if got := s.Admin != nil && s.Admin.Pprof; got != want.adminPort || s.Profiler != want.address {
			t.Errorf("%s: profiles on the admin port %v, separate port %q; want %v and %q", text, got, s.Profiler, want.adminPort, want.address)
		}
	}
}

// TestAdminSocketMode verifies that the mode of the admin socket follows Envoy's bootstrap. The
// default is 0: only the owner may connect.
func TestAdminSocketMode(t *testing.T) {
	for mode, want := range map[string]fs.FileMode{"": 0, `, "mode": 0`: 0, `, "mode": 432`: 0o660, `, "mode": 511`: 0o777} {
		s, diags := Parse("a.json", []byte(`{"servers": [{}], "admin": {"address": {"pipe": {"path": "/run/admin"`+mode+`}}}}`), testCapabilities(), Options{})
		if s == nil || s.Admin.Mode != want {
			t.Errorf("%s: got %+v, %v, want the mode %v", mode, s, diags, want)
		}
		if text := fmt.Sprint(diags); strings.Contains(text, "mode") {
			t.Errorf("mode %s: diagnostics %s, want none about the mode", mode, text)
		}
	}
	s, diags := Parse("a.json", []byte(`{"servers": [{}], "admin": {"address": {"pipe": {"path": "/run/admin", "mode": 512}}}}`), testCapabilities(), Options{})
	if s != nil || !strings.Contains(fmt.Sprint(diags), "admin.address.pipe.mode") {
		t.Errorf("a mode above 0777: got %v, want an error", diags)
	}
}
