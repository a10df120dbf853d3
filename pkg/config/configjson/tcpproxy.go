package configjson

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/config/document"
)

// tcpProxyJSON is the network filter "tcp_proxy".
type tcpProxyJSON struct {
	Node        document.Node  `key:"."`
	Cluster     string         `key:"cluster" doc:"Cluster for connections that match no route. Absent: Weft closes them." example:"\"db\""`
	Routes      []tcpRouteJSON `key:"routes" doc:"Clusters by address; the first route that matches is used."`
	IdleTimeout time.Duration  `key:"idle_timeout" doc:"Maximum time without a byte in either direction. 0s: no limit." default:"10m" example:"\"1h\""`
	MaxAttempts int            `key:"max_connect_attempts" doc:"Maximum number of hosts to try." unit:"hosts" min:"1" max:"1000" default:"1" example:"3"`
	StatPrefix  string         `key:"stat_prefix" doc:"Prefix of the filter's metrics." ignored:"metrics are labeled by listener and cluster" example:"\"tcp\""`
}

type tcpRouteJSON struct {
	Node             document.Node   `key:"."`
	Cluster          string          `key:"cluster" doc:"Target cluster." required:"true" example:"\"db\""`
	SourceAddrs      []document.Node `key:"source_addrs" doc:"Client addresses: \"10.0.0.0/8\", a single address, or {\"address\", \"length\"}. Absent: all." accept:"string|object" object:"cidr" example:"[\"10.0.0.0/8\"]"`
	DestinationAddrs []document.Node `key:"destination_addrs" doc:"Original destination addresses. Absent: all." accept:"string|object" object:"cidr" example:"[\"10.1.0.0/16\"]"`
	SourcePort       string          `key:"source_port" doc:"Client ports: \"1024-65535,99\". Absent: all." example:"\"1024-65535\""`
	DestinationPort  string          `key:"destination_port" doc:"Original destination ports. Absent: all." example:"\"3306,3307\""`
}

// cidrJSON is the object form of an address range.
type cidrJSON struct {
	Node    document.Node `key:"."`
	Address string        `key:"address" doc:"An address in the range." required:"true" example:"\"10.0.0.0\""`
	Length  int           `key:"length" doc:"Prefix length." unit:"bits" min:"0" max:"128" required:"true" example:"8"`
}

func (r *listenerReader) readTCPProxy(n document.Node) *config.TCPProxy {
	var j tcpProxyJSON
	r.decoder.Decode(n, &j)
	p := &config.TCPProxy{Cluster: j.Cluster, IdleTimeout: j.IdleTimeout, MaxConnectAttempts: j.MaxAttempts}
	if j.Cluster != "" {
		p.Cluster = r.clusters.resolve(j.Node, "cluster", j.Cluster)
	} else if len(j.Routes) == 0 {
		r.report.Errorf(j.Node, "expected \"cluster\" or \"routes\"")
	}
	for i := range j.Routes {
		p.Routes = append(p.Routes, r.readTCPRoute(&j.Routes[i]))
	}
	return p
}

func (r *listenerReader) readTCPRoute(j *tcpRouteJSON) config.TCPRoute {
	ports := func(key, text string) []config.PortRange {
		list, err := parsePortRanges(text)
		if err != nil {
			r.report.Errorf(j.Node.Get(key), "%v", err)
		}
		return list
	}
	return config.TCPRoute{
		Cluster:          r.clusters.resolve(j.Node, "cluster", j.Cluster),
		SourceAddrs:      r.parsePrefixes(j.SourceAddrs),
		DestinationAddrs: r.parsePrefixes(j.DestinationAddrs),
		SourcePorts:      ports("source_port", j.SourcePort),
		DestinationPorts: ports("destination_port", j.DestinationPort),
	}
}

// parsePrefixes parses address ranges: "10.0.0.0/8", "10.1.2.3", or objects.
func (r *listenerReader) parsePrefixes(list []document.Node) []netip.Prefix {
	return r.parseRanges(list, func(n document.Node) (string, bool) {
		var j cidrJSON
		ok := r.decoder.Decode(n, &j)
		return j.Address + "/" + strconv.Itoa(j.Length), ok
	})
}

// parsePortRanges parses "80,8000-8999".
func parsePortRanges(text string) ([]config.PortRange, error) {
	if strings.TrimSpace(text) == "" {
		return nil, nil
	}
	var out []config.PortRange
	for part := range strings.SplitSeq(text, ",") {
		first, last, isRange := strings.Cut(part, "-")
		if !isRange {
			last = first
		}
		from, errFirst := strconv.ParseUint(strings.TrimSpace(first), 10, 16)
		to, errLast := strconv.ParseUint(strings.TrimSpace(last), 10, 16)
		if errors.Join(errFirst, errLast) != nil || from > to {
			return nil, fmt.Errorf("found %q, expected ports like \"80,8000-8999\"", text)
		}
		out = append(out, config.PortRange{First: uint16(from), Last: uint16(to)})
	}
	return out, nil
}
