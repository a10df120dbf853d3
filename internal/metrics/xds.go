package metrics

// Label keys of metrics of control planes.
const (
	LabelControlPlane = "control_plane" // name of the cluster that it is
	LabelType         = "type"          // cluster, endpoint, listener, route or secret
)

// Values of LabelResult of XDSResponses.
const (
	ResultAccepted = "accepted"
	ResultRefused  = "refused" // at least one of the resources
)

// Metrics of control planes, used with Registry.Func and Registry.Counter.
//
//nolint:gochecknoglobals // constant descriptions
var (
	// XDSConnected says whether a control plane answers.
	XDSConnected = Metric{"weft_xds_connected", "1 while the control plane answers, else 0.",
		KindGauge, []string{LabelControlPlane}}
	// XDSResponses counts responses. Its LabelResult is ResultAccepted or ResultRefused.
	XDSResponses = Metric{"weft_xds_responses_total", "Responses of the control plane, by type and by whether all of their resources were accepted.",
		KindCounter, []string{LabelControlPlane, LabelType, LabelResult}}
	// XDSResponseAge is how long a control plane has had nothing to say.
	XDSResponseAge = Metric{"weft_xds_response_age_seconds", "Time since the last response of the control plane; since the start if there was none.",
		KindGauge, []string{LabelControlPlane}}
	// XDSResources is how many resources there are.
	XDSResources = Metric{"weft_xds_resources", "Resources that were accepted and are wanted, by type.",
		KindGauge, []string{LabelType}}
	// XDSKeptAge is how old what is in force is, if it is from disk.
	XDSKeptAge = Metric{"weft_xds_kept_age_seconds", "Age of what is in force from xds_cache because the control plane has not answered since the start; 0: it has.",
		KindGauge, nil}
	// XDSAsleep is how many resources nobody has asked for. Its LabelType is cluster or
	// route.
	XDSAsleep = Metric{"weft_xds_asleep", "Clusters without their hosts, and route tables, that are left with the control plane until they are used (xds_lazy), by type.",
		KindGauge, []string{LabelType}}
	// XDSUnknownFields counts fields that this build's version of Envoy's API does not have,
	// of resources that were accepted all the same.
	XDSUnknownFields = Metric{"weft_xds_unknown_fields_total", "Fields without effect because this build does not know them, in accepted resources, by type; counted at each update of the resource (xds_unknown_fields: warn).",
		KindCounter, []string{LabelType}}
	// XDSLoadReports counts the reports of load.
	XDSLoadReports = Metric{"weft_xds_load_reports_total", "Reports of load that were sent to the control plane of load_stats_config.",
		KindCounter, []string{LabelControlPlane}}
)

func xdsMetrics() []Metric {
	return []Metric{XDSConnected, XDSResponses, XDSResponseAge, XDSResources, XDSKeptAge, XDSAsleep, XDSUnknownFields, XDSLoadReports}
}
