package xds

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/weft-proxy/weft/pkg/xds/resource"
	"github.com/weft-proxy/weft/test/netns"
)

// statsConfig returns a stats.PluginConfig like the one that istiod sends when a Telemetry resource
// exists. This one removes a label.
func statsConfig() *anypb.Any {
	const metrics, tagsToRemove = 8, 3
	override := protowire.AppendString(protowire.AppendTag(nil, tagsToRemove, protowire.BytesType), "source_version")
	return &anypb.Any{
		TypeUrl: "type.googleapis.com/stats.PluginConfig",
		Value:   protowire.AppendBytes(protowire.AppendTag(nil, metrics, protowire.BytesType), override),
	}
}

// addIstioStats adds istio.stats to each HTTP connection manager and each TCP proxy chain of the
// capture. The captured mesh did not have it.
func (r *replayServer) addIstioStats() {
	r.t.Helper()
	for _, packed := range r.resources[resource.ListenerType] {
		l := &listenerv3.Listener{}
		if err := packed.UnmarshalTo(l); err != nil {
			r.t.Fatal(err)
		}
		chains := l.GetFilterChains()
		if c := l.GetDefaultFilterChain(); c != nil {
			chains = append(slices.Clone(chains), c)
		}
		for _, c := range chains {
			last := len(c.GetFilters()) - 1
			if last >= 0 && c.GetFilters()[last].GetTypedConfig().MessageIs(&tcpv3.TcpProxy{}) {
				c.Filters = slices.Insert(c.Filters, last, &listenerv3.Filter{Name: "istio.stats", ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: statsConfig()}})
			}
			for _, f := range c.GetFilters() {
				m := &hcmv3.HttpConnectionManager{}
				if !f.GetTypedConfig().MessageIs(m) {
					continue
				}
				if err := f.GetTypedConfig().UnmarshalTo(m); err != nil {
					r.t.Fatal(err)
				}
				m.HttpFilters = slices.Insert(m.HttpFilters, len(m.GetHttpFilters())-1, &hcmv3.HttpFilter{Name: "istio.stats", ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: statsConfig()}})
				f.ConfigType = &listenerv3.Filter_TypedConfig{TypedConfig: mustAny(m)}
			}
		}
		body, err := proto.Marshal(l)
		if err != nil {
			r.t.Fatal(err)
		}
		packed.Value = body
	}
}

// appNode is the node of Istio's bootstrap for the sidecar's own workload.
const appNode = `"node": {"id": "sidecar~10.0.0.2~app-1.default~default.svc.cluster.local", "cluster": "app.default", "metadata": {
  "NAME": "app-1", "NAMESPACE": "default", "WORKLOAD_NAME": "app-v2", "CLUSTER_ID": "Kubernetes", "ISTIO_VERSION": "1.29.0",
  "LABELS": {"app": "app", "version": "v2", "service.istio.io/canonical-name": "app", "service.istio.io/canonical-revision": "v2"}}}`

// clientSidecarConfig is a static configuration of the client's sidecar: it forwards requests at
// 127.0.0.1:2051 to the application, which has a sidecar itself.
const clientSidecarConfig = `{
  "servers": [{
    "default_log_path": "stderr",
    "listeners": [{
      "name": "outbound", "address": "127.0.0.1:2051",
      "filter_chains": [{"filters": [{"type": "proxy", "config": {"downstream_protocol": "Http1", "router_config_name": "all"}}]}],
      "stream_filters": [
        {"type": "peer_metadata", "config": {"upstream_discovery": true, "upstream_propagation": true, "node": "sidecar~web", "workload": %[2]s}},
        {"type": "istio_stats", "config": {"reporter": "source", "workload": %[2]s}}
      ]
    }],
    "routers": [{"router_config_name": "all", "virtual_hosts": [{"name": "all", "domains": ["*"], "routers": [{"match": {"prefix": "/"}, "route": {"cluster_name": "app"}}]}]}]
  }],
  "cluster_manager": {"clusters": [{"name": "app", "hosts": [{"address": "%[1]s:18301"}]}]},
  "admin": {"address": {"socket_address": {"address": "127.0.0.1", "port_value": 9901}}}
}`

const webWorkload = `{"name": "web-v1", "namespace": "default", "cluster": "Kubernetes", "canonical_name": "web", "canonical_revision": "v1", "app": "web", "version": "v1"}`

// newStatsPod returns a pod whose sidecar uses the captured resources of a real istiod with Istio
// metrics, and a client in the pod. It verifies that Weft accepts all resources.
func newStatsPod(t *testing.T) (*pod, *http.Client) {
	p := newPod(t)
	r := newReplayServer(t, capture)
	r.addIstioStats()
	for _, s := range p.ca.secrets("app") {
		r.add(resource.SecretType, mustAny(s))
	}
	r.serve(p.listen("127.0.0.1:18000"))
	boot := bootstrap("DELTA_GRPC", "127.0.0.1:18000", "127.0.0.1:9901")
	startWeft(t, strings.Replace(boot, `"node": {"id": "test-id", "cluster": "test"}`, appNode, 1), p.sidecarNS.Command)
	c := p.client(nil)
	p.checkEventually(c, request{p.address.String() + ":18301", "GET", "/", "app", "", "app"}) // wait until the sidecar listens
	t.Cleanup(func() {
		if _, nacks := r.outcomes(); len(nacks) > 0 {
			t.Errorf("rejected: %v, want none", nacks)
		}
	})
	return p, c
}

