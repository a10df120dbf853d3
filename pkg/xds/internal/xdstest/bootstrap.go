package xdstest

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/weft-proxy/weft/internal/testpki"
	"github.com/weft-proxy/weft/pkg/config"
)

// These are fragments of Envoy bootstrap files, in JSON.
const (
	HTTPManagerJSON = `{"name": "http", "typed_config": {"@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
		"stat_prefix": "s", "http_filters": [{"name": "router", "typed_config": {"@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"}}], %s}}`
	InlineRoutesJSON   = `"route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [{"match": {"prefix": "/"}, %s}]}]}`
	DirectResponseJSON = `"direct_response": {"status": 200, "body": {"inline_string": "x"}}`
	ADSRoutesJSON      = `"rds": {"route_config_name": "r", "config_source": {"ads": {}, "initial_fetch_timeout": "0s"}}`
	ControlPlaneJSON   = `{"name": "control", "load_assignment": {"cluster_name": "control", "endpoints": [
		{"lb_endpoints": [{"endpoint": {"address": {"socket_address": {"address": "127.0.0.1", "port_value": 1}}}}]}]}}`
	SDSTransportSocketJSON = `"transport_socket": {"name": "tls", "typed_config": {"@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext",
		"common_tls_context": {"tls_certificate_sds_secret_configs": [{"name": "mine"}]}}}`
)

// ListenerJSON returns a listener with one filter. name and chain are JSON fields of the listener
// and of its filter chain.
func ListenerJSON(name string, port int, filter, chain string) string {
	return fmt.Sprintf(`{%s"address": {"socket_address": {"address": "127.0.0.1", "port_value": %d}}, "filter_chains": [{"filters": [%s]%s}]}`, name, port, filter, chain)
}

// HTTPListenerJSON returns a listener with an HTTP connection manager. routes contains the JSON
// fields of the manager that set its routes.
func HTTPListenerJSON(name string, port int, routes string) string {
	return ListenerJSON(fmt.Sprintf(`"name": %q, `, name), port, fmt.Sprintf(HTTPManagerJSON, routes), "")
}

// DirectResponseListenerJSON returns a listener with a direct response for every request.
func DirectResponseListenerJSON(name string, port int) string {
	return HTTPListenerJSON(name, port, fmt.Sprintf(InlineRoutesJSON, DirectResponseJSON))
}

// StaticResourcesJSON returns static_resources with clusters, listeners and secrets.
func StaticResourcesJSON(clusters, listeners, secrets []string) []byte {
	return fmt.Appendf(nil, `{"clusters": [%s], "listeners": [%s], "secrets": [%s]}`,
		strings.Join(clusters, ", "), strings.Join(listeners, ", "), strings.Join(secrets, ", "))
}

// SecretJSON returns a secret with a new certificate.
func SecretJSON(t *testing.T, name string) string {
	t.Helper()
	m := &tlsv3.Secret{}
	if err := proto.Unmarshal(Secret(name, testpki.New(t).Issue(testpki.Spec{})).Body, m); err != nil {
		t.Fatal(err)
	}
	text, err := protojson.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// CompactJSON returns the JSON form of v.
func CompactJSON(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Bootstrap returns a bootstrap with the control plane "control". apiType is the api_type of
// ads_config.
func Bootstrap(apiType string) config.Bootstrap {
	return config.Bootstrap{
		Node: []byte(`{"id": "test"}`),
		DynamicResources: fmt.Appendf(nil, `{"ads_config": {"api_type": %q, "grpc_services": [{"envoy_grpc": {"cluster_name": "control"}}]},
			"cds_config": {"ads": {}}, "lds_config": {"ads": {}}}`, apiType),
		StaticResources: []byte(`{"clusters": [{"name": "control", "load_assignment": {"cluster_name": "control", "endpoints": [
			{"lb_endpoints": [{"endpoint": {"address": {"socket_address": {"address": "127.0.0.1", "port_value": 1}}}}]}]}}]}`),
	}
}

// LayeredBootstrap is Bootstrap with a static layer, two RTDS layers and an admin layer.
func LayeredBootstrap(apiType string) config.Bootstrap {
	b := Bootstrap(apiType)
	b.LayeredRuntime = []byte(`{"layers": [{"name": "file", "static_layer": {"share": 10}}, {"name": "one", "rtds_layer": {"name": "one", "rtds_config": {"ads": {}, "initial_fetch_timeout": "1s"}}},
		{"name": "two", "rtds_layer": {"name": "two", "rtds_config": {"ads": {}}}}, {"name": "admin", "admin_layer": {}}]}`)
	return b
}

// BootstrapWith returns Bootstrap("GRPC") without lds_config and with additional JSON fields:
// source in ads_config, service in its gRPC service, envoy in envoy_grpc, and clusters in
// cds_config.
func BootstrapWith(source, service, envoy, clusters string) config.Bootstrap {
	b := Bootstrap("GRPC")
	b.DynamicResources = fmt.Appendf(nil, `{"ads_config": {"api_type": "GRPC"%s, "grpc_services": [{"envoy_grpc": {"cluster_name": "control"%s}%s}]}, "cds_config": {"ads": {}%s}}`,
		source, envoy, service, clusters)
	return b
}
