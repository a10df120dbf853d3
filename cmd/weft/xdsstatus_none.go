//go:build noxds

package main

import (
	"encoding/json"

	"github.com/spf13/cobra"

	"github.com/weft-proxy/weft/pkg/inspect"
)

// xdsCommands returns no commands.
func xdsCommands() []*cobra.Command { return nil }

// adminXDS returns nil.
func (*process) adminXDS() *inspect.XDS { return nil }

// adminDump returns nil.
func (*process) adminDump(string, bool) ([]json.RawMessage, error) { return nil, nil }

// staticClusters returns nil.
func (*process) staticClusters() []string { return nil }

// xdsReady returns true, because there is nothing to wait for.
func (*process) xdsReady() bool { return true }
