package config

// HedgePolicy says when a request is sent to several hosts at once, of whose answers the
// first good one counts. The zero value: never.
type HedgePolicy struct {
	// InitialRequests is how many requests are sent at once, the first included; 0 means 1.
	InitialRequests int
	// AdditionalChance is how often one more is sent, in parts of a million.
	AdditionalChance uint32
	// OnTryTimeout: a try whose time is up stays, and another is sent beside it, as far
	// as the retry policy allows another.
	OnTryTimeout bool
}

// Millionths is the whole that AdditionalChance is a part of.
const Millionths = 1_000_000

// Hedges reports whether the policy ever sends more than one request at once.
func (p *HedgePolicy) Hedges() bool {
	return p != nil && (p.InitialRequests > 1 || p.AdditionalChance > 0 || p.OnTryTimeout)
}
