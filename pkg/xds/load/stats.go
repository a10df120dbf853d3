package load

import (
	"cmp"
	"maps"
	"net"
	"slices"
	"strconv"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/weft-proxy/weft/internal/unixaddr"
	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/upstream"
)

// localityKey identifies a locality and priority for which localityStats sums the load of hosts.
type localityKey struct {
	locality config.Locality
	priority uint32
}

func (k localityKey) compare(o localityKey) int {
	return cmp.Or(
		cmp.Compare(k.priority, o.priority), cmp.Compare(k.locality.Region, o.locality.Region),
		cmp.Compare(k.locality.Zone, o.locality.Zone), cmp.Compare(k.locality.SubZone, o.locality.SubZone),
	)
}

// clusterStats converts load to protobuf. services maps cluster names to the EDS service names that
// differ from them. If perEndpoint is true, the result includes the load of each endpoint.
func clusterStats(loads []upstream.ClusterLoad, services map[string]string, perEndpoint bool) []*endpointv3.ClusterStats {
	out := make([]*endpointv3.ClusterStats, 0, len(loads))
	for i := range loads {
		c := &loads[i]
		m := &endpointv3.ClusterStats{
			ClusterName: c.Name, ClusterServiceName: services[c.Name],
			UpstreamLocalityStats: localityStats(c.Hosts, perEndpoint),
			TotalDroppedRequests:  c.Rejected,
			LoadReportInterval:    durationpb.New(c.Interval),
		}
		for _, category := range slices.Sorted(maps.Keys(c.Dropped)) {
			n := c.Dropped[category]
			m.TotalDroppedRequests += n
			m.DroppedRequests = append(m.DroppedRequests, &endpointv3.ClusterStats_DroppedRequests{Category: category, DroppedCount: n})
		}
		out = append(out, m)
	}
	return out
}

// localityStats sums the load of hosts by locality and priority.
func localityStats(hosts []upstream.HostLoad, perEndpoint bool) []*endpointv3.UpstreamLocalityStats {
	sums := map[localityKey]*endpointv3.UpstreamLocalityStats{}
	for i := range hosts {
		h := &hosts[i]
		key := localityKey{h.Locality, h.Priority}
		sum := sums[key]
		if sum == nil {
			sum = &endpointv3.UpstreamLocalityStats{
				Locality: &corev3.Locality{Region: key.locality.Region, Zone: key.locality.Zone, SubZone: key.locality.SubZone},
				Priority: key.priority,
			}
			sums[key] = sum
		}
		sum.TotalIssuedRequests += h.Issued
		sum.TotalSuccessfulRequests += h.Succeeded
		sum.TotalErrorRequests += h.Failed
		sum.TotalRequestsInProgress += h.InFlight
		if perEndpoint {
			sum.UpstreamEndpointStats = append(sum.UpstreamEndpointStats, &endpointv3.UpstreamEndpointStats{
				Address:             addressOf(h.Address),
				TotalIssuedRequests: h.Issued, TotalSuccessfulRequests: h.Succeeded,
				TotalErrorRequests: h.Failed, TotalRequestsInProgress: h.InFlight,
			})
		}
	}
	out := make([]*endpointv3.UpstreamLocalityStats, 0, len(sums))
	for _, key := range slices.SortedFunc(maps.Keys(sums), localityKey.compare) {
		out = append(out, sums[key])
	}
	return out
}

// addressOf converts the address of a host: ip:port, name:port in a DNS cluster, or a unix socket.
func addressOf(text string) *corev3.Address {
	if unixaddr.Is(text) {
		return &corev3.Address{Address: &corev3.Address_Pipe{Pipe: &corev3.Pipe{Path: text}}}
	}
	host, portText, err := net.SplitHostPort(text)
	if err != nil {
		host = text
	}
	port, _ := strconv.ParseUint(portText, 10, 16) // 0 if there is none
	return &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
		Address: host, PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: uint32(port)},
	}}}
}
