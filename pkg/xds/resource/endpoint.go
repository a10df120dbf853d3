package resource

import (
	"math"
	"net/netip"
	"strconv"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"

	"github.com/weft-proxy/weft/pkg/config"
)

// Assignment is what a resource of EndpointType says. Immutable.
type Assignment struct {
	Name       string
	Hosts      []Endpoint
	Localities []config.LocalityWeight
	// Overprovisioning is as in config.Failover; 0: nothing is said.
	Overprovisioning float64
	Drops            []config.Drop
	Ignored          []string
}

// Endpoint is one host.
type Endpoint struct {
	config.Host
	Labels map[string]string // that Socket.Match asks for
}

// The namespaces of an endpoint's metadata that count.
const (
	socketLabels = "envoy.transport_socket_match"
	subsetLabels = "envoy.lb"
)

// mostPriority is the API's.
const mostPriority = 128

// ReadEndpoints reads a serialized ClusterLoadAssignment. The error is Refused.
func ReadEndpoints(body []byte, k Kinds) (*Assignment, error) {
	m := &endpointv3.ClusterLoadAssignment{}
	r := &report{kinds: k}
	p := place{report: r}
	if err := p.unmarshal(body, m); err != nil {
		return nil, err
	}
	a := p.readAssignment(m, false)
	err := r.result()
	a.Ignored = r.ignored
	return a, err
}

func (p place) readAssignment(m *endpointv3.ClusterLoadAssignment, names bool) *Assignment {
	a := &Assignment{Name: m.GetClusterName()}
	p.only(m, []string{"cluster_name", "endpoints", "policy"}, []string{"named_endpoints"})
	if policy := m.GetPolicy(); policy != nil {
		at := p.field("policy")
		at.only(policy, []string{"overprovisioning_factor", "drop_overloads"}, nil)
		if f := policy.GetOverprovisioningFactor(); f != nil && f.GetValue() == 0 {
			at.field("overprovisioning_factor").refuse("is 0, expected at least 1")
		}
		a.Overprovisioning = float64(policy.GetOverprovisioningFactor().GetValue()) / 100
		a.Drops = at.field("drop_overloads").readDrops(policy.GetDropOverloads())
	}
	seen := make(map[string]bool)
	for i, l := range m.GetEndpoints() {
		at := p.field("endpoints").index(i)
		at.only(l, []string{"locality", "lb_endpoints", "load_balancing_weight", "priority"}, []string{"load_balancer_endpoints", "leds_cluster_locality_config"})
		if l.GetPriority() > mostPriority {
			at.field("priority").refuse("is %d, expected at most %d", l.GetPriority(), mostPriority)
		}
		where := config.Locality{Region: l.GetLocality().GetRegion(), Zone: l.GetLocality().GetZone(), SubZone: l.GetLocality().GetSubZone()}
		if l.GetLoadBalancingWeight() != nil {
			a.Localities = append(a.Localities, config.LocalityWeight{Locality: where, Priority: l.GetPriority(), Weight: l.GetLoadBalancingWeight().GetValue()})
		}
		weights := uint64(0)
		for k, e := range l.GetLbEndpoints() {
			h, ok := at.field("lb_endpoints").index(k).readEndpoint(e, names)
			if !ok || seen[h.Address] { // the first counts: a host is its address
				continue
			}
			seen[h.Address] = true
			if weights += uint64(h.Weight); weights > math.MaxUint32 {
				at.field("lb_endpoints").refuse("the sum of the weights is greater than %d", uint32(math.MaxUint32))
				break
			}
			h.Priority, h.Locality = l.GetPriority(), where
			a.Hosts = append(a.Hosts, h)
		}
	}
	return a
}

func (p place) readDrops(list []*endpointv3.ClusterLoadAssignment_Policy_DropOverload) (all []config.Drop) {
	for i, d := range list {
		at := p.index(i)
		if d.GetCategory() == "" {
			at.field("category").refuse("is missing")
		}
		if share := at.field("drop_percentage").millionths(d.GetDropPercentage()); share > 0 {
			all = append(all, config.Drop{Category: d.GetCategory(), Share: share})
		}
	}
	return all
}

