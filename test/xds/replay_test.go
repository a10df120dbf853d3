package xds

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	secretv3 "github.com/envoyproxy/go-control-plane/envoy/service/secret/v3"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/weft-proxy/weft/pkg/xds/resource"
)

// replayServer is a control plane that serves captured resources over ADS and SDS, in both protocol
// variants.
type replayServer struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer
	secretv3.UnimplementedSecretDiscoveryServiceServer

	t         testing.TB
	resources map[string]map[string]*anypb.Any // immutable after serve; by type URL and name

	mu    sync.Mutex
	nacks []ack           // guarded by mu
	acked map[string]bool // guarded by mu; types with an ACK
}

// newReplayServer reads the responses of a capture.
func newReplayServer(t testing.TB, dir string) *replayServer {
	t.Helper()
	r := &replayServer{t: t, resources: map[string]map[string]*anypb.Any{}, acked: map[string]bool{}}
	files, err := filepath.Glob(filepath.Join(dir, "*.pb"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s has no captured responses: %v", dir, err)
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		m := &discoveryv3.DiscoveryResponse{}
		if err := proto.Unmarshal(b, m); err != nil {
			t.Fatal(err)
		}
		r.add(m.GetTypeUrl(), m.GetResources()...)
	}
	return r
}

// add adds resources of a type. It must not be called after serve.
func (r *replayServer) add(url string, resources ...*anypb.Any) {
	r.t.Helper()
	if r.resources[url] == nil {
		r.resources[url] = map[string]*anypb.Any{}
	}
	for _, packed := range resources {
		name, err := resource.Name(packed.GetValue())
		if err != nil {
			r.t.Fatal(err)
		}
		r.resources[url][name] = packed
	}
}

// serve serves until the test ends.
func (r *replayServer) serve(ln net.Listener) {
	s := grpc.NewServer()
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(s, r)
	secretv3.RegisterSecretDiscoveryServiceServer(s, r)
	var wg sync.WaitGroup
	wg.Go(func() { _ = s.Serve(ln) }) // ends with Stop
	r.t.Cleanup(func() { s.Stop(); wg.Wait() })
}

func (r *replayServer) recordRequest(url, nonce string, nack *status.Status) {
	if nonce == "" {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if nack == nil {
		r.acked[shortType(url)] = true
		return
	}
	r.nacks = append(r.nacks, ack{shortType(url), nack.GetMessage()})
}

// outcomes returns the types with an ACK, and the NACKs.
func (r *replayServer) outcomes() (accepted []string, nacks []ack) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for typeName := range r.acked {
		accepted = append(accepted, typeName)
	}
	slices.Sort(accepted)
	return accepted, slices.Clone(r.nacks)
}

// version is the version of every resource and the nonce of every response.
const version = "1"

// StreamAggregatedResources sends all requested resources of a type when the request changes.
func (r *replayServer) StreamAggregatedResources(s discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesServer) error {
	return r.serveStateOfTheWorld(s)
}

// StreamSecrets is StreamAggregatedResources for secrets.
func (r *replayServer) StreamSecrets(s secretv3.SecretDiscoveryService_StreamSecretsServer) error {
	return r.serveStateOfTheWorld(s)
}

// DeltaAggregatedResources sends the newly requested resources.
func (r *replayServer) DeltaAggregatedResources(s discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	return r.serveDelta(s)
}

// DeltaSecrets is DeltaAggregatedResources for secrets.
func (r *replayServer) DeltaSecrets(s secretv3.SecretDiscoveryService_DeltaSecretsServer) error {
	return r.serveDelta(s)
}

// FetchSecrets is not supported.
func (r *replayServer) FetchSecrets(context.Context, *discoveryv3.DiscoveryRequest) (*discoveryv3.DiscoveryResponse, error) {
	return nil, grpc.ErrServerStopped
}

func (r *replayServer) serveStateOfTheWorld(s grpc.BidiStreamingServer[discoveryv3.DiscoveryRequest, discoveryv3.DiscoveryResponse]) error {
	requested := map[string][]string{}
	for {
		req, err := s.Recv()
		if err != nil {
			return err
		}
		r.recordRequest(req.GetTypeUrl(), req.GetResponseNonce(), req.GetErrorDetail())
		previous, repeated := requested[req.GetTypeUrl()]
		if repeated && slices.Equal(previous, req.GetResourceNames()) {
			continue
		}
		requested[req.GetTypeUrl()] = req.GetResourceNames()
		out := &discoveryv3.DiscoveryResponse{VersionInfo: version, Nonce: version, TypeUrl: req.GetTypeUrl()}
		for name, packed := range r.resources[req.GetTypeUrl()] {
			if len(req.GetResourceNames()) == 0 || slices.Contains(req.GetResourceNames(), name) {
				out.Resources = append(out.Resources, packed)
			}
		}
		if err := s.Send(out); err != nil {
			return err
		}
	}
}

func (r *replayServer) serveDelta(s grpc.BidiStreamingServer[discoveryv3.DeltaDiscoveryRequest, discoveryv3.DeltaDiscoveryResponse]) error {
	requested := map[string]bool{}
	for {
		req, err := s.Recv()
		if err != nil {
			return err
		}
		r.recordRequest(req.GetTypeUrl(), req.GetResponseNonce(), req.GetErrorDetail())
		wildcard := !requested[req.GetTypeUrl()] && len(req.GetResourceNamesSubscribe()) == 0
		requested[req.GetTypeUrl()] = true
		if !wildcard && len(req.GetResourceNamesSubscribe()) == 0 {
			continue
		}
		out := &discoveryv3.DeltaDiscoveryResponse{SystemVersionInfo: version, Nonce: version, TypeUrl: req.GetTypeUrl()}
		for name, packed := range r.resources[req.GetTypeUrl()] {
			if wildcard || slices.Contains(req.GetResourceNamesSubscribe(), name) {
				out.Resources = append(out.Resources, &discoveryv3.Resource{Name: name, Version: version, Resource: packed})
			}
		}
		if err := s.Send(out); err != nil {
			return err
		}
	}
}
