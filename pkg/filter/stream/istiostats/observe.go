package istiostats

import (
	"strings"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/protocol/workload"
)

// key is what exchanges, or sessions, have in common that are counted alike. Its strings may be views
// until it is kept.
type key struct {
	peer         string // the workload at the other end, as workload.Parse reads it; "": not known
	service      string // that is asked for; "": not known
	name         string // what it is called; the same
	theirs, ours string // principals: of the other end, and what this one has shown; "": none
	protocol     string // request_protocol
	status, grpc int
	reason       protocol.Reason
	flags        protocol.Flags
}

// longestHost is how long a host with its port may be that is a label: callers choose it.
const longestHost = 262

// kept returns k without views.
func (k key) kept() key {
	for _, s := range []*string{&k.peer, &k.service, &k.name, &k.theirs, &k.ours} {
		*s = strings.Clone(*s)
	}
	return k
}

// observe counts x, which has ended.
func (s *stats) observe(x *protocol.Exchange) {
	if x.Record.Listener == nil {
		return // it was no request
	}
	k := s.keyOf(x)
	e := s.entryOf(&k)
	e.add(requestsTotal, 1)
	e.add(requestDuration, x.Record.End.Sub(x.Meta.Start).Milliseconds())
	e.add(requestBytes, max(x.Record.RequestBytes, 0)+int64(max(x.Meta.HeadSize, 0)))
	e.add(responseBytes, x.Record.ResponseBytes)
}

// Places that are configured.
type (
	clusterPlace interface{ Config() *config.Cluster }
	hostPlace    interface{ Config() *config.Host }
)

func (s *stats) keyOf(x *protocol.Exchange) (k key) {
	k.status, k.grpc, k.reason, k.protocol = x.Response.Status, protocol.NoCode, x.Record.Reason, "http"
	k.flags = x.Record.Flags
	switch {
	case x.Request.Method == "":
		k.protocol = x.Meta.Protocol // of RPC
	case x.Request.Method == "POST" && x.Meta.Protocol == string(config.HTTP2) && protocol.IsGRPC(&x.Request.Header):
		k.protocol, k.grpc = "grpc", protocol.GRPCStatus(&x.Response)
	}
	if k.reason == protocol.ReasonDownstreamDisconnect {
		k.status = 0 // nobody was answered
	}
	if !s.NoFallback && len(x.Request.Authority) <= longestHost {
		k.service, k.name = x.Request.Authority, x.Request.Authority
	}
	s.nameService(x, &k)
	if s.Reporter == destination {
		k.peer, _ = x.Metadata.Lookup(workload.Namespace, workload.KeyCaller)
		if conn := x.Meta.Conn; conn != nil {
			k.theirs, k.ours = principals(conn.TLS)
		}
		return k
	}
	k.peer, _ = x.Metadata.Lookup(workload.Namespace, workload.KeyHost)
	if n := len(x.Record.Attempts); n > 0 {
		last := &x.Record.Attempts[n-1]
		k.theirs, k.ours = principals(last.TLS)
		if h, ok := last.Host.(hostPlace); ok && k.peer == "" {
			k.peer = h.Config().Workload
		}
	}
	return k
}

// nameService says which service was asked for, if x's cluster tells.
func (s *stats) nameService(x *protocol.Exchange, k *key) {
	if r := x.Record.Route; r != nil {
		switch r.Name() {
		case "block_all":
			k.name = "BlackHoleCluster"
			return
		case "allow_any":
			k.name = "PassthroughCluster"
			return
		}
	}
	if place, ok := x.Record.Cluster.(clusterPlace); ok {
		k.nameCluster(place.Config())
	} else if x.Record.TargetCluster != "" {
		k.nameCluster(s.env.Cluster(x.Record.TargetCluster)) // it was not reached
	}
}

// nameCluster says which service was asked for, if c tells; nil does not.
func (k *key) nameCluster(c *config.Cluster) {
	if c == nil {
		return
	}
	switch c.Name {
	case "BlackHoleCluster", "PassthroughCluster", "InboundPassthroughCluster", "InboundPassthroughClusterIpv4", "InboundPassthroughClusterIpv6":
		k.name = c.Name
		return
	}
	if c.Mesh.Host != "" {
		k.service, k.name = c.Mesh.Host, c.Mesh.Name
	}
}

// principals returns who is at both ends of a connection.
func principals(t *protocol.TLS) (theirs, ours string) {
	if t == nil {
		return "", ""
	}
	if t.Peer != nil && len(t.Peer.URISANs) > 0 {
		theirs = t.Peer.URISANs[0]
	}
	if len(t.LocalURISANs) > 0 {
		ours = t.LocalURISANs[0]
	}
	return theirs, ours
}
