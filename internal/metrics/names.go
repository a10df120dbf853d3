package metrics

// Label keys.
const (
	LabelListener    = "listener"
	LabelTable       = "table"
	LabelVirtualHost = "virtual_host"
	LabelRoute       = "route"
	LabelCluster     = "cluster"
	LabelHost        = "host"
	LabelProtocol    = "protocol"
	LabelService     = "service"      // of an RPC request, as the client sent it
	LabelMethod      = "method"       // of an RPC request, as the client sent it
	LabelCode        = "code"         // of an RPC response, in the protocol's own numbers; "none" for one-way
	LabelStatusClass = "status_class" // "2xx"; "none" for a request without a response
	LabelReason      = "reason"       // name of a protocol.Reason
	LabelCause       = "cause"        // name of a network.CloseReason
	LabelLimit       = "limit"        // of a circuit breaker
	LabelPriority    = "priority"     // of the requests that the limit applies to
	LabelResult      = "result"
	LabelFlood       = "flood" // which flood limit an HTTP/2 client exceeded
	LabelLog         = "log"
	LabelVersion     = "version"
	LabelRevision    = "revision"
	LabelGoVersion   = "go_version"
)

// Names of metrics.
const (
	nameListenerRequests      = "weft_listener_requests_total"
	nameListenerFailures      = "weft_listener_request_failures_total"
	nameListenerDuration      = "weft_listener_request_duration_seconds"
	nameListenerRequestBytes  = "weft_listener_request_bytes_total"
	nameListenerResponseBytes = "weft_listener_response_bytes_total"
	nameListenerActive        = "weft_listener_requests_active"

	nameListenerAccepted    = "weft_listener_connections_accepted_total"
	nameListenerClosed      = "weft_listener_connections_closed_total"
	nameListenerRefused     = "weft_listener_connections_refused_total"
	nameListenerConnections = "weft_listener_connections_active"
	nameListenerErrors      = "weft_listener_accept_errors_total"

	nameRouteRequests      = "weft_route_requests_total"
	nameRouteFailures      = "weft_route_request_failures_total"
	nameRouteDuration      = "weft_route_request_duration_seconds"
	nameRouteRequestBytes  = "weft_route_request_bytes_total"
	nameRouteResponseBytes = "weft_route_response_bytes_total"

	nameClusterRequests      = "weft_cluster_requests_total"
	nameClusterFailures      = "weft_cluster_request_failures_total"
	nameClusterDuration      = "weft_cluster_request_duration_seconds"
	nameClusterRequestBytes  = "weft_cluster_request_bytes_total"
	nameClusterResponseBytes = "weft_cluster_response_bytes_total"
	nameClusterActive        = "weft_cluster_requests_active"

	nameClusterOpened      = "weft_cluster_connections_opened_total"
	nameClusterClosed      = "weft_cluster_connections_closed_total"
	nameClusterSpent       = "weft_cluster_connections_spent_total"
	nameClusterConnections = "weft_cluster_connections_active"
	nameClusterUnconnected = "weft_cluster_connect_failures_total"
	nameClusterRetries     = "weft_cluster_retries_total"
	nameClusterResent      = "weft_cluster_resent_total"
	nameClusterOverflow    = "weft_cluster_overflow_total"
	nameClusterBreakerOpen = "weft_cluster_breaker_open"
	nameClusterBreakerLeft = "weft_cluster_breaker_remaining"
	nameClusterHostDown    = "weft_cluster_host_down_total"
	nameClusterHostUp      = "weft_cluster_host_up_total"
	nameClusterChecks      = "weft_cluster_health_check_failures_total"
	nameClusterEjections   = "weft_cluster_ejections_total"
	nameClusterUnejected   = "weft_cluster_ejections_overflow_total"
	nameClusterHedges      = "weft_cluster_hedges_total"
	nameClusterHedgesWon   = "weft_cluster_hedges_won_total"
	nameClusterCancelled   = "weft_cluster_attempts_cancelled_total"

	nameHostRequests      = "weft_host_requests_total"
	nameHostFailures      = "weft_host_request_failures_total"
	nameHostDuration      = "weft_host_request_duration_seconds"
	nameHostRequestBytes  = "weft_host_request_bytes_total"
	nameHostResponseBytes = "weft_host_response_bytes_total"

	nameRPCRequests = "weft_rpc_requests_total"
	nameRPCFailures = "weft_rpc_request_failures_total"
	nameRPCDuration = "weft_rpc_request_duration_seconds"

	nameBuild = "weft_build_info"
)

