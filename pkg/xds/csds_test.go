package xds

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	adminv3 "github.com/envoyproxy/go-control-plane/envoy/admin/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	statusv3 "github.com/envoyproxy/go-control-plane/envoy/service/status/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/weft-proxy/weft/internal/testpki"
	"github.com/weft-proxy/weft/pkg/xds/ads"
	"github.com/weft-proxy/weft/pkg/xds/internal/xdstest"
	"github.com/weft-proxy/weft/pkg/xds/resource"
	"github.com/weft-proxy/weft/pkg/xds/status"
)

// byName returns the resources of a response by short type and name.
func byName(c *statusv3.ClientConfig) map[string]*statusv3.ClientConfig_GenericXdsConfig {
	resources := map[string]*statusv3.ClientConfig_GenericXdsConfig{}
	for _, r := range c.GetGenericXdsConfigs() {
		resources[(&status.Type{Type: r.GetTypeUrl()}).Short()+" "+r.GetName()] = r
	}
	return resources
}

func TestCSDSClientStatus(t *testing.T) {
	s, _ := newTestSource(t, "DELTA_GRPC", "", slog.New(slog.DiscardHandler))
	s.handleEvent(t.Context(), event{channel: s.channels[0], opened: true})
	leaf := testpki.New(t).Issue(testpki.Spec{})
	respondWith(t, s, xdstest.Cluster("a", "hosts", "", 0), xdstest.Cluster("b", "gone", "", 0), xdstest.Cluster("later", "awaited", "", 0), xdstest.Endpoints("hosts", 80),
		xdstest.Listener("in", 2000, "table", "mine", 0), xdstest.Secret("mine", leaf), xdstest.Routes("table", "x"),
		xdstest.Resource{URL: resource.ListenerType, Name: "bad", Body: []byte{0xff}}, xdstest.Resource{URL: resource.ClusterType, Name: "a", Body: []byte{0xff}})
	s.handleEvent(t.Context(), event{channel: s.channels[0], response: &ads.Response{Type: resource.EndpointType, Nonce: "n", Removed: []string{"gone"}}})

	got := s.statusSnapshot().ClientConfig(true)
	resources := byName(got)
	for name, want := range map[string]adminv3.ClientResourceStatus{
		"Cluster a":                     adminv3.ClientResourceStatus_NACKED, // the second version
		"Cluster b":                     adminv3.ClientResourceStatus_ACKED,
		"Cluster control":               adminv3.ClientResourceStatus_UNKNOWN, // a static resource
		"Listener in":                   adminv3.ClientResourceStatus_ACKED,
		"Listener bad":                  adminv3.ClientResourceStatus_NACKED,
		"RouteConfiguration table":      adminv3.ClientResourceStatus_ACKED,
		"ClusterLoadAssignment hosts":   adminv3.ClientResourceStatus_ACKED,
		"ClusterLoadAssignment gone":    adminv3.ClientResourceStatus_DOES_NOT_EXIST,
		"ClusterLoadAssignment awaited": adminv3.ClientResourceStatus_REQUESTED,
		"Secret mine":                   adminv3.ClientResourceStatus_ACKED,
	} {
		r := resources[name]
		if r == nil || r.GetClientStatus() != want {
			t.Errorf("%s: CSDS reports %v, want the status %v", name, r, want)
			continue
		}
		if received := want == adminv3.ClientResourceStatus_ACKED || name == "Cluster a"; received != (r.GetLastUpdated() != nil) || received != (r.GetVersionInfo() == "1") {
			t.Errorf("%s: version %q, updated %v; want version 1 and a time: %t", name, r.GetVersionInfo(), r.GetLastUpdated(), received)
		}
		if rejected := want == adminv3.ClientResourceStatus_NACKED; rejected != (r.GetErrorState().GetDetails() != "" && r.GetErrorState().GetLastUpdateAttempt() != nil) {
			t.Errorf("%s: error state %v, want details and a time: %t", name, r.GetErrorState(), rejected)
		}
	}
	if len(resources) != 11 { // including the cluster "later"
		t.Errorf("%d resources, want 11", len(resources))
	}
	c := &clusterv3.Cluster{}
	if err := resources["Cluster a"].GetXdsConfig().UnmarshalTo(c); err != nil || c.GetEdsClusterConfig().GetServiceName() != "hosts" {
		t.Errorf("active version of Cluster a = %v, %v, want the one with endpoints hosts", c, err)
	}
	if resources["Listener bad"].GetXdsConfig() != nil || !resources["Cluster control"].GetIsStaticResource() || got.GetNode().GetId() != "test" {
		t.Errorf("client config = %v, want node test, no body of Listener bad, and Cluster control as static", got)
	}
	for name, r := range byName(s.statusSnapshot().ClientConfig(false)) {
		if r.GetXdsConfig() != nil {
			t.Errorf("%s has a body, want none without contents", name)
		}
	}
}

