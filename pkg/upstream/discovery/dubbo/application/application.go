// Package application turns what Dubbo 3 registers into providers: instances of
// applications, and the metadata that say which services those have.
//
//	Fetch      the metadata of an instance's revision: from the registry,   fetch.go
//	           or from the instance itself, by a call over Dubbo            call.go, value.go
//	Services   what a revision provides                                     metadata.go
//	URLs       the providers that an instance is                            metadata.go
//
// It keeps nothing: who asks keeps what he got, by application and revision.
package application

import (
	"encoding/json"
	"strconv"

	"github.com/weft-proxy/weft/pkg/upstream/discovery/dubbo/registry"
)

// The metadata of instances that Weft goes by.
const (
	keyRevision  = "dubbo.metadata.revision"
	keyStorage   = "dubbo.metadata.storage-type"
	keyEndpoints = "dubbo.endpoints"
	keyService   = "dubbo.metadata-service.url-params"

	storedRemotely = "remote"
	noServices     = "0" // the revision of an instance that provides nothing
)

// Revision returns which revision of its application's services an instance has; "": it
// provides nothing, or does not say.
func Revision(i registry.Instance) string {
	if revision := i.Metadata[keyRevision]; revision != noServices {
		return revision
	}
	return ""
}

// portOf returns where an instance speaks a protocol; 0: it does not say.
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

// metadataPort returns where an instance can be asked for its metadata over Dubbo, and for
// which version of the service; 0: nowhere. Dubbo writes the parameters as a map of
// protocols, or as those of the one that there is.
func metadataPort(i registry.Instance) (port uint16, version string) {
	text := []byte(i.Metadata[keyService])
	type parameters struct {
		Port     string `json:"port"`
		Protocol string `json:"protocol"`
		Version  string `json:"version"`
	}
	var one parameters
	var several map[string]parameters
	switch {
	case json.Unmarshal(text, &several) == nil:
		one = several[dubboProtocol]
	case json.Unmarshal(text, &one) != nil || one.Protocol != "" && one.Protocol != dubboProtocol:
		return 0, ""
	}
	n, err := strconv.Atoi(one.Port)
	if err != nil {
		return 0, ""
	}
	if one.Version == "" {
		one.Version = "1.0.0"
	}
	return toPort(n), one.Version
}
