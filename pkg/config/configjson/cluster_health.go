package configjson

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/config/document"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// The defaults of an active health check. An explicit 0 means the default too, because generated
// files contain it.
const (
	checkTimeout   = time.Second
	checkInterval  = 15 * time.Second
	checkThreshold = 1
)

type healthCheckJSON struct {
	Protocol           string        `key:"protocol" doc:"Protocol of the check: a connect (TCP), a request (Http1, Http2), a request of the gRPC health protocol (gRPC), or a heartbeat (dubbo, bolt, boltv2)." enum:"TCP|Http1|Http2|gRPC|dubbo|bolt|boltv2" default:"TCP" example:"\"Http1\""`
	Timeout            time.Duration `key:"timeout" doc:"Timeout of one check, including the connect. 0s: the default." default:"1s" example:"\"2s\""`
	Interval           time.Duration `key:"interval" doc:"Time from the end of a check to the start of the next. 0s: the default." default:"15s" example:"\"5s\""`
	IntervalJitter     time.Duration `key:"interval_jitter" doc:"Maximum random time added to interval." default:"5ms" example:"\"1s\""`
	InitialDelay       document.Node `key:"initial_delay_seconds" doc:"Delay before the first check of a host: a duration, or a number of seconds. The first check sets the state of the host, regardless of the thresholds." accept:"string|number" example:"\"5s\""`
	HealthyThreshold   uint32        `key:"healthy_threshold" doc:"Consecutive passed checks that make a host healthy. 0: the default." unit:"checks" default:"1" example:"2"`
	UnhealthyThreshold uint32        `key:"unhealthy_threshold" doc:"Consecutive failed checks that make a host unhealthy. An unhealthy host gets no requests, except below common_lb_config.healthy_panic_threshold. 0: the default." unit:"checks" default:"1" example:"3"`
	ServiceName        string        `key:"service_name" doc:"gRPC: service name in the check. Absent: the server as a whole." example:"\"shop.Orders\""`
	Check              checkJSON     `key:"check_config" doc:"Settings by protocol."`
}

type checkJSON struct {
	HTTP httpCheckJSON `key:"http_check_config" doc:"Request of Http1 and Http2 checks. gRPC checks use only its port and domain."`
}

type httpCheckJSON struct {
	Port    uint16          `key:"port" doc:"Port of the check, if not the port of the host." example:"8081"`
	Timeout time.Duration   `key:"timeout" doc:"Timeout of one check, instead of health_check.timeout." example:"\"3s\""`
	Path    string          `key:"path" doc:"Path of the request, optionally with a query." default:"/" example:"\"/healthz\""`
	Method  string          `key:"method" doc:"Method of the request." default:"GET" example:"\"HEAD\""`
	Scheme  string          `key:"scheme" doc:"Scheme of the request." ignored:"checks use TLS if requests to the host do" example:"\"http\""`
	Domain  string          `key:"domain" doc:"Authority of the request. Absent: the hostname of the host, else its address." example:"\"shop\""`
	Codes   []codeRangeJSON `key:"codes" doc:"Statuses that pass the check. Absent: 200."`
}

type codeRangeJSON struct {
	Node  document.Node `key:"."`
	Start int           `key:"Start" doc:"First status of the range." min:"100" max:"999" default:"200" example:"300"`
	End   int           `key:"End" doc:"Last status of the range. Absent: Start." min:"100" max:"999" example:"299"`
}