// TestIstioRequestMetrics verifies the Istio metrics of a request through two Wefts, of which the
// second uses resources of a real istiod: each identifies the source and the destination.
func TestIstioRequestMetrics(t *testing.T) {
	t.Parallel()
	p, c := newStatsPod(t)
	startWeft(t, fmt.Sprintf(clientSidecarConfig, p.address, webWorkload), p.clientNS.Command)
	p.checkEventually(c, request{"127.0.0.1:2051", "GET", "/", "app", "", "app"})
	p.checkEventually(c, request{"240.240.0.10:9080", "GET", "/api/x", "reviews:9080", "end-user: jason", "reviews v3"}) // over mutual TLS

	sourceLabels := []string{`source_workload="web-v1"`, `source_workload_namespace="default"`, `source_app="web"`, `source_canonical_service="web"`, `source_canonical_revision="v1"`}
	destinationLabels := []string{`destination_workload="app-v2"`, `destination_app="app"`, `destination_version="v2"`, `destination_canonical_service="app"`, `destination_canonical_revision="v2"`, `destination_cluster="Kubernetes"`}
	resultLabels := []string{`request_protocol="http"`, `response_code="200"`, `response_flags="-"`}
	const app, reviews = "app.default.svc.cluster.local", "reviews.default.svc.cluster.local"
	for _, side := range []struct {
		name string
		ns   *netns.Namespace
		want []string
	}{
		{"outbound", p.clientNS, slices.Concat(sourceLabels, destinationLabels, resultLabels, []string{`reporter="source"`, `source_version="v1"`, `connection_security_policy="unknown"`})},
		{"inbound", p.sidecarNS, slices.Concat(sourceLabels, destinationLabels, resultLabels, []string{
			`reporter="destination"`, `source_version=""`, `connection_security_policy="none"`, `destination_service="` + app + `"`, `destination_service_name="` + app + `"`,
		})},
		{"application to a mesh service", p.sidecarNS, slices.Concat(resultLabels, []string{
			`reporter="source"`, `source_workload="app-v2"`, `destination_service="` + reviews + `"`,
			`destination_workload="reviews-2"`, `destination_workload_namespace="default"`, `destination_canonical_service="reviews"`, `destination_canonical_revision="v3"`,
			`destination_principal="spiffe://cluster.local/ns/default/sa/reviews"`, `source_principal="spiffe://cluster.local/ns/default/sa/app"`,
		})},
	} {
		eventually(t, func() string { return p.seriesMismatch(side.ns, side.name, "istio_requests_total", side.want) })
	}
}

// TestIstioConnectionMetrics verifies the Istio metrics of two TCP connections over mutual
// TLS: one to a service of the mesh, and one to the application.
func TestIstioConnectionMetrics(t *testing.T) {
	t.Parallel()
	p, _ := newStatsPod(t)
	p.checkEcho("240.240.0.12:7070", nil, true)
	p.checkEcho(p.address.String()+":18307", p.ca.client("admin"), true)
	const app = "app.default.svc.cluster.local"
	for name, want := range map[string][]string{
		"application to a mesh service": {
			`reporter="source"`, `source_workload="app-v2"`, `source_version=""`, `destination_service="` + app + `"`, `destination_workload_namespace="default"`, `connection_security_policy="unknown"`,
			`source_principal="spiffe://cluster.local/ns/default/sa/app"`, `destination_principal="spiffe://cluster.local/ns/default/sa/app"`,
		},
		"other workload to the application": {
			`reporter="destination"`, `destination_workload="app-v2"`, `destination_service="` + app + `"`, `source_workload="unknown"`, `connection_security_policy="mutual_tls"`,
			`source_principal="spiffe://cluster.local/ns/default/sa/admin"`, `destination_principal="spiffe://cluster.local/ns/default/sa/app"`,
		},
	} {
		want = append(want, `request_protocol="tcp"`, `response_flags="-"`)
		for metric, value := range map[string]string{"connections_opened": "1", "connections_closed": "1", "sent_bytes": "4", "received_bytes": "4"} {
			eventually(t, func() string {
				return p.seriesMismatch(p.sidecarNS, name, "istio_tcp_"+metric+"_total", append(slices.Clone(want), "} "+value+"\n"))
			})
		}
	}
}

// seriesMismatch returns "" if one series of the metric in Weft's metrics page contains all parts,
// or a description of the mismatch.
func (p *pod) seriesMismatch(ns *netns.Namespace, name, metric string, parts []string) string {
	c := &http.Client{Transport: &http.Transport{DialContext: ns.DialContext, DisableKeepAlives: true}, Timeout: waitTimeout}
	resp, err := c.Get("http://127.0.0.1:9901/stats/prometheus")
	if err != nil {
		return err.Error()
	}
	defer func() { _ = resp.Body.Close() }() // the body was read to the end
	page, err := io.ReadAll(resp.Body)
	if err != nil {
		return err.Error()
	}
	var found []string
	for line := range strings.Lines(string(page)) {
		if !strings.HasPrefix(line, metric+"{") {
			continue
		}
		if !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(line, part) }) {
			return ""
		}
		found = append(found, line)
	}
	return fmt.Sprintf("%s: no series has %q:\n%s", name, parts, strings.Join(found, ""))
}
