package main

import (
	"net/http"

	"github.com/spf13/cobra"

	"github.com/weft-proxy/weft/pkg/inspect"
)

func reloadCommand() *cobra.Command {
	a := &adminClient{}
	cmd := &cobra.Command{
		Use:   "reload [--admin ADDRESS]",
		Short: "Make a running Weft read its configuration again",
		Long: "Reload asks the admin port of a running Weft to read its configuration file again, and\n" +
			"prints the result. If the file is rejected, the previous configuration stays active: the exit\n" +
			"status is 1, and the reasons are printed. Without an admin port, send SIGHUP to the process and\n" +
			"read the result in its log.",
		Example: "  weft reload\n  weft reload --admin 127.0.0.1:9901\n  weft reload --admin /run/weft/admin -o json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := a.check(); err != nil {
				return err
			}
			result := &inspect.Reload{}
			if err := a.do(cmd.Context(), http.MethodPost, "/reload", nil, result); err != nil {
				return err
			}
			if err := a.print(cmd.OutOrStdout(), result); err != nil {
				return err
			}
			if !result.Applied {
				return &exitError{status: 1}
			}
			return nil
		},
	}
	a.flags(cmd.Flags())
	return cmd
}
