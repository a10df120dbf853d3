package config

// Drop is a fraction of a cluster's requests that Weft rejects to reduce the load of the hosts.
type Drop struct {
	Category string // reason, for counters
	Share    uint32 // of the requests that earlier drops let pass, in Millionths; above 0
}