type outlierJSON struct {
	Consecutive5xx     int  `key:"consecutive_5xx" doc:"Consecutive failures that eject a host: responses with status 500 or above (for RPC, the HTTP equivalent), and local failures unless split_external_local_origin_errors counts them separately." unit:"failures" min:"1" default:"5" example:"3"`
	ConsecutiveGateway int  `key:"consecutive_gateway_failure" doc:"Consecutive responses with status 502, 503 or 504 that eject a host." unit:"failures" min:"1" default:"5" example:"3"`
	ConsecutiveLocal   int  `key:"consecutive_local_origin_failure" doc:"Consecutive local failures that eject a host: failed connects, resets, timeouts and malformed responses. Requires split_external_local_origin_errors." unit:"failures" min:"1" default:"5" example:"3"`
	Enforce5xx         int  `key:"enforcing_consecutive_5xx" doc:"Percentage of detections by consecutive_5xx that eject the host." unit:"percent" min:"0" max:"100" default:"100" example:"50"`
	EnforceGateway     int  `key:"enforcing_consecutive_gateway_failure" doc:"Percentage of detections by consecutive_gateway_failure that eject the host." unit:"percent" min:"0" max:"100" default:"0" example:"100"`
	EnforceLocal       int  `key:"enforcing_consecutive_local_origin_failure" doc:"Percentage of detections by consecutive_local_origin_failure that eject the host." unit:"percent" min:"0" max:"100" default:"100" example:"50"`
	SplitLocal         bool `key:"split_external_local_origin_errors" doc:"Count local failures separately from failed responses. false: local failures count as responses with status 502 or 504." default:"false" example:"true"`

	Interval       time.Duration `key:"interval" doc:"Interval of evaluating success rates and failure percentages, and of ending ejections." min:"1ms" default:"10s" example:"\"5s\""`
	BaseTime       time.Duration `key:"base_ejection_time" doc:"Duration of an ejection, multiplied by a number that grows with each ejection of the host. That number falls by one at the end of each interval if the host is not ejected." min:"1ms" default:"30s" example:"\"10s\""`
	MaxTime        time.Duration `key:"max_ejection_time" doc:"Maximum duration of an ejection, if longer than base_ejection_time." min:"1ms" default:"300s" example:"\"60s\""`
	TimeJitter     time.Duration `key:"max_ejection_time_jitter" doc:"Maximum random time added to an ejection." default:"0s" example:"\"1s\""`
	MaxPercent     int           `key:"max_ejection_percent" doc:"Maximum percentage of hosts that may be ejected at the same time, rounded down: 10 % of five hosts is none." unit:"percent" min:"0" max:"100" default:"10" example:"50"`
	AlwaysEjectOne bool          `key:"always_eject_one_host" doc:"Allow one ejected host even if max_ejection_percent allows none." default:"false" example:"true"`
	UnejectOnCheck bool          `key:"successful_active_health_check_uneject_host" doc:"A passed health_check ends the ejection of a host immediately." default:"true" example:"false"`

	SuccessMinHosts     int `key:"success_rate_minimum_hosts" doc:"Minimum number of hosts with success_rate_request_volume; with fewer, success rates are not evaluated." unit:"hosts" min:"1" default:"5" example:"3"`
	SuccessVolume       int `key:"success_rate_request_volume" doc:"Minimum number of requests in an interval for the success rate of a host to be evaluated." unit:"requests" min:"1" default:"100" example:"50"`
	SuccessStdevFactor  int `key:"success_rate_stdev_factor" doc:"Eject hosts whose success rate is below the mean by more than this number of thousandths of the standard deviation." min:"0" default:"1900" example:"1500"`
	EnforceSuccess      int `key:"enforcing_success_rate" doc:"Percentage of detections by success rate that eject the host." unit:"percent" min:"0" max:"100" default:"100" example:"0"`
	EnforceLocalSuccess int `key:"enforcing_local_origin_success_rate" doc:"Percentage of detections by success rate of local failures that eject the host. Requires split_external_local_origin_errors." unit:"percent" min:"0" max:"100" default:"100" example:"0"`

	FailureThreshold    int `key:"failure_percentage_threshold" doc:"Eject hosts whose failure percentage is at least this value." unit:"percent" min:"0" max:"100" default:"85" example:"50"`
	FailureMinHosts     int `key:"failure_percentage_minimum_hosts" doc:"Minimum number of hosts with failure_percentage_request_volume; with fewer, failure percentages are not evaluated." unit:"hosts" min:"1" default:"5" example:"1"`
	FailureVolume       int `key:"failure_percentage_request_volume" doc:"Minimum number of requests in an interval for the failure percentage of a host to be evaluated." unit:"requests" min:"1" default:"50" example:"20"`
	EnforceFailure      int `key:"enforcing_failure_percentage" doc:"Percentage of detections by failure percentage that eject the host." unit:"percent" min:"0" max:"100" default:"0" example:"100"`
	EnforceLocalFailure int `key:"enforcing_failure_percentage_local_origin" doc:"Percentage of detections by failure percentage of local failures that eject the host. Requires split_external_local_origin_errors." unit:"percent" min:"0" max:"100" default:"0" example:"100"`
}

