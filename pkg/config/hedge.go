package config

// HedgePolicy says when a request is sent to several hosts concurrently; the client gets the first
// good response. The zero value disables hedging.
type HedgePolicy struct {
	// InitialRequests is the number of requests sent immediately, including the first; 0 means 1.
	InitialRequests int
	// AdditionalRequestChance is the fraction of requests for which Weft immediately sends one more,
	// in Millionths.
	AdditionalRequestChance uint32
	// OnPerTryTimeout continues an attempt whose per-try timeout has expired and sends another one
	// concurrently, if the retry policy allows one.
	OnPerTryTimeout bool
}

// Millionths is the denominator of AdditionalRequestChance.
const Millionths = 1_000_000

// Enabled reports whether the policy ever sends more than one request concurrently.
func (p *HedgePolicy) Enabled() bool {
	return p != nil && (p.InitialRequests > 1 || p.AdditionalRequestChance > 0 || p.OnPerTryTimeout)
}
