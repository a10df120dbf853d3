package explain

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/weft-proxy/weft/pkg/config"
)

// maxEntries is how many entries of a list Text prints. Text counts the others, but prints all
// routes that the request may take.
const maxEntries = 20

// Text formats the result as text. It shortens long lists.
func (res *Result) Text() string {
	p := &printer{}
	p.line(0, "%s", res.Request)
	p.step("listener", res.Listener, res.OtherListeners)
	p.step("filter chain", res.Chain, res.OtherChains)
	if len(res.FiltersNotRun) > 0 {
		p.line(0, "filters, which this query does not run: %s", strings.Join(res.FiltersNotRun, ", "))
	}
	if t := res.Target; t != nil {
		p.line(0, "target normalized to %q %q", t.Authority, t.Path)
	}
	if res.RouteTable != "" {
		p.line(0, "route table %q", res.RouteTable)
	}
	p.step("virtual host", res.VirtualHost, res.OtherVirtualHosts)
	p.routes(res.Routes)
	for i := range res.RelayedTo {
		p.line(0, "relayed as bytes")
		p.cluster(&res.RelayedTo[i])
	}
	if res.EndReason != "" {
		p.line(0, "result: %s", res.EndReason)
	}
	return p.String()
}

// printer builds indented lines.
type printer struct{ strings.Builder }

func (p *printer) line(indent int, format string, args ...any) {
	p.WriteString(strings.Repeat("  ", indent) + fmt.Sprintf(format, args...) + "\n")
}

// step writes the selected candidate and the others.
func (p *printer) step(label string, s *Selected, others []Alternative) {
	if s != nil {
		p.line(0, "%s %q: %s", label, s.Name, s.Reason)
	}
	for i, o := range others {
		if i == maxEntries {
			p.line(1, "and %d others", len(others)-i)
			return
		}
		p.line(1, "not %q: %s", o.Name, strings.Join(o.Reasons, "; "))
	}
}

// routes writes all routes that the request may take, and the first of the others.
func (p *printer) routes(list []Route) {
	remaining := len(list)
	for i, r := range list {
		if i >= maxEntries && r.Action == nil {
			continue
		}
		remaining--
		switch r.Outcome {
		case Rejected:
			p.line(1, "not %q: %s", r.Name, strings.Join(r.Reasons, "; "))
		case Shadowed:
			p.line(1, "not %q: it matches, but an earlier route is taken", r.Name)
		case Sampled:
			p.line(0, "route %q: all its conditions match, for %s of the requests", r.Name, formatPercent(r.Percent))
		case Chosen:
			p.line(0, "route %q: all its conditions match", r.Name)
		}
		if r.Action != nil {
			p.action(r.Action)
		}
	}
	if remaining > 0 {
		p.line(1, "and %d other routes, which are not taken", remaining)
	}
}

func (p *printer) action(a *Action) {
	switch {
	case a.Location != "":
		p.line(2, "local reply: status %d, Location %s", a.Status, a.Location)
		return
	case a.Status != 0:
		p.line(2, "local reply: status %d", a.Status)
		return
	}
	p.line(2, "forwarded as %q %q, timeout %s", a.Authority, a.Path, a.Timeout)
	if a.MissingReason != "" {
		p.line(2, "%s", a.MissingReason)
	}
	for i := range a.Clusters {
		p.cluster(&a.Clusters[i])
	}
}

func (p *printer) cluster(c *Cluster) {
	text := fmt.Sprintf("cluster %q", c.Name)
	if c.Percent < 100 {
		text += ", " + formatPercent(c.Percent) + " of the requests"
	}
	if c.Missing {
		p.line(2, "%s: not defined", text)
		return
	}
	text += ", policy " + c.Policy
	if len(c.Labels) > 0 {
		var labels []string
		for name, value := range c.Labels {
			labels = append(labels, name+"="+value)
		}
		slices.Sort(labels)
		text += ", hosts with " + strings.Join(labels, " ")
	}
	p.line(2, "%s", text)
	if len(c.Hosts) == 0 {
		p.line(3, "%s", noHostsText(c))
	}
	// The sort puts usable hosts first, so that the limit drops unusable ones.
	hosts := slices.Clone(c.Hosts)
	slices.SortStableFunc(hosts, func(a, b Host) int { return len(a.Reasons) - len(b.Reasons) })
	for i := range hosts {
		if i == maxEntries {
			p.line(3, "and %d other hosts", len(hosts)-i)
			return
		}
		p.host(&hosts[i])
	}
}

func noHostsText(c *Cluster) string {
	if c.Policy == string(config.LBOriginalDst) {
		return "the host is the original destination of the connection"
	}
	return "it has no hosts"
}

func (p *printer) host(h *Host) {
	text := h.Address
	if h.Weight != 1 {
		text += fmt.Sprintf(", weight %d", h.Weight)
	}
	if h.Locality != "" {
		text += ", in " + h.Locality
	}
	if !h.Candidate {
		p.line(3, "not %s: %s", text, strings.Join(h.Reasons, "; "))
		return
	}
	p.line(3, "host %s", text)
}

func formatPercent(percent float64) string { return strconv.FormatFloat(percent, 'g', 4, 64) + " %" }
