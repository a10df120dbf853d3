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
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	statusv3 "github.com/envoyproxy/go-control-plane/envoy/service/status/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/weft-proxy/weft/internal/testpki"
	"github.com/weft-proxy/weft/pkg/xds/ads"
	"github.com/weft-proxy/weft/pkg/xds/internal/xdstest"
	"github.com/weft-proxy/weft/pkg/xds/resource"
)

// byName returns the resources of a response by short type and name.
func byName(c *statusv3.ClientConfig) map[string]*statusv3.ClientConfig_GenericXdsConfig {
	all := map[string]*statusv3.ClientConfig_GenericXdsConfig{}
	for _, r := range c.GetGenericXdsConfigs() {
		all[shortType(r.GetTypeUrl())+" "+r.GetName()] = r
	}
	return all
}

func TestCSDSClientStatus(t *testing.T) {
	s, _ := newTestSource(t, "DELTA_GRPC", "", slog.New(slog.DiscardHandler))
	s.handleEvent(t.Context(), event{channel: s.channels[0], opened: true})
	leaf := testpki.New(t).Issue(testpki.Spec{})
	respondWith(t, s, xdstest.Cluster("a", "hosts", "", 0), xdstest.Cluster("b", "gone", "", 0), xdstest.Cluster("later", "awaited", "", 0), xdstest.Endpoints("hosts", 80),
		xdstest.Listener("in", 2000, "table", "mine", 0), xdstest.Secret("mine", leaf), xdstest.Routes("table", "x"),
		xdstest.Resource{URL: resource.ListenerType, Name: "bad", Body: []byte{0xff}}, xdstest.Resource{URL: resource.ClusterType, Name: "a", Body: []byte{0xff}})
	s.handleEvent(t.Context(), event{channel: s.channels[0], response: &ads.Response{Type: resource.EndpointType, Nonce: "n", Removed: []string{"gone"}}})

	got := s.clientConfig(true)
	all := byName(got)
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
		r := all[name]
		if r == nil || r.GetClientStatus() != want {
			t.Errorf("%s: %v, want %v", name, r, want)
			continue
		}
		if isThere := want == adminv3.ClientResourceStatus_ACKED || name == "Cluster a"; isThere != (r.GetLastUpdated() != nil) || isThere != (r.GetVersionInfo() == "1") {
			t.Errorf("%s has the version %q of %v", name, r.GetVersionInfo(), r.GetLastUpdated())
		}
		if refused := want == adminv3.ClientResourceStatus_NACKED; refused != (r.GetErrorState().GetDetails() != "" && r.GetErrorState().GetLastUpdateAttempt() != nil) {
			t.Errorf("%s has the error %v", name, r.GetErrorState())
		}
	}
	if len(all) != 11 { // including the cluster "later"
		t.Errorf("there are %d resources", len(all))
	}
	c := &clusterv3.Cluster{}
	if err := all["Cluster a"].GetXdsConfig().UnmarshalTo(c); err != nil || c.GetEdsClusterConfig().GetServiceName() != "hosts" {
		t.Errorf("the previous version of a rejected resource is %v, %v", c, err)
	}
	if all["Listener bad"].GetXdsConfig() != nil || !all["Cluster control"].GetIsStaticResource() || got.GetNode().GetId() != "test" {
		t.Errorf("the response is %v", got)
	}
	for name, r := range byName(s.clientConfig(false)) {
		if r.GetXdsConfig() != nil {
			t.Errorf("%s has its content, want it omitted", name)
		}
	}
}

