//go:build noxds

package main

import (
	"context"

	"github.com/weft-proxy/weft/pkg/config"
)

// hasXDS: the build knows no control planes.
const hasXDS = false

// control is never made.
type control struct{}

func (*process) newControl(*config.Snapshot) (*control, error) {
	return nil, nil //nolint:nilnil // there is none
}

// Rebase is never called.
func (*control) Rebase(context.Context, *config.Snapshot) error { return nil }

// Run is never called.
func (*control) Run(context.Context) error { return nil }