// Label values that this package generates.
const (
	valueNone   = "none"
	valueOther  = "_other" // for every label of the series that scopes beyond the limit share
	valueOthers = "other"  // the same for RPC methods and codes beyond their limits
)

// classNames are the values of LabelStatusClass, by first digit.
//
//nolint:gochecknoglobals // a constant table
var classNames = [classCount]string{valueNone, "1xx", "2xx", "3xx", "4xx", "5xx"}

// Kind is the type of a metric.
type Kind uint8

// The kinds.
const (
	KindCounter Kind = iota // only increases
	KindGauge               // increases and decreases
	KindHistogram
)

func (k Kind) String() string {
	switch k {
	case KindCounter:
		return "counter"
	case KindGauge:
		return "gauge"
	case KindHistogram:
		return "histogram"
	}
	panic("metrics: unknown kind")
}

// Metric describes a metric, for /stats/prometheus and docs/observability.md.
type Metric struct {
	Name   string // weft_…, in base units; the name of a counter ends in _total
	Help   string // one sentence
	Kind   Kind
	Labels []string // keys; a series has its values in this order
}

// Metrics of the process that have no scope, used with Registry.Counter and Registry.Func.
//
//nolint:gochecknoglobals // constant descriptions
var (
	// ConfigReloads counts attempts to apply a configuration. Its LabelResult is ResultApplied or
	// ResultRejected.
	ConfigReloads = Metric{"weft_config_reloads_total", "Configurations that were to replace the running one, by what became of them.",
		KindCounter, []string{LabelResult}}
	// ConfigTime is the time when the active configuration was applied.
	ConfigTime = Metric{"weft_config_applied_timestamp_seconds", "When the running configuration was applied, in seconds since 1970.",
		KindGauge, nil}
	// Draining is 1 while the process drains.
	Draining = Metric{"weft_draining", "Whether the process is draining: 1 if it is, else 0.",
		KindGauge, nil}
	// Panics counts panics that ended only the request in which they happened.
	Panics = Metric{"weft_panics_total", "Panics that were contained to the request that they happened in. Each is a defect.",
		KindCounter, nil}
	// HTTP2Floods counts connections that Weft closed because of a flood. Its LabelFlood names the
	// limit that was exceeded.
	HTTP2Floods = Metric{"weft_http2_floods_total", "Connections of callers that were ended because they cost too much, by what there was too much of.",
		KindCounter, []string{LabelFlood}}
	// LogDropped counts dropped access log lines. Its LabelLog is the path of the log.
	LogDropped = Metric{"weft_access_log_dropped_total", "Access log lines that were dropped because the log's file was too slow or failed.",
		KindCounter, []string{LabelLog}}
)

// Values of LabelResult.
const (
	ResultApplied  = "applied"
	ResultRejected = "rejected"
)

// Metrics returns the descriptions of all metrics that Weft itself exports, in the order of
// docs/observability.md. Filters add their own.
func Metrics() []Metric {
	var all []Metric
	for _, p := range []places{listenerPlaces(), routePlaces(), clusterPlaces(), hostPlaces()} {
		all = append(all, p.requests.metrics()...)
		all = append(all, p.more...)
	}
	all = append(all, overloadMetrics()...)
	all = append(all, rpcMetrics()...)
	all = append(all, udpMetrics()...)
	all = append(all, xdsMetrics()...)
	all = append(all, discoveryMetrics()...)
	return append(all, ListenerHandshakes, ClusterHandshakes, CertificateReloads, DNSLookups,
		ConfigReloads, ConfigTime, Draining, HTTP2Floods, Panics, LogDropped, buildMetric())
}

// places holds the metrics of one kind of scope.
type places struct {
	requests requestMetrics
	more     []Metric
}

func listenerPlaces() places {
	keys := []string{LabelListener}
	return places{
		requests: newRequestMetrics("the listener", keys, requestNames{nameListenerRequests, nameListenerFailures,
			nameListenerDuration, nameListenerRequestBytes, nameListenerResponseBytes}),
		more: []Metric{
			listenerActive:   {nameListenerActive, "Requests of the listener that are under way.", KindGauge, keys},
			listenerAccepted: {nameListenerAccepted, "Connections that the listener accepted.", KindCounter, keys},
			listenerClosed: {nameListenerClosed, "Accepted connections that have ended, by what ended them.", KindCounter,
				[]string{LabelListener, LabelCause}},
			listenerRefused:     {nameListenerRefused, "Connections closed at once because the listener's max_connections was reached.", KindCounter, keys},
			listenerConnections: {nameListenerConnections, "Connections of the listener that are open.", KindGauge, keys},
			listenerErrors:      {nameListenerErrors, "Times that accepting failed, for want of descriptors or memory.", KindCounter, keys},
		},
	}
}

