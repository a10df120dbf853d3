package config

// HostRules select the hosts of a cluster that a request may go to, based on the content of the
// request. Dubbo's condition and tag rules implement it. Implementations are immutable, safe for
// concurrent use, and compared by reflect.DeepEqual.
type HostRules interface {
	// Chain returns the rules for requests with these labels; nil means no labels. It never returns
	// nil: if no rules exist for the labels, the chain allows no host.
	Chain(labels map[string]string) HostChain
}

// HostChain holds the rules for requests with the same labels. It selects candidates: Dubbo
// providers, of which several can have the address of one host.
type HostChain interface {
	// Len returns the number of candidates.
	Len() int
	// Select sets allowed to the candidates that may get the call. allowed has space for Len
	// candidates. Select does not allocate unless a rule reads an argument.
	Select(call Call, allowed HostSet)
	// Allows reports whether a set contains a candidate of the host.
	Allows(allowed HostSet, h *Host) bool
}

// Call is the part of a request that host rules read; protocol.Exchange implements it.
type Call interface {
	// Attachment returns the value of the header or RPC attachment with exactly this name. If there
	// are several, it returns the last value, which is the one that a Dubbo provider reads.
	Attachment(name string) (value string, ok bool)
	// Argument returns an argument of an RPC call; the first has index 0.
	Argument(index int) (value string, ok bool)
}

// HostSet is a set of candidates, stored as a bit set.
type HostSet []uint64

const wordBits = 64

// NewHostSet returns an empty set with space for n candidates.
func NewHostSet(n int) HostSet { return make(HostSet, (n+wordBits-1)/wordBits) }

// Has reports whether candidate i is in the set.
func (s HostSet) Has(i int) bool { return s[i/wordBits]&(1<<(i%wordBits)) != 0 }

// Add adds candidate i.
func (s HostSet) Add(i int) { s[i/wordBits] |= 1 << (i % wordBits) }

// Intersects reports whether the two sets have a common candidate.
func (s HostSet) Intersects(other HostSet) bool {
	for i, word := range s {
		if word&other[i] != 0 {
			return true
		}
	}
	return false
}

// Intersect removes the candidates that are not in other.
func (s HostSet) Intersect(other HostSet) {
	for i, word := range other {
		s[i] &= word
	}
}
