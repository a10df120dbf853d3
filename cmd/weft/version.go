package main

import (
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/weft-proxy/weft/pkg/inspect"
)

// version is the release; `go build -ldflags "-X main.version=…"` sets it.
var version = "0.1.0-dev"

func versionCommand() *cobra.Command {
	var format outputFormat
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Print the version",
		Example: "  weft version\n  weft version -o json\n  weft -v",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := format.check(); err != nil {
				return err
			}
			if format == formatJSON {
				return json.NewEncoder(cmd.OutOrStdout()).Encode(inspect.Build{
					Arch: runtime.GOARCH, Go: runtime.Version(), OS: runtime.GOOS, Revision: revision(), Version: version,
				})
			}
			_, err := fmt.Fprintln(cmd.OutOrStdout(), versionLine())
			return err
		},
	}
	format.flag(cmd.Flags())
	return cmd
}

// versionLine returns the version, the revision and the platform of the binary.
func versionLine() string {
	return fmt.Sprintf("weft %s %s %s %s/%s", version, revision(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

// revision returns the commit that the binary was built from.
func revision() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	rev, dirty := "unknown", ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			rev = s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = "+dirty"
		}
	}
	return rev + dirty
}
