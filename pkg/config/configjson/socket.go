package configjson

import (
	"math"
	"net/netip"
	"strconv"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/config/document"
)

// socketJSON contains the socket keys of a cluster.
type socketJSON struct {
	BindConfig  bindConfigJSON        `key:"upstream_bind_config" doc:"Source address of connections to the hosts."`
	Connections connectionOptionsJSON `key:"upstream_connection_options" doc:"Options of the connections to the hosts."`
}

type bindConfigJSON struct {
	Node   document.Node `key:"."`
	Source document.Node `key:"source_address" doc:"Source IP address of connections to the hosts: \"10.0.0.5\", {\"address\": \"10.0.0.5\", \"port_value\": 0}, or a list of one IPv4 and one IPv6 address. For hosts of the other family the system chooses." accept:"string|object|list" object:"source_address" example:"\"10.0.0.5\""`
}

// sourceJSON is the object form of a source address.
type sourceJSON struct {
	Node    document.Node `key:"."`
	Address string        `key:"address" doc:"Source IP address." required:"true" example:"\"10.0.0.5\""`
	Port    int           `key:"port_value" doc:"Source port. 0: any. With a fixed port only one connection to each host address is possible: set max_connections of circuit_breakers to 1." min:"0" max:"65535" default:"0" example:"40000"`
}

type connectionOptionsJSON struct {
	KeepAlive *tcpKeepAliveJSON `key:"tcp_keepalive" doc:"TCP keepalive of idle connections; {}: with the system's values. Absent: 9 probes after 15 s, 15 s apart."`
}

type tcpKeepAliveJSON struct {
	Probes   int `key:"keepalive_probes" doc:"Number of probes without a response after which the connection is closed. Absent: the system's value." unit:"probes" min:"1" max:"127" example:"3"`
	Time     int `key:"keepalive_time" doc:"Idle time before the first probe. Absent: the system's value." unit:"seconds" min:"1" max:"32767" example:"60"`
	Interval int `key:"keepalive_interval" doc:"Time between two probes. Absent: the system's value." unit:"seconds" min:"1" max:"32767" example:"10"`
}

// parseMark parses a socket mark: a number, or a string such as "0x77".
func (in *input) parseMark(node document.Node) int {
	if kind := node.Kind(); kind != document.Number && kind != document.String {
		return 0 // absent, or reported
	}
	n, err := strconv.ParseUint(node.Text(), 0, 32)
	if err != nil {
		in.report.Errorf(node, "found %s, expected a number from 0 to %d, or a string with such a number", node.Describe(), uint32(math.MaxUint32))
		return 0
	}
	return int(n)
}

// readSocket converts the socket options of a cluster. It runs after readHosts.
func (r *clusterReader) readSocket(j *clusterJSON, c *config.Cluster) {
	c.Socket.KeepAlive = convertTCPKeepAlive(j.Connections.KeepAlive)
	source := j.BindConfig.Source
	switch source.Kind() {
	case document.Array:
		for node := range source.All() {
			r.readSourceAddress(node, &c.Socket)
		}
	default:
		if source.Exists() {
			r.readSourceAddress(source, &c.Socket)
		}
	}
	r.checkSources(source, c)
}

// readSourceAddress converts one source address.
func (r *clusterReader) readSourceAddress(node document.Node, s *config.Socket) {
	text, port := node.Text(), 0
	switch node.Kind() {
	case document.Object:
		var j sourceJSON
		if !r.decoder.Decode(node, &j) {
			return
		}
		text, port = j.Address, j.Port
	case document.String:
	default:
		r.report.Expect(node, "an IP address")
		return
	}
	ip, err := netip.ParseAddr(text)
	if err != nil || ip.IsUnspecified() || ip.IsMulticast() || ip.Is4In6() {
		r.report.Errorf(node, "found %q, expected an IP address of this machine", text)
		return
	}
	addressField, portField := &s.SourceIPv4, &s.SourcePortIPv4
	if ip.Is6() {
		addressField, portField = &s.SourceIPv6, &s.SourcePortIPv6
	}
	if *addressField != "" {
		r.report.Errorf(node, "duplicate address family: expected at most one IPv4 and one IPv6 address")
		return
	}
	*addressField, *portField = ip.String(), uint16(port) //nolint:gosec // the key has a maximum
}

// checkSources warns about hosts without a source address of their IP family.
func (r *clusterReader) checkSources(node document.Node, c *config.Cluster) {
	s := &c.Socket
	if s.SourceIPv4 == "" && s.SourceIPv6 == "" || c.Type.UsesDNS() {
		return
	}
	for i := range c.Hosts {
		hostAddr, err := netip.ParseAddrPort(c.Hosts[i].Address)
		if err != nil {
			continue // a unix socket, or a host that DNS resolves
		}
		if v4 := hostAddr.Addr().Unmap().Is4(); v4 && s.SourceIPv4 == "" || !v4 && s.SourceIPv6 == "" {
			r.report.Warnf(node, "source_address has no address of the family of host %q: the system selects one", c.Hosts[i].Address)
			return
		}
	}
}

// convertTCPKeepAlive converts the key "tcp_keepalive". j is nil if the key is absent.
func convertTCPKeepAlive(j *tcpKeepAliveJSON) config.TCPKeepAlive {
	if j == nil {
		return config.TCPKeepAlive{}
	}
	return config.TCPKeepAlive{
		Enabled: true, Probes: j.Probes,
		Idle: time.Duration(j.Time) * time.Second, Interval: time.Duration(j.Interval) * time.Second,
	}
}
