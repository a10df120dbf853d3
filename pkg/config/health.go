package config

import (
	"slices"
	"time"
)

// CheckProtocol is what an active check speaks to a host.
type CheckProtocol string

// The protocols of checks.
const (
	CheckTCP    CheckProtocol = "TCP"    // the host takes a connection
	CheckHTTP1  CheckProtocol = "Http1"  // it answers a request with a good status
	CheckHTTP2  CheckProtocol = "Http2"  // the same, over HTTP/2 with prior knowledge
	CheckGRPC   CheckProtocol = "gRPC"   // grpc.health.v1.Health/Check says SERVING
	CheckDubbo  CheckProtocol = "dubbo"  // it answers a heartbeat
	CheckBolt   CheckProtocol = "bolt"   // the same
	CheckBoltV2 CheckProtocol = "boltv2" // the same
)

// HealthCheck is how the hosts of a cluster are asked, time and again, whether
// they can serve. Immutable.
type HealthCheck struct {
	Protocol CheckProtocol

	Timeout  time.Duration // for one check, connecting included; above 0
	Interval time.Duration // from the end of a check to the next one; above 0
	Jitter   time.Duration // most that is added to Interval, at random; 0: nothing
	Delay    time.Duration // before the first check of a host

	// HealthyThreshold and UnhealthyThreshold are how many checks in a row turn a
	// host, 1 at least; the first one decides alone.
	HealthyThreshold, UnhealthyThreshold int

	// Service is what CheckGRPC asks after; "" is the server as a whole.
	Service string
	HTTP    HTTPCheck
}

// HTTPCheck is the request of CheckHTTP1 and CheckHTTP2, and what is a good
// answer to it. CheckGRPC uses Port and Domain.
type HTTPCheck struct {
	Port   uint16 // 0: the host's
	Path   string // "" is "/"
	Method string // "" is GET
	Domain string // authority of the request; "": the host's name, else its address
	Codes  []CodeRange
	// Header changes the fields of the request, those of Remove first. Values are taken as
	// they are: %variables% are not replaced.
	Header HeaderMutation
}

// CodeRange is statuses from Start to End, both included.
type CodeRange struct{ Start, End int }

// Accepts reports whether a status is good: in one of Codes, or 200 if there are
// none.
func (h *HTTPCheck) Accepts(status int) bool {
	if len(h.Codes) == 0 {
		return status == 200
	}
	return slices.ContainsFunc(h.Codes, func(r CodeRange) bool { return r.Start <= status && status <= r.End })
}

// Equal reports whether a and b ask for the same checks. Both may be nil: none.
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
		h.HTTP.Port == other.HTTP.Port &&
		h.HTTP.Path == other.HTTP.Path &&
		h.HTTP.Method == other.HTTP.Method &&
		h.HTTP.Domain == other.HTTP.Domain &&
		slices.Equal(h.HTTP.Codes, other.HTTP.Codes) &&
		slices.Equal(h.HTTP.Header.Add, other.HTTP.Header.Add) &&
		slices.Equal(h.HTTP.Header.Remove, other.HTTP.Header.Remove)
}

// Outlier is when a host is ejected for how it answers, and for how long: passive
// health, after Envoy's outlier detection. A threshold or an enforcement of 0
// switches a detector off. Immutable.
//
// What fails a request is either the host's own answer, of a status of 500 and
// more (of RPC answers the HTTP view, of gRPC what its status maps to), or a
// failure that is seen on this side: connecting, a reset, a timeout, an answer
// that is not the protocol's. With SplitLocal the two are counted apart, else the
// second counts as a gateway failure.
type Outlier struct {
	Interval time.Duration // between two looks at rates; above 0

	// BaseTime times the number of ejections in a row is how long a host is out:
	// MaxTime at most, and Jitter at random on top. Each Interval that it gets
	// through takes one from the number.
	BaseTime, MaxTime, Jitter time.Duration

	MaxPercent int  // of the cluster's hosts that may be out at once; 0 … 100
	MaxHosts   int  // that may be out at once; 0: MaxPercent alone decides
	AlwaysOne  bool // one host may be out, whatever MaxPercent says
	SplitLocal bool
	// CheckReturns: a host that passes an active check returns at once.
	CheckReturns bool

	Consecutive5xx     Consecutive
	ConsecutiveGateway Consecutive // 502, 503 and 504
	ConsecutiveLocal   Consecutive // with SplitLocal

	SuccessRate      SuccessRate
	LocalSuccessRate int // Enforce of the success rate of the failures on this side, with SplitLocal

	FailurePercentage      FailurePercentage
	LocalFailurePercentage int // as LocalSuccessRate

	FailureMultiple FailureMultiple
	// Codes are the statuses that count as failed for rates; empty: 500 and more.
	Codes []int
}

// Consecutive ejects a host after so many failures in a row.
type Consecutive struct {
	Failures int
	Enforce  int // percent of detections that eject
}

// SuccessRate ejects hosts whose share of successes is less than the mean of all
// by StdevFactor/1000 standard deviations. Hosts with less than Volume requests
// in the interval do not take part, and fewer than MinHosts of the others are no
// base for a judgement.
type SuccessRate struct {
	MinHosts    int
	Volume      int
	StdevFactor int
	Enforce     int
}

// FailurePercentage ejects hosts whose share of failures is Threshold percent or
// more; MinHosts and Volume are as of SuccessRate.
type FailurePercentage struct {
	MinHosts  int
	Volume    int
	Threshold int
	Enforce   int
}

// FailureMultiple ejects hosts whose share of failures is Multiple times that of
// all, or more; Volume is as of SuccessRate. It is what the stream filter
// fault_tolerance asks for.
type FailureMultiple struct {
	Multiple float64 // 0: off
	Volume   int
}

// Equal reports whether a and b mean the same. Both may be nil: no detection.
func (o *Outlier) Equal(other *Outlier) bool {
	if o == nil || other == nil {
		return o == other
	}
	return o.Interval == other.Interval &&
		o.BaseTime == other.BaseTime &&
		o.MaxTime == other.MaxTime &&
		o.Jitter == other.Jitter &&
		o.MaxPercent == other.MaxPercent &&
		o.MaxHosts == other.MaxHosts &&
		o.AlwaysOne == other.AlwaysOne &&
		o.SplitLocal == other.SplitLocal &&
		o.CheckReturns == other.CheckReturns &&
		o.Consecutive5xx == other.Consecutive5xx &&
		o.ConsecutiveGateway == other.ConsecutiveGateway &&
		o.ConsecutiveLocal == other.ConsecutiveLocal &&
		o.SuccessRate == other.SuccessRate &&
		o.LocalSuccessRate == other.LocalSuccessRate &&
		o.FailurePercentage == other.FailurePercentage &&
		o.LocalFailurePercentage == other.LocalFailurePercentage &&
		o.FailureMultiple == other.FailureMultiple &&
		slices.Equal(o.Codes, other.Codes)
}