func TestCSDSRedactsSecrets(t *testing.T) {
	s, _ := newTestSource(t, "DELTA_GRPC", "", slog.New(slog.DiscardHandler))
	s.handleEvent(t.Context(), event{channel: s.channels[0], opened: true})
	leaf := testpki.New(t).Issue(testpki.Spec{})
	respondWith(t, s, xdstest.Listener("in", 2000, "table", "mine", 0), xdstest.Secret("mine", leaf))
	r := byName(s.clientConfig(true))["Secret mine"]
	m := &tlsv3.Secret{}
	if err := r.GetXdsConfig().UnmarshalTo(m); err != nil {
		t.Fatal(err)
	}
	key := m.GetTlsCertificate().GetPrivateKey()
	if text := key.GetInlineString() + string(key.GetInlineBytes()); text != redacted {
		t.Errorf("the key is %q", text)
	}
	if chain := m.GetTlsCertificate().GetCertificateChain(); chain.GetInlineString()+string(chain.GetInlineBytes()) == "" {
		t.Error("the certificate is missing")
	}
	if held := s.channels[0].client.Resources(resource.SecretType)["mine"].Body; !strings.Contains(string(held), "PRIVATE KEY") {
		t.Error("what is held was changed")
	}
}

func TestNodeMatchers(t *testing.T) {
	node := &corev3.Node{}
	if err := protojson.Unmarshal([]byte(`{"id": "sidecar~a", "metadata": {"n": 2, "yes": true, "nil": null, "in": {"side": "Text"}, "list": ["x", "y"]}}`), node); err != nil {
		t.Fatal(err)
	}
	at := func(path, value string) string {
		var segments []string
		for key := range strings.SplitSeq(path, ".") {
			segments = append(segments, `{"key": "`+key+`"}`)
		}
		return `{"node_metadatas": [{"path": [` + strings.Join(segments, ",") + `], "value": ` + value + `}]}`
	}
	for _, c := range []struct {
		name, matcher string
		want          bool
	}{
		{"nothing is asked for", `{}`, true},
		{"its id", `{"node_id": {"exact": "sidecar~a"}}`, true},
		{"another's id", `{"node_id": {"exact": "sidecar~b"}}`, false},
		{"its id in other letters", `{"node_id": {"exact": "SIDECAR~A"}}`, false},
		{"its id whatever letters", `{"node_id": {"exact": "SIDECAR~A", "ignore_case": true}}`, true},
		{"how its id begins", `{"node_id": {"prefix": "side"}}`, true},
		{"how its id ends", `{"node_id": {"suffix": "~a"}}`, true},
		{"a part of its id", `{"node_id": {"contains": "car"}}`, true},
		{"an expression", `{"node_id": {"safe_regex": {"regex": "s.*a"}}}`, true},
		{"an expression for a part", `{"node_id": {"safe_regex": {"regex": "side"}}}`, false},
		{"a number", at("n", `{"double_match": {"exact": 2}}`), true},
		{"a range up to it", at("n", `{"double_match": {"range": {"start": 1, "end": 2}}}`), false},
		{"a range from it", at("n", `{"double_match": {"range": {"start": 2, "end": 3}}}`), true},
		{"a boolean", at("yes", `{"bool_match": true}`), true},
		{"no null", at("n", `{"null_match": {}}`), false},
		{"null", at("nil", `{"null_match": {}}`), true},
		{"a text within", at("in.side", `{"string_match": {"prefix": "Te"}}`), true},
		{"a text that is a number", at("n", `{"string_match": {"prefix": ""}}`), false},
		{"there", at("in.side", `{"present_match": true}`), true},
		{"not there", at("in.other.deep", `{"present_match": true}`), false},
		{"one of a list", at("list", `{"list_match": {"one_of": {"string_match": {"exact": "y"}}}}`), true},
		{"none of a list", at("list", `{"list_match": {"one_of": {"string_match": {"exact": "z"}}}}`), false},
		{"one of two", at("n", `{"or_match": {"value_matchers": [{"bool_match": true}, {"double_match": {"exact": 2}}]}}`), true},
		{"the id but not the metadata", `{"node_id": {"prefix": "s"}, "node_metadatas": [{"path": [{"key": "n"}], "value": {"bool_match": true}}]}`, false},
	} {
		m := &matcherv3.NodeMatcher{}
		if err := protojson.Unmarshal([]byte(c.matcher), m); err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		if got, err := matchesAnyNode([]*matcherv3.NodeMatcher{m}, node); err != nil || got != c.want {
			t.Errorf("%s: isMeant(%s) = %t, %v, want %t", c.name, c.matcher, got, err, c.want)
		}
	}
	for _, bad := range []string{`{"node_id": {}}`, `{"node_id": {"safe_regex": {"regex": "("}}}`, `{"node_metadatas": [{}]}`} {
		m := &matcherv3.NodeMatcher{}
		if err := protojson.Unmarshal([]byte(bad), m); err != nil {
			t.Fatal(err)
		}
		if _, err := matchesAnyNode([]*matcherv3.NodeMatcher{m}, node); err == nil || !strings.HasPrefix(err.Error(), "node_matchers[0].node_") {
			t.Errorf("isMeant(%s): %v, want the field", bad, err)
		}
	}
}

