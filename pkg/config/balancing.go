package config

import "time"

// Fallback is which hosts an exchange goes to when no subset fits it.
type Fallback uint8

// The fallbacks, in the numbers of config.json.
const (
	NoFallback    Fallback = iota // none: the exchange fails
	AnyEndpoint                   // all hosts
	DefaultSubset                 // those with the labels of Subsets.Default
)

// Subsets divide the hosts of a cluster by their labels (Host.Metadata). An exchange
// that brings the labels of a subset, all of them and no others, goes to its hosts.
type Subsets struct {
	// Selectors are the names of labels that make subsets: hosts that have all labels
	// of a selector are in the subset of their values. None: there are no subsets, and
	// labels of exchanges count for nothing.
	Selectors [][]string
	Fallback  Fallback
	Default   map[string]string // labels of the hosts of DefaultSubset; empty: all hosts
}

// SlowStart gives less to hosts that are new, or have come back. Policies that hash
// or have an order do not look at it.
type SlowStart struct {
	Duration   time.Duration // how long; 0: there is no slow start
	Aggression float64       // the share grows with (age/Duration)^(1/Aggression); 0 means 1
	MinPercent float64       // of its weight that a host has at least
}

// Failover says when exchanges leave the hosts that they should go to.
type Failover struct {
	// Overprovisioning is how many times the work of its hosts a priority, or a
	// locality, can do; 0 means 1.4: it gets all of its work while 72 % of its hosts
	// are healthy.
	Overprovisioning float64
	// PanicThreshold is the percentage of healthy hosts below which a priority's health
	// is not believed and all of its hosts are used; 0 means 50, below 0: never.
	PanicThreshold float64
}

// Locality is where a host is.
type Locality struct{ Region, Zone, SubZone string }

// LocalityWeight is the share of a locality in the work of a priority.
type LocalityWeight struct {
	Locality Locality
	Priority uint32
	Weight   uint32 // 0: nothing
}
