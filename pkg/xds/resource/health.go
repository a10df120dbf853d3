package resource

import (
	"encoding/hex"
	"strings"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"

	"github.com/weft-proxy/weft/pkg/config"
)

func (p fieldReader) readHealth(m *clusterv3.Cluster, out *config.Cluster) {
	at := p.field("health_checks")
	for i, h := range m.GetHealthChecks() {
		if i > 0 {
			at.index(i).reject("only one health check is supported")
			break
		}
		out.HealthCheck = at.index(i).readHealthCheck(h, m.GetName())
	}
	if m.GetOutlierDetection() != nil {
		out.OutlierDetection = p.field("outlier_detection").readOutlierDetection(m.GetOutlierDetection())
	}
}

// readHealthCheck reads a health check. cluster is the name of the cluster, the default authority
// of HTTP and gRPC checks.
func (p fieldReader) readHealthCheck(h *corev3.HealthCheck, cluster string) *config.HealthCheck {
	p.checkFields(h, []string{
		"timeout", "interval", "initial_jitter", "interval_jitter", "unhealthy_threshold", "healthy_threshold", "alt_port",
		"http_health_check", "tcp_health_check", "grpc_health_check", "custom_health_check",
	}, []string{"tls_options", "transport_socket_match_criteria"})
	out := &config.HealthCheck{
		Timeout:            p.field("timeout").readDuration(h.GetTimeout(), time.Second),
		Interval:           p.field("interval").readDuration(h.GetInterval(), 15*time.Second),
		Jitter:             p.field("interval_jitter").readDuration(h.GetIntervalJitter(), 0),
		Delay:              p.field("initial_jitter").readDuration(h.GetInitialJitter(), 0),
		HealthyThreshold:   max(1, uint32Or(h.GetHealthyThreshold(), 1)),
		UnhealthyThreshold: max(1, uint32Or(h.GetUnhealthyThreshold(), 1)),
	}
	if out.Timeout <= 0 || out.Interval <= 0 {
		p.reject("timeout and interval must be greater than 0")
	}
	if port := h.GetAltPort().GetValue(); port != 0 {
		out.HTTP.Port = uint16(port) //nolint:gosec // checked next
		if port > 1<<16-1 {
			p.field("alt_port").reject("is %d, expected a port", port)
		}
	}
	switch c := h.GetHealthChecker().(type) {
	case *corev3.HealthCheck_HttpHealthCheck_:
		p.field("http_health_check").readHTTPCheck(c.HttpHealthCheck, out)
	case *corev3.HealthCheck_GrpcHealthCheck_:
		out.Protocol = config.CheckGRPC
		out.Service = c.GrpcHealthCheck.GetServiceName()
		out.HTTP.Authority = c.GrpcHealthCheck.GetAuthority()
		p.field("grpc_health_check").checkFields(c.GrpcHealthCheck, []string{"service_name", "authority"}, nil)
	case *corev3.HealthCheck_TcpHealthCheck_:
		out.Protocol = config.CheckTCP
		p.field("tcp_health_check").readTCPCheck(c.TcpHealthCheck, &out.TCP)
	default:
		p.rejectOneof(h, "health_checker", "http_health_check", "tcp_health_check", "grpc_health_check")
	}
	if out.HTTP.Authority == "" && out.Protocol != config.CheckTCP {
		out.HTTP.Authority = cluster
	}
	return out
}

// readTCPCheck reads the data of a TCP check. As in Envoy, all other fields have no effect if
// receive contains no data: the check ends when the host accepts the connection.
func (p fieldReader) readTCPCheck(m *corev3.HealthCheck_TcpHealthCheck, out *config.TCPCheck) {
	for i, payload := range m.GetReceive() {
		if data := p.field("receive").index(i).readPayload(payload); data != "" {
			out.Receive = append(out.Receive, data)
		}
	}
	if m.GetSend() != nil {
		out.Send = p.field("send").readPayload(m.GetSend())
	}
	if len(out.Receive) == 0 {
		out.Send = ""
		p.checkFields(m, []string{"receive"}, nil)
		return
	}
	p.checkFields(m, []string{"send", "receive"}, []string{"proxy_protocol_config"})
	if _, binary := m.GetSend().GetPayload().(*corev3.HealthCheck_Payload_Binary); binary {
		out.Send = "" // Envoy sends only text
		p.field("send").field("binary").ignore()
	}
}

