package config

// Drop is a share of a cluster's exchanges that is refused, so that its hosts can do the
// rest.
type Drop struct {
	Category string // why, for counters
	Share    uint32 // of what is left by those before it, in Millionths; above 0
}
