package resource

import (
	"math"
	"net/netip"
	"strconv"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"

	"github.com/weft-proxy/weft/internal/unixaddr"
	"github.com/weft-proxy/weft/pkg/config"
)

// LoadAssignment is the parsed form of an EndpointType resource. Immutable.
type LoadAssignment struct {
	Name       string
	Endpoints  []Endpoint
	Localities []config.LocalityWeight
	// Overprovisioning is the value of config.Failover.Overprovisioning; 0 means not set.
	Overprovisioning float64
	DropOverloads    []config.DropOverload
	Ignored          []string
}

// Endpoint is one host.
type Endpoint struct {
	config.Host
	Labels map[string]string // matched against TransportSocketMatch.Match
}

// These are the metadata namespaces of an endpoint that Weft reads, in addition to istioNamespace.
const (
	transportSocketNamespace = "envoy.transport_socket_match"
	lbNamespace              = "envoy.lb"
)

// maxPriority is the largest priority that the API allows.
const maxPriority = 128

// ReadLoadAssignment parses a serialized ClusterLoadAssignment. The error is a RejectedError.
func ReadLoadAssignment(body []byte, caps Capabilities) (*LoadAssignment, error) {
	m := &endpointv3.ClusterLoadAssignment{}
	r := &report{capabilities: caps}
	p := fieldReader{report: r}
	if err := p.unmarshal(body, m); err != nil {
		return nil, err
	}
	a := p.readAssignment(m, false)
	err := r.rejection()
	a.Ignored = r.ignored
	return a, err
}

func (p fieldReader) readAssignment(m *endpointv3.ClusterLoadAssignment, allowNames bool) *LoadAssignment {
	a := &LoadAssignment{Name: m.GetClusterName()}
	p.checkFields(m, []string{"cluster_name", "endpoints", "policy"}, []string{"named_endpoints"})
	if policy := m.GetPolicy(); policy != nil {
		at := p.field("policy")
		at.checkFields(policy, []string{"overprovisioning_factor", "drop_overloads"}, nil)
		if f := policy.GetOverprovisioningFactor(); f != nil && f.GetValue() == 0 {
			at.field("overprovisioning_factor").reject("is 0, expected at least 1")
		}
		a.Overprovisioning = float64(policy.GetOverprovisioningFactor().GetValue()) / 100
		a.DropOverloads = at.field("drop_overloads").readDrops(policy.GetDropOverloads())
	}
	seen := make(map[string]bool)
	for i, l := range m.GetEndpoints() {
		at := p.field("endpoints").index(i)
		at.checkFields(l, []string{"locality", "lb_endpoints", "load_balancing_weight", "priority"}, []string{"load_balancer_endpoints", "leds_cluster_locality_config"})
		if l.GetPriority() > maxPriority {
			at.field("priority").reject("is %d, expected at most %d", l.GetPriority(), maxPriority)
		}
		locality := config.Locality{Region: l.GetLocality().GetRegion(), Zone: l.GetLocality().GetZone(), SubZone: l.GetLocality().GetSubZone()}
		if l.GetLoadBalancingWeight() != nil {
			a.Localities = append(a.Localities, config.LocalityWeight{Locality: locality, Priority: l.GetPriority(), Weight: l.GetLoadBalancingWeight().GetValue()})
		}
		totalWeight := uint64(0)
		for j, e := range l.GetLbEndpoints() {
			h, ok := at.field("lb_endpoints").index(j).readEndpoint(e, allowNames)
			if !ok || seen[h.Address] { // of several endpoints with one address, the first applies
				continue
			}
			seen[h.Address] = true
			if totalWeight += uint64(h.Weight); totalWeight > math.MaxUint32 {
				at.field("lb_endpoints").reject("the sum of the weights is greater than %d", uint32(math.MaxUint32))
				break
			}
			h.Priority, h.Locality = l.GetPriority(), locality
			a.Endpoints = append(a.Endpoints, h)
		}
	}
	return a
}