// Indexes into listenerPlaces().more.
const (
	listenerActive = iota
	listenerAccepted
	listenerClosed
	listenerRefused
	listenerConnections
	listenerErrors
)

func routePlaces() places {
	keys := []string{LabelTable, LabelVirtualHost, LabelRoute}
	return places{requests: newRequestMetrics("the route", keys, requestNames{nameRouteRequests, nameRouteFailures,
		nameRouteDuration, nameRouteRequestBytes, nameRouteResponseBytes})}
}

func clusterPlaces() places {
	keys, limited := []string{LabelCluster}, []string{LabelCluster, LabelPriority, LabelLimit}
	return places{
		requests: newRequestMetrics("the cluster", keys, requestNames{nameClusterRequests, nameClusterFailures,
			nameClusterDuration, nameClusterRequestBytes, nameClusterResponseBytes}),
		more: []Metric{
			clusterActive:      {nameClusterActive, "Requests to the cluster that are under way.", KindGauge, keys},
			clusterOpened:      {nameClusterOpened, "Connections opened to hosts of the cluster.", KindCounter, keys},
			clusterClosed:      {nameClusterClosed, "Connections to hosts of the cluster that have ended.", KindCounter, keys},
			clusterSpent:       {nameClusterSpent, "Connections to hosts of the cluster that took no more requests after max_request_per_conn of them.", KindCounter, keys},
			clusterConnections: {nameClusterConnections, "Connections to hosts of the cluster that are open.", KindGauge, keys},
			clusterUnconnected: {nameClusterUnconnected, "Attempts to connect to a host of the cluster that were refused, failed or timed out.", KindCounter, keys},
			clusterRetries:     {nameClusterRetries, "Attempts beyond a request's first.", KindCounter, keys},
			clusterResent:      {nameClusterResent, "Requests sent again because the pooled connection had gone stale.", KindCounter, keys},
			clusterOverflow: {nameClusterOverflow, "Times that a limit of the cluster's circuit breakers was reached.", KindCounter,
				limited},
			clusterBreakerOpen: {nameClusterBreakerOpen, "1 while a limit of the cluster's circuit breakers that is set is reached, else 0.", KindGauge, limited},
			clusterBreakerLeft: {nameClusterBreakerLeft, "What a limit of the cluster's circuit breakers that is set leaves.", KindGauge, limited},
			clusterHostDown:    {nameClusterHostDown, "Times that a host of the cluster was found to be down.", KindCounter, keys},
			clusterHostUp:      {nameClusterHostUp, "Times that a host of the cluster was found to be up again.", KindCounter, keys},
			clusterChecks:      {nameClusterChecks, "Active health checks of hosts of the cluster that failed.", KindCounter, keys},
			clusterEjections:   {nameClusterEjections, "Times that a host of the cluster was ejected for how it answered.", KindCounter, keys},
			clusterUnejected:   {nameClusterUnejected, "Times that a host of the cluster was not ejected because no more may be out.", KindCounter, keys},
			clusterHedges:      {nameClusterHedges, "Attempts sent beside others of the same request, as hedge_policy says.", KindCounter, keys},
			clusterHedgesWon:   {nameClusterHedgesWon, "Attempts beside others whose answers were the ones that callers got.", KindCounter, keys},
			clusterCancelled:   {nameClusterCancelled, "Attempts whose answers nobody waited for: the caller had left, or another host was first.", KindCounter, keys},
		},
	}
}

// Indexes into clusterPlaces().more.
const (
	clusterActive = iota
	clusterOpened
	clusterClosed
	clusterSpent
	clusterConnections
	clusterUnconnected
	clusterRetries
	clusterResent
	clusterOverflow
	clusterBreakerOpen
	clusterBreakerLeft
	clusterHostDown
	clusterHostUp
	clusterChecks
	clusterEjections
	clusterUnejected
	clusterHedges
	clusterHedgesWon
	clusterCancelled
)

func hostPlaces() places {
	keys := []string{LabelCluster, LabelHost}
	return places{requests: newRequestMetrics("the host", keys, requestNames{nameHostRequests, nameHostFailures,
		nameHostDuration, nameHostRequestBytes, nameHostResponseBytes})}
}

func buildMetric() Metric {
	return Metric{nameBuild, "Always 1; the labels say what runs.", KindGauge, []string{LabelVersion, LabelRevision, LabelGoVersion}}
}
