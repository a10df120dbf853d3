package config

import (
	"slices"
	"time"
)

// CheckProtocol is the protocol of an active health check.
type CheckProtocol string

// The protocols of health checks, each with the condition that makes a check pass.
const (
	CheckTCP    CheckProtocol = "TCP"    // the host accepts a connection and sends the data of TCPCheck
	CheckHTTP1  CheckProtocol = "Http1"  // the host returns a response with an expected status
	CheckHTTP2  CheckProtocol = "Http2"  // the same, over HTTP/2 with prior knowledge
	CheckGRPC   CheckProtocol = "gRPC"   // grpc.health.v1.Health/Check returns SERVING
	CheckDubbo  CheckProtocol = "dubbo"  // the host responds to a heartbeat
	CheckBolt   CheckProtocol = "bolt"   // the same as CheckDubbo
	CheckBoltV2 CheckProtocol = "boltv2" // the same as CheckDubbo
)

// HealthCheck configures the active health checks of a cluster's hosts. It is immutable.
type HealthCheck struct {
	Protocol CheckProtocol

	Timeout  time.Duration // of one check, including the connect; above 0
	Interval time.Duration // from the end of a check to the start of the next one; above 0
	Jitter   time.Duration // maximum random time added to Interval; 0: none
	Delay    time.Duration // before the first check of a host

	// HealthyThreshold and UnhealthyThreshold are the numbers of consecutive results that change
	// the state of a host; at least 1. The first check of a host changes the state immediately.
	HealthyThreshold, UnhealthyThreshold int

	// Service is the service name in the request of CheckGRPC; "" means the server as a whole.
	Service string
	HTTP    HTTPCheck
	TCP     TCPCheck
}

// TCPCheck configures the data of CheckTCP. Without Receive, Send has no effect.
type TCPCheck struct {
	Send string // bytes that Weft sends
	// Receive are the byte strings that the host must send, in this order. They do not overlap, and
	// other data may precede and follow each of them. None is empty.
	Receive []string
}

// HTTPCheck configures the request of CheckHTTP1 and CheckHTTP2 and the expected statuses.
// CheckGRPC uses Port and Authority only, CheckTCP uses Port only.
type HTTPCheck struct {
	Port             uint16 // 0: the port of the host
	Path             string // "" is "/"
	Method           string // "" is GET
	Authority        string // authority of the request; "": the hostname of the host, or its address if it has none
	ExpectedStatuses []StatusRange
	// HeaderMutation modifies the headers of the request, Remove first. Values are literal: Weft does
	// not replace %variables%.
	HeaderMutation HeaderMutation
}

// StatusRange is a range of statuses from Start to End, inclusive.
type StatusRange struct{ Start, End int }

// Accepts reports whether a status is expected: one of ExpectedStatuses, or 200 if that is empty.
func (h *HTTPCheck) Accepts(status int) bool {
	if len(h.ExpectedStatuses) == 0 {
		return status == 200
	}
	return slices.ContainsFunc(h.ExpectedStatuses, func(r StatusRange) bool { return r.Start <= status && status <= r.End })
}

// Equal reports whether h and other configure the same checks. Either may be nil: no checks.
func (h *HealthCheck) Equal(other *HealthCheck) bool {
	if h == nil || other == nil {
		return h == other
	}
	return h.Protocol == other.Protocol &&
		h.Timeout == other.Timeout &&
		h.Interval == other.Interval &&
		h.Jitter == other.Jitter &&
		h.Delay == other.Delay &&
		h.HealthyThreshold == other.HealthyThreshold &&
		h.UnhealthyThreshold == other.UnhealthyThreshold &&
		h.Service == other.Service &&
		h.TCP.Send == other.TCP.Send &&
		slices.Equal(h.TCP.Receive, other.TCP.Receive) &&
		h.HTTP.Port == other.HTTP.Port &&
		h.HTTP.Path == other.HTTP.Path &&
		h.HTTP.Method == other.HTTP.Method &&
		h.HTTP.Authority == other.HTTP.Authority &&
		slices.Equal(h.HTTP.ExpectedStatuses, other.HTTP.ExpectedStatuses) &&
		slices.Equal(h.HTTP.HeaderMutation.Add, other.HTTP.HeaderMutation.Add) &&
		slices.Equal(h.HTTP.HeaderMutation.Remove, other.HTTP.HeaderMutation.Remove)
}

