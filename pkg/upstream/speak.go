package upstream

import (
	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// speaks returns what the hosts of a cluster are spoken to in for x: what the route
// says, else the cluster, else the listener, else what the caller speaks. Requests that
// cannot be said in that are refused with a Fault of NotImplemented: those of RPC in
// anything else, and calls of gRPC, which need HTTP/2 from end to end, in HTTP/1.1.
func (v *Via) speaks(cfg *config.Cluster, x *protocol.Exchange) (config.Protocol, error) {
	caller := config.Protocol(x.Meta.Protocol)
	for _, name := range [...]config.Protocol{v.Protocol, cfg.Protocol, v.Fallback} {
		if name == "" || name == config.Auto {
			continue
		}
		return name, carried(cfg.Name, caller, name, x)
	}
	return caller, nil
}

// carried refuses what a caller's request cannot be said in.
func carried(cluster string, caller, name config.Protocol, x *protocol.Exchange) error {
	switch {
	case caller == name:
		return nil
	case !caller.CarriedBy(name):
		return protocol.Faultf(protocol.NotImplemented, "cluster %s is spoken to in %s: translation from %s is not supported yet", cluster, name, caller)
	case name == config.HTTP1 && protocol.IsGRPC(&x.Request.Header):
		return protocol.Faultf(protocol.NotImplemented, "cluster %s is spoken to in HTTP/1.1: gRPC is not carried by it", cluster)
	}
	return nil
}
