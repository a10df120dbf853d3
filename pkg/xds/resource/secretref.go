package resource

import (
	"cmp"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
)

// SecretRef refers to a SecretType resource. The zero value refers to none.
type SecretRef struct {
	Name string
	From SecretSource
}

// SecretSource identifies the server that sends a secret. The zero value is the ADS control plane.
type SecretSource struct {
	Cluster string // name of the static cluster of the server
	Delta   bool   // delta xDS instead of state of the world
}

// Compare orders by source, then by name. It returns a negative number if r sorts before o.
func (r SecretRef) Compare(o SecretRef) int {
	return cmp.Or(r.From.Compare(o.From), cmp.Compare(r.Name, o.Name))
}

// Compare orders by cluster, then by Delta. It returns a negative number if s sorts before o.
func (s SecretSource) Compare(o SecretSource) int {
	rank := func(s SecretSource) int {
		if s.Delta {
			return 1
		}
		return 0
	}
	return cmp.Or(cmp.Compare(s.Cluster, o.Cluster), rank(s)-rank(o))
}

// readSecretRef reads the name and the source of a secret.
func (p fieldReader) readSecretRef(m *tlsv3.SdsSecretConfig) SecretRef {
	if m.GetName() == "" {
		p.field("name").reject("is missing")
	}
	return SecretRef{Name: m.GetName(), From: p.field("sds_config").readSecretSource(m.GetSdsConfig())}
}

func (p fieldReader) readSecretSource(m *corev3.ConfigSource) (out SecretSource) {
	p.checkConfigSourceFields(m)
	switch s := m.GetConfigSourceSpecifier().(type) {
	case nil, *corev3.ConfigSource_Ads, *corev3.ConfigSource_Self:
	case *corev3.ConfigSource_ApiConfigSource:
		return p.field("api_config_source").readSecretService(s.ApiConfigSource)
	default:
		p.rejectOneof(m, "config_source_specifier", "ads", "api_config_source")
	}
	return out
}

func (p fieldReader) readSecretService(m *corev3.ApiConfigSource) (out SecretSource) {
	switch m.GetApiType() {
	case corev3.ApiConfigSource_GRPC:
	case corev3.ApiConfigSource_DELTA_GRPC:
		out.Delta = true
	default:
		p.field("api_type").reject("%v is not supported, expected GRPC or DELTA_GRPC", m.GetApiType())
	}
	services := p.field("grpc_services")
	if n := len(m.GetGrpcServices()); n != 1 {
		services.reject("found %d services, expected exactly one", n)
		return out
	}
	p.checkFields(m, []string{"api_type", "transport_api_version", "grpc_services", "set_node_on_first_message_only"}, []string{"config_validators"})
	services.index(0).checkFields(m.GetGrpcServices()[0], []string{"envoy_grpc"}, []string{"google_grpc", "initial_metadata"})
	if m.GetGrpcServices()[0].GetGoogleGrpc() != nil {
		return out
	}
	name := services.index(0).field("envoy_grpc").field("cluster_name")
	if out.Cluster = m.GetGrpcServices()[0].GetEnvoyGrpc().GetClusterName(); out.Cluster == "" {
		name.reject("is missing")
	}
	return out
}
