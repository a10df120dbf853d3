package resource

import (
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"

	"github.com/weft-proxy/weft/pkg/config"
)

// maxHedgedAttempts is the maximum of initial_requests, as in config.json.
const maxHedgedAttempts = 10

// readHedge reads a hedge policy; m may be nil.
func (p fieldReader) readHedge(m *routev3.HedgePolicy, out *config.Forward) {
	if m == nil {
		return
	}
	p.checkFields(m, []string{"initial_requests", "additional_request_chance", "hedge_on_per_try_timeout"}, nil)
	initial := uint32Or(m.GetInitialRequests(), 1)
	if initial < 1 || initial > maxHedgedAttempts {
		p.field("initial_requests").reject("is %d, expected 1 to %d", initial, maxHedgedAttempts)
		return
	}
	h := &config.HedgePolicy{
		InitialRequests:         initial,
		AdditionalRequestChance: p.field("additional_request_chance").readFractionPerMillion(m.GetAdditionalRequestChance()),
		OnPerTryTimeout:         m.GetHedgeOnPerTryTimeout(),
	}
	if h.Enabled() {
		out.Hedge = h
	}
}

// readFractionPerMillion returns a fraction in millionths, at most config.Millionths; 0 if f is
// nil.
func (p fieldReader) readFractionPerMillion(f *typev3.FractionalPercent) uint32 {
	var unit uint32
	switch f.GetDenominator() {
	case typev3.FractionalPercent_HUNDRED:
		unit = config.Millionths / 100
	case typev3.FractionalPercent_TEN_THOUSAND:
		unit = config.Millionths / 10_000
	case typev3.FractionalPercent_MILLION:
		unit = 1
	default:
		p.field("denominator").reject("%v is not supported", f.GetDenominator())
		return 0
	}
	return min(f.GetNumerator(), config.Millionths/unit) * unit
}

// readPriority converts a routing priority, which selects the circuit breakers of a cluster.
func (p fieldReader) readPriority(m corev3.RoutingPriority) config.Priority {
	switch m {
	case corev3.RoutingPriority_DEFAULT:
		return config.DefaultPriority
	case corev3.RoutingPriority_HIGH:
		return config.HighPriority
	}
	p.reject("%v is not supported", m)
	return config.DefaultPriority
}
