package config

// DropOverload is a fraction of a cluster's requests that Weft rejects to reduce the load of the
// hosts.
type DropOverload struct {
	Category   string // reason, for counters
	PerMillion uint32 // of the requests that earlier drops let pass, in Millionths; above 0
}
