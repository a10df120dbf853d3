package e2e

import (
	"io"
	"net"
	"net/http"
	"testing"
)

// dnsCluster returns the cluster_type of a cluster with the settings of a DnsCluster.
func dnsCluster(settings object) object {
	return object{"name": "envoy.cluster.dns", "typed_config": object{
		"@type": "type.googleapis.com/envoy.extensions.clusters.dns.v3.DnsCluster"}.with(settings)}
}

// TestEnvoyClusterTypes verifies that requests reach the hosts of clusters with a cluster_type.
func TestEnvoyClusterTypes(t *testing.T) {
	t.Parallel()
	app := startUpstream(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "app") })
	_, port, err := net.SplitHostPort(app.address)
	if err != nil {
		t.Fatal(err)
	}
	named := "localhost:" + port
	front := freeAddress()
	types := map[string]struct {
		address string
		custom  object
	}{
		"dns":         {named, dnsCluster(object{"dns_lookup_family": "V4_ONLY", "respect_dns_ttl": true, "dns_min_refresh_rate": "2s"})},
		"dns-single":  {named, dnsCluster(object{"dns_lookup_family": "V4_ONLY", "all_addresses_in_single_endpoint": true})},
		"strict-dns":  {named, object{"name": "envoy.cluster.strict_dns"}},
		"logical-dns": {named, object{"name": "envoy.cluster.logical_dns"}},
		"static":      {app.address, object{"name": "envoy.cluster.static"}},
	}
	var routes []object
	var clusters list
	for name, c := range types {
		cluster := envoyCluster(name, c.address, object{"cluster_type": c.custom})
		delete(cluster, "type")
		clusters = append(clusters, cluster)
		routes = append(routes, object{"match": object{"path": "/" + name}, "route": object{"cluster": name}})
	}
	startWithEnvoyConfig(t, list{envoyListener(front, nil, list{"*"}, routes...)}, clusters)
	for name := range types {
		if got := sendRequest(t, newClient(t), "GET", "http://"+front+"/"+name, ""); got.status != 200 || got.body != "app" {
			t.Errorf("%s: response %d %q, want 200 and the body of the host", name, got.status, got.body)
		}
	}
}

// TestEnvoyTCPHealthCheckData verifies that a TCP health check distinguishes hosts by the data that
// they send.
func TestEnvoyTCPHealthCheckData(t *testing.T) {
	t.Parallel()
	serve := func(response string) string {
		return startTCPServer(t, func(c net.Conn) {
			request := make([]byte, len("PING"))
			if _, err := io.ReadFull(c, request); err == nil && string(request) == "PING" {
				_, _ = io.WriteString(c, response)
			}
		})
	}
	hosts := map[string]string{serve("+PONG\r\n"): "up", serve("-LOADING\r\n"): "down"}
	var clusters list
	for address := range hosts {
		clusters = append(clusters, envoyCluster(address, address, object{"health_checks": list{object{
			"timeout": "1s", "interval": "0.05s", "no_traffic_interval": "0.05s", "unhealthy_threshold": 1, "healthy_threshold": 1,
			"tcp_health_check": object{"send": object{"text": "50494e47"}, "receive": list{object{"text": "504f4e47"}}},
		}}}))
	}
	w := startWithEnvoyConfig(t, list{envoyListener(freeAddress(), nil, list{"*"})}, clusters)
	for address, want := range hosts {
		eventually(t, "the host "+address+" is "+want, func() bool { return w.hostState(address, address).Health == want })
	}
}
