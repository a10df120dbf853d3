package configjson

import (
	"net/netip"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/config/document"
)

// readSocket converts the socket options of a cluster. Its hosts have been converted.
func (r *reader) readSocket(j *clusterJSON, c *config.Cluster) {
	c.Socket.KeepAlive = tcpKeepAlive(j.Connections.KeepAlive)
	source := j.BindConfig.Source
	switch source.Kind() {
	case document.Array:
		for at := range source.All() {
			r.readSourceAddress(at, &c.Socket)
		}
	default:
		if source.Exists() {
			r.readSourceAddress(source, &c.Socket)
		}
	}
	r.checkSources(source, c)
}

// readSourceAddress converts one source address.
func (r *reader) readSourceAddress(at document.Node, s *config.Socket) {
	text, port := at.Text(), 0
	switch at.Kind() {
	case document.Object:
		var j sourceJSON
		if !r.decoder.Decode(at, &j) {
			return
		}
		text, port = j.Address, j.Port
	case document.String:
	default:
		r.report.Expect(at, "an IP address")
		return
	}
	ip, err := netip.ParseAddr(text)
	if err != nil || ip.IsUnspecified() || ip.IsMulticast() || ip.Is4In6() {
		r.report.Errorf(at, "found %q, expected an IP address of this machine", text)
		return
	}
	family, from := &s.SourceIPv4, &s.SourcePortIPv4
	if ip.Is6() {
		family, from = &s.SourceIPv6, &s.SourcePortIPv6
	}
	if *family != "" {
		r.report.Errorf(at, "duplicate address family: expected at most one IPv4 and one IPv6 address")
		return
	}
	*family, *from = ip.String(), uint16(port) //nolint:gosec // the key has a maximum
}

// checkSources warns of hosts without a source address of their IP family.
func (r *reader) checkSources(at document.Node, c *config.Cluster) {
	s := &c.Socket
	if s.SourceIPv4 == "" && s.SourceIPv6 == "" || c.Type.UsesDNS() {
		return
	}
	for i := range c.Hosts {
		to, err := netip.ParseAddrPort(c.Hosts[i].Address)
		if err != nil {
			continue // a unix socket, or a host that DNS resolves
		}
		if v4 := to.Addr().Unmap().Is4(); v4 && s.SourceIPv4 == "" || !v4 && s.SourceIPv6 == "" {
			r.report.Warnf(at, "source_address has no address of the family of host %q: the system selects one", c.Hosts[i].Address)
			return
		}
	}
}

// tcpKeepAlive converts tcp_keepalive; nil means absent.
func tcpKeepAlive(j *tcpKeepAliveJSON) config.TCPKeepAlive {
	if j == nil {
		return config.TCPKeepAlive{}
	}
	return config.TCPKeepAlive{
		Enabled: true, Probes: j.Probes,
		Idle: time.Duration(j.Time) * time.Second, Interval: time.Duration(j.Interval) * time.Second,
	}
}
