package application

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strconv"

	"github.com/weft-proxy/weft/pkg/registry"
)

const dubboProtocol = "dubbo"

// Bounds of a revision.
const (
	MaxMetadata = 4 << 20 // bytes
	maxServices = 1 << 14
)

// MetadataInfo describes what a revision of an application provides. It is immutable.
type MetadataInfo struct {
	application string
	byInterface map[string][]service
}

// service is org.apache.dubbo.metadata.MetadataInfo.ServiceInfo.
type service struct {
	Name     string            `json:"name"`
	Group    string            `json:"group"`
	Version  string            `json:"version"`
	Protocol string            `json:"protocol"`
	Port     int               `json:"port"`
	Path     string            `json:"path"`
	Params   map[string]string `json:"params"`
}

var errInvalidMetadata = errors.New("invalid metadata")

// ParseMetadataInfo parses metadata as registries store them
// (org.apache.dubbo.metadata.MetadataInfo).
func ParseMetadataInfo(text []byte) (*MetadataInfo, error) {
	if len(text) > MaxMetadata {
		return nil, fmt.Errorf("metadata has %d bytes; the maximum is %d", len(text), MaxMetadata)
	}
	var raw struct {
		App      string             `json:"app"`
		Services map[string]service `json:"services"`
	}
	if err := json.Unmarshal(text, &raw); err != nil {
		return nil, fmt.Errorf("%w: %w", errInvalidMetadata, err)
	}
	return newMetadataInfo(raw.App, raw.Services)
}

func newMetadataInfo(application string, services map[string]service) (*MetadataInfo, error) {
	if len(services) > maxServices {
		return nil, fmt.Errorf("metadata has %d services; the maximum is %d", len(services), maxServices)
	}
	info := &MetadataInfo{application: application, byInterface: map[string][]service{}}
	for _, s := range services {
		if s.Name == "" {
			return nil, fmt.Errorf("%w: a service has no name", errInvalidMetadata)
		}
		info.byInterface[s.Name] = append(info.byInterface[s.Name], s)
	}
	return info, nil
}

// Len returns the number of interfaces.
func (m *MetadataInfo) Len() int { return len(m.byInterface) }

// URLs returns the providers of a service at an instance. Their port is the port that the metadata
// of the instance has for the protocol, or else the port of the service, or else the port of the
// instance. Their weight is the weight of the service multiplied by the weight of the instance.
// They are disabled if the instance is disabled or unhealthy.
func (m *MetadataInfo) URLs(i registry.Instance, target registry.Service) (urls []registry.URL) {
	for _, s := range m.byInterface[target.Interface] {
		u := s.url(i)
		if target.Accepts(u) {
			urls = append(urls, u)
		}
	}
	return urls
}

func (s *service) url(i registry.Instance) registry.URL {
	port := portOf(i, s.Protocol)
	if port == 0 {
		port = toPort(s.Port)
	}
	if port == 0 {
		port = i.Port
	}
	params := maps.Clone(s.Params)
	if params == nil {
		params = map[string]string{}
	}
	set := func(key, value string) {
		if value != "" {
			params[key] = value
		}
	}
	set(registry.ParameterInterface, s.Name)
	set(registry.ParameterGroup, s.Group)
	set(registry.ParameterVersion, s.Version)
	set("application", i.Application)
	delete(params, registry.ParameterCategory)
	for _, key := range [...]string{"timestamp", "dubbo.tag"} { // may differ between instances of a revision
		if params[key] == "" {
			set(key, i.Metadata[key])
		}
	}
	if !i.Enabled || !i.Healthy {
		params["disabled"] = "true"
	}
	if i.Weight != 1 {
		params["weight"] = strconv.Itoa(scaleWeight(params["weight"], i.Weight))
	}
	return registry.URL{Protocol: s.Protocol, Host: i.Host, Port: port, Path: s.Path, Parameters: registry.ParametersOf(params)}
}

// scaleWeight multiplies a Dubbo weight by the weight of an instance.
func scaleWeight(text string, factor float64) int {
	const defaultWeight, maxWeight = 100, 1 << 20
	weight, err := strconv.Atoi(text)
	if err != nil {
		weight = defaultWeight
	}
	if factor <= 0 || weight <= 0 {
		return 0
	}
	return int(max(1, min(float64(weight)*factor, maxWeight)))
}
