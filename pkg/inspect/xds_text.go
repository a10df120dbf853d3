//go:build !noxds

package inspect

import (
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/weft-proxy/weft/pkg/xds/status"
)

// xdsText formats a status. Ages are relative to now.
type xdsText struct {
	*XDS
	now time.Time
}

// maxListedNames is the maximum number of names in a line.
const maxListedNames = 10

// XDSText returns the state of the control planes for people, as weft xds-status prints it.
func XDSText(x *XDS, now time.Time) string {
	s := &xdsText{x, now}
	var b strings.Builder
	for i := range s.ControlPlanes {
		s.writeControlPlane(&b, &s.ControlPlanes[i])
	}
	s.writeWarming(&b)
	s.writeOnDemand(&b)
	if s.Cache.InUse {
		fmt.Fprintf(&b, "the active resources come from the xDS cache, which was saved %s ago: %s\n", s.ago(s.Cache.ReceivedAt), s.Cache.Path)
	}
	if s.Cache.Failure != "" {
		fmt.Fprintf(&b, "the xDS cache cannot be written or used: %s\n", s.Cache.Failure)
	}
	return b.String()
}

func (s *xdsText) writeControlPlane(b *strings.Builder, p *status.ControlPlane) {
	fmt.Fprintf(b, "control plane %s (%s, %s): ", p.Name, p.Mode, p.Serves)
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
		subscribed := fmt.Sprint(t.Requested)
		if t.Wildcard {
			subscribed = "all"
		}
		_, _ = fmt.Fprintf(table, "  %s\t%s\t%d\t%s\t%s\t%s\t%s\n", t.Short(), dashIfEmpty(t.Version), t.Resources, subscribed, s.ago(t.Changed), s.ackText(t.Accepted), s.ackText(t.Rejected))
	}
	_ = table.Flush() // as above
	for i := range p.Types {
		t := &p.Types[i]
		if len(t.Missing) > 0 {
			fmt.Fprintf(b, "  %s, subscribed but not received: %s\n", t.Short(), joinNames(t.Missing))
		}
		for j, rejected := range t.RejectedResources {
			if j == maxListedNames {
				fmt.Fprintf(b, "  %s, %d more rejected\n", t.Short(), len(t.RejectedResources)-j)
				break
			}
			fmt.Fprintf(b, "  %s %s, rejected %s ago: %s\n", t.Short(), rejected.Name, s.ago(rejected.At), rejected.Reason)
		}
	}
}

func (s *xdsText) writeWarming(b *strings.Builder) {
	for i := range s.Warming {
		w := &s.Warming[i]
		if i == maxListedNames {
			fmt.Fprintf(b, "and %d more are warming\n", len(s.Warming)-i)
			return
		}
		previous := "no previous version is active"
		if w.PreviousActive {
			previous = "the previous version is active"
		}
		fmt.Fprintf(b, "%s %s is warming, waiting for %s, for %s: %s\n", w.Type[strings.LastIndexByte(w.Type, '.')+1:], w.Name, joinNames(w.Missing), s.ago(w.Since), previous)
	}
}

// writeOnDemand writes how many on-demand resources are subscribed, and the names of the others.
func (s *xdsText) writeOnDemand(b *strings.Builder) {
	onDemand := s.OnDemand
	if onDemand == nil {
		return
	}
	line := func(label string, subscribed int, unsubscribed []string) {
		fmt.Fprintf(b, "%s on demand: %d subscribed, %d unsubscribed", label, subscribed, len(unsubscribed))
		if len(unsubscribed) > 0 {
			b.WriteString(": " + joinNames(unsubscribed))
		}
		b.WriteString("\n")
	}
	line("clusters", onDemand.RequestedClusters, onDemand.UnsubscribedClusters)
	line("routes", onDemand.RequestedRoutes, onDemand.UnsubscribedRoutes)
}

// ackText returns the version and the age of an ACK or NACK.
func (s *xdsText) ackText(ack *status.Ack) string {
	if ack == nil {
		return "-"
	}
	return strings.TrimSpace(ack.Version + " " + s.ago(ack.At) + " ago")
}

// ago returns the time since t, or "-" for the zero time.
func (s *xdsText) ago(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	d := s.now.Sub(t)
	unit := time.Second
	if d < time.Second {
		unit = time.Millisecond
	}
	return d.Round(unit).String()
}

func joinNames(names []string) string {
	if len(names) <= maxListedNames {
		return strings.Join(names, ", ")
	}
	return strings.Join(names[:maxListedNames], ", ") + fmt.Sprintf(" and %d more", len(names)-maxListedNames)
}