// TestCSDSServer verifies the CSDS service on a Unix socket: the mode of the socket, node matchers,
// reflection, and the end of streams.
func TestCSDSServer(t *testing.T) {
	s, _ := newTestSource(t, "DELTA_GRPC", "", slog.New(slog.DiscardHandler))
	path := filepath.Join(t.TempDir(), "status")
	ln, err := listenStatus(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := listenStatus(t.Context(), path); err == nil {
		t.Error("two listen at one path")
	}
	if i, err := os.Stat(path); err != nil || i.Mode() != os.ModeSocket|0o600 {
		t.Errorf("the socket is %v, %v", i, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- s.serveStatus(ctx, ln) }()
	conn, err := grpc.NewClient("unix://"+path, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }() // the server has stopped
	tool := statusv3.NewClientStatusDiscoveryServiceClient(conn)
	named := func(id string) *statusv3.ClientStatusRequest {
		return &statusv3.ClientStatusRequest{NodeMatchers: []*matcherv3.NodeMatcher{{NodeId: &matcherv3.StringMatcher{
			MatchPattern: &matcherv3.StringMatcher_Exact{Exact: id},
		}}}}
	}
	if a, err := tool.FetchClientStatus(t.Context(), named("other")); err != nil || len(a.GetConfig()) != 0 {
		t.Errorf("the response to another node is %v, %v", a, err)
	}
	if _, err := tool.FetchClientStatus(t.Context(), &statusv3.ClientStatusRequest{NodeMatchers: []*matcherv3.NodeMatcher{{NodeId: &matcherv3.StringMatcher{}}}}); status.Code(err) != codes.InvalidArgument {
		t.Errorf("an empty matcher: %v", err)
	}
	if err := describes(t.Context(), conn, "envoy.service.status.v3.ClientStatusDiscoveryService"); err != nil {
		t.Error(err)
	}
	stream, err := tool.StreamClientStatus(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := stream.Send(named("test")); err != nil {
			t.Fatal(err)
		}
		if a, err := stream.Recv(); err != nil || len(a.GetConfig()) != 1 || a.GetConfig()[0].GetNode().GetId() != "test" {
			t.Errorf("the response to a tool is %v, %v", a, err)
		}
	}
	cancel() // the stream ends with the service
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if _, err := stream.Recv(); err == nil {
		t.Error("the stream has not ended")
	}
}

// describes returns an error unless the server returns the descriptor of service by reflection,
// which grpcurl uses.
func describes(ctx context.Context, conn *grpc.ClientConn, service string) error {
	stream, err := reflectionv1.NewServerReflectionClient(conn).ServerReflectionInfo(ctx)
	if err != nil {
		return err
	}
	if err := stream.Send(&reflectionv1.ServerReflectionRequest{MessageRequest: &reflectionv1.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: service}}); err != nil {
		return err
	}
	a, err := stream.Recv()
	if err == nil && len(a.GetFileDescriptorResponse().GetFileDescriptorProto()) == 0 {
		err = errors.New(a.GetErrorResponse().GetErrorMessage())
	}
	return errors.Join(err, stream.CloseSend())
}
