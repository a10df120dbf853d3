//go:build noxds

package main

import "github.com/spf13/cobra"

// xdsCommands are the commands about control planes: there are none.
func xdsCommands() []*cobra.Command { return nil }

// adminXDS has nothing to show.
func (*process) adminXDS() any { return nil }
