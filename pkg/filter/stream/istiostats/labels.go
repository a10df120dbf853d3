package istiostats

import (
	"cmp"
	"strconv"
	"strings"

	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/protocol/workload"
)

// Indexes of labels: first those of each end, then the others. Only requests have labels from index
// sessionLabels on.
const (
	sourceLabels      = 1
	destinationLabels = sourceLabels + endCount

	labelService          = destinationLabels + endCount
	labelServiceName      = labelService + 1
	labelServiceNamespace = labelService + 2
	labelProtocol         = labelService + 3
	labelFlags            = labelService + 4
	labelSecurity         = labelService + 5
	labelCode             = labelService + 6
	labelStatus           = labelService + 7

	sessionLabels = labelSecurity + 1
	labelCount    = labelStatus + 1
)

// Indexes of the labels of one end, relative to sourceLabels or destinationLabels.
const (
	endWorkload = iota
	endNamespace
	endPrincipal
	endApp
	endVersion
	endService
	endRevision
	endCluster

	endCount
)

// labelNames returns the label names by index.
func labelNames() []string {
	names := make([]string, labelCount)
	names[0] = "reporter"
	for i, suffix := range [endCount]string{
		endWorkload: "workload", endNamespace: "workload_namespace", endPrincipal: "principal", endApp: "app", endVersion: "version",
		endService: "canonical_service", endRevision: "canonical_revision", endCluster: "cluster",
	} {
		names[sourceLabels+i], names[destinationLabels+i] = "source_"+suffix, "destination_"+suffix
	}
	names[labelService], names[labelServiceName], names[labelServiceNamespace] = "destination_service", "destination_service_name", "destination_service_namespace"
	names[labelProtocol], names[labelCode], names[labelStatus] = "request_protocol", "response_code", "grpc_response_status"
	names[labelFlags], names[labelSecurity] = "response_flags", "connection_security_policy"
	return names
}

// Special label values.
const (
	unknown       = "unknown"
	latest        = "latest" // revision of a workload that has none
	overflowLabel = "_other" // value of every label in the series that counts exchanges beyond the limit
)

// labelValues returns the label values of exchanges or sessions with key k.
func (s *stats) labelValues(k *key) (values [labelCount]string) {
	peer, ok := workload.Parse(k.peer)
	peerValues := [endCount]string{
		endWorkload: peer.Name, endNamespace: cmp.Or(namespaceOf(k.peerPrincipal), peer.Namespace), endPrincipal: k.peerPrincipal,
		endApp: peer.App, endVersion: peer.Version, endService: peer.Service, endCluster: peer.Cluster,
	}
	for i := range peerValues {
		peerValues[i] = cmp.Or(peerValues[i], unknown)
	}
	peerValues[endRevision] = latest
	if ok {
		peerValues[endRevision] = cmp.Or(peer.Revision, latest)
	}
	w := &s.Workload
	localValues := [endCount]string{
		endWorkload: w.Name, endNamespace: w.Namespace, endPrincipal: cmp.Or(k.localPrincipal, unknown),
		endApp: w.App, endVersion: w.Version, endService: w.Service, endRevision: w.Revision, endCluster: w.Cluster,
	}
	values[0] = s.Reporter
	if s.Reporter == source {
		copy(values[sourceLabels:], localValues[:])
		copy(values[destinationLabels:], peerValues[:])
		values[labelService], values[labelServiceName] = cmp.Or(k.service, unknown), cmp.Or(k.name, unknown)
		values[labelServiceNamespace], values[labelSecurity] = peerValues[endNamespace], unknown
	} else {
		copy(values[sourceLabels:], peerValues[:])
		copy(values[destinationLabels:], localValues[:])
		values[labelService], values[labelServiceName] = cmp.Or(k.service, w.Service), cmp.Or(k.name, w.Service)
		values[labelServiceNamespace], values[labelSecurity] = w.Namespace, "none"
		if k.peerPrincipal != "" && k.localPrincipal != "" {
			values[labelSecurity] = "mutual_tls"
		}
	}
	values[labelProtocol], values[labelCode], values[labelFlags] = k.protocol, strconv.Itoa(k.status), k.flags.NamesWith(k.reason)
	if k.grpc != protocol.NoCode {
		values[labelStatus] = strconv.Itoa(k.grpc)
	}
	return values
}

// namespaceOf returns the namespace in a SPIFFE ID of Istio,
// spiffe://domain/ns/NAMESPACE/sa/ACCOUNT, or "" if it has none.
func namespaceOf(principal string) string {
	_, rest, _ := strings.Cut(principal, "/ns/")
	namespace, _, _ := strings.Cut(rest, "/")
	return namespace
}
