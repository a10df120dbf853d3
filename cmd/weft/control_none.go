//go:build noxds

package main

import (
	"context"
	"log/slog"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/config/configjson"
	"github.com/weft-proxy/weft/pkg/config/document"
)

// hasXDS: the build knows no control planes.
const hasXDS = false

// examine has nothing to read: configjson refuses it.
func examine(file *configjson.File) (*config.Snapshot, document.Diagnostics) {
	return file.Snapshot, nil
}

// joinBootstrap has nothing to say.
func joinBootstrap(*control, *config.Snapshot, *slog.Logger) error { return nil }

// control is never made.
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
