package config

// Mesh is what a control plane of a service mesh says of a cluster beside where its hosts
// are. It is never configured; the zero value says nothing.
type Mesh struct {
	Host, Name string // the service that the hosts are of: as callers ask for it, and what it is called
	External   bool   // the hosts are outside the mesh
	Silent     bool   // the hosts are not told who asks: see the peer_metadata filter
}