func (p fieldReader) readDrops(list []*endpointv3.ClusterLoadAssignment_Policy_DropOverload) (drops []config.DropOverload) {
	for i, d := range list {
		at := p.index(i)
		if d.GetCategory() == "" {
			at.field("category").reject("is missing")
		}
		if perMillion := at.field("drop_percentage").readFractionPerMillion(d.GetDropPercentage()); perMillion > 0 {
			drops = append(drops, config.DropOverload{Category: d.GetCategory(), PerMillion: perMillion})
		}
	}
	return drops
}

// readEndpoint returns a host. ok is false if its address is rejected.
func (p fieldReader) readEndpoint(m *endpointv3.LbEndpoint, allowNames bool) (h Endpoint, ok bool) {
	p.checkFields(m, []string{"endpoint", "health_status", "metadata", "load_balancing_weight"}, []string{"endpoint_name"})
	at := p.field("endpoint")
	at.checkFields(m.GetEndpoint(), []string{"address", "hostname", "health_check_config"}, nil)
	if check := m.GetEndpoint().GetHealthCheckConfig(); check != nil {
		at.field("health_check_config").checkFields(check, nil, []string{"port_value", "address"})
	}
	h.Address, ok = at.field("address").readAddress(m.GetEndpoint().GetAddress(), allowNames)
	if !ok {
		return h, false
	}
	h.Hostname = m.GetEndpoint().GetHostname()
	h.Weight = 1
	if w := m.GetLoadBalancingWeight(); w != nil {
		h.Weight = w.GetValue()
		if h.Weight == 0 {
			p.field("load_balancing_weight").reject("is 0, expected at least 1")
		}
	}
	h.Metadata = labels(m.GetMetadata().GetFilterMetadata()[lbNamespace])
	h.Labels = labels(m.GetMetadata().GetFilterMetadata()[transportSocketNamespace])
	h.Workload = workloadText(m.GetMetadata())
	h.Health = p.field("health_status").readHealthStatus(m.GetHealthStatus())
	return h, true
}

// readHealthStatus converts health_status. Weft treats a degraded host as healthy; Envoy uses a
// degraded host only when there are too few healthy hosts.
func (p fieldReader) readHealthStatus(s corev3.HealthStatus) config.HostHealth {
	switch s {
	case corev3.HealthStatus_UNKNOWN, corev3.HealthStatus_HEALTHY:
	case corev3.HealthStatus_DEGRADED:
		p.ignore()
	case corev3.HealthStatus_UNHEALTHY, corev3.HealthStatus_TIMEOUT:
		return config.HostUnhealthy
	case corev3.HealthStatus_DRAINING:
		return config.HostDraining
	default:
		p.reject("%v is not supported", s)
	}
	return config.HostHealthy
}

// readAddress returns an address in the format of package config. allowNames allows host names.
func (p fieldReader) readAddress(a *corev3.Address, allowNames bool) (address string, ok bool) {
	switch a := a.GetAddress().(type) {
	case *corev3.Address_SocketAddress:
		return p.field("socket_address").readSocketAddress(a.SocketAddress, allowNames)
	case *corev3.Address_Pipe:
		path := a.Pipe.GetPath()
		if path == "" {
			p.field("pipe").field("path").reject("is missing")
			return "", false
		}
		return unixaddr.FromPath(path), true
	default:
		p.reject("expected socket_address or pipe")
		return "", false
	}
}

func (p fieldReader) readSocketAddress(s *corev3.SocketAddress, allowNames bool) (address string, ok bool) {
	p.checkFields(s, []string{"protocol", "address", "port_value", "named_port"}, []string{"resolver_name", "network_namespace_filepath"})
	if s.GetProtocol() != corev3.SocketAddress_TCP {
		p.field("protocol").reject("%v is not supported", s.GetProtocol())
		return "", false
	}
	port := s.GetPortValue()
	if port > math.MaxUint16 || s.GetNamedPort() != "" {
		p.reject("expected a port number in port_value")
		return "", false
	}
	ip, err := netip.ParseAddr(s.GetAddress())
	switch {
	case err == nil:
		return netip.AddrPortFrom(ip, uint16(port)).String(), true
	case allowNames && s.GetAddress() != "":
		return s.GetAddress() + ":" + strconv.FormatUint(uint64(port), 10), true
	}
	p.field("address").reject("%q is not a valid IP address", s.GetAddress())
	return "", false
}
