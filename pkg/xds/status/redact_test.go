package status

import (
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	authzv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_authz/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/weft-proxy/weft/pkg/xds/internal/xdstest"
	"github.com/weft-proxy/weft/pkg/xds/resource"
)

// TestDumpRedactsKeys verifies that private keys, passwords, session ticket keys, sensitive maps and
// messages of unknown types are redacted.
func TestDumpRedactsKeys(t *testing.T) {
	const secret = "a-secret"
	common := &tlsv3.CommonTlsContext{TlsCertificates: []*tlsv3.TlsCertificate{{
		PrivateKey: &corev3.DataSource{Specifier: &corev3.DataSource_InlineString{InlineString: secret}},
		Password:   xdstest.Inline([]byte(secret)),
	}}}
	c := &clusterv3.Cluster{Name: "shown", TransportSocket: &corev3.TransportSocket{Name: "tls", ConfigType: &corev3.TransportSocket_TypedConfig{
		TypedConfig: xdstest.PackAny(&tlsv3.UpstreamTlsContext{CommonTlsContext: common}),
	}}}
	c.TypedExtensionProtocolOptions = map[string]*anypb.Any{"unknown": {TypeUrl: "type.googleapis.com/un.Known", Value: []byte(secret)}}
	authz := &routev3.RouteConfiguration{TypedPerFilterConfig: map[string]*anypb.Any{"authz": xdstest.PackAny(&authzv3.ExtAuthzPerRoute{
		Override: &authzv3.ExtAuthzPerRoute_CheckSettings{CheckSettings: &authzv3.CheckSettings{ContextExtensions: map[string]string{"key": secret}}},
	})}}
	ticket := &tlsv3.Secret{Type: &tlsv3.Secret_SessionTicketKeys{SessionTicketKeys: &tlsv3.TlsSessionTicketKeys{Keys: []*corev3.DataSource{xdstest.Inline([]byte(secret))}}}}
	for _, text := range []string{
		string(redactedResourceJSON(resource.ClusterType, xdstest.Marshal(c))), string(redactedJSON(c)),
		string(redactedResourceJSON(resource.SecretType, xdstest.Marshal(ticket))), string(redactedJSON(authz)),
	} {
		if strings.Contains(text, secret) || strings.Contains(text, "YS1zZWNyZXQ") || !strings.Contains(text, "redacted") && !strings.Contains(text, "W3JlZGFjdGVkXQ==") {
			t.Errorf("redacted message = %s, want redacted values and no secret", text)
		}
	}
}
