// Package workload owns how the sidecars of an Istio mesh tell one another which
// workload they stand beside: the fields x-envoy-peer-metadata-id and
// x-envoy-peer-metadata, and what a control plane says of an endpoint. It is pure.
package workload

import (
	"strings"
	"unicode/utf8"
)

// The fields by which sidecars tell who they are.
const (
	FieldID       = "x-envoy-peer-metadata-id" // the node
	FieldMetadata = "x-envoy-peer-metadata"    // its workload: see ParseMetadata
)

// Metadata of exchanges (protocol.Metadata): what the peer_metadata filter has found out,
// for those further in and for who counts. Values are texts: see Parse.
const (
	Namespace     = "istio"
	KeyDownstream = "downstream_peer" // the workload that asks
	KeyUpstream   = "upstream_peer"   // the workload that answered
)

// Workload is what runs behind a sidecar. What is not known is "". Its keys are those that
// filters read it by.
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

// Parse reads a text: what stands between semicolons is Name, Namespace, Service,
// Revision, Cluster, and perhaps App and Version. That of an endpoint ends with Cluster.
// ok is false for what has too few parts.
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

// Text returns what Parse reads, of which Instance and Owner are no part.
func (w *Workload) Text() string {
	return strings.Join([]string{w.Name, w.Namespace, w.Service, w.Revision, w.Cluster, w.App, w.Version}, ";")
}

// maxPartLen is how long a part of a workload may be, in bytes. Names of Kubernetes have
// 253 at most.
const maxPartLen = 256

// validPart returns s if it can be a part of a workload, else "".
func validPart(s string) string {
	if len(s) > maxPartLen || strings.IndexByte(s, ';') >= 0 || !utf8.ValidString(s) {
		return ""
	}
	return s
}
