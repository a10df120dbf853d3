package configjson

import (
	"maps"
	"slices"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/config/document"
	"github.com/weft-proxy/weft/pkg/filter"
)

// refersCluster is the value of the refers tag of keys that contain cluster names.
const refersCluster = "cluster"

type streamFilterJSON struct {
	Node   document.Node `key:"."`
	Type   string        `key:"type" doc:"Name of the filter." required:"true" example:"\"fault\""`
	Config document.Node `key:"config" doc:"Settings of the filter; see docs/filters/README.md." accept:"object" variant:"stream_filter"`
	Plugin document.Node `key:"go_plugin_config" doc:"Filter loaded at run time." accept:"object" unsupported:"go_plugin_config" example:"{\"so_path\": \"f.so\"}"`
}

type chainJSON struct {
	Node    document.Node      `key:"."`
	Name    string             `key:"name" doc:"Name of the chain, which is the name of a listener." required:"true" example:"\"ingress\""`
	Filters []streamFilterJSON `key:"stream_filters" doc:"Filters of the chain, in order."`
}

// filterReader reads the settings of stream filters and connection filters, whose keys the filters
// define. It runs after the reader of clusters.
type filterReader struct {
	*input
	clusters   *clusterSet
	factories  map[string]*filter.StreamFilterFactory // the supported stream filters
	references []document.Reference                   // references in the settings that are being decoded
}

func newFilterReader(in *input, clusters *clusterSet) *filterReader {
	r := &filterReader{input: in, clusters: clusters, factories: make(map[string]*filter.StreamFilterFactory, len(in.capabilities.StreamFilters))}
	for i := range in.capabilities.StreamFilters {
		f := &in.capabilities.StreamFilters[i]
		r.factories[f.Name] = f
	}
	in.decoder.OnReference = func(ref document.Reference) { r.references = append(r.references, ref) }
	return r
}

// readStreamFilters converts a chain of stream filters.
func (r *filterReader) readStreamFilters(list []streamFilterJSON) []config.Filter {
	var out []config.Filter
	for i := range list {
		j := &list[i]
		if j.Type == "" {
			continue // already reported
		}
		if cfg, ok := r.readFilterConfig(j.Node.Get("type"), j.Type, j.Node.MemberOrEmpty("config")); ok {
			out = append(out, config.Filter{Name: j.Type, Config: cfg})
		}
	}
	return out
}

// readFilterConfig decodes the settings of a stream filter; node contains its name.
func (r *filterReader) readFilterConfig(node document.Node, name string, settings document.Node) (any, bool) {
	f := r.streamFilterFactory(node, name)
	if f == nil {
		return nil, false
	}
	cfg := f.Config()
	return cfg, r.decode(settings, cfg)
}

// streamFilterFactory returns the factory of a stream filter, or nil if it has reported an error.
func (r *filterReader) streamFilterFactory(node document.Node, name string) *filter.StreamFilterFactory {
	if f := r.factories[name]; f != nil {
		return f
	}
	supported := slices.Sorted(maps.Keys(r.factories))
	supportedName, ok := choose(r.report, node, "stream filter", name, supported, knownStreamFilters())
	if !ok {
		return nil
	}
	r.report.Unknown(node, "stream filter", name, []string{supportedName}) // name differs from it in case only
	return nil
}

// readRouteFilters converts the key "per_filter_config" of a route. A filter that runs before route
// selection cannot have settings per route. null keeps the settings of the listener.
func (r *filterReader) readRouteFilters(j *routeJSON) map[string]any {
	if len(j.PerFilter) == 0 {
		return nil
	}
	out := make(map[string]any, len(j.PerFilter))
	for member := range j.Node.Get("per_filter_config").All() {
		name := member.Key()
		f := r.streamFilterFactory(member, name)
		switch {
		case f == nil, member.Kind() == document.Null:
		case f.Stage == filter.BeforeRoute:
			r.report.Errorf(member, "the stream filter %q runs before a route is selected: it does not support settings for a route", name)
		default:
			cfg := f.Config()
			r.decode(member, cfg)
			out[name] = cfg
		}
	}
	return out
}

// decode decodes the settings of a filter and reports unknown clusters in keys with the tag
// refers:"cluster". It returns the result of Decode, which does not depend on unknown clusters.
func (r *filterReader) decode(settings document.Node, target any) bool {
	r.references = r.references[:0]
	ok := r.decoder.Decode(settings, target)
	if r.clusters.dynamic {
		return ok // a control plane or a registry may add clusters
	}
	for _, ref := range r.references {
		if ref.Kind == refersCluster {
			r.clusters.checkName(ref.Node, ref.Name, ref.Severity)
		}
	}
	return ok
}

// indexChains returns the named chains of stream filters; the key is the name. The listenerReader
// converts the filters of a chain with the listener of the same name.
func (r *filterReader) indexChains(list []chainJSON) map[string]*chainJSON {
	out := make(map[string]*chainJSON, len(list))
	for i := range list {
		c := &list[i]
		if out[c.Name] != nil {
			r.report.Errorf(c.Node.Get("name"), "duplicate chain name %q", c.Name)
			continue
		}
		out[c.Name] = c
	}
	return out
}
