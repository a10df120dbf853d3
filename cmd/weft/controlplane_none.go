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

// mergeStatic returns the file unchanged, because configjson rejects a bootstrap.
func mergeStatic(file *configjson.File) (*config.Snapshot, document.Diagnostics) {
	return file.Snapshot, nil
}

// warnNewBootstrap does nothing, because configjson rejects a bootstrap.
func warnNewBootstrap(*controlPlane, *config.Snapshot, *slog.Logger) error { return nil }

// changedBootstrapKeys returns nothing, because configjson rejects a bootstrap.
func changedBootstrapKeys(*controlPlane, *config.Snapshot, *config.Snapshot) []string { return nil }

// controlPlane has no instances in this build.
type controlPlane struct{}

func (*process) newControlPlane(*config.Snapshot) (*controlPlane, error) {
	return nil, nil //nolint:nilnil // nil: no control plane
}

// Run is never called.
func (*controlPlane) Run(context.Context) error { return nil }