// readEndpoint returns a host; ok is false for one that cannot be read.
func (p place) readEndpoint(m *endpointv3.LbEndpoint, names bool) (h Endpoint, ok bool) {
	p.only(m, []string{"endpoint", "health_status", "metadata", "load_balancing_weight"}, []string{"endpoint_name"})
	at := p.field("endpoint")
	at.only(m.GetEndpoint(), []string{"address", "hostname", "health_check_config"}, nil)
	if check := m.GetEndpoint().GetHealthCheckConfig(); check != nil {
		at.field("health_check_config").only(check, nil, []string{"port_value", "address"})
	}
	h.Address, ok = at.field("address").readAddress(m.GetEndpoint().GetAddress(), names)
	if !ok {
		return h, false
	}
	h.Hostname = m.GetEndpoint().GetHostname()
	h.Weight = 1
	if w := m.GetLoadBalancingWeight(); w != nil {
		h.Weight = w.GetValue()
		if h.Weight == 0 {
			p.field("load_balancing_weight").refuse("is 0, expected at least 1")
		}
	}
	h.Metadata = labels(m.GetMetadata().GetFilterMetadata()[subsetLabels])
	h.Labels = labels(m.GetMetadata().GetFilterMetadata()[socketLabels])
	h.Workload = workloadOf(m.GetMetadata())
	h.Health = p.field("health_status").readStatus(m.GetHealthStatus())
	return h, true
}

// readStatus is what health_status means. A host that is degraded is used as others are:
// Envoy would keep it for when these are few.
func (p place) readStatus(s corev3.HealthStatus) config.HostHealth {
	switch s {
	case corev3.HealthStatus_UNKNOWN, corev3.HealthStatus_HEALTHY:
	case corev3.HealthStatus_DEGRADED:
		p.ignore()
	case corev3.HealthStatus_UNHEALTHY, corev3.HealthStatus_TIMEOUT:
		return config.HostUnfit
	case corev3.HealthStatus_DRAINING:
		return config.HostLeaving
	default:
		p.refuse("%v is not supported", s)
	}
	return config.HostFit
}

// readAddress returns an address as the model has it. names says whether it may be a
// name.
func (p place) readAddress(a *corev3.Address, names bool) (address string, ok bool) {
	switch a := a.GetAddress().(type) {
	case *corev3.Address_SocketAddress:
		return p.field("socket_address").readSocketAddress(a.SocketAddress, names)
	case *corev3.Address_Pipe:
		if a.Pipe.GetPath() == "" {
			p.field("pipe").field("path").refuse("is missing")
		}
		return a.Pipe.GetPath(), a.Pipe.GetPath() != ""
	default:
		p.refuse("expected socket_address or pipe")
		return "", false
	}
}

func (p place) readSocketAddress(s *corev3.SocketAddress, names bool) (address string, ok bool) {
	p.only(s, []string{"protocol", "address", "port_value", "named_port"}, []string{"resolver_name", "network_namespace_filepath"})
	if s.GetProtocol() != corev3.SocketAddress_TCP {
		p.field("protocol").refuse("%v is not supported", s.GetProtocol())
		return "", false
	}
	port := s.GetPortValue()
	if port > math.MaxUint16 || s.GetNamedPort() != "" {
		p.refuse("expected a port number in port_value")
		return "", false
	}
	ip, err := netip.ParseAddr(s.GetAddress())
	switch {
	case err == nil:
		return netip.AddrPortFrom(ip, uint16(port)).String(), true
	case names && s.GetAddress() != "":
		return s.GetAddress() + ":" + strconv.FormatUint(uint64(port), 10), true
	}
	p.field("address").refuse("%q is not a valid IP address", s.GetAddress())
	return "", false
}