func TestCSDSRedactsSecrets(t *testing.T) {
	s, _ := newTestSource(t, "DELTA_GRPC", "", slog.New(slog.DiscardHandler))
	s.handleEvent(t.Context(), event{channel: s.channels[0], opened: true})
	leaf := testpki.New(t).Issue(testpki.Spec{})
	respondWith(t, s, xdstest.Listener("in", 2000, "table", "mine", 0), xdstest.Secret("mine", leaf))
	r := byName(s.statusSnapshot().ClientConfig(true))["Secret mine"]
	m := &tlsv3.Secret{}
	if err := r.GetXdsConfig().UnmarshalTo(m); err != nil {
		t.Fatal(err)
	}
	key := m.GetTlsCertificate().GetPrivateKey()
	if text := key.GetInlineString() + string(key.GetInlineBytes()); text != "[redacted]" {
		t.Errorf("private key = %q, want [redacted]", text)
	}
	if chain := m.GetTlsCertificate().GetCertificateChain(); chain.GetInlineString()+string(chain.GetInlineBytes()) == "" {
		t.Error("the certificate chain is empty, want it unredacted")
	}
	if body := s.channels[0].client.Resources(resource.SecretType)["mine"].Body; !strings.Contains(string(body), "PRIVATE KEY") {
		t.Error("the secret of the ads.Client has no private key, want it unchanged by the redaction")
	}
}

// TestCSDSServer verifies the CSDS service on a Unix socket: the mode of the socket, node matchers,
// reflection, and the end of streams.
func TestCSDSServer(t *testing.T) {
	s, _ := newTestSource(t, "DELTA_GRPC", "", slog.New(slog.DiscardHandler))
	path := filepath.Join(t.TempDir(), "status")
	ln, err := status.Listen(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := status.Listen(t.Context(), path); err == nil {
		t.Error("second Listen on one path = nil error, want an error")
	}
	if info, err := os.Stat(path); err != nil || info.Mode() != os.ModeSocket|0o600 {
		t.Errorf("Stat of the socket = %v, %v, want mode %v", info, err, os.ModeSocket|0o600)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- status.Serve(ctx, ln, s.boot.Node, s.statusSnapshot) }()
	conn, err := grpc.NewClient("unix://"+path, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }() // the server has stopped
	client := statusv3.NewClientStatusDiscoveryServiceClient(conn)
	request := func(id string) *statusv3.ClientStatusRequest {
		return &statusv3.ClientStatusRequest{NodeMatchers: []*matcherv3.NodeMatcher{{NodeId: &matcherv3.StringMatcher{
			MatchPattern: &matcherv3.StringMatcher_Exact{Exact: id},
		}}}}
	}
	if resp, err := client.FetchClientStatus(t.Context(), request("other")); err != nil || len(resp.GetConfig()) != 0 {
		t.Errorf("response for another node = %v, %v, want no config", resp, err)
	}
	if _, err := client.FetchClientStatus(t.Context(), &statusv3.ClientStatusRequest{NodeMatchers: []*matcherv3.NodeMatcher{{NodeId: &matcherv3.StringMatcher{}}}}); grpcstatus.Code(err) != codes.InvalidArgument {
		t.Errorf("empty matcher: error %v, want InvalidArgument", err)
	}
	if err := checkReflection(t.Context(), conn, "envoy.service.status.v3.ClientStatusDiscoveryService"); err != nil {
		t.Error(err)
	}
	stream, err := client.StreamClientStatus(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := stream.Send(request("test")); err != nil {
			t.Fatal(err)
		}
		if resp, err := stream.Recv(); err != nil || len(resp.GetConfig()) != 1 || resp.GetConfig()[0].GetNode().GetId() != "test" {
			t.Errorf("response = %v, %v, want the config of node test", resp, err)
		}
	}
	cancel() // the stream ends with the service
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if _, err := stream.Recv(); err == nil {
		t.Error("Recv after Serve has returned = nil error, want an error")
	}
}

// checkReflection returns an error unless the server returns the descriptor of service by
// reflection, as grpcurl requests it.
func checkReflection(ctx context.Context, conn *grpc.ClientConn, service string) error {
	stream, err := reflectionv1.NewServerReflectionClient(conn).ServerReflectionInfo(ctx)
	if err != nil {
		return err
	}
	if err := stream.Send(&reflectionv1.ServerReflectionRequest{MessageRequest: &reflectionv1.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: service}}); err != nil {
		return err
	}
	resp, err := stream.Recv()
	if err == nil && len(resp.GetFileDescriptorResponse().GetFileDescriptorProto()) == 0 {
		err = errors.New(resp.GetErrorResponse().GetErrorMessage())
	}
	return errors.Join(err, stream.CloseSend())
}
