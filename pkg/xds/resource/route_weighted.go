package resource

//lint:file-ignore SA1019 control planes still set deprecated fields

import (
	"reflect"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"github.com/weft-proxy/weft/pkg/config"
)

func (p fieldReader) readWeighted(m *routev3.WeightedCluster, out *config.Forward, extra *config.ForwardExtras) {
	p.checkFields(m, []string{"clusters", "runtime_key_prefix", "header_name", "use_hash_policy"}, nil)
	extra.WeightSource = config.WeightSource{Header: m.GetHeaderName(), Hash: m.GetUseHashPolicy().GetValue()}
	total := uint64(0)
	for i, c := range m.GetClusters() {
		at := p.field("clusters").index(i)
		at.checkFields(c, []string{
			"name", "cluster_header", "weight", "metadata_match", "response_headers_to_add", "response_headers_to_remove",
			"request_headers_to_add", "request_headers_to_remove", "typed_per_filter_config", "host_rewrite_literal",
		}, nil)
		variable := ""
		switch hasName, hasHeader := c.GetName() != "", c.GetClusterHeader() != ""; {
		case hasName == hasHeader:
			at.reject("exactly one of name and cluster_header is required")
		case hasHeader:
			variable = clusterVariable(c.GetClusterHeader())
		}
		extras := &config.WeightedExtras{ClusterVariable: variable, HostRewrite: c.GetHostRewriteLiteral(), Filters: at.readPerFilter(c.GetTypedPerFilterConfig())}
		if reflect.ValueOf(extras).Elem().IsZero() {
			extras = nil
		}
		weight := c.GetWeight().GetValue()
		if prefix := m.GetRuntimeKeyPrefix(); prefix != "" {
			weight = at.runtimeUint32(prefix+"."+c.GetName(), weight)
		}
		total += uint64(weight)
		out.WeightedClusters = append(out.WeightedClusters, config.WeightedCluster{
			Cluster:  c.GetName(),
			Weight:   weight,
			Metadata: labels(c.GetMetadataMatch().GetFilterMetadata()[lbNamespace]),
			Extras:   extras,
			Request:  at.readHeaderMutation("request_headers", c.GetRequestHeadersToAdd(), c.GetRequestHeadersToRemove()),
			Response: at.readHeaderMutation("response_headers", c.GetResponseHeadersToAdd(), c.GetResponseHeadersToRemove()),
		})
	}
	if total == 0 {
		p.reject("the sum of the weights is 0")
	}
}

// clusterVariable returns the variable whose value is the request header that names a cluster.
func clusterVariable(header string) string { return "request_header_" + header }

// inheritWeighted adds the settings of filters that the weighted clusters of a route inherit: outer
// from the table and the virtual host, and those of the route.
func inheritWeighted(outer map[string]any, own map[string]any, route *config.Route) {
	if route.Forward == nil {
		return
	}
	for i := range route.Forward.WeightedClusters {
		w := &route.Forward.WeightedClusters[i]
		if len(w.Extra().Filters) == 0 {
			continue
		}
		inherited := inheritFilters(outer, own)
		if mirror, ok := route.Filters[mirrorFilter]; ok {
			inherited = inheritFilters(inherited, map[string]any{mirrorFilter: mirror})
		}
		w.Extras.Filters = routeFilters(inherited, w.Extras.Filters)
	}
}
