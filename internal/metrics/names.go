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
	LabelCode        = "code"         // of an RPC response, in the protocol's own numbers; "none" for a one-way request
	LabelStatusClass = "status_class" // "2xx"; "none" for a request without a response
	LabelReason      = "reason"       // name of a protocol.Reason; for UDPDropped, a Drop constant
	LabelCloseReason = "cause"        // name of a network.CloseReason
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

	nameClusterOpened             = "weft_cluster_connections_opened_total"
	nameClusterClosed             = "weft_cluster_connections_closed_total"
	nameClusterMaxRequestsReached = "weft_cluster_connections_max_requests_total"
	nameClusterConnections        = "weft_cluster_connections_active"
	nameClusterConnectFailures    = "weft_cluster_connect_failures_total"
	nameClusterRetries            = "weft_cluster_retries_total"
	nameClusterResent             = "weft_cluster_resent_total"
	nameClusterOverflow           = "weft_cluster_overflow_total"
	nameClusterBreakerOpen        = "weft_cluster_breaker_open"
	nameClusterBreakerRemaining   = "weft_cluster_breaker_remaining"
	nameClusterHostDown           = "weft_cluster_host_down_total"
	nameClusterHostUp             = "weft_cluster_host_up_total"
	nameClusterCheckFailures      = "weft_cluster_health_check_failures_total"
	nameClusterEjections          = "weft_cluster_ejections_total"
	nameClusterEjectionOverflow   = "weft_cluster_ejections_overflow_total"
	nameClusterHedges             = "weft_cluster_hedges_total"
	nameClusterHedgesWon          = "weft_cluster_hedges_won_total"
	nameClusterCanceled           = "weft_cluster_attempts_cancelled_total"

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
	valueNone = "none"
	// valueOther names the scope that all scopes beyond Options.MaxScopes share. For the metrics of
	// Registry.Counter, Func and Histogram, it is the value of every label.
	valueOther    = "_other"
	valueOtherRPC = "other" // the same for RPC methods and codes beyond their limits
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
	ConfigReloads = Metric{"weft_config_reloads_total", "Attempts to apply a configuration, by result.",
		KindCounter, []string{LabelResult}}
	// ConfigTime is the time when the active configuration was applied.
	ConfigTime = Metric{"weft_config_applied_timestamp_seconds", "Unix time when the active configuration was applied.",
		KindGauge, nil}
	// Draining is 1 while the process drains.
	Draining = Metric{"weft_draining", "1 while the process drains, else 0.",
		KindGauge, nil}
	// Panics counts panics that ended only the request in which they happened.
	Panics = Metric{"weft_panics_total", "Panics that ended only the request in which they occurred. Each one is a bug.",
		KindCounter, nil}
	// HTTP2Floods counts connections that Weft closed because of a flood. Its LabelFlood names the
	// limit that was exceeded.
	HTTP2Floods = Metric{"weft_http2_floods_total", "Client connections that were closed because of a flood, by the flood limit that was exceeded.",
		KindCounter, []string{LabelFlood}}
	// HeaderUnderscores counts headers of requests whose names contain an underscore and that Weft
	// rejected or removed. Its LabelResult is ResultRejected or ResultDropped.
	HeaderUnderscores = Metric{"weft_header_underscores_total", "Request headers with an underscore in their name, by result: rejected with their request, or dropped.",
		KindCounter, []string{LabelResult}}
	// LogDropped counts dropped access log lines. Its LabelLog is the path of the log.
	LogDropped = Metric{"weft_access_log_dropped_total", "Access log lines that were dropped because writes to the log file were too slow or failed.",
		KindCounter, []string{LabelLog}}
)

// Values of LabelResult.
const (
	ResultApplied  = "applied"
	ResultRejected = "rejected"
	ResultDropped  = "dropped"
)

// Metrics returns the descriptions of all metrics that Weft itself exports, in the order of
// docs/observability.md. Filters add their own.
func Metrics() []Metric {
	var list []Metric
	for _, p := range []scopeMetrics{listenerMetrics(), routeMetrics(), clusterMetrics(), hostMetrics()} {
		list = append(list, p.requests.metrics()...)
		list = append(list, p.additional...)
	}
	list = append(list, overloadMetrics()...)
	list = append(list, rpcMetrics()...)
	list = append(list, udpMetrics()...)
	list = append(list, xdsMetrics()...)
	list = append(list, discoveryMetrics()...)
	return append(list, ListenerHandshakes, ClusterHandshakes, CertificateReloads, DNSLookups,
		ConfigReloads, ConfigTime, Draining, HTTP2Floods, HeaderUnderscores, Panics, LogDropped, buildMetric())
}

// scopeMetrics holds the metrics of one type of scope.
type scopeMetrics struct {
	requests   requestMetrics
	additional []Metric
}

