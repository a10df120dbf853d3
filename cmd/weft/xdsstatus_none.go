//go:build noxds

package main

import "github.com/spf13/cobra"

// xdsCommands returns no commands.
func xdsCommands() []*cobra.Command { return nil }

// adminXDS returns nil.
func (*process) adminXDS() any { return nil }

// adminDump returns nil.
func (*process) adminDump(string, bool) ([]any, error) { return nil, nil }

// xdsReady returns true, because there is nothing to wait for.
func (*process) xdsReady() bool { return true }
