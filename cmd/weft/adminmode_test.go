package main

import (
	"io/fs"
	"slices"
	"testing"

	"github.com/weft-proxy/weft/pkg/config"
)

func TestAdminSocketModeNeedsRestart(t *testing.T) {
	withMode := func(mode fs.FileMode) *config.Snapshot {
		return &config.Snapshot{Admin: &config.Admin{Address: "/run/admin", Mode: mode}}
	}
	if keys := restartOnly(withMode(0o600), withMode(0o660)); !slices.Equal(keys, []string{"admin.address"}) {
		t.Errorf("restartOnly = %q, want admin.address", keys)
	}
	if keys := restartOnly(withMode(0o600), withMode(0o600)); len(keys) != 0 {
		t.Errorf("restartOnly for the same mode = %q, want none", keys)
	}
}
