package inspect

import (
	"cmp"
	"net/netip"
	"strconv"
	"strings"

	"github.com/weft-proxy/weft/internal/unixaddr"
	"github.com/weft-proxy/weft/pkg/upstream"
	"github.com/weft-proxy/weft/pkg/upstream/hosthealth"
)

// EnvoyClusters is the response body of /clusters?format=json. It has the format of
// envoy.admin.v3.Clusters, for Envoy's tools.
type EnvoyClusters struct {
	Clusters []EnvoyCluster `json:"cluster_statuses"`
}

// EnvoyCluster is a cluster in the shape of envoy.admin.v3.ClusterStatus.
type EnvoyCluster struct {
	Name  string      `json:"name"`
	Added bool        `json:"added_via_api"` // false: the configuration file defines the cluster
	Hosts []EnvoyHost `json:"host_statuses,omitempty"`
}

// EnvoyHost is a host in the shape of envoy.admin.v3.HostStatus.
type EnvoyHost struct {
	Address  EnvoyAddress   `json:"address"`
	Stats    []EnvoyMetric  `json:"stats"`
	Health   EnvoyHealth    `json:"health_status"`
	Weight   uint32         `json:"weight"`
	Hostname string         `json:"hostname,omitempty"`
	Priority uint32         `json:"priority,omitempty"`
	Locality *EnvoyLocality `json:"locality,omitempty"`
}

// EnvoyAddress is an address in the shape of envoy.config.core.v3.Address. One of its fields is
// set.
type EnvoyAddress struct {
	Pipe   *EnvoyPipe          `json:"pipe,omitempty"`
	Socket *EnvoySocketAddress `json:"socket_address,omitempty"`
}

// EnvoyPipe is the path of a unix socket.
type EnvoyPipe struct {
	Path string `json:"path"`
}

// EnvoySocketAddress is an IP address or a host name, with a port.
type EnvoySocketAddress struct {
	Address string `json:"address"`
	Port    uint16 `json:"port_value"`
}

// EnvoyMetric is a counter or a gauge of a host.
type EnvoyMetric struct {
	Type  string `json:"type,omitempty"` // "GAUGE"; "": a counter
	Name  string `json:"name"`
	Value string `json:"value"` // a string, as Protocol Buffers encode 64-bit integers in JSON
}

// EnvoyHealth is the health of a host.
type EnvoyHealth struct {
	FailedCheck bool   `json:"failed_active_health_check,omitempty"`
	Ejected     bool   `json:"failed_outlier_check,omitempty"` // outlier detection ejected the host, or connecting to it failed
	EDS         string `json:"eds_health_status"`              // EDSHealthy, EDSUnhealthy or EDSDraining
}

// The values of EnvoyHealth.EDS: the health that discovery reports.
const (
	EDSHealthy   = "HEALTHY"
	EDSUnhealthy = "UNHEALTHY"
	EDSDraining  = "DRAINING"
)

// EnvoyLocality is the locality of a host.
type EnvoyLocality struct {
	Region  string `json:"region,omitempty"`
	Zone    string `json:"zone,omitempty"`
	SubZone string `json:"sub_zone,omitempty"`
}

// NewEnvoyClusters returns clusters in Envoy's format. fromFile contains the names of the clusters
// that the configuration file defines.
func NewEnvoyClusters(clusters []upstream.ClusterStatus, fromFile map[string]bool) EnvoyClusters {
	out := EnvoyClusters{Clusters: []EnvoyCluster{}}
	for i := range clusters {
		c := EnvoyCluster{Name: clusters[i].Name, Added: !fromFile[clusters[i].Name]}
		for j := range clusters[i].Hosts {
			c.Hosts = append(c.Hosts, newEnvoyHost(&clusters[i].Hosts[j]))
		}
		out.Clusters = append(out.Clusters, c)
	}
	return out
}

func newEnvoyHost(h *upstream.HostStatus) EnvoyHost {
	out := EnvoyHost{Address: newEnvoyAddress(h), Health: newEnvoyHealth(h.DownReasons), Weight: h.Weight, Hostname: h.Hostname, Priority: h.Priority}
	counter := func(name string, value uint64) {
		out.Stats = append(out.Stats, EnvoyMetric{Name: name, Value: strconv.FormatUint(value, 10)})
	}
	gauge := func(name string, value int64) {
		out.Stats = append(out.Stats, EnvoyMetric{"GAUGE", name, strconv.FormatInt(max(value, 0), 10)})
	}
	counter("cx_connect_fail", h.ConnectFailures)
	counter("cx_total", h.Connects)
	counter("rq_error", h.Failures)
	counter("rq_success", h.Attempts-min(h.Attempts, h.Failures+h.Canceled))
	counter("rq_total", h.Attempts)
	gauge("cx_active", h.Open)
	gauge("rq_active", h.InFlight)
	if region, rest, ok := strings.Cut(h.Locality, "/"); ok {
		zone, subZone, _ := strings.Cut(rest, "/")
		out.Locality = &EnvoyLocality{region, zone, subZone}
	}
	return out
}

func newEnvoyHealth(down hosthealth.Flags) EnvoyHealth {
	out := EnvoyHealth{
		FailedCheck: down.Has(hosthealth.FailedCheck),
		Ejected:     down.Has(hosthealth.Ejected | hosthealth.Unreachable),
		EDS:         EDSHealthy,
	}
	switch {
	case down.Has(hosthealth.ReportedDraining):
		out.EDS = EDSDraining
	case down.Has(hosthealth.ReportedUnhealthy):
		out.EDS = EDSUnhealthy
	}
	return out
}

// newEnvoyAddress returns the address to which Weft connects for a host.
func newEnvoyAddress(h *upstream.HostStatus) EnvoyAddress {
	address := cmp.Or(h.Target, h.Address)
	if addrPort, err := netip.ParseAddrPort(address); err == nil {
		return EnvoyAddress{Socket: &EnvoySocketAddress{addrPort.Addr().String(), addrPort.Port()}}
	}
	if colon := strings.LastIndexByte(address, ':'); colon > 0 && !unixaddr.Is(address) {
		if port, err := strconv.ParseUint(address[colon+1:], 10, 16); err == nil {
			return EnvoyAddress{Socket: &EnvoySocketAddress{address[:colon], uint16(port)}}
		}
	}
	return EnvoyAddress{Pipe: &EnvoyPipe{address}}
}