// OutlierDetection configures passive health checks, like Envoy's outlier detection: when a host is
// ejected because of its responses, and for how long. A threshold or an enforcement of 0 disables a
// detector. It is immutable.
//
// A request fails in one of two ways. The host returns a response with a status of 500 or more (for
// RPC, the HTTP equivalent; for gRPC, the status that grpc-status maps to). Or Weft detects a local
// failure: a failed connect, a reset, a timeout, or a malformed response. With
// SplitLocalOriginErrors the two are counted separately; otherwise a local failure counts as a
// gateway failure.
type OutlierDetection struct {
	Interval time.Duration // between two evaluations of the rates; above 0

	// The duration of an ejection is BaseEjectionTime times a number, limited to MaxEjectionTime,
	// plus a random part of up to MaxEjectionTimeJitter. Each ejection of the host increases the
	// number by one until the limit is reached. The end of each Interval decreases it by one if the
	// host is not ejected.
	BaseEjectionTime, MaxEjectionTime, MaxEjectionTimeJitter time.Duration

	MaxEjectionPercent     int  // maximum percentage of the cluster's hosts that are ejected at the same time; 0 … 100
	MaxEjectedHosts        int  // maximum number of hosts ejected at the same time; 0: only MaxEjectionPercent limits ejections
	AlwaysEjectOne         bool // one host may be ejected even if MaxEjectionPercent allows none
	SplitLocalOriginErrors bool
	// UnejectOnHealthCheck ends the ejection of a host immediately when it passes an active check.
	UnejectOnHealthCheck bool

	Consecutive5xx     Consecutive
	ConsecutiveGateway Consecutive // 502, 503 and 504
	ConsecutiveLocal   Consecutive // local failures, with SplitLocalOriginErrors

	SuccessRate             SuccessRate
	EnforceLocalSuccessRate int // with SplitLocalOriginErrors: SuccessRate.Enforce for local failures

	FailurePercentage             FailurePercentage
	EnforceLocalFailurePercentage int // with SplitLocalOriginErrors: FailurePercentage.Enforce for local failures

	FailureMultiple FailureMultiple
	// FailureStatuses are the statuses that the rates count as failures; empty: 500 and above.
	FailureStatuses []int
}

// Consecutive ejects a host after a number of consecutive failures.
type Consecutive struct {
	Failures int
	Enforce  int // percentage of detections that eject the host
}

// SuccessRate ejects hosts whose success rate is lower than the mean of all hosts by more than
// StdevFactor/1000 standard deviations. It ignores hosts with fewer than RequestVolume requests in
// the interval, and ejects none if fewer than MinHosts hosts remain.
type SuccessRate struct {
	MinHosts      int
	RequestVolume int
	StdevFactor   int
	Enforce       int // percentage of detections that eject the host
}

// FailurePercentage ejects hosts whose failure percentage is at least Threshold. MinHosts,
// RequestVolume and Enforce have the same meaning as in SuccessRate.
type FailurePercentage struct {
	MinHosts      int
	RequestVolume int
	Threshold     int
	Enforce       int
}

// FailureMultiple ejects hosts whose failure rate is at least Multiple times the rate of all hosts.
// RequestVolume has the same meaning as in SuccessRate. The stream filter fault_tolerance uses it.
type FailureMultiple struct {
	Multiple      float64 // 0: off
	RequestVolume int
}

// Equal reports whether o and other configure the same detection. Either may be nil: no detection.
func (o *OutlierDetection) Equal(other *OutlierDetection) bool {
	if o == nil || other == nil {
		return o == other
	}
	return o.Interval == other.Interval &&
		o.BaseEjectionTime == other.BaseEjectionTime &&
		o.MaxEjectionTime == other.MaxEjectionTime &&
		o.MaxEjectionTimeJitter == other.MaxEjectionTimeJitter &&
		o.MaxEjectionPercent == other.MaxEjectionPercent &&
		o.MaxEjectedHosts == other.MaxEjectedHosts &&
		o.AlwaysEjectOne == other.AlwaysEjectOne &&
		o.SplitLocalOriginErrors == other.SplitLocalOriginErrors &&
		o.UnejectOnHealthCheck == other.UnejectOnHealthCheck &&
		o.Consecutive5xx == other.Consecutive5xx &&
		o.ConsecutiveGateway == other.ConsecutiveGateway &&
		o.ConsecutiveLocal == other.ConsecutiveLocal &&
		o.SuccessRate == other.SuccessRate &&
		o.EnforceLocalSuccessRate == other.EnforceLocalSuccessRate &&
		o.FailurePercentage == other.FailurePercentage &&
		o.EnforceLocalFailurePercentage == other.EnforceLocalFailurePercentage &&
		o.FailureMultiple == other.FailureMultiple &&
		slices.Equal(o.FailureStatuses, other.FailureStatuses)
}
