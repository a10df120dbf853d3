package config

import "time"

// Bootstrap is what a process is told of its control plane, in the JSON form of
// Envoy's bootstrap. The zero value is no control plane.
type Bootstrap struct {
	Node      []byte // core.v3.Node
	Static    []byte // static_resources
	Dynamic   []byte // dynamic_resources; empty: there is no control plane
	Runtime   []byte // layered_runtime
	LoadStats []byte // cluster_manager.load_stats_config; empty: nobody is told of load
	Cache     ControlPlaneCache
	Lazy      ControlPlaneLazy
	Unknown   UnknownFields
	// StatusAddress is where tools may ask for what came from there, by
	// ClientStatusDiscoveryService: ip:port of this machine alone, or the path of a unix
	// socket; "": nowhere.
	StatusAddress string
}

// ControlPlaneCache is where what a control plane said is kept, for a start while it is
// away. The zero value is nowhere.
type ControlPlaneCache struct {
	Path string // of a directory of its own; "": nothing is kept
	// MaxAge is how old it may be when it is used; 0: of any age.
	MaxAge time.Duration
}

// UnknownFields says what becomes of a resource of a control plane that has a field which the
// build's version of Envoy's API does not have.
type UnknownFields uint8

// What becomes of such a resource.
const (
	RejectUnknownFields UnknownFields = iota // it is refused
	// WarnUnknownFields: it is accepted without the field, unless the field is in a message
	// that decides who may connect or which requests pass.
	WarnUnknownFields
)
