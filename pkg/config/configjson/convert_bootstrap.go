package configjson

import (
	"encoding/json"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/config/document"
)

// readBootstrap takes what the file says of a control plane as it stands: package xds
// reads it.
func (r *reader) readBootstrap(j *rootJSON) {
	for _, n := range []document.Node{j.DynamicResources, j.StaticResources, j.EnvoyNode} {
		if !n.Off() && !r.kinds.XDS {
			r.report.Unbuilt(n, n.Key())
			return
		}
	}
	r.snapshot.Bootstrap = config.Bootstrap{
		Node: rawJSON(j.EnvoyNode), Static: rawJSON(j.StaticResources), Dynamic: rawJSON(j.DynamicResources),
	}
	r.readXDSCache(j)
	if !j.StaticResources.Off() && j.DynamicResources.Off() {
		r.report.Warnf(j.StaticResources, "static_resources has no effect without dynamic_resources")
	}
}

// rawJSON is a value as JSON, nil if there is none.
func rawJSON(n document.Node) []byte {
	if n.Off() {
		return nil
	}
	text, err := json.Marshal(n.Value())
	if err != nil {
		panic("configjson: a document that is no JSON: " + err.Error())
	}
	return text
}

func (r *reader) readXDSCache(j *rootJSON) {
	c := j.XDSCache
	switch {
	case c == nil:
	case !r.kinds.XDS:
		r.report.Unbuilt(c.Node, "xds_cache")
	case j.DynamicResources.Off():
		r.report.Warnf(c.Node, "xds_cache has no effect without dynamic_resources")
	default:
		r.snapshot.Bootstrap.Cache = config.ControlPlaneCache{Path: c.Path, MaxAge: c.MaxAge}
	}
}