// readHealth converts the health checks and the outlier detection of c.
func (r *clusterReader) readHealth(j *clusterJSON, c *config.Cluster) {
	if node := j.Node.Get("health_check"); !node.IsDisabled() {
		c.HealthCheck = r.readHealthCheck(node, j.HealthCheck)
	}
	if node := j.Node.Get("outlier_detection"); node.Exists() {
		c.OutlierDetection = r.readOutlierDetection(node, j.Outlier, len(c.Hosts))
	}
}

func (r *clusterReader) readHealthCheck(node document.Node, j *healthCheckJSON) *config.HealthCheck {
	h := &config.HealthCheck{
		Protocol:           config.CheckProtocol(j.Protocol),
		Timeout:            orDefault(j.Timeout, checkTimeout),
		Interval:           orDefault(j.Interval, checkInterval),
		Jitter:             j.IntervalJitter,
		Delay:              r.parseDelay(j.InitialDelay),
		HealthyThreshold:   int(orDefault(j.HealthyThreshold, checkThreshold)),
		UnhealthyThreshold: int(orDefault(j.UnhealthyThreshold, checkThreshold)),
		Service:            j.ServiceName,
		HTTP: config.HTTPCheck{
			Port: j.Check.HTTP.Port, Path: j.Check.HTTP.Path, Method: j.Check.HTTP.Method, Authority: j.Check.HTTP.Domain,
		},
	}
	for _, code := range j.Check.HTTP.Codes {
		if code.End == 0 {
			code.End = code.Start
		}
		if code.End < code.Start {
			r.report.Errorf(code.Node, "the end of the range (%d) is less than its start (%d)", code.End, code.Start)
		}
		h.HTTP.ExpectedStatuses = append(h.HTTP.ExpectedStatuses, config.StatusRange{Start: code.Start, End: code.End})
	}
	r.checkHealthSettings(node, h)
	if timeout := j.Check.HTTP.Timeout; timeout > 0 && isHTTPCheck(h.Protocol) {
		h.Timeout = timeout
	}
	return h
}

// checkHealthSettings reports an unsupported protocol and invalid request settings, and warns about
// settings that the protocol of the check ignores.
func (r *clusterReader) checkHealthSettings(node document.Node, h *config.HealthCheck) {
	hostProtocol := config.Protocol(h.Protocol)
	if h.Protocol == config.CheckGRPC {
		hostProtocol = config.HTTP2
	}
	if h.Protocol != "" && h.Protocol != config.CheckTCP && !slices.Contains(r.capabilities.Protocols, hostProtocol) {
		r.report.Unsupported(node.Get("protocol").Or(node), "a health_check of protocol "+string(h.Protocol))
	}
	if service := node.Get("service_name"); !service.IsDisabled() && h.Protocol != config.CheckGRPC {
		r.report.Warnf(service, "service_name has no effect on checks with the protocol %s", h.Protocol)
	}
	request := node.Get("check_config").Get("http_check_config")
	if path := h.HTTP.Path; !strings.HasPrefix(path, "/") || strings.ContainsFunc(path, isForbiddenInTarget) {
		r.report.Expect(request.Get("path"), "a path that begins with \"/\" and contains no spaces")
	}
	if strings.ContainsFunc(h.HTTP.Method, isForbiddenInTarget) {
		r.report.Expect(request.Get("method"), "an HTTP method")
	}
	if domain := h.HTTP.Authority; domain != "" && !protocol.IsAuthority(domain) {
		r.report.Expect(request.Get("domain"), "a host name or an IP address, optionally with a port")
	}
	for member := range request.All() {
		name := member.Key()
		if isHTTPCheck(h.Protocol) || member.IsDisabled() || h.Protocol == config.CheckGRPC && (name == "port" || name == "domain") {
			continue
		}
		r.report.Warnf(member, "%s has no effect on checks with the protocol %s", name, h.Protocol)
	}
}

