package resource

import (
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/config/document"
)

// readMirrors reads the mirror policies of a route, or else the inherited ones.
func (p fieldReader) readMirrors(m *routev3.RouteAction, inherited inheritedSettings, out *config.Route) {
	list := m.GetRequestMirrorPolicies()
	if len(list) == 0 {
		list = inherited.mirrors
	}
	at := p.field("request_mirror_policies")
	factory := p.report.capabilities.streamFilterFactory(mirrorFilter)
	switch {
	case len(list) == 0:
		return
	case factory == nil:
		at.rejectUnsupported()
		return
	}
	rejected := false
	mirrors := make([]*document.Value, len(list))
	for i, policy := range list {
		at := at.index(i)
		at.checkFields(policy, []string{"cluster", "cluster_header", "runtime_fraction", "disable_shadow_host_suffix_append"}, []string{"request_headers_mutations", "host_rewrite_literal"})
		if (policy.GetCluster() == "") == (policy.GetClusterHeader() == "") {
			at.reject("exactly one of cluster and cluster_header is required")
			rejected = true
			continue
		}
		percent := 100.0
		if f := policy.GetRuntimeFraction(); f != nil {
			percent = at.field("runtime_fraction").runtimeFractionPercent(f)
		}
		mirrors[i] = document.NewObject(5)
		if policy.GetClusterHeader() != "" {
			mirrors[i].Add("cluster_header", document.NewString(policy.GetClusterHeader()))
		} else {
			mirrors[i].Add("cluster", document.NewString(policy.GetCluster()))
		}
		mirrors[i].Add("percent", floatValue(percent, 64))
		mirrors[i].Add("shadow_host_suffix", document.NewBool(!policy.GetDisableShadowHostSuffixAppend()))
	}
	if rejected {
		return
	}
	first := mirrors[0]
	first.Add("append_x_forwarded_for", document.NewBool(true))
	first.Add("more", document.NewList(mirrors[1:]...))
	settings := at.decodeSettings(factory.Config(), first)
	out.Filters = inheritFilters(out.Filters, map[string]any{mirrorFilter: settings})
}