// readPayload returns the bytes of a payload. Its text consists of hexadecimal digits.
func (p fieldReader) readPayload(m *corev3.HealthCheck_Payload) string {
	switch payload := m.GetPayload().(type) {
	case *corev3.HealthCheck_Payload_Binary:
		return string(payload.Binary)
	case *corev3.HealthCheck_Payload_Text:
		data, err := hex.DecodeString(payload.Text)
		if err != nil || len(data) == 0 {
			p.field("text").reject("is %q, expected pairs of hexadecimal digits", payload.Text)
		}
		return string(data)
	default:
		p.rejectOneof(m, "payload", "text", "binary")
		return ""
	}
}

// readCheckHeaders reads the headers that a health check adds and removes. It rejects format
// commands in values, because a check has no downstream request.
func (p fieldReader) readCheckHeaders(add []*corev3.HeaderValueOption, remove []string) config.HeaderMutation {
	m := p.readHeaderMutation("request_headers", add, remove)
	for i := range m.Add {
		v := &m.Add[i]
		if strings.Contains(strings.ReplaceAll(v.Value, "%%", ""), "%") {
			p.field("request_headers_to_add").reject("header %s has a format command, which health checks do not support", v.Name)
		}
		v.Value = strings.ReplaceAll(v.Value, "%%", "%")
	}
	return m
}

func (p fieldReader) readHTTPCheck(h *corev3.HealthCheck_HttpHealthCheck, out *config.HealthCheck) {
	p.checkFields(h, []string{
		"host", "path", "expected_statuses", "codec_client_type", "method", "request_headers_to_add", "request_headers_to_remove",
	}, []string{"receive", "service_name_matcher"})
	out.HTTP.HeaderMutation = p.readCheckHeaders(h.GetRequestHeadersToAdd(), h.GetRequestHeadersToRemove())
	switch h.GetCodecClientType() {
	case typev3.CodecClientType_HTTP1:
		out.Protocol = config.CheckHTTP1
	case typev3.CodecClientType_HTTP2:
		out.Protocol = config.CheckHTTP2
	default:
		p.field("codec_client_type").reject("%v is not supported", h.GetCodecClientType())
	}
	out.HTTP.Path, out.HTTP.Authority = h.GetPath(), h.GetHost()
	if h.GetMethod() != corev3.RequestMethod_METHOD_UNSPECIFIED {
		out.HTTP.Method = h.GetMethod().String()
	}
	for i, c := range h.GetExpectedStatuses() {
		if c.GetStart() < 100 || c.GetEnd() <= c.GetStart() || c.GetEnd() > 600 {
			p.field("expected_statuses").index(i).reject("the range from %d to %d (exclusive) is not valid: expected HTTP statuses from 100 to 599", c.GetStart(), c.GetEnd())
			continue
		}
		out.HTTP.ExpectedStatuses = append(out.HTTP.ExpectedStatuses, config.StatusRange{Start: int(c.GetStart()), End: int(c.GetEnd()) - 1})
	}
}