// isForbiddenInTarget reports whether a character is not allowed in a request target.
func isForbiddenInTarget(c rune) bool { return c <= ' ' || c >= 0x7f }

func isHTTPCheck(p config.CheckProtocol) bool {
	return p == config.CheckHTTP1 || p == config.CheckHTTP2
}

// parseDelay converts a duration or a number of seconds; absent: 0.
func (r *clusterReader) parseDelay(n document.Node) time.Duration {
	var d time.Duration
	switch n.Kind() {
	case document.Number:
		seconds, err := strconv.ParseFloat(n.Text(), 64)
		if d = time.Duration(seconds * float64(time.Second)); err == nil && seconds >= 0 && d >= 0 {
			return d
		}
	case document.String:
		var err error
		if d, err = time.ParseDuration(n.Text()); err == nil && d >= 0 {
			return d
		}
	default:
		return 0
	}
	r.report.Expect(n, `a duration ("5s"), or a number of seconds`)
	return 0
}

// orDefault returns v, or fallback if v is 0.
func orDefault[T time.Duration | uint32](v, fallback T) T {
	if v == 0 {
		return fallback
	}
	return v
}

func (r *clusterReader) readOutlierDetection(node document.Node, j *outlierJSON, hosts int) *config.OutlierDetection {
	o := &config.OutlierDetection{
		Interval:               j.Interval,
		BaseEjectionTime:       j.BaseTime,
		MaxEjectionTime:        j.MaxTime,
		MaxEjectionTimeJitter:  j.TimeJitter,
		MaxEjectionPercent:     j.MaxPercent,
		AlwaysEjectOne:         j.AlwaysEjectOne,
		SplitLocalOriginErrors: j.SplitLocal,
		UnejectOnHealthCheck:   j.UnejectOnCheck,
		Consecutive5xx:         config.Consecutive{Failures: j.Consecutive5xx, Enforce: j.Enforce5xx},
		ConsecutiveGateway:     config.Consecutive{Failures: j.ConsecutiveGateway, Enforce: j.EnforceGateway},
		ConsecutiveLocal:       config.Consecutive{Failures: j.ConsecutiveLocal, Enforce: j.EnforceLocal},
		SuccessRate: config.SuccessRate{
			MinHosts: j.SuccessMinHosts, RequestVolume: j.SuccessVolume, StdevFactor: j.SuccessStdevFactor, Enforce: j.EnforceSuccess,
		},
		EnforceLocalSuccessRate: j.EnforceLocalSuccess,
		FailurePercentage: config.FailurePercentage{
			MinHosts: j.FailureMinHosts, RequestVolume: j.FailureVolume, Threshold: j.FailureThreshold, Enforce: j.EnforceFailure,
		},
		EnforceLocalFailurePercentage: j.EnforceLocalFailure,
	}
	if maxEjected := hosts * o.MaxEjectionPercent / 100; hosts > 0 && maxEjected == 0 && !o.AlwaysEjectOne {
		r.report.Warnf(node.Get("max_ejection_percent").Or(node),
			"max_ejection_percent of %d allows no ejection with %d hosts: raise it, or set always_eject_one_host", o.MaxEjectionPercent, hosts)
	}
	if !o.SplitLocalOriginErrors {
		for _, name := range []string{
			"consecutive_local_origin_failure", "enforcing_consecutive_local_origin_failure",
			"enforcing_local_origin_success_rate", "enforcing_failure_percentage_local_origin",
		} {
			if key := node.Get(name); key.Exists() {
				r.report.Warnf(key, "%s has no effect without split_external_local_origin_errors", name)
			}
		}
	}
	return o
}
