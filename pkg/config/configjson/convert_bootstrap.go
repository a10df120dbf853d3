package configjson

import (
	"encoding/json"
	"net/netip"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/config/document"
)

// readBootstrap copies the control plane configuration of the file; package xds parses it.
func (r *reader) readBootstrap(j *rootJSON) {
	for _, n := range []document.Node{j.DynamicResources, j.StaticResources, j.LayeredRuntime, j.EnvoyNode} {
		if hasMembers(n) && !r.capabilities.XDS {
			r.report.Unsupported(n, n.Key())
			return
		}
	}
	markSecrets(j.DynamicResources)
	markSecrets(j.StaticResources)
	markSecrets(j.ClusterManager.LoadStats)
	r.snapshot.Bootstrap = config.Bootstrap{
		Node: rawJSON(j.EnvoyNode), StaticResources: rawJSON(j.StaticResources), DynamicResources: rawJSON(j.DynamicResources), LayeredRuntime: rawJSON(j.LayeredRuntime),
	}
	r.readXDSCache(j)
	r.readXDSOnDemand(j)
	if j.XDSUnknown == "warn" {
		r.snapshot.Bootstrap.UnknownFields = config.WarnUnknownFields
	}
	r.readXDSStatus(j)
	r.readLoadStats(j)
	if n := j.LayeredRuntime; hasMembers(n) && !j.hasBootstrap() {
		r.report.Warnf(n, "layered_runtime has no effect without dynamic_resources or static_resources")
	}
}

// hasMembers reports whether an object has members. Members may be empty, since presence is significant
// in a protobuf message, as in ads: {}.
func hasMembers(n document.Node) bool { return n.Len() > 0 }

// rawJSON returns an object as JSON, or nil if it has no members.
func rawJSON(n document.Node) []byte {
	if !hasMembers(n) {
		return nil
	}
	text, err := json.Marshal(n.Value())
	if err != nil {
		panic("configjson: the document is not valid JSON: " + err.Error())
	}
	return text
}

func (r *reader) readXDSCache(j *rootJSON) {
	c := j.XDSCache
	switch {
	case c == nil:
	case !r.capabilities.XDS:
		r.report.Unsupported(c.Node, "xds_cache")
	case !hasMembers(j.DynamicResources):
		r.report.Warnf(c.Node, "xds_cache has no effect without dynamic_resources")
	default:
		r.snapshot.Bootstrap.Cache = config.XDSCache{Path: c.Path, MaxAge: c.MaxAge}
	}
}

func (r *reader) readXDSStatus(j *rootJSON) {
	s := j.XDSStatus
	switch {
	case s == nil:
	case !r.capabilities.XDS:
		r.report.Unsupported(s.Node, "xds_status")
	case !j.hasBootstrap():
		r.report.Warnf(s.Node, "xds_status has no effect without dynamic_resources or static_resources")
	default:
		address := numericHost(socketPath(s.Address))
		if !isPath(address) || address[0] == '@' { // any process may connect to an abstract socket
			if at, err := netip.ParseAddrPort(address); err != nil || at.Port() == 0 || !at.Addr().Unmap().IsLoopback() {
				r.report.Errorf(s.Node.Get("address").Or(s.Node), "found %q, expected ip:port of a loopback address, or the path of a unix socket", s.Address)
			}
		}
		r.snapshot.Bootstrap.CSDSAddress = address
	}
}

func (r *reader) readLoadStats(j *rootJSON) {
	n := j.ClusterManager.LoadStats
	switch {
	case !hasMembers(n):
	case !r.capabilities.XDS:
		r.report.Unsupported(n, "load_stats_config")
	case !j.hasBootstrap():
		r.report.Warnf(n, "load_stats_config has no effect without dynamic_resources or static_resources")
	default:
		r.snapshot.Bootstrap.LoadStats = rawJSON(n)
	}
}
