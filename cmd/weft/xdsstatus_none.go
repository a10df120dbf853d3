//go:build noxds

package main

import "github.com/spf13/cobra"

// xdsCommands are the commands about control planes: there are none.
func xdsCommands() []*cobra.Command { return nil }

// adminXDS has nothing to show.
func (*process) adminXDS() any { return nil }

// adminDump has nothing to show.
func (*process) adminDump(string, bool) ([]any, error) { return nil, nil }

// isSupplied says that nothing is waited for.
func (*process) isSupplied() bool { return true }
