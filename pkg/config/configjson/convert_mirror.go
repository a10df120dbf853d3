package configjson

import (
	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/filter"
)

// mirrorFilter is the stream filter that implements request_mirror_policies.
const mirrorFilter = "mirror"

// readMirror converts a route's request_mirror_policies to its settings of the mirror filter.
func (r *reader) readMirror(t *table, j *routeJSON, out *config.Route) {
	at := j.Node.Get("request_mirror_policies")
	if at.IsDisabled() {
		return
	}
	f := r.streamFilterFactory(at, mirrorFilter)
	if f == nil || f.Stage == filter.BeforeRoute {
		return
	}
	if _, twice := out.Filters[mirrorFilter]; twice {
		r.report.Errorf(at, "request_mirror_policies and the settings of %s in per_filter_config are mutually exclusive", mirrorFilter)
		return
	}
	settings := f.Config()
	r.decodeFilter(at, settings)
	if out.Filters == nil {
		out.Filters = make(map[string]any, 1)
	}
	out.Filters[mirrorFilter] = settings
	t.filters = append(t.filters, routeFilter{mirrorFilter, at})
}
