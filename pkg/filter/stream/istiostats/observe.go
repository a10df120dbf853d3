package istiostats

import (
	"strings"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/protocol/workload"
)

// key has the properties of an exchange or a session that determine its labels. Its strings,
// except protocol, may borrow from the exchange; clone copies them.
type key struct {
	peer                          string // workload of the peer, in the format of workload.Parse; "": unknown
	service                       string // destination service; "": unknown
	serviceName                   string // short name of the service; "": unknown
	peerPrincipal, localPrincipal string // principals of the peer certificate and of the local certificate; "": none
	protocol                      string // request_protocol
	status, grpc                  int
	reason                        protocol.Reason
	flags                         string // names of the response flags
}

// maxAuthorityBytes is the maximum length in bytes of an authority that becomes a label. Clients
// choose the authority.
const maxAuthorityBytes = 262

// clone returns a copy of k that owns its strings. It does not copy protocol, which never borrows
// from an exchange.
func (k key) clone() key {
	for _, s := range []*string{&k.peer, &k.service, &k.serviceName, &k.peerPrincipal, &k.localPrincipal} {
		*s = strings.Clone(*s)
	}
	return k
}

// observe counts x, which has ended.
func (s *stats) observe(x *protocol.Exchange) {
	if x.Record.Listener == nil {
		return // not a request
	}
	k := s.keyOf(x)
	e := s.entryOf(&k)
	e.add(requestsTotal, 1)
	e.add(requestDuration, x.Record.End.Sub(x.Meta.Start).Milliseconds())
	e.add(requestBytes, max(x.Record.RequestBytes, 0)+int64(max(x.Meta.HeadSize, 0)))
	e.add(responseBytes, x.Record.ResponseBytes)
}

// The scopes in an exchange's record whose configuration identifies the service or the workload.
type (
	clusterScope interface{ Config() *config.Cluster }
	hostScope    interface{ Config() *config.Host }
)

func (s *stats) keyOf(x *protocol.Exchange) (k key) {
	k.status, k.grpc, k.reason, k.protocol = x.Response.Status, protocol.NoCode, x.Record.Reason, "http"
	k.flags = x.FlagNames()
	switch {
	case x.Request.Method == "":
		k.protocol = x.Meta.Protocol // an RPC protocol
	case x.Request.Method == "POST" && x.Meta.Protocol == string(config.HTTP2) && protocol.IsGRPC(&x.Request.Header):
		k.protocol, k.grpc = "grpc", protocol.GRPCStatus(&x.Response)
	}
	if k.reason == protocol.ReasonDownstreamDisconnect {
		k.status = 0 // no client received the response
	}
	if !s.NoFallback && len(x.Request.Authority) <= maxAuthorityBytes {
		k.service, k.serviceName = x.Request.Authority, x.Request.Authority
	}
	s.setService(x, &k)
	if s.Reporter == destination {
		k.peer, _ = x.Metadata.Lookup(workload.Namespace, workload.KeyDownstream)
		if conn := x.Meta.Conn; conn != nil {
			k.peerPrincipal, k.localPrincipal = principals(conn.TLS)
		}
		return k
	}
	k.peer, _ = x.Metadata.Lookup(workload.Namespace, workload.KeyUpstream)
	if n := len(x.Record.Attempts); n > 0 {
		last := &x.Record.Attempts[n-1]
		k.peerPrincipal, k.localPrincipal = principals(last.TLS)
		if h, ok := last.Host.(hostScope); ok && k.peer == "" {
			k.peer = h.Config().Workload
		}
	}
	return k
}

// setService sets the service in k, if x's route or cluster identifies it.
func (s *stats) setService(x *protocol.Exchange, k *key) {
	if r := x.Record.Route; r != nil {
		switch r.Name() {
		case "block_all":
			k.serviceName = "BlackHoleCluster"
			return
		case "allow_any":
			k.serviceName = "PassthroughCluster"
			return
		}
	}
	if scope, ok := x.Record.Cluster.(clusterScope); ok {
		k.setCluster(scope.Config())
	} else if x.Record.TargetCluster != "" {
		k.setCluster(s.env.Cluster(x.Record.TargetCluster)) // the exchange did not reach the cluster
	}
}

// setCluster sets the service in k, if c identifies it. c may be nil.
func (k *key) setCluster(c *config.Cluster) {
	if c == nil {
		return
	}
	switch c.Name {
	case "BlackHoleCluster", "PassthroughCluster", "InboundPassthroughCluster", "InboundPassthroughClusterIpv4", "InboundPassthroughClusterIpv6":
		k.serviceName = c.Name
		return
	}
	if c.Mesh.Host != "" {
		k.service, k.serviceName = c.Mesh.Host, c.Mesh.Name
	}
}

// principals returns the first URI names of the peer certificate and of the local certificate, or
// "".
func principals(t *protocol.TLS) (peer, local string) {
	if t == nil {
		return "", ""
	}
	if t.Peer != nil && len(t.Peer.URISANs) > 0 {
		peer = t.Peer.URISANs[0]
	}
	if len(t.LocalURISANs) > 0 {
		local = t.LocalURISANs[0]
	}
	return peer, local
}
