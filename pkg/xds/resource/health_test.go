package resource

import (
	"slices"
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/weft-proxy/weft/pkg/config"
)

// readClusterCheck reads a cluster with an HTTP or gRPC check.
func readClusterCheck(t *testing.T, http *corev3.HealthCheck_HttpHealthCheck, grpc *corev3.HealthCheck_GrpcHealthCheck) (*config.HealthCheck, error) {
	t.Helper()
	h := &corev3.HealthCheck{Timeout: durationpb.New(1e9), Interval: durationpb.New(1e9)}
	if http != nil {
		h.HealthChecker = &corev3.HealthCheck_HttpHealthCheck_{HttpHealthCheck: http}
	} else {
		h.HealthChecker = &corev3.HealthCheck_GrpcHealthCheck_{GrpcHealthCheck: grpc}
	}
	c, err := ReadCluster(marshaled(t, &clusterv3.Cluster{Name: "shop", HealthChecks: []*corev3.HealthCheck{h}}), Capabilities{})
	if err != nil {
		return nil, err
	}
	return c.Config.HealthCheck, nil
}

// TestHealthCheckHostDefaultsToCluster verifies that the authority of a check defaults to the name
// of the cluster, as in Envoy.
func TestHealthCheckHostDefaultsToCluster(t *testing.T) {
	for name, test := range map[string]struct {
		http *corev3.HealthCheck_HttpHealthCheck
		grpc *corev3.HealthCheck_GrpcHealthCheck
		want string
	}{
		"HTTP":                {http: &corev3.HealthCheck_HttpHealthCheck{Path: "/"}, want: "shop"},
		"HTTP, with a host":   {http: &corev3.HealthCheck_HttpHealthCheck{Path: "/", Host: "a.test"}, want: "a.test"},
		"gRPC":                {grpc: &corev3.HealthCheck_GrpcHealthCheck{}, want: "shop"},
		"gRPC, with a domain": {grpc: &corev3.HealthCheck_GrpcHealthCheck{Authority: "a.test"}, want: "a.test"},
	} {
		h, err := readClusterCheck(t, test.http, test.grpc)
		if err != nil {
			t.Fatal(err)
		}
		if h.HTTP.Authority != test.want {
			t.Errorf("%s: the host of the check is %q, want %q", name, h.HTTP.Authority, test.want)
		}
	}
}

// TestHealthCheckFields verifies the headers of an HTTP check, and that a value with a format
// command is rejected.
func TestHealthCheckFields(t *testing.T) {
	option := func(name, value string) *corev3.HeaderValueOption {
		return &corev3.HeaderValueOption{Header: &corev3.HeaderValue{Key: name, Value: value}, AppendAction: corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD}
	}
	h, err := readClusterCheck(t, &corev3.HealthCheck_HttpHealthCheck{
		Path: "/", RequestHeadersToAdd: []*corev3.HeaderValueOption{option("authorization", "Basic abc"), option("x-share", "100%%")},
		RequestHeadersToRemove: []string{"user-agent"},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := []config.HeaderValue{{Name: "authorization", Value: "Basic abc", Empty: config.EmptySkipped}, {Name: "x-share", Value: "100%", Empty: config.EmptySkipped}}
	if got := h.HTTP.HeaderMutation; !slices.Equal(got.Add, want) || !slices.Equal(got.Remove, []string{"user-agent"}) {
		t.Errorf("header mutations = %+v, want to add %v and to remove user-agent", got, want)
	}
	_, err = readClusterCheck(t, &corev3.HealthCheck_HttpHealthCheck{Path: "/", RequestHeadersToAdd: []*corev3.HeaderValueOption{option("x-a", "%REQ(x-b)%")}}, nil)
	if err == nil || !strings.Contains(err.Error(), "x-a has a format command") {
		t.Errorf("value with a format command: error %v, want one about x-a", err)
	}
}
