// Package workload parses and formats the identity of workloads in an Istio mesh. Sidecars exchange
// it in the headers x-envoy-peer-metadata-id and x-envoy-peer-metadata, and control planes send it
// in the metadata of endpoints. The package does no I/O.
package workload

import (
	"strings"
	"unicode/utf8"
)

// Headers in which sidecars send their identity.
const (
	FieldID       = "x-envoy-peer-metadata-id" // ID of the node
	FieldMetadata = "x-envoy-peer-metadata"    // workload of the node: see ParseMetadata
)

// Metadata of exchanges (protocol.Metadata) that the peer_metadata filter sets for other filters
// and for metrics. Parse parses the values.
const (
	Namespace     = "istio"
	KeyDownstream = "downstream_peer" // workload of the client
	KeyUpstream   = "upstream_peer"   // workload of the host
)

// Workload identifies the application of a sidecar. Unknown fields are "". Filter configurations
// use the same keys.
type Workload struct {
	Instance  string `key:"instance" doc:"Name of the pod." example:"\"reviews-v1-7d8f-x2z\""`
	Name      string `key:"name" doc:"Workload of the pod, usually a deployment." example:"\"reviews-v1\""`
	Namespace string `key:"namespace" doc:"Namespace of the pod." example:"\"default\""`
	Cluster   string `key:"cluster" doc:"Mesh cluster of the pod." example:"\"Kubernetes\""`
	Service   string `key:"canonical_name" doc:"Canonical service of the pod." example:"\"reviews\""`
	Revision  string `key:"canonical_revision" doc:"Revision of the canonical service." example:"\"v1\""`
	App       string `key:"app" doc:"Value of the label app." example:"\"reviews\""`
	Version   string `key:"version" doc:"Value of the label version." example:"\"v1\""`
	Owner     string `key:"owner" doc:"Owner of the pod, as a URL." example:"\"kubernetes://apis/apps/v1/namespaces/default/deployments/reviews-v1\""`
}

// Parse parses a text whose parts are separated by semicolons: Name, Namespace, Service, Revision,
// Cluster, and optionally App and Version. In the metadata of endpoints, Cluster is the last part.
// ok is false if parts are missing.
func Parse(text string) (w Workload, ok bool) {
	parts := strings.SplitN(text, ";", 8)
	if len(parts) < 5 {
		return w, false
	}
	w = Workload{Name: parts[0], Namespace: parts[1], Service: parts[2], Revision: parts[3], Cluster: parts[4]}
	if len(parts) > 6 {
		w.App, w.Version = parts[5], parts[6]
	}
	return w, true
}

// Text returns the text that Parse parses. It does not contain Instance and Owner.
func (w *Workload) Text() string {
	return strings.Join([]string{w.Name, w.Namespace, w.Service, w.Revision, w.Cluster, w.App, w.Version}, ";")
}

// maxPartLen is the maximum length of a part in bytes. Kubernetes names have at most 253.
const maxPartLen = 256

// validPart returns s if Text can contain it as a part, and otherwise "".
func validPart(s string) string {
	if len(s) > maxPartLen || strings.IndexByte(s, ';') >= 0 || !utf8.ValidString(s) {
		return ""
	}
	return s
}
