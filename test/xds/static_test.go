package xds

import (
	"fmt"
	"net"
	"testing"

	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"google.golang.org/protobuf/encoding/protojson"
)

// envoyBootstrap returns a bootstrap in the style of Envoy users: a control plane in a STRICT_DNS
// cluster, and static listeners, one of which gets its route table from RDS.
func envoyBootstrap(t *testing.T, apiType, control, admin, static, rds string) string {
	t.Helper()
	address := func(address string) string {
		host, port, err := net.SplitHostPort(address)
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf("{socket_address: {address: %s, port_value: %s}}", host, port)
	}
	text, err := protojson.Marshal(httpListener("fed", rds, "routes"))
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf(`# like envoy.yaml
node:
  id: test-id
  cluster: test
admin:
  access_log_path: /dev/null
  address: %s
dynamic_resources:
  ads_config:
    api_type: %s
    transport_api_version: V3
    grpc_services:
    - envoy_grpc: {cluster_name: xds_cluster}
  cds_config: {resource_api_version: V3, ads: {}}
  lds_config: {resource_api_version: V3, ads: {}}
static_resources:
  listeners:
  - name: own
    address: %s
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: own
          route_config:
            virtual_hosts:
            - name: all
              domains: ["*"]
              routes:
              - match: {path: /healthz}
                direct_response: {status: 200, body: {inline_string: "own"}}
          http_filters:
          - name: envoy.filters.http.router
            typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}
  - %s
  clusters:
  - name: xds_cluster
    type: STRICT_DNS
    connect_timeout: 1s
    typed_extension_protocol_options:
      envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
        "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
        explicit_http_config: {http2_protocol_options: {connection_keepalive: {interval: 30s, timeout: 5s}}}
    load_assignment:
      cluster_name: xds_cluster
      endpoints:
      - lb_endpoints:
        - endpoint: {address: %s}
`, address(admin), apiType, address(static), text, address(control))
}

// TestEnvoyBootstrap verifies that Weft serves static listeners next to listeners of the control
// plane. The control plane can neither remove nor replace static listeners, but it can provide
// their routes.
func TestEnvoyBootstrap(t *testing.T) {
	for _, apiType := range apiTypes() {
		t.Run(apiType, func(t *testing.T) {
			t.Parallel()
			p, host := newControlPlane(t), newHost()
			static, rds, dynamic := host+":10000", host+":10001", host+":10002"
			startWeft(t, envoyBootstrap(t, apiType, p.address, host+":9901", static, rds), nil)
			c := client(t)
			awaitResponse(t, c, "http://"+static+"/healthz", "own")

			app := startOrigin(t, "app")
			p.put(edsCluster("app"), endpointsOf("app", app), httpListener("dynamic", dynamic, "routes"), routeTable("routes", routeTo("/", "app")))
			p.publish()
			awaitResponse(t, c, "http://"+dynamic+"/", "app")
			awaitResponse(t, c, "http://"+rds+"/", "app")
			p.put(routeTable("routes", directRoute("/", "changed"), routeTo("/app", "app")))
			p.publish()
			awaitResponse(t, c, "http://"+rds+"/", "changed")

			l := startLoad(t, "http://"+static+"/healthz")
			p.removeCluster("app")
			p.listeners, p.routes = map[string]types.Resource{}, map[string]types.Resource{}
			p.publish()
			eventually(t, func() string {
				if got, err := get(t.Context(), client(t), "http://"+dynamic+"/"); err == nil {
					return "a removed listener responds " + got
				}
				return ""
			})
			l.awaitMore(20)
			l.stop()
			if nacks := p.nacks(); len(nacks) > 0 {
				t.Errorf("rejected: %v, want none", nacks)
			}
			from := p.ackCount()
			p.put(httpListener("own", dynamic, "routes"), routeTable("routes", directRoute("/healthz", "dynamic")))
			p.publish()
			p.await(from, func(a ack) bool { return a.typeName == "Listener" && a.nackDetail != "" })
			awaitResponse(t, c, "http://"+static+"/healthz", "own")
		})
	}
}
