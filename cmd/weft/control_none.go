//go:build noxds

package main

import (
	"context"
	"log/slog"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/config/configjson"
	"github.com/weft-proxy/weft/pkg/config/document"
)

// hasXDS reports that the build does not support control planes.
const hasXDS = false

// examine returns the file unchanged, because configjson rejects a bootstrap.
func examine(file *configjson.File) (*config.Snapshot, document.Diagnostics) {
	return file.Snapshot, nil
}

// joinBootstrap does nothing.
func joinBootstrap(*control, *config.Snapshot, *slog.Logger) error { return nil }

// control has no instances in this build.
type control struct{}

func (*process) newControl(*config.Snapshot) (*control, error) {
	return nil, nil //nolint:nilnil // there is none
}

// Rebase is never called.
func (*control) Rebase(context.Context, *config.Snapshot) error { return nil }

// RebaseSome is never called.
func (*control) RebaseSome(context.Context, *config.Snapshot, []*config.Cluster, []*config.RouteTable) error {
	return nil
}

// Run is never called.
func (*control) Run(context.Context) error { return nil }
