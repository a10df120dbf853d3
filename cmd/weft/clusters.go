package main

import (
	"net/netip"
	"strconv"
	"strings"

	"github.com/weft-proxy/weft/pkg/upstream"
)

// Types of /clusters?format=json, in the shape of envoy.admin.v3.Clusters for Envoy's tools.

type envoyClusters struct {
	Clusters []envoyCluster `json:"cluster_statuses"`
}

type envoyCluster struct {
	Name  string      `json:"name"`
	Added bool        `json:"added_via_api"` // not in cluster_manager of the file
	Hosts []envoyHost `json:"host_statuses,omitempty"`
}

type envoyHost struct {
	Address  map[string]any `json:"address"`
	Stats    []envoyMetric  `json:"stats"`
	Health   envoyHealth    `json:"health_status"`
	Weight   uint32         `json:"weight"`
	Hostname string         `json:"hostname,omitempty"`
	Priority uint32         `json:"priority,omitempty"`
	Locality *envoyLocality `json:"locality,omitempty"`
}

type envoyMetric struct {
	Type  string `json:"type,omitempty"` // "GAUGE"; "": a counter
	Name  string `json:"name"`
	Value string `json:"value"` // a string, as JSON encodes 64-bit integers
}

type envoyHealth struct {
	Checks  bool   `json:"failed_active_health_check,omitempty"`
	Ejected bool   `json:"failed_outlier_check,omitempty"`
	EDS     string `json:"eds_health_status"`
}

type envoyLocality struct {
	Region  string `json:"region,omitempty"`
	Zone    string `json:"zone,omitempty"`
	SubZone string `json:"sub_zone,omitempty"`
}

// adminEnvoyClusters returns the content of /clusters?format=json.
func (p *process) adminEnvoyClusters() any {
	static := map[string]bool{}
	if s := p.state.Load(); s != nil {
		for _, c := range s.file.Snapshot.Clusters {
			static[c.Name] = true
		}
	}
	return describeForEnvoy(p.server.Clusters().Describe(), static)
}

// describeForEnvoy describes clusters in Envoy's format. static has the names of the file's
// clusters.
func describeForEnvoy(all []upstream.ClusterStatus, static map[string]bool) envoyClusters {
	out := envoyClusters{Clusters: []envoyCluster{}}
	for i := range all {
		c := envoyCluster{Name: all[i].Name, Added: !static[all[i].Name]}
		for j := range all[i].Hosts {
			c.Hosts = append(c.Hosts, hostForEnvoy(&all[i].Hosts[j]))
		}
		out.Clusters = append(out.Clusters, c)
	}
	return out
}

func hostForEnvoy(h *upstream.HostStatus) envoyHost {
	out := envoyHost{Address: addressForEnvoy(h), Weight: h.Weight, Hostname: h.Hostname, Priority: h.Priority}
	counter := func(name string, value uint64) {
		out.Stats = append(out.Stats, envoyMetric{Name: name, Value: strconv.FormatUint(value, 10)})
	}
	gauge := func(name string, value int64) {
		out.Stats = append(out.Stats, envoyMetric{"GAUGE", name, strconv.FormatInt(max(value, 0), 10)})
	}
	counter("cx_connect_fail", h.ConnectFailures)
	counter("cx_total", h.Connects)
	counter("rq_error", h.Failures)
	counter("rq_success", h.Attempts-min(h.Attempts, h.Failures+h.Cancelled))
	counter("rq_total", h.Attempts)
	gauge("cx_active", h.Open)
	gauge("rq_active", h.InFlight)

	out.Health.EDS = "HEALTHY"
	switch {
	case h.DownReasons.Has(upstream.FlagReportedDraining):
		out.Health.EDS = "DRAINING"
	case h.DownReasons.Has(upstream.FlagReportedUnhealthy):
		out.Health.EDS = "UNHEALTHY"
	}
	out.Health.Ejected = h.DownReasons.Has(upstream.FlagEjected | upstream.FlagUnreachable)
	out.Health.Checks = h.DownReasons.Has(upstream.FlagFailedCheck)
	if region, rest, ok := strings.Cut(h.Locality, "/"); ok {
		zone, sub, _ := strings.Cut(rest, "/")
		out.Locality = &envoyLocality{region, zone, sub}
	}
	return out
}

// addressForEnvoy returns the address of a host as an envoy.config.core.v3.Address.
func addressForEnvoy(h *upstream.HostStatus) map[string]any {
	text := h.Address
	if h.Target != "" {
		text = h.Target
	}
	if at, err := netip.ParseAddrPort(text); err == nil {
		return map[string]any{"socket_address": map[string]any{"address": at.Addr().String(), "port_value": at.Port()}}
	}
	if colon := strings.LastIndexByte(text, ':'); colon > 0 && !strings.Contains(text, "/") {
		if port, err := strconv.ParseUint(text[colon+1:], 10, 16); err == nil {
			return map[string]any{"socket_address": map[string]any{"address": text[:colon], "port_value": port}}
		}
	}
	return map[string]any{"pipe": map[string]any{"path": text}}
}
