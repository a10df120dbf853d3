package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/weft-proxy/weft/pkg/config/document"
	"github.com/weft-proxy/weft/pkg/inspect"
)

// checkFlags are the flags of check.
type checkFlags struct {
	source
	strict bool
	format outputFormat
}

func checkCommand() *cobra.Command {
	var f checkFlags
	cmd := &cobra.Command{
		Use:   "check FILE",
		Short: "Check a configuration without running it",
		Long: "Check reads the file as start does and prints all errors with their positions. It also\n" +
			"builds filters and route tables, and checks certificates and log files. It binds no address,\n" +
			"creates and changes no file, and opens no connection.\n\n" +
			"It prints the warnings that start logs. It also warns about likely mistakes that start\n" +
			"accepts, such as a route that no request can reach.\n\n" +
			"The exit status is 0 for a file that start accepts and 1 for one that it rejects, or, with\n" +
			"--strict, for one with warnings.",
		Example: "  weft check config.json\n" +
			"  weft check --strict -o json config.yaml\n" +
			"  helm template . | weft check -",
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case len(args) > 0 && f.path != "":
				return fmt.Errorf("%q and -c %s: expected one file", args[0], f.path)
			case len(args) > 0:
				f.path = args[0]
			case f.path == "":
				return errors.New("the file is missing: run weft check FILE, or - for standard input")
			}
			return f.run(cmd)
		},
	}
	flags := cmd.Flags()
	flags.StringVarP(&f.path, "config", "c", "", "configuration `FILE` (JSON, JSON with comments, or YAML), or - for standard input; the same as the argument")
	flags.BoolVar(&f.lenient, "lenient", false, "report unknown keys as warnings")
	flags.BoolVar(&f.strict, "strict", false, "fail on warnings")
	f.format.flag(flags)
	return cmd
}

func (f *checkFlags) run(cmd *cobra.Command) error {
	if err := f.format.check(); err != nil {
		return err
	}
	f.lint = true
	r := f.check(cmd.Context())
	if f.format == formatJSON {
		if err := r.writeJSON(cmd.OutOrStdout()); err != nil {
			return err
		}
	} else if err := r.writeText(cmd.OutOrStdout(), cmd.ErrOrStderr()); err != nil {
		return err
	}
	if !r.OK {
		return &exitError{status: 1}
	}
	return nil
}

// checkResult is the result of check for one file, for printing.
type checkResult struct {
	inspect.Check
	diagnostics document.Diagnostics
}

func (f *checkFlags) check(ctx context.Context) checkResult {
	file, merged, diagnostics := f.openMerged()
	r := checkResult{Check: inspect.Check{File: f.name(), Problems: []inspect.Problem{}}}
	if merged != nil {
		r.Listeners, r.RouteTables, r.Clusters = len(merged.Listeners), len(merged.Routes), len(merged.Clusters)
		diagnostics = append(diagnostics, verify(ctx, startFlags{source: f.source, drainSeconds: -1}, file)...)
	}
	r.diagnostics = diagnostics
	r.OK = merged != nil && !diagnostics.Failed() && (!f.strict || len(diagnostics) == 0)
	for _, d := range diagnostics {
		r.Problems = append(r.Problems, inspect.Problem{
			Severity: d.Severity.String(), File: d.File, Line: d.Line, Column: d.Column, Path: d.Path, Message: d.Text(),
		})
	}
	return r
}

func (r *checkResult) writeJSON(out io.Writer) error {
	e := json.NewEncoder(out)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

func (r *checkResult) writeText(out, problems io.Writer) error {
	printDiagnostics(problems, r.diagnostics)
	if !r.OK {
		if !r.diagnostics.Failed() {
			_, _ = fmt.Fprintf(problems, "%s: %s, and --strict was given\n", r.File, pluralize(len(r.diagnostics), "warning"))
		}
		return nil
	}
	_, err := fmt.Fprintf(out, "%s: ok: %s, %s, %s\n", r.File,
		pluralize(r.Listeners, "listener"), pluralize(r.RouteTables, "route table"), pluralize(r.Clusters, "cluster"))
	return err
}

// pluralize returns a number with its noun: "1 listener", "2 listeners".
func pluralize(n int, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return fmt.Sprintf("%d %s", n, noun)
}

// printDiagnostics prints diagnostics, a line each.
func printDiagnostics(w io.Writer, diagnostics document.Diagnostics) {
	for _, d := range diagnostics {
		_, _ = fmt.Fprintln(w, d) // there is no other place to report the error
	}
}

func schemaCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON Schema of config.json",
		Long: "Schema prints a JSON Schema (2020-12) with every key, its description, unit and default,\n" +
			"which editors use to complete and check config.json.",
		Example: "  weft schema > weft.schema.json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := cmd.OutOrStdout().Write(capabilities().Schema())
			return err
		},
	}
}
