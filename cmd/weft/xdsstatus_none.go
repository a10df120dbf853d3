//go:build noxds

package main

import (
	"encoding/json"

	"github.com/spf13/cobra"

	"github.com/weft-proxy/weft/pkg/inspect"
	"github.com/weft-proxy/weft/pkg/network/credential"
)

func xdsCommands() []*cobra.Command { return nil }

func (*process) adminXDS() *inspect.XDS { return nil }

func (*process) adminDump(string, bool) ([]json.RawMessage, error) { return nil, nil }

func (*process) adminRuntime() []inspect.RuntimeLayer { return nil }

func (*process) unreadyListeners() []inspect.UnreadyListener { return nil }

func (*process) xdsCertificates() []credential.Certificates { return nil }

func (*process) staticClusters() []string { return nil }

// xdsReady returns true, because no control plane has to respond first.
func (*process) xdsReady() bool { return true }
