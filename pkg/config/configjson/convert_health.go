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

// readHealth converts the health checks of c.
func (r *reader) readHealth(j *clusterJSON, c *config.Cluster) {
	if at := j.Node.Get("health_check"); !at.IsDisabled() {
		c.HealthCheck = r.healthCheck(at, j.HealthCheck)
	}
	if at := j.Node.Get("outlier_detection"); at.Exists() {
		c.OutlierDetection = r.outlierDetection(at, j.Outlier, len(c.Hosts))
	}
}

func (r *reader) healthCheck(at document.Node, j *healthCheckJSON) *config.HealthCheck {
	h := &config.HealthCheck{
		Protocol:           config.CheckProtocol(j.Protocol),
		Timeout:            orDefault(j.Timeout, checkTimeout),
		Interval:           orDefault(j.Interval, checkInterval),
		Jitter:             j.IntervalJitter,
		Delay:              r.delay(j.InitialDelay),
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
	r.checkSettings(at, h)
	if timeout := j.Check.HTTP.Timeout; timeout > 0 && isHTTPCheck(h.Protocol) {
		h.Timeout = timeout
	}
	return h
}

// checkSettings warns of settings that the protocol of the check ignores, and reports an
// unsupported protocol.
func (r *reader) checkSettings(at document.Node, h *config.HealthCheck) {
	spoken := config.Protocol(h.Protocol)
	if h.Protocol == config.CheckGRPC {
		spoken = config.HTTP2
	}
	if h.Protocol != "" && h.Protocol != config.CheckTCP && !slices.Contains(r.capabilities.Protocols, spoken) {
		r.report.Unsupported(at.Get("protocol").Or(at), "a health_check of protocol "+string(h.Protocol))
	}
	if service := at.Get("service_name"); !service.IsDisabled() && h.Protocol != config.CheckGRPC {
		r.report.Warnf(service, "service_name has no effect on checks with the protocol %s", h.Protocol)
	}
	request := at.Get("check_config").Get("http_check_config")
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

// delay converts a duration or a number of seconds; absent: 0.
func (r *reader) delay(n document.Node) time.Duration {
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

// orDefault returns v, or instead if v is 0.
func orDefault[T time.Duration | uint32](v, instead T) T {
	if v == 0 {
		return instead
	}
	return v
}

func (r *reader) outlierDetection(at document.Node, j *outlierJSON, hosts int) *config.OutlierDetection {
	o := &config.OutlierDetection{
		Interval:               j.Interval,
		BaseEjectionTime:       j.BaseTime,
		MaxEjectionTime:        j.MaxTime,
		MaxEjectionTimeJitter:  j.TimeJitter,
		MaxEjectionPercent:     j.MaxPercent,
		AlwaysEjectOne:         j.AlwaysEjectOne,
		SplitLocalOriginErrors: j.SplitLocal,
		UnejectOnHealthCheck:   j.CheckReturns,
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
	if most := hosts * o.MaxEjectionPercent / 100; hosts > 0 && most == 0 && !o.AlwaysEjectOne {
		r.report.Warnf(at.Get("max_ejection_percent").Or(at),
			"max_ejection_percent of %d allows no ejection with %d hosts: raise it, or set always_eject_one_host", o.MaxEjectionPercent, hosts)
	}
	if !o.SplitLocalOriginErrors {
		for _, name := range []string{
			"consecutive_local_origin_failure", "enforcing_consecutive_local_origin_failure",
			"enforcing_local_origin_success_rate", "enforcing_failure_percentage_local_origin",
		} {
			if key := at.Get(name); key.Exists() {
				r.report.Warnf(key, "%s has no effect without split_external_local_origin_errors", name)
			}
		}
	}
	return o
}
