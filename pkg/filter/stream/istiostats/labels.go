package istiostats

import (
	"cmp"
	"strconv"
	"strings"

	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/protocol/workload"
)

// Indexes of the labels: reporter, source, destination, then the others. Sessions have only the
// labels before index sessionLabels.
const (
	sourceLabels      = 1
	destinationLabels = sourceLabels + sideCount

	labelService          = destinationLabels + sideCount
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

// Indexes of the labels of the source or of the destination, relative to sourceLabels or
// destinationLabels.
const (
	sideWorkload = iota
	sideNamespace
	sidePrincipal
	sideApp
	sideVersion
	sideService
	sideRevision
	sideCluster

	sideCount
)

// labelNames returns the label names by index.
func labelNames() []string {
	names := make([]string, labelCount)
	names[0] = "reporter"
	for i, suffix := range [sideCount]string{
		sideWorkload: "workload", sideNamespace: "workload_namespace", sidePrincipal: "principal", sideApp: "app", sideVersion: "version",
		sideService: "canonical_service", sideRevision: "canonical_revision", sideCluster: "cluster",
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
	overflowLabel = "_other" // value of every label in the series for exchanges and sessions beyond the limit
)

// labelValues returns the label values of exchanges or sessions with key k.
func (s *stats) labelValues(k *key) (values [labelCount]string) {
	peer, ok := workload.Parse(k.peer)
	peerValues := [sideCount]string{
		sideWorkload: peer.Name, sideNamespace: cmp.Or(namespaceOf(k.peerPrincipal), peer.Namespace), sidePrincipal: k.peerPrincipal,
		sideApp: peer.App, sideVersion: peer.Version, sideService: peer.Service, sideCluster: peer.Cluster,
	}
	for i := range peerValues {
		peerValues[i] = cmp.Or(peerValues[i], unknown)
	}
	peerValues[sideRevision] = latest
	if ok {
		peerValues[sideRevision] = cmp.Or(peer.Revision, latest)
	}
	w := &s.Workload
	localValues := [sideCount]string{
		sideWorkload: w.Name, sideNamespace: w.Namespace, sidePrincipal: cmp.Or(k.localPrincipal, unknown),
		sideApp: w.App, sideVersion: w.Version, sideService: w.Service, sideRevision: w.Revision, sideCluster: w.Cluster,
	}
	values[0] = s.Reporter
	if s.Reporter == source {
		copy(values[sourceLabels:], localValues[:])
		copy(values[destinationLabels:], peerValues[:])
		values[labelService], values[labelServiceName] = cmp.Or(k.service, unknown), cmp.Or(k.serviceName, unknown)
		values[labelServiceNamespace], values[labelSecurity] = peerValues[sideNamespace], unknown
	} else {
		copy(values[sourceLabels:], peerValues[:])
		copy(values[destinationLabels:], localValues[:])
		values[labelService], values[labelServiceName] = cmp.Or(k.service, w.Service), cmp.Or(k.serviceName, w.Service)
		values[labelServiceNamespace], values[labelSecurity] = w.Namespace, "none"
		if k.peerPrincipal != "" && k.localPrincipal != "" {
			values[labelSecurity] = "mutual_tls"
		}
	}
	values[labelProtocol], values[labelCode], values[labelFlags] = k.protocol, strconv.Itoa(k.status), k.flags
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
