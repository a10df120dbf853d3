package config

// Bootstrap is what a process is told of its control plane, in the JSON form of
// Envoy's bootstrap. The zero value is no control plane.
type Bootstrap struct {
	Node    []byte // core.v3.Node
	Static  []byte // static_resources
	Dynamic []byte // dynamic_resources; empty: there is no control plane
}
