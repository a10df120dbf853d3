package xds

import (
	"encoding/json"
	"log/slog"
	"strings"
	"testing"

	adminv3 "github.com/envoyproxy/go-control-plane/envoy/admin/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/weft-proxy/weft/internal/testpki"
	"github.com/weft-proxy/weft/pkg/xds/internal/xdstest"
	"github.com/weft-proxy/weft/pkg/xds/resource"
	"github.com/weft-proxy/weft/pkg/xds/status"
)

// dump returns the config dump of s, parsed as Envoy's ConfigDump, and its JSON text.
func dump(t *testing.T, s *Source, o status.DumpOptions) (*adminv3.ConfigDump, string) {
	t.Helper()
	configs, err := s.Dump(o)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(map[string]any{"configs": configs})
	if err != nil {
		t.Fatal(err)
	}
	m := &adminv3.ConfigDump{}
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(text, m); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return m, string(text)
}

func TestDumpIsEnvoyConfigDump(t *testing.T) {
	pki := testpki.New(t)
	s, _ := newTestSource(t, "DELTA_GRPC", "", slog.New(slog.DiscardHandler))
	s.handleEvent(t.Context(), event{channel: s.channels[0], opened: true})
	leaf := pki.Issue(testpki.Spec{})
	respondWith(t, s, xdstest.Cluster("a", "hosts", "", 0), xdstest.Endpoints("hosts", 80), xdstest.Cluster("warming", "others", "", 0),
		xdstest.Listener("in", 2000, "table", "mine", 0), xdstest.Routes("table", "x"), xdstest.Secret("mine", leaf),
		xdstest.Listener("waits", 2001, "no table", "", 0), xdstest.Resource{URL: resource.ListenerType, Name: "bad", Body: []byte{0xff}})

	m, text := dump(t, s, status.DumpOptions{Endpoints: true})
	got := map[string]*anypb.Any{}
	for _, section := range m.GetConfigs() {
		got[strings.TrimPrefix(section.GetTypeUrl(), "type.googleapis.com/envoy.admin.v3.")] = section
	}
	clusters := &adminv3.ClustersConfigDump{}
	if err := got["ClustersConfigDump"].UnmarshalTo(clusters); err != nil {
		t.Fatal(err)
	}
	if len(clusters.GetStaticClusters()) != 1 || len(clusters.GetDynamicActiveClusters()) != 1 || len(clusters.GetDynamicWarmingClusters()) != 1 {
		t.Fatalf("clusters: %v, want one static, one active, one warming", clusters)
	}
	c := &clusterv3.Cluster{}
	if section := clusters.GetDynamicActiveClusters()[0]; section.GetCluster().UnmarshalTo(c) != nil || c.GetName() != "a" || section.GetVersionInfo() != "1" || section.GetLastUpdated() == nil {
		t.Errorf("active cluster = %v, want a in version 1", section)
	}
	listeners := &adminv3.ListenersConfigDump{}
	if err := got["ListenersConfigDump"].UnmarshalTo(listeners); err != nil {
		t.Fatal(err)
	}
	states := map[string]bool{}
	for _, l := range listeners.GetDynamicListeners() {
		states[l.GetName()+" active"] = l.GetActiveState() != nil
		states[l.GetName()+" warming"] = l.GetWarmingState() != nil
		states[l.GetName()+" rejected"] = l.GetErrorState().GetDetails() != ""
	}
	for _, want := range []string{"in active", "waits warming", "bad rejected"} {
		if !states[want] {
			t.Errorf("state %q is missing: %v", want, states)
		}
	}
	for _, name := range []string{"BootstrapConfigDump", "RoutesConfigDump", "EndpointsConfigDump", "SecretsConfigDump"} {
		if got[name] == nil || !strings.Contains(text, name) {
			t.Errorf("the dump has no %s, want one", name)
		}
	}
	if _, text := dump(t, s, status.DumpOptions{}); strings.Contains(text, "EndpointsConfigDump") {
		t.Error("the dump without Endpoints has an EndpointsConfigDump, want none")
	}
	secrets := &adminv3.SecretsConfigDump{}
	if err := got["SecretsConfigDump"].UnmarshalTo(secrets); err != nil || len(secrets.GetDynamicActiveSecrets()) != 1 {
		t.Fatalf("secrets: %v, %v, want one active", secrets, err)
	}
	secret := &tlsv3.Secret{}
	if err := secrets.GetDynamicActiveSecrets()[0].GetSecret().UnmarshalTo(secret); err != nil {
		t.Fatal(err)
	}
	cert := secret.GetTlsCertificate()
	if string(cert.GetPrivateKey().GetInlineBytes()) != "[redacted]" || string(cert.GetCertificateChain().GetInlineBytes()) != string(leaf.Cert) {
		t.Errorf("secret = %v, want a redacted private key", secret)
	}
}

func TestDumpOfOneResource(t *testing.T) {
	s, _ := newTestSource(t, "DELTA_GRPC", "", slog.New(slog.DiscardHandler))
	s.handleEvent(t.Context(), event{channel: s.channels[0], opened: true})
	respondWith(t, s, xdstest.Cluster("a", "hosts", "", 0), xdstest.Endpoints("hosts", 80))
	for field, want := range map[string]string{
		"dynamic_active_clusters":  "ClustersConfigDump.DynamicCluster",
		"static_clusters":          "ClustersConfigDump.StaticCluster",
		"dynamic_endpoint_configs": "EndpointsConfigDump.DynamicEndpointConfig",
		"bootstrap":                "BootstrapConfigDump",
	} {
		m, _ := dump(t, s, status.DumpOptions{Resource: field})
		if len(m.GetConfigs()) != 1 || m.GetConfigs()[0].GetTypeUrl() != "type.googleapis.com/envoy.admin.v3."+want {
			t.Errorf("dump of %s = %v, want one %s", field, m, want)
		}
	}
	if _, err := s.Dump(status.DumpOptions{Resource: "colors"}); err == nil || !strings.Contains(err.Error(), "dynamic_listeners") || !strings.Contains(err.Error(), "dynamic_endpoint_configs") {
		t.Errorf("Dump of an unknown resource: error %v, want a list of the valid ones", err)
	}
}
