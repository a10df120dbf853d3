package main

import (
	"cmp"
	"fmt"
	"net"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/upstream/discovery/dubbo"
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
		a.address, a.addressFlag = f.socket, "--socket"
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

// servicesStatus is the status of an API, for printing.
type servicesStatus struct {
	dubbo.Status
	now time.Time
}

// Text implements printed.
func (s *servicesStatus) Text() string {
	var b strings.Builder
	if s.LastError != "" {
		fmt.Fprintf(&b, "the last change could not be applied: %s\n", sanitize(s.LastError))
	}
	s.writeRegistries(&b)
	s.writePublished(&b)
	s.writeSubscribed(&b)
	return b.String()
}

// writeTable writes rows in columns. The first row is the header.
func writeTable(b *strings.Builder, rows [][]string) {
	t := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		words := make([]string, len(row))
		for i, word := range row {
			words[i] = dashIfEmpty(sanitize(word))
		}
		_, _ = fmt.Fprintln(t, "  "+strings.Join(words, "\t")) // a strings.Builder returns no errors
	}
	_ = t.Flush() // as above
}

// sanitize replaces the characters of text that a terminal or a table would interpret. The text may
// come from anyone who can write to a registry.
func sanitize(text string) string {
	return strings.Map(func(c rune) rune {
		if !unicode.IsPrint(c) {
			return unicode.ReplacementChar
		}
		return c
	}, text)
}

func (s *servicesStatus) writeRegistries(b *strings.Builder) {
	if len(s.Registries) == 0 {
		b.WriteString("no registry is in use\n")
		return
	}
	b.WriteString("registries\n")
	rows := [][]string{{"TYPE", "ADDRESS", "USER", "STATE", "SINCE", "SESSIONS", "LAST ERROR"}}
	for i := range s.Registries {
		r := &s.Registries[i]
		state := "disconnected"
		if r.Connected {
			state = "connected"
		}
		rows = append(rows, []string{r.Type, r.Address, r.Username, state, s.since(r.Since), strconv.Itoa(r.Sessions), r.LastError})
	}
	writeTable(b, rows)
}

func (s *servicesStatus) writePublished(b *strings.Builder) {
	if len(s.Published) == 0 {
		b.WriteString("nothing is published\n")
		return
	}
	fmt.Fprintf(b, "published, at %s\n", sanitize(net.JoinHostPort(s.Host, strconv.Itoa(int(s.Port)))))
	rows := [][]string{{"SERVICE", "REGISTRY", "MODE", "STATE", "AGE", "ERROR"}}
	for i := range s.Published {
		p := &s.Published[i]
		mode := cmp.Or(p.Mode, string(config.RegisterInterface))
		rows = append(rows, []string{p.Key, p.Registry, mode, registrationState(p.Registered), s.since(p.Since), p.Error})
	}
	writeTable(b, rows)
}

func registrationState(is bool) string {
	if is {
		return "registered"
	}
	return "pending"
}

// maxListedProviders is the maximum number of addresses in a row; the others are only counted.
const maxListedProviders = 3

func (s *servicesStatus) writeSubscribed(b *strings.Builder) {
	if len(s.Subscribed) == 0 {
		b.WriteString("nothing is subscribed\n")
		return
	}
	b.WriteString("subscribed\n")
	rows := [][]string{{"SERVICE", "REGISTRY", "SNAPSHOT", "AGE", "PROVIDERS", "ERROR"}}
	for i := range s.Subscribed {
		one := &s.Subscribed[i]
		providers := s.providersText(one)
		for j := range one.Sources {
			from := &one.Sources[j]
			rows = append(rows, []string{one.Key, from.Registry, s.snapshotState(from), s.since(from.ReceivedAt), providers, from.Error})
			providers = "\""
		}
	}
	writeTable(b, rows)
	for i := range s.Subscribed {
		for _, w := range s.Subscribed[i].Warnings {
			fmt.Fprintf(b, "  %s: %s\n", sanitize(s.Subscribed[i].Key), sanitize(w))
		}
	}
}

// snapshotState returns the state of the snapshot of a registry.
func (s *servicesStatus) snapshotState(from *dubbo.SubscriptionStatus) string {
	switch {
	case !from.EmptySince.IsZero():
		return "empty for " + s.since(from.EmptySince) + ", providers retained"
	case from.Restored:
		return "restored"
	case from.Received:
		return "received"
	}
	return "pending"
}

// providersText returns the number of providers in use, with some addresses.
func (s *servicesStatus) providersText(one *dubbo.ReferenceStatus) string {
	var used []string
	unused := 0
	for i := range one.Providers {
		if one.Providers[i].UnusedReason != "" {
			unused++
			continue
		}
		used = append(used, one.Providers[i].Address)
	}
	text := fmt.Sprint(len(used))
	if unused > 0 {
		text += fmt.Sprintf(" and %d unused", unused)
	}
	if len(used) == 0 {
		return text
	}
	text += ": " + strings.Join(used[:min(maxListedProviders, len(used))], ", ")
	if len(used) > maxListedProviders {
		text += ", …"
	}
	return text
}

// since returns the time since at, or "-" for the zero time.
func (s *servicesStatus) since(at time.Time) string {
	if at.IsZero() {
		return "-"
	}
	d := s.now.Sub(at)
	if d < time.Second {
		return d.Round(time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}

// dashIfEmpty returns "-" for an empty cell.
func dashIfEmpty(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

// adminServices returns the state of Dubbo services for the admin port; nil if there are none.
func (p *process) adminServices() *dubbo.Status {
	if p.services == nil {
		return nil
	}
	s := p.services.hub.Status()
	return &s
}
