package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/weft-proxy/weft/pkg/config/document"
)

func checkCommand() *cobra.Command {
	var path string
	var lenient bool
	cmd := &cobra.Command{
		Use:   "check -c FILE",
		Short: "Check a configuration without running it",
		Long: "Check reads the file as start would, filters included, and prints everything that\n" +
			"is wrong with it, with its place. Nothing is bound or connected; what a control plane\n" +
			"would say is not asked for. The exit status is\n" +
			"0 for a file that start would run and 1 for one that it would refuse.",
		Example: "  weft check -c config.json\n  weft check --lenient -c config.yaml",
		Args:    noFile,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, whole, diagnostics := source{path: path, lenient: lenient}.openWhole()
			report(cmd.ErrOrStderr(), diagnostics)
			if whole == nil {
				return &exitError{status: 1}
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s: ok: %d listeners, %d route tables, %d clusters\n",
				path, len(whole.Listeners), len(whole.Routes), len(whole.Clusters))
			return err
		},
	}
	cmd.Flags().StringVarP(&path, "config", "c", "", "the configuration `FILE` (JSON, JSON with comments, or YAML)")
	cmd.Flags().BoolVar(&lenient, "lenient", false, "unknown keys are warnings")
	_ = cmd.MarkFlagRequired("config") // fails only for a flag that does not exist
	return cmd
}

// report prints diagnostics, a line each.
func report(w io.Writer, diagnostics document.Diagnostics) {
	for _, d := range diagnostics {
		_, _ = fmt.Fprintln(w, d) // there is nowhere else to say it
	}
}

func schemaCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON Schema of config.json",
		Long: "Schema prints a JSON Schema (2020-12) with every key, its meaning, unit and default,\n" +
			"so that an editor completes and checks config.json.",
		Example: "  weft schema > weft.schema.json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := cmd.OutOrStdout().Write(kinds().Schema())
			return err
		},
	}
}
