package config

import "testing"

func TestIsUnixSocket(t *testing.T) {
	for address, want := range map[string]bool{
		"/run/web.sock":   true,
		"./web.sock":      true,
		"@web":            true,
		"":                false,
		"10.0.0.1:80":     false,
		"[::1]:80":        false,
		"web.example:80":  false,
		"web.example":     false,
		".web.example:80": false,
		"../web.sock":     false,
	} {
		if got := IsUnixSocket(address); got != want {
			t.Errorf("IsUnixSocket(%q) = %v, want %v", address, got, want)
		}
	}
}
