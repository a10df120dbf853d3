package configjson

import (
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/config/document"
)

// networkUDP is the network of UDP listeners.
const networkUDP = "udp"

// udpProxyJSON is the network filter "udp_proxy".
type udpProxyJSON struct {
	Node         document.Node       `key:"."`
	Cluster      string              `key:"cluster" doc:"Target cluster of the datagrams. The health of its hosts and its limits max_connections (sessions) and max_requests apply." required:"true" example:"\"db\""`
	IdleTimeout  time.Duration       `key:"idle_timeout" doc:"Maximum time that a session may stay without a datagram in either direction. A session is the traffic between one source and its host." min:"10ms" default:"60s" example:"\"10s\""`
	MaxSessions  int                 `key:"max_sessions" doc:"Maximum number of concurrent sessions; datagrams of further sources are dropped. Each session uses a file descriptor." unit:"sessions" min:"1" max:"1000000" default:"10000" example:"1000"`
	HashPolicies []udpHashPolicyJSON `key:"hash_policies" doc:"Inputs of the hash for LB_RINGHASH and LB_MAGLEV: one element."`
	StatPrefix   string              `key:"stat_prefix" doc:"Prefix of the filter's metrics." ignored:"metrics are labeled by listener and cluster" example:"\"dns\""`
}

type udpHashPolicyJSON struct {
	SourceIP bool `key:"source_ip" doc:"Hash the source IP address." required:"true" example:"true"`
}

func (r *listenerReader) readUDPProxy(n document.Node) *config.UDPProxy {
	var j udpProxyJSON
	r.decoder.Decode(n, &j)
	p := &config.UDPProxy{IdleTimeout: j.IdleTimeout, MaxSessions: j.MaxSessions}
	if j.Cluster != "" {
		p.Cluster = r.clusters.resolve(j.Node, "cluster", j.Cluster)
	}
	if len(j.HashPolicies) > 1 {
		r.report.Errorf(j.Node.Get("hash_policies"), "found %d elements: a session has one hash", len(j.HashPolicies))
	}
	p.HashSourceIP = len(j.HashPolicies) > 0 && j.HashPolicies[0].SourceIP
	if c := r.clusters.byName[p.Cluster]; c != nil {
		r.checkDatagramCluster(&j, c)
	}
	return p
}

// checkDatagramCluster reports settings of the cluster that do not work with datagrams, and
// hash_policies that the cluster's lb_type does not use.
func (r *listenerReader) checkDatagramCluster(j *udpProxyJSON, c *config.Cluster) {
	node := j.Node.Get("cluster")
	if c.TLS != nil {
		r.report.Errorf(node, "cluster %q has a tls_context: Weft does not support TLS for datagrams", c.Name)
	}
	if c.ProxyProtocol != 0 {
		r.report.Errorf(node, "cluster %q has proxy_protocol: datagrams cannot carry its header", c.Name)
	}
	if c.Socket.SourcePortIPv4 != 0 || c.Socket.SourcePortIPv6 != 0 {
		r.report.Errorf(node, "cluster %q has a fixed source port: the datagrams of all clients would share it", c.Name)
	}
	if len(j.HashPolicies) > 0 && !c.LBPolicy.UsesHash() {
		r.report.Warnf(j.Node.Get("hash_policies"), "hash_policies has no effect: the lb_type of cluster %q does not use a hash", c.Name)
	}
}

// checkUDP reports filters and keys that conflict with the network of the listener.
func (r *listenerReader) checkUDP(j *listenerJSON, l *config.Listener) {
	isUDP := l.Network == networkUDP
	if n := len(l.FilterChains); isUDP && (n > 1 || l.DefaultChain != nil) {
		r.report.Errorf(j.Node.Get("filter_chains"), "found several filter chains: a listener with the network udp has exactly one")
		return
	}
	for i, chain := range l.FilterChains[:min(len(l.FilterChains), len(j.FilterChains))] {
		node := j.FilterChains[i].Node
		switch {
		case isUDP && chain.UDPProxy == nil && len(j.FilterChains[i].Filters) > 0:
			r.report.Errorf(node.Get("filters"), "a listener with the network udp requires the network filter %q", UDPProxyFilter)
		case !isUDP && chain.UDPProxy != nil:
			r.report.Errorf(node.Get("filters"), "the network filter %q requires a listener with the network udp", UDPProxyFilter)
		}
		if match := node.Get("match"); isUDP && match.Exists() {
			r.report.Errorf(match, "match is not allowed: a listener with the network udp has exactly one chain")
		}
		if tls := node.Get("tls_context"); isUDP && len(chain.TLS) > 0 {
			r.report.Errorf(tls, "TLS is not supported on a listener with the network udp")
		}
	}
	if !isUDP {
		return
	}
	for _, key := range []string{"listener_filters", "stream_filters", "access_logs", "inspector", "use_original_dst"} {
		if node := j.Node.Get(key); node.Exists() {
			r.report.Errorf(node, "%s is not supported on a listener with the network udp, which has no connections", key)
		}
	}
	for _, key := range []string{"max_connections", "connection_idle_timeout", "tcp_keepalive", "accept_rate"} {
		if node := j.Node.Get(key); node.Exists() {
			r.report.Warnf(node, "%s has no effect on a listener with the network udp, which has no connections", key)
		}
	}
	if node := j.Node.Get("bind_port"); !l.Bind {
		r.report.Errorf(node, "bind_port false is not supported on a listener with the network udp: no listener passes datagrams to it")
	}
}
