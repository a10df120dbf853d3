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
	form            outputForm
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
		Args:    noFile,
		RunE:    func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.address, "api", config.DefaultRegistryAPI, "`ADDRESS` of the API: ip:port")
	flags.StringVar(&f.socket, "socket", "", "`PATH` of the unix socket of the API, instead of an address")
	flags.StringVarP(&f.path, "config", "c", "", "configuration `FILE` with the address and the token of the API")
	f.form.flag(flags)
	cmd.MarkFlagsMutuallyExclusive("api", "socket", "config")
	return cmd
}

func (f *servicesFlags) run(cmd *cobra.Command) error {
	a := &asking{admin: f.address, form: f.form, what: "the API of Dubbo services", flag: "--api"}
	if err := a.check(); err != nil {
		return err
	}
	if f.socket != "" {
		a.admin, a.flag = f.socket, "--socket"
	}
	if f.path != "" {
		file, diagnostics := f.open()
		report(cmd.ErrOrStderr(), diagnostics)
		if file == nil {
			return &exitError{status: 1}
		}
		d := file.Snapshot.Dubbo
		if !d.Enable {
			return fmt.Errorf("%s has no enabled dubbo_registry", f.path)
		}
		a.admin, a.flag, a.token = d.API, "-c", d.Token
		if a.admin == "" {
			a.admin = d.Socket
		}
	}
	s := &servicesNow{now: time.Now()}
	if err := a.get(cmd.Context(), "/services", nil, &s.Status); err != nil {
		return err
	}
	return a.print(cmd.OutOrStdout(), s)
}

// servicesNow is the status of an API, for printing.
type servicesNow struct {
	dubbo.Status
	now time.Time
}

// Text implements printed.
func (s *servicesNow) Text() string {
	var b strings.Builder
	if s.LastError != "" {
		fmt.Fprintf(&b, "the last change could not be applied: %s\n", harmless(s.LastError))
	}
	s.registries(&b)
	s.published(&b)
	s.subscribed(&b)
	return b.String()
}

// table writes rows in columns. The first row is the header.
func table(b *strings.Builder, rows [][]string) {
	t := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		words := make([]string, len(row))
		for i, word := range row {
			words[i] = dash(harmless(word))
		}
		_, _ = fmt.Fprintln(t, "  "+strings.Join(words, "\t")) // a strings.Builder returns no errors
	}
	_ = t.Flush() // as above
}

// harmless replaces the characters of text that a terminal or a table would interpret. The text may
// come from anyone who can write to a registry.
func harmless(text string) string {
	return strings.Map(func(c rune) rune {
		if !unicode.IsPrint(c) {
			return unicode.ReplacementChar
		}
		return c
	}, text)
}

func (s *servicesNow) registries(b *strings.Builder) {
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
	table(b, rows)
}

func (s *servicesNow) published(b *strings.Builder) {
	if len(s.Published) == 0 {
		b.WriteString("nothing is published\n")
		return
	}
	fmt.Fprintf(b, "published, at %s\n", harmless(net.JoinHostPort(s.Host, strconv.Itoa(int(s.Port)))))
	rows := [][]string{{"SERVICE", "REGISTRY", "MODE", "STATE", "AGE", "ERROR"}}
	for i := range s.Published {
		p := &s.Published[i]
		mode := cmp.Or(p.Mode, string(config.RegisterInterface))
		rows = append(rows, []string{p.Key, p.Registry, mode, registered(p.Registered), s.since(p.Since), p.Error})
	}
	table(b, rows)
}

func registered(is bool) string {
	if is {
		return "registered"
	}
	return "pending"
}

// fewProviders is the maximum number of addresses in a row; the others are only counted.
const fewProviders = 3

func (s *servicesNow) subscribed(b *strings.Builder) {
	if len(s.Subscribed) == 0 {
		b.WriteString("nothing is subscribed\n")
		return
	}
	b.WriteString("subscribed\n")
	rows := [][]string{{"SERVICE", "REGISTRY", "SNAPSHOT", "AGE", "PROVIDERS", "ERROR"}}
	for i := range s.Subscribed {
		one := &s.Subscribed[i]
		providers := s.providers(one)
		for j := range one.Sources {
			from := &one.Sources[j]
			rows = append(rows, []string{one.Key, from.Registry, s.list(from), s.since(from.ReceivedAt), providers, from.Error})
			providers = "\""
		}
	}
	table(b, rows)
	for i := range s.Subscribed {
		for _, w := range s.Subscribed[i].Warnings {
			fmt.Fprintf(b, "  %s: %s\n", harmless(s.Subscribed[i].Key), harmless(w))
		}
	}
}

// list returns the state of the snapshot of a registry.
func (s *servicesNow) list(from *dubbo.SubscriptionStatus) string {
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

// providers returns the number of providers in use, with some addresses.
func (s *servicesNow) providers(one *dubbo.ReferenceStatus) string {
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
	text += ": " + strings.Join(used[:min(fewProviders, len(used))], ", ")
	if len(used) > fewProviders {
		text += ", …"
	}
	return text
}

// since returns the time since at, or "-" for the zero time.
func (s *servicesNow) since(at time.Time) string {
	if at.IsZero() {
		return "-"
	}
	d := s.now.Sub(at)
	if d < time.Second {
		return d.Round(time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}

// dash returns "-" for an empty cell.
func dash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

// adminServices returns the state of Dubbo services for the admin port; nil if there are none.
func (p *process) adminServices() any {
	if p.services == nil {
		return nil
	}
	return p.services.hub.Status()
}