// readOutlierDetection reads outlier detection with Envoy's defaults.
func (p fieldReader) readOutlierDetection(o *clusterv3.OutlierDetection) *config.OutlierDetection {
	percent := func(name string, n int) int {
		if n > 100 {
			p.field(name).reject("is %d, expected at most 100", n)
		}
		return n
	}
	p.checkFields(o, supportedOutlierFields(), nil)
	out := &config.OutlierDetection{
		Interval:               p.field("interval").readDuration(o.GetInterval(), 10*time.Second),
		BaseEjectionTime:       p.field("base_ejection_time").readDuration(o.GetBaseEjectionTime(), 30*time.Second),
		MaxEjectionTime:        p.field("max_ejection_time").readDuration(o.GetMaxEjectionTime(), 300*time.Second),
		MaxEjectionTimeJitter:  p.field("max_ejection_time_jitter").readDuration(o.GetMaxEjectionTimeJitter(), 0),
		MaxEjectionPercent:     percent("max_ejection_percent", uint32Or(o.GetMaxEjectionPercent(), 10)),
		AlwaysEjectOne:         boolOr(o.GetAlwaysEjectOneHost(), false),
		SplitLocalOriginErrors: o.GetSplitExternalLocalOriginErrors(),
		UnejectOnHealthCheck:   boolOr(o.GetSuccessfulActiveHealthCheckUnejectHost(), true),
		Consecutive5xx:         config.Consecutive{Failures: uint32Or(o.GetConsecutive_5Xx(), 5), Enforce: percent("enforcing_consecutive_5xx", uint32Or(o.GetEnforcingConsecutive_5Xx(), 100))},
		ConsecutiveGateway:     config.Consecutive{Failures: uint32Or(o.GetConsecutiveGatewayFailure(), 5), Enforce: percent("enforcing_consecutive_gateway_failure", uint32Or(o.GetEnforcingConsecutiveGatewayFailure(), 0))},
		ConsecutiveLocal:       config.Consecutive{Failures: uint32Or(o.GetConsecutiveLocalOriginFailure(), 5), Enforce: percent("enforcing_consecutive_local_origin_failure", uint32Or(o.GetEnforcingConsecutiveLocalOriginFailure(), 100))},
		SuccessRate: config.SuccessRate{
			MinHosts:      uint32Or(o.GetSuccessRateMinimumHosts(), 5),
			RequestVolume: uint32Or(o.GetSuccessRateRequestVolume(), 100),
			StdevFactor:   uint32Or(o.GetSuccessRateStdevFactor(), 1900),
			Enforce:       percent("enforcing_success_rate", uint32Or(o.GetEnforcingSuccessRate(), 100)),
		},
		EnforceLocalSuccessRate: percent("enforcing_local_origin_success_rate", uint32Or(o.GetEnforcingLocalOriginSuccessRate(), 100)),
		FailurePercentage: config.FailurePercentage{
			MinHosts:      uint32Or(o.GetFailurePercentageMinimumHosts(), 5),
			RequestVolume: uint32Or(o.GetFailurePercentageRequestVolume(), 50),
			Threshold:     percent("failure_percentage_threshold", uint32Or(o.GetFailurePercentageThreshold(), 85)),
			Enforce:       percent("enforcing_failure_percentage", uint32Or(o.GetEnforcingFailurePercentage(), 0)),
		},
		EnforceLocalFailurePercentage: percent("enforcing_failure_percentage_local_origin", uint32Or(o.GetEnforcingFailurePercentageLocalOrigin(), 0)),
	}
	out.MaxEjectionTime = max(out.MaxEjectionTime, out.BaseEjectionTime)
	if out.Interval <= 0 || out.BaseEjectionTime <= 0 {
		p.reject("interval and base_ejection_time must be greater than 0")
	}
	return out
}

func supportedOutlierFields() []string {
	return []string{
		"interval", "base_ejection_time", "max_ejection_time", "max_ejection_time_jitter", "max_ejection_percent", "always_eject_one_host",
		"split_external_local_origin_errors", "successful_active_health_check_uneject_host",
		"consecutive_5xx", "enforcing_consecutive_5xx", "consecutive_gateway_failure", "enforcing_consecutive_gateway_failure",
		"consecutive_local_origin_failure", "enforcing_consecutive_local_origin_failure",
		"success_rate_minimum_hosts", "success_rate_request_volume", "success_rate_stdev_factor", "enforcing_success_rate",
		"enforcing_local_origin_success_rate",
		"failure_percentage_threshold", "failure_percentage_minimum_hosts", "failure_percentage_request_volume",
		"enforcing_failure_percentage", "enforcing_failure_percentage_local_origin",
	}
}
