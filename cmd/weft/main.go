// Command weft is a sidecar data plane: it proxies the HTTP and RPC traffic of an application as
// config.json configures.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"
)

func main() {
	os.Exit(runCommand(context.Background(), os.Args[1:]))
}

// runCommand runs the command with args and returns the exit status.
func runCommand(ctx context.Context, args []string) int {
	root := newCommand()
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	var silent *exitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &silent):
		return silent.status
	default:
		fmt.Fprintln(os.Stderr, "weft:", err)
		return 1
	}
}

// exitError makes runCommand return status without printing a message.
type exitError struct{ status int }

func (e *exitError) Error() string { return fmt.Sprintf("exit status %d", e.status) }

func newCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "weft",
		Short: "Weft, a sidecar data plane for HTTP and RPC",
		Long: "Weft proxies the HTTP and RPC traffic of the application next to it.\n" +
			"It reads config.json in the schema of MOSN; see docs/configuration.md.",
		Example: "  weft start                        run the built-in example\n" +
			"  weft start -c config.json\n" +
			"  weft check config.json            report all errors of a file\n" +
			"  weft reload                       make a running Weft read its file again\n" +
			"  weft schema > weft.schema.json    for your editor\n" +
			"  weft explain http://host/path     which route a request would take, and why\n" +
			"  source <(weft completion bash)",
		SilenceUsage:  true,
		SilenceErrors: true,
		Version:       version, // adds --version and -v
	}
	root.SetVersionTemplate(versionLine() + "\n")
	root.AddCommand(startCommand(), checkCommand(), reloadCommand(), schemaCommand(), explainCommand(), servicesCommand(), versionCommand())
	root.AddCommand(xdsCommands()...)
	return root
}
