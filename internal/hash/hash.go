// Package hash owns the hashes that choose hosts. They have no seed: proxies that
// know the same hosts send the same user to the same one. They are not made to
// withstand somebody who looks for collisions, who would only choose a host.
package hash

// String returns the hash of s: FNV-1a of 64 bits, whose last bytes Mix spreads
// over all bits.
func String(s string) uint64 {
	const (
		basis = 0xcbf29ce484222325
		prime = 0x100000001b3
	)
	h := uint64(basis)
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * prime
	}
	return Mix(h)
}

// Mix spreads each bit of h over all bits; no two numbers become the same. It is the
// finalizer of SplitMix64.
func Mix(h uint64) uint64 {
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	return h ^ h>>31
}

// Nth returns number n of the sequence of hashes that h stands for.
func Nth(h, n uint64) uint64 {
	const golden = 0x9e3779b97f4a7c15 // odd: 2^64 divided by the golden ratio
	return Mix(h + n*golden)
}

// Pair returns the hash of a name and its value. Pairs that are summed up make a
// hash that does not depend on their order.
func Pair(name, value string) uint64 {
	return Mix(String(name)*3 + String(value))
}
