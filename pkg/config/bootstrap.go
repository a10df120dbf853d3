package config

import "time"

// Bootstrap configures the connection to the control plane, in the JSON form of Envoy's bootstrap.
// The zero value means no control plane.
type Bootstrap struct {
	Node             []byte // core.v3.Node
	StaticResources  []byte // static_resources
	DynamicResources []byte // dynamic_resources; empty: no control plane
	LayeredRuntime   []byte // layered_runtime
	LoadStats        []byte // cluster_manager.load_stats_config; empty: no load reports
	Cache            XDSCache
	OnDemand         XDSOnDemand
	UnknownFields    UnknownFields
	// CSDSAddress is where tools query the received resources with the ClientStatusDiscoveryService:
	// a loopback ip:port, or the path of a unix socket; "": not served.
	CSDSAddress string
}

// XDSCache configures the xDS cache, which Weft uses when it starts while the control plane is
// unavailable. The zero value disables the cache.
type XDSCache struct {
	Path string // a directory that nothing else uses; "": no cache
	// MaxAge is the maximum age of cached resources; 0: no limit.
	MaxAge time.Duration
}

// UnknownFields says what happens to an xDS resource with a field that the Envoy API version of
// this build does not have.
type UnknownFields uint8

// The policies for unknown fields.
const (
	RejectUnknownFields UnknownFields = iota // reject the resource
	// WarnUnknownFields accepts the resource without the field, unless the field is in a message
	// that decides who may connect or which requests pass.
	WarnUnknownFields
)
