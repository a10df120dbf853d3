package config

import "time"

// Bootstrap is what a process is told of its control plane, in the JSON form of
// Envoy's bootstrap. The zero value is no control plane.
type Bootstrap struct {
	Node    []byte // core.v3.Node
	Static  []byte // static_resources
	Dynamic []byte // dynamic_resources; empty: there is no control plane
	Cache   ControlPlaneCache
}

// ControlPlaneCache is where what a control plane said is kept, for a start while it is
// away. The zero value is nowhere.
type ControlPlaneCache struct {
	Path string // of a directory of its own; "": nothing is kept
	// MaxAge is how old it may be when it is used; 0: of any age.
	MaxAge time.Duration
}
