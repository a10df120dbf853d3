package metrics

// Label keys of control plane metrics.
const (
	LabelControlPlane = "control_plane" // name of the control plane's cluster
	// LabelType is a resource type: cluster, endpoint, listener, route, secret, dubbo_route,
	// extension or runtime.
	LabelType = "type"
)

// Values of LabelResult of XDSResponses.
const (
	ResultAccepted    = "accepted"
	ResultNotAccepted = "refused" // at least one resource, or the API request, was rejected
)

// Metrics of control planes, used with Registry.Func and Registry.Counter.
//
//nolint:gochecknoglobals // constant descriptions
var (
	// XDSConnected is 1 while the control plane is connected.
	XDSConnected = Metric{"weft_xds_connected", "1 while the control plane is connected, else 0.",
		KindGauge, []string{LabelControlPlane}}
	// XDSResponses counts responses. Its LabelResult is ResultAccepted or ResultNotAccepted.
	XDSResponses = Metric{"weft_xds_responses_total", "Responses of the control plane, by resource type and by whether all resources were accepted.",
		KindCounter, []string{LabelControlPlane, LabelType, LabelResult}}
	// XDSResponseAge is the time since the last response of a control plane.
	XDSResponseAge = Metric{"weft_xds_response_age_seconds", "Time since the last response of the control plane, or since the start if there was none.",
		KindGauge, []string{LabelControlPlane}}
	// XDSResources is the number of accepted resources.
	XDSResources = Metric{"weft_xds_resources", "Accepted resources of the current subscriptions, by type.",
		KindGauge, []string{LabelType}}
	// XDSCacheAge is the age of the active resources that came from the xDS cache.
	XDSCacheAge = Metric{"weft_xds_cache_age_seconds", "Age of the active resources from xds_cache, which are used until the first response of the control plane; 0 if none are used.",
		KindGauge, nil}
	// XDSUnsubscribed is the number of on-demand resources that are not subscribed. Its LabelType
	// is cluster or route.
	XDSUnsubscribed = Metric{"weft_xds_unsubscribed", "On-demand clusters and route tables (xds_lazy) that are not subscribed, by type.",
		KindGauge, []string{LabelType}}
	// XDSUnknownFields counts the fields of accepted resources that this build's version of Envoy's
	// API does not have.
	XDSUnknownFields = Metric{"weft_xds_unknown_fields_total", "Fields of accepted resources that have no effect because this build does not know them, by type; counted at each update of a resource (xds_unknown_fields: warn).",
		KindCounter, []string{LabelType}}
	// XDSLoadReports counts load reports.
	XDSLoadReports = Metric{"weft_xds_load_reports_total", "Load reports that were sent to the control plane of load_stats_config.",
		KindCounter, []string{LabelControlPlane}}
)

func xdsMetrics() []Metric {
	return []Metric{XDSConnected, XDSResponses, XDSResponseAge, XDSResources, XDSCacheAge, XDSUnsubscribed, XDSUnknownFields, XDSLoadReports}
}