func listenerMetrics() scopeMetrics {
	keys := []string{LabelListener}
	return scopeMetrics{
		requests: newRequestMetrics("the listener", keys, requestNames{nameListenerRequests, nameListenerFailures,
			nameListenerDuration, nameListenerRequestBytes, nameListenerResponseBytes}),
		additional: []Metric{
			listenerActive:   {nameListenerActive, "Requests of the listener that are in flight.", KindGauge, keys},
			listenerAccepted: {nameListenerAccepted, "Connections that the listener accepted.", KindCounter, keys},
			listenerClosed: {nameListenerClosed, "Accepted connections that were closed, by close reason.", KindCounter,
				[]string{LabelListener, LabelCloseReason}},
			listenerRefused:     {nameListenerRefused, "Connections closed immediately because max_connections of the listener was reached, or because of an overload action.", KindCounter, keys},
			listenerConnections: {nameListenerConnections, "Open connections of the listener.", KindGauge, keys},
			listenerErrors:      {nameListenerErrors, "Failures to accept a connection, for example for lack of file descriptors or memory.", KindCounter, keys},
		},
	}
}

// Indexes into listenerMetrics().additional.
const (
	listenerActive = iota
	listenerAccepted
	listenerClosed
	listenerRefused
	listenerConnections
	listenerErrors
)

func routeMetrics() scopeMetrics {
	keys := []string{LabelTable, LabelVirtualHost, LabelRoute}
	return scopeMetrics{requests: newRequestMetrics("the route", keys, requestNames{nameRouteRequests, nameRouteFailures,
		nameRouteDuration, nameRouteRequestBytes, nameRouteResponseBytes})}
}

func clusterMetrics() scopeMetrics {
	keys, limitKeys := []string{LabelCluster}, []string{LabelCluster, LabelPriority, LabelLimit}
	return scopeMetrics{
		requests: newRequestMetrics("the cluster", keys, requestNames{nameClusterRequests, nameClusterFailures,
			nameClusterDuration, nameClusterRequestBytes, nameClusterResponseBytes}),
		additional: []Metric{
			clusterActive:             {nameClusterActive, "Requests to the cluster that are in flight.", KindGauge, keys},
			clusterOpened:             {nameClusterOpened, "Connections opened to hosts of the cluster.", KindCounter, keys},
			clusterClosed:             {nameClusterClosed, "Connections to hosts of the cluster that were closed.", KindCounter, keys},
			clusterMaxRequestsReached: {nameClusterMaxRequestsReached, "Connections to hosts of the cluster that reached max_request_per_conn.", KindCounter, keys},
			clusterConnections:        {nameClusterConnections, "Open connections to hosts of the cluster.", KindGauge, keys},
			clusterConnectFailures:    {nameClusterConnectFailures, "Attempts to connect to a host of the cluster that were refused, failed or timed out.", KindCounter, keys},
			clusterRetries:            {nameClusterRetries, "Retries: attempts after the first attempt of a request.", KindCounter, keys},
			clusterResent:             {nameClusterResent, "Requests sent again because the host had closed the pooled connection.", KindCounter, keys},
			clusterOverflow: {nameClusterOverflow, "Times that a limit of the cluster's circuit breakers was reached.", KindCounter,
				limitKeys},
			clusterBreakerOpen:      {nameClusterBreakerOpen, "1 while a configured limit of the cluster's circuit breakers is reached, else 0.", KindGauge, limitKeys},
			clusterBreakerRemaining: {nameClusterBreakerRemaining, "Remaining capacity of a configured limit of the cluster's circuit breakers.", KindGauge, limitKeys},
			clusterHostDown:         {nameClusterHostDown, "Transitions of a host of the cluster to down.", KindCounter, keys},
			clusterHostUp:           {nameClusterHostUp, "Transitions of a host of the cluster from down to up.", KindCounter, keys},
			clusterCheckFailures:    {nameClusterCheckFailures, "Failed active health checks of hosts of the cluster.", KindCounter, keys},
			clusterEjections:        {nameClusterEjections, "Ejections of hosts of the cluster by outlier detection.", KindCounter, keys},
			clusterEjectionOverflow: {nameClusterEjectionOverflow, "Ejections that were skipped because the maximum number of hosts of the cluster was ejected.", KindCounter, keys},
			clusterHedges:           {nameClusterHedges, "Hedged attempts: attempts sent concurrently with others of the same request (hedge_policy).", KindCounter, keys},
			clusterHedgesWon:        {nameClusterHedgesWon, "Hedged attempts whose response was sent to the client.", KindCounter, keys},
			clusterCanceled:         {nameClusterCanceled, "Attempts that were canceled because the client disconnected or another host responded first.", KindCounter, keys},
		},
	}
}

// Indexes into clusterMetrics().additional.
const (
	clusterActive = iota
	clusterOpened
	clusterClosed
	clusterMaxRequestsReached
	clusterConnections
	clusterConnectFailures
	clusterRetries
	clusterResent
	clusterOverflow
	clusterBreakerOpen
	clusterBreakerRemaining
	clusterHostDown
	clusterHostUp
	clusterCheckFailures
	clusterEjections
	clusterEjectionOverflow
	clusterHedges
	clusterHedgesWon
	clusterCanceled
)

func hostMetrics() scopeMetrics {
	keys := []string{LabelCluster, LabelHost}
	return scopeMetrics{requests: newRequestMetrics("the host", keys, requestNames{nameHostRequests, nameHostFailures,
		nameHostDuration, nameHostRequestBytes, nameHostResponseBytes})}
}

func buildMetric() Metric {
	return Metric{nameBuild, "Always 1. The labels are the version, the revision and the Go version of the build.", KindGauge, []string{LabelVersion, LabelRevision, LabelGoVersion}}
}
