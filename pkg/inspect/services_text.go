package inspect

import (
	"cmp"
	"fmt"
	"net"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/dubbo"
)

// servicesText formats a status. Ages are relative to now.
type servicesText struct {
	*dubbo.Status
	now time.Time
}

// ServicesText returns the state of Dubbo services for people, as weft services prints it.
func ServicesText(status *dubbo.Status, now time.Time) string {
	s := &servicesText{status, now}
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
		cells := make([]string, len(row))
		for i, cell := range row {
			cells[i] = dashIfEmpty(sanitize(cell))
		}
		_, _ = fmt.Fprintln(t, "  "+strings.Join(cells, "\t")) // a strings.Builder returns no errors
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

func (s *servicesText) writeRegistries(b *strings.Builder) {
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

func (s *servicesText) writePublished(b *strings.Builder) {
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

func registrationState(registered bool) string {
	if registered {
		return "registered"
	}
	return "pending"
}

// maxListedProviders is the maximum number of addresses in a row.
const maxListedProviders = 3

func (s *servicesText) writeSubscribed(b *strings.Builder) {
	if len(s.Subscribed) == 0 {
		b.WriteString("nothing is subscribed\n")
		return
	}
	b.WriteString("subscribed\n")
	rows := [][]string{{"SERVICE", "REGISTRY", "SNAPSHOT", "AGE", "PROVIDERS", "ERROR"}}
	for i := range s.Subscribed {
		ref := &s.Subscribed[i]
		providers := s.providersText(ref)
		for j := range ref.Sources {
			source := &ref.Sources[j]
			rows = append(rows, []string{ref.Key, source.Registry, s.snapshotState(source), s.since(source.ReceivedAt), providers, source.Error})
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
func (s *servicesText) snapshotState(source *dubbo.SubscriptionStatus) string {
	switch {
	case !source.EmptySince.IsZero():
		return "empty for " + s.since(source.EmptySince) + ", providers retained"
	case source.Restored:
		return "restored"
	case source.Received:
		return "received"
	}
	return "pending"
}

// providersText returns the number of providers in use, with some addresses.
func (s *servicesText) providersText(ref *dubbo.ReferenceStatus) string {
	var used []string
	unused := 0
	for i := range ref.Providers {
		if ref.Providers[i].UnusedReason != "" {
			unused++
			continue
		}
		used = append(used, ref.Providers[i].Address)
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

// since returns the time since t, or "-" for the zero time.
func (s *servicesText) since(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	d := s.now.Sub(t)
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
