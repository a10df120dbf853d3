package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/weft-proxy/weft/internal/unixaddr"
	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/dubbo"
	"github.com/weft-proxy/weft/pkg/inspect"
)

// servicesFlags are the flags of services.
type servicesFlags struct {
	source

	address, socket string
	format          outputFormat
}

func servicesCommand() *cobra.Command {
	f := &servicesFlags{}
	cmd := &cobra.Command{
		Use:   "services [--api ADDRESS | --socket PATH | -c FILE]",
		Short: "Show the Dubbo services that a running Weft publishes and subscribes to",
		Long: "Services queries the API of Dubbo services of a running Weft. It shows the services that the\n" +
			"application publishes and calls, their state in the registries, the age of that state and the\n" +
			"last errors. With -c it reads the address and the token of the API from the file.",
		Example: "  weft services\n  weft services --api 127.0.0.1:10022\n  weft services -c config.json -o json",
		Args:    rejectArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.address, "api", config.DefaultRegistryAPI, "`ADDRESS` of the API: ip:port")
	flags.StringVar(&f.socket, "socket", "", "`PATH` of the unix socket of the API, instead of an address")
	flags.StringVarP(&f.path, "config", "c", "", "configuration `FILE` with the address and the token of the API")
	f.format.flag(flags)
	cmd.MarkFlagsMutuallyExclusive("api", "socket", "config")
	return cmd
}

func (f *servicesFlags) run(cmd *cobra.Command) error {
	a := &adminClient{address: f.address, format: f.format, target: "the API of Dubbo services", addressFlag: "--api"}
	if err := a.check(); err != nil {
		return err
	}
	if f.socket != "" {
		a.address, a.addressFlag = unixaddr.FromPath(f.socket), "--socket"
	}
	if f.path != "" {
		file, diagnostics := f.open()
		printDiagnostics(cmd.ErrOrStderr(), diagnostics)
		if file == nil {
			return &exitError{status: 1}
		}
		d := file.Snapshot.Dubbo
		if !d.Enable {
			return fmt.Errorf("%s has no enabled dubbo_registry", f.path)
		}
		a.address, a.addressFlag, a.token = d.API, "-c", d.Token
		if a.address == "" {
			a.address = d.Socket
		}
	}
	s := &servicesStatus{now: time.Now()}
	if err := a.get(cmd.Context(), "/services", nil, &s.Status); err != nil {
		return err
	}
	return a.print(cmd.OutOrStdout(), s)
}

// servicesStatus is a dubbo.Status that the API returned, for printing.
type servicesStatus struct {
	dubbo.Status
	now time.Time
}

// Text implements printable.
func (s *servicesStatus) Text() string { return inspect.ServicesText(&s.Status, s.now) }

// adminServices returns the state of Dubbo services for the admin port; nil if they are disabled.
func (p *process) adminServices() *dubbo.Status {
	if p.services == nil {
		return nil
	}
	s := p.services.discovery.Status()
	return &s
}
