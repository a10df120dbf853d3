package config

import "time"

// SubsetFallback selects the hosts for a request that matches no subset.
type SubsetFallback uint8

// The fallbacks, with the numbers of config.json.
const (
	NoFallback    SubsetFallback = iota // none: the request fails
	AnyEndpoint                         // all hosts
	DefaultSubset                       // the hosts with the labels of Subsets.Default
)

// Subsets divide the hosts of a cluster by their labels (Host.Metadata). A request with exactly the
// labels of a subset goes to the hosts of that subset.
type Subsets struct {
	// Selectors are lists of label names. For each selector, the hosts that have all of its labels
	// form one subset for each combination of values. Empty: there are no subsets, and the labels of
	// requests are ignored.
	Selectors [][]string
	Fallback  SubsetFallback
	Default   map[string]string // labels of the hosts of DefaultSubset; empty: all hosts
}

// SlowStart reduces the load of hosts that are new or have recovered. Policies that hash, and
// RequestRoundRobin, ignore it.
type SlowStart struct {
	Duration         time.Duration // of the slow start; 0: none
	Aggression       float64       // the weight of the host grows with (age/Duration)^(1/Aggression); 0 means 1
	MinWeightPercent float64       // minimum percentage of the weight of the host
}

// Failover says when requests go to other priorities or localities than the preferred ones.
type Failover struct {
	// Overprovisioning is a factor. A priority or a locality takes a part of its load:
	// Overprovisioning times its fraction of healthy hosts, at most 1. 0 means 1.4: a priority
	// takes its entire load while at least 72 % of its hosts are healthy.
	Overprovisioning float64
	// PanicThreshold is the percentage of healthy hosts below which a priority ignores health and
	// uses all of its hosts; 0 means 50; below 0: never.
	PanicThreshold float64
}

// Locality is the location of a host.
type Locality struct{ Region, Zone, SubZone string }

// LocalityWeight is the weight of a locality within a priority.
type LocalityWeight struct {
	Locality Locality
	Priority uint32
	Weight   uint32 // 0: no load
}
