// Package hash provides the hashes that choose hosts. They have no seed, so proxies with the same
// hosts select the same host for a request. They do not resist deliberate collisions, with which a
// client could only choose its own host.
package hash

// String returns the hash of s: 64-bit FNV-1a, finalized by Mix.
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

// Mix spreads each bit of h over all bits and maps no two values to the same result. It is the
// finalizer of SplitMix64.
func Mix(h uint64) uint64 {
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	return h ^ h>>31
}

// Nth returns element n of the pseudorandom sequence that h seeds.
func Nth(h, n uint64) uint64 {
	const golden = 0x9e3779b97f4a7c15 // odd; 2^64 divided by the golden ratio
	return Mix(h + n*golden)
}

// Pair returns the hash of a name and its value. The sum of the hashes of several pairs does not
// depend on their order.
func Pair(name, value string) uint64 {
	return Mix(String(name)*3 + String(value))
}
