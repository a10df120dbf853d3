package config

// HostRules decide which hosts of a cluster a request may go to, where that depends on what
// the request says. Dubbo's condition and tag rules are such. Implementations are immutable,
// safe for concurrent use, and compared by reflect.DeepEqual.
type HostRules interface {
	// Chain returns the rules for the requests that bring these labels, nil for none. It
	// is never nil: where no rules are known for the labels, the chain leaves no host.
	Chain(labels map[string]string) HostChain
}

// HostChain is the rules for the requests that bring the same labels. It counts candidates:
// a host is one of them, or several.
type HostChain interface {
	// Len returns the number of candidates.
	Len() int
	// Select makes allowed the candidates that the call may go to. allowed has room for Len
	// candidates. Select allocates nothing unless a rule asks for an argument.
	Select(call Call, allowed HostSet)
	// Has reports whether a host is one of the candidates of a set.
	Has(allowed HostSet, h *Host) bool
}

// Call is what host rules see of a request; protocol.Exchange implements it.
type Call interface {
	// Attachment returns the value of a header field, or of an RPC attachment, by its
	// exact name: the last value if there are several, which is what a Dubbo provider sees.
	Attachment(name string) (value string, ok bool)
	// Argument returns an argument of an RPC call, counted from 0.
	Argument(index int) (value string, ok bool)
}

// HostSet is a set of candidates, one bit for each.
type HostSet []uint64

const wordBits = 64

// NewHostSet returns an empty set with room for n candidates.
func NewHostSet(n int) HostSet { return make(HostSet, (n+wordBits-1)/wordBits) }

// Has reports whether candidate i is in the set.
func (s HostSet) Has(i int) bool { return s[i/wordBits]&(1<<(i%wordBits)) != 0 }

// Add adds candidate i.
func (s HostSet) Add(i int) { s[i/wordBits] |= 1 << (i % wordBits) }

// Meets reports whether the two sets have a candidate in common.
func (s HostSet) Meets(other HostSet) bool {
	for i, word := range s {
		if word&other[i] != 0 {
			return true
		}
	}
	return false
}

// Keep removes the candidates that are not in other.
func (s HostSet) Keep(other HostSet) {
	for i, word := range other {
		s[i] &= word
	}
}
