//go:build !noxds

package main

import (
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/weft-proxy/weft/pkg/xds"
)

// xdsCommands returns the commands about control planes.
func xdsCommands() []*cobra.Command { return []*cobra.Command{xdsStatusCommand()} }

func xdsStatusCommand() *cobra.Command {
	a := &asking{}
	cmd := &cobra.Command{
		Use:   "xds-status",
		Short: "Show the state of the control plane of a running Weft",
		Long: "Xds-status queries the admin port of a running Weft. It shows whether the control plane is connected,\n" +
			"which resources of each type were accepted and rejected last, and which are not active yet and why.",
		Example: "  weft xds-status\n  weft xds-status --admin 127.0.0.1:34901 -o json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := a.check(); err != nil {
				return err
			}
			s := &xdsStatus{now: time.Now()}
			if err := a.get(cmd.Context(), "/xds", nil, &s.Status); err != nil {
				return err
			}
			return a.print(cmd.OutOrStdout(), s)
		},
	}
	a.flags(cmd.Flags())
	return cmd
}

// xdsStatus is a status for printing.
type xdsStatus struct {
	xds.Status
	now time.Time
}

// mostNamed is the maximum number of names in a line; the others are only counted.
const mostNamed = 10

// Text implements printed.
func (s *xdsStatus) Text() string {
	var b strings.Builder
	for i := range s.Planes {
		s.plane(&b, &s.Planes[i])
	}
	s.waiting(&b)
	s.asleep(&b)
	if s.Kept.InUse {
		fmt.Fprintf(&b, "the active resources come from the xDS cache, which was saved %s ago: %s\n", s.ago(s.Kept.Said), s.Kept.Path)
	}
	if s.Kept.Failure != "" {
		fmt.Fprintf(&b, "the xDS cache cannot be written or used: %s\n", s.Kept.Failure)
	}
	return b.String()
}

func (s *xdsStatus) plane(b *strings.Builder, p *xds.Plane) {
	fmt.Fprintf(b, "control plane %s (%s, %s): ", p.Name, p.Form, p.Serves)
	switch {
	case p.Connected:
		fmt.Fprintf(b, "connected for %s\n", s.ago(p.Since))
	case p.Since.IsZero():
		b.WriteString("not connected yet\n")
	default:
		fmt.Fprintf(b, "disconnected for %s, %d attempts: %s\n", s.ago(p.Since), p.Attempts, p.Failure)
	}
	table := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(table, "  TYPE\tVERSION\tRESOURCES\tSUBSCRIBED\tCHANGED\tACCEPTED\tREJECTED") // a strings.Builder returns no errors
	for i := range p.Types {
		t := &p.Types[i]
		wanted := fmt.Sprint(t.Wanted)
		if t.All {
			wanted = "all"
		}
		_, _ = fmt.Fprintf(table, "  %s\t%s\t%d\t%s\t%s\t%s\t%s\n", t.Short(), orDash(t.Version), t.Held, wanted, s.ago(t.Changed), s.replied(t.Accepted), s.replied(t.Refused))
	}
	_ = table.Flush() // as above
	for i := range p.Types {
		t := &p.Types[i]
		if len(t.Missing) > 0 {
			fmt.Fprintf(b, "  %s, subscribed but not received: %s\n", t.Short(), named(t.Missing))
		}
		for j, bad := range t.Bad {
			if j == mostNamed {
				fmt.Fprintf(b, "  %s, %d more rejected\n", t.Short(), len(t.Bad)-j)
				break
			}
			fmt.Fprintf(b, "  %s %s, rejected %s ago: %s\n", t.Short(), bad.Name, s.ago(bad.At), bad.Reason)
		}
	}
}

func (s *xdsStatus) waiting(b *strings.Builder) {
	for i := range s.Waiting {
		w := &s.Waiting[i]
		if i == mostNamed {
			fmt.Fprintf(b, "and %d more are warming\n", len(s.Waiting)-i)
			return
		}
		before := "no previous version is active"
		if w.InForce {
			before = "the previous version is active"
		}
		fmt.Fprintf(b, "%s %s is warming, waiting for %s, for %s: %s\n", w.Type[strings.LastIndexByte(w.Type, '.')+1:], w.Name, named(w.For), s.ago(w.Since), before)
	}
}

// asleep writes the on-demand resources and which of them are not subscribed.
func (s *xdsStatus) asleep(b *strings.Builder) {
	l := s.Lazy
	if l == nil {
		return
	}
	line := func(kind string, awake int, asleep []string) {
		fmt.Fprintf(b, "%s on demand: %d subscribed, %d unsubscribed", kind, awake, len(asleep))
		if len(asleep) > 0 {
			b.WriteString(": " + named(asleep))
		}
		b.WriteString("\n")
	}
	line("clusters", l.AwakeClusters, l.AsleepClusters)
	line("routes", l.AwakeTables, l.AsleepTables)
}

// replied returns the version and the age of a reply.
func (s *xdsStatus) replied(r *xds.Reply) string {
	if r == nil {
		return "-"
	}
	return strings.TrimSpace(r.Version + " " + s.ago(r.At) + " ago")
}

// ago returns the time since at, or "-" for the zero time.
func (s *xdsStatus) ago(at time.Time) string {
	if at.IsZero() {
		return "-"
	}
	d := s.now.Sub(at)
	unit := time.Second
	if d < time.Second {
		unit = time.Millisecond
	}
	return d.Round(unit).String()
}

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

func named(names []string) string {
	if len(names) <= mostNamed {
		return strings.Join(names, ", ")
	}
	return strings.Join(names[:mostNamed], ", ") + fmt.Sprintf(" and %d more", len(names)-mostNamed)
}

// adminXDS returns the content of /xds; nil if there is no control plane.
func (p *process) adminXDS() any {
	if p.control == nil {
		return nil
	}
	s := p.control.Status()
	if len(s.Planes) == 0 {
		return nil // static resources only
	}
	return s
}

// adminDump returns the resources of the control planes in Envoy's format; nil if there is no
// control plane.
func (p *process) adminDump(part string, endpoints bool) ([]any, error) {
	if p.control == nil {
		return nil, nil
	}
	return p.control.Dump(xds.DumpOptions{Resource: part, Endpoints: endpoints})
}

// isSupplied reports whether there is no control plane, or its first listeners are active.
func (p *process) isSupplied() bool { return p.control == nil || p.control.Ready() }
