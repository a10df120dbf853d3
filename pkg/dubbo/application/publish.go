package application

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/weft-proxy/weft/pkg/registry"
)

// ServiceInfo describes a service that an application provides, for its consumers. It is immutable.
// All instances have equal parameters, which contain nothing that depends on a host or a start
// time.
type ServiceInfo struct {
	Service    registry.Service
	Protocol   string
	Path       string
	Parameters map[string]string

	once sync.Once
	port uint16 // the port in text; immutable after once, like text
	text []byte // the JSON that encoded returns for port
}

// LocalInstance is the application instance that provides the services.
type LocalInstance struct {
	Application string
	Host        string
	Port        uint16 // of all services
	Since       time.Time
}

// metadataInfoJSON is org.apache.dubbo.metadata.MetadataInfo.
type metadataInfoJSON struct {
	Application string          `json:"app"`
	Revision    string          `json:"revision"`
	Services    json.RawMessage `json:"services"` // by key
}

// key returns the key by which Dubbo distinguishes services of an application:
// group/interface:version:protocol.
func (s *ServiceInfo) key() string { return s.Service.String() + ":" + s.Protocol }

// encoded returns the service at a port as JSON. It caches the result for the first port: all
// services are encoded again when one of them changes.
func (s *ServiceInfo) encoded(port uint16) []byte {
	marshal := func() []byte {
		return encode(serviceInfoJSON{
			Name: s.Service.Interface, Group: s.Service.Group, Version: s.Service.Version,
			Protocol: s.Protocol, Port: port, Path: s.Path, Params: s.Parameters,
		})
	}
	s.once.Do(func() { s.port, s.text = port, marshal() })
	if s.port != port {
		return marshal()
	}
	return s.text
}

// serviceInfoJSON is MetadataInfo.ServiceInfo as Dubbo writes it, without empty fields.
type serviceInfoJSON struct {
	Name     string            `json:"name"`
	Group    string            `json:"group,omitempty"`
	Version  string            `json:"version,omitempty"`
	Protocol string            `json:"protocol"`
	Port     uint16            `json:"port"`
	Path     string            `json:"path"`
	Params   map[string]string `json:"params"`
}

// endpoint is the port at which an instance serves a protocol.
type endpoint struct {
	Port     uint16 `json:"port"`
	Protocol string `json:"protocol"`
}

const keyTimestamp = "timestamp"

// NewInstanceRegistration returns the registration of an instance and of the services that it
// provides, at least one. The registry stores the metadata (storage-type remote), so that no
// consumer requests it from the process. The revision is a hash of the application and the encoded
// services, so that processes that provide the same services at the same port have the same
// revision.
func NewInstanceRegistration(p LocalInstance, services []*ServiceInfo) *registry.InstanceRegistration {
	ordered := slices.SortedFunc(slices.Values(services), func(a, b *ServiceInfo) int { return cmp.Compare(a.key(), b.key()) })
	object := []byte{'{'}
	var interfaces []string
	var endpoints []endpoint
	for i, s := range ordered {
		if i > 0 {
			object = append(object, ',')
		}
		object = append(append(object, encode(s.key())...), ':')
		object = append(object, s.encoded(p.Port)...)
		interfaces = append(interfaces, s.Service.Interface)
		endpoints = append(endpoints, endpoint{p.Port, s.Protocol})
	}
	object = append(object, '}')
	slices.Sort(interfaces)
	slices.SortFunc(endpoints, func(a, b endpoint) int { return cmp.Compare(a.Protocol, b.Protocol) })
	sum := sha256.Sum256(append(encode(p.Application), object...))
	info := metadataInfoJSON{Application: p.Application, Revision: hex.EncodeToString(sum[:16]), Services: object}
	return &registry.InstanceRegistration{
		Instance: registry.Instance{
			Application: p.Application, Host: p.Host, Port: p.Port, Weight: 1, Healthy: true, Enabled: true,
			Metadata: map[string]string{
				keyRevision:  info.Revision,
				keyStorage:   storageRemote,
				keyEndpoints: string(encode(slices.Compact(endpoints))),
				keyTimestamp: strconv.FormatInt(p.Since.UnixMilli(), 10),
			},
		},
		Revision:     info.Revision,
		MetadataInfo: encode(info),
		Interfaces:   slices.Compact(interfaces),
	}
}

// encode encodes a value as JSON with sorted map keys, so that equal values have equal encodings.
func encode(value any) []byte {
	text, err := json.Marshal(value)
	if err != nil {
		panic(fmt.Sprintf("application: encoding %T as JSON: %v", value, err))
	}
	return text
}
