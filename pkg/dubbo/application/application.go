// Package application converts what Dubbo 3 applications register, instances and metadata, to
// providers, and encodes what this process registers.
//
//	Fetch         the metadata of an instance's revision: from the registry,  fetch.go
//	              or from the instance itself, by a call over Dubbo           call.go, hessian.go
//	MetadataInfo  what a revision provides, as provider URLs                  metadata.go
//	              what this process registers                                 publish.go
//
// The package caches no metadata: the caller caches results by application and revision.
package application

import (
	"encoding/json"
	"strconv"

	"github.com/weft-proxy/weft/pkg/registry"
)

// Metadata keys of instances, and their values.
const (
	keyRevision  = "dubbo.metadata.revision"
	keyStorage   = "dubbo.metadata.storage-type"
	keyEndpoints = "dubbo.endpoints"
	keyService   = "dubbo.metadata-service.url-params"

	storageRemote = "remote"
	emptyRevision = "0" // the revision of an instance that provides nothing
)

// Revision returns the metadata revision of an instance, or "" if the instance provides nothing or
// has no revision.
func Revision(i registry.Instance) string {
	if revision := i.Metadata[keyRevision]; revision != emptyRevision {
		return revision
	}
	return ""
}

// portOf returns the port at which an instance serves a protocol; 0: unknown.
func portOf(i registry.Instance, protocol string) uint16 {
	var endpoints []struct {
		Port     int    `json:"port"`
		Protocol string `json:"protocol"`
	}
	if json.Unmarshal([]byte(i.Metadata[keyEndpoints]), &endpoints) != nil {
		return 0
	}
	for _, e := range endpoints {
		if e.Protocol == protocol {
			return toPort(e.Port)
		}
	}
	return 0
}

func toPort(n int) uint16 {
	if n < 0 || n > 0xffff {
		return 0
	}
	return uint16(n)
}

// metadataPort returns the port and the version of the instance's metadata service over Dubbo; port
// is 0 if there is none. Dubbo writes the parameters as a map by protocol, or as a single object if
// there is only one protocol.
func metadataPort(i registry.Instance) (port uint16, version string) {
	text := []byte(i.Metadata[keyService])
	type parameters struct {
		Port     string `json:"port"`
		Protocol string `json:"protocol"`
		Version  string `json:"version"`
	}
	var single parameters
	var byProtocol map[string]parameters
	switch {
	case json.Unmarshal(text, &byProtocol) == nil:
		single = byProtocol[dubboProtocol]
	case json.Unmarshal(text, &single) != nil || single.Protocol != "" && single.Protocol != dubboProtocol:
		return 0, ""
	}
	n, err := strconv.Atoi(single.Port)
	if err != nil {
		return 0, ""
	}
	if single.Version == "" {
		single.Version = "1.0.0"
	}
	return toPort(n), single.Version
}
