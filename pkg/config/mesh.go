package config

// Mesh is the service mesh metadata of a cluster. Only a control plane sends it; the zero value
// means no metadata.
type Mesh struct {
	Host, Name     string // the service of the hosts: the host name that clients request, and the service name
	External       bool   // the hosts are outside the mesh
	NoPeerMetadata bool   // Weft sends the hosts no peer metadata: see the peer_metadata filter
}
