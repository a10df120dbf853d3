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

// replay is a control plane that serves captured resources unchanged, over ADS and SDS, in both
// protocol variants.
type replay struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer
	secretv3.UnimplementedSecretDiscoveryServiceServer

	t   testing.TB
	all map[string]map[string]*anypb.Any // immutable after serve; by type URL and name

	mu       sync.Mutex
	refusals []answer        // guarded by mu
	accepted map[string]bool // guarded by mu; types with an ACK
}

// newReplay reads the responses of a capture.
func newReplay(t testing.TB, dir string) *replay {
	t.Helper()
	r := &replay{t: t, all: map[string]map[string]*anypb.Any{}, accepted: map[string]bool{}}
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
func (r *replay) add(url string, resources ...*anypb.Any) {
	r.t.Helper()
	if r.all[url] == nil {
		r.all[url] = map[string]*anypb.Any{}
	}
	for _, one := range resources {
		name, err := resource.Name(one.GetValue())
		if err != nil {
			r.t.Fatal(err)
		}
		r.all[url][name] = one
	}
}

// serve serves until the test ends.
func (r *replay) serve(ln net.Listener) {
	s := grpc.NewServer()
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(s, r)
	secretv3.RegisterSecretDiscoveryServiceServer(s, r)
	var serving sync.WaitGroup
	serving.Go(func() { _ = s.Serve(ln) }) // ends with Stop
	r.t.Cleanup(func() { s.Stop(); serving.Wait() })
}

func (r *replay) note(url, nonce string, refusal *status.Status) {
	if nonce == "" {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if refusal == nil {
		r.accepted[kindOf(url)] = true
		return
	}
	r.refusals = append(r.refusals, answer{kindOf(url), refusal.GetMessage()})
}

// heard returns the types with an ACK, and the NACKs.
func (r *replay) heard() (accepted []string, refusals []answer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for kind := range r.accepted {
		accepted = append(accepted, kind)
	}
	slices.Sort(accepted)
	return accepted, slices.Clone(r.refusals)
}

// version is the version of every resource and the nonce of every response.
const version = "1"

// StreamAggregatedResources sends all requested resources of a type when the request changes.
func (r *replay) StreamAggregatedResources(s discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesServer) error {
	return r.state(s)
}

// StreamSecrets is StreamAggregatedResources for secrets.
func (r *replay) StreamSecrets(s secretv3.SecretDiscoveryService_StreamSecretsServer) error {
	return r.state(s)
}

// DeltaAggregatedResources sends the newly requested resources.
func (r *replay) DeltaAggregatedResources(s discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	return r.delta(s)
}

// DeltaSecrets is DeltaAggregatedResources for secrets.
func (r *replay) DeltaSecrets(s secretv3.SecretDiscoveryService_DeltaSecretsServer) error {
	return r.delta(s)
}

// FetchSecrets is not supported.
func (r *replay) FetchSecrets(context.Context, *discoveryv3.DiscoveryRequest) (*discoveryv3.DiscoveryResponse, error) {
	return nil, grpc.ErrServerStopped
}

func (r *replay) state(s grpc.BidiStreamingServer[discoveryv3.DiscoveryRequest, discoveryv3.DiscoveryResponse]) error {
	asked := map[string][]string{}
	for {
		q, err := s.Recv()
		if err != nil {
			return err
		}
		r.note(q.GetTypeUrl(), q.GetResponseNonce(), q.GetErrorDetail())
		before, again := asked[q.GetTypeUrl()]
		if again && slices.Equal(before, q.GetResourceNames()) {
			continue
		}
		asked[q.GetTypeUrl()] = q.GetResourceNames()
		out := &discoveryv3.DiscoveryResponse{VersionInfo: version, Nonce: version, TypeUrl: q.GetTypeUrl()}
		for name, one := range r.all[q.GetTypeUrl()] {
			if len(q.GetResourceNames()) == 0 || slices.Contains(q.GetResourceNames(), name) {
				out.Resources = append(out.Resources, one)
			}
		}
		if err := s.Send(out); err != nil {
			return err
		}
	}
}

func (r *replay) delta(s grpc.BidiStreamingServer[discoveryv3.DeltaDiscoveryRequest, discoveryv3.DeltaDiscoveryResponse]) error {
	asked := map[string]bool{}
	for {
		q, err := s.Recv()
		if err != nil {
			return err
		}
		r.note(q.GetTypeUrl(), q.GetResponseNonce(), q.GetErrorDetail())
		whole := !asked[q.GetTypeUrl()] && len(q.GetResourceNamesSubscribe()) == 0
		asked[q.GetTypeUrl()] = true
		if !whole && len(q.GetResourceNamesSubscribe()) == 0 {
			continue
		}
		out := &discoveryv3.DeltaDiscoveryResponse{SystemVersionInfo: version, Nonce: version, TypeUrl: q.GetTypeUrl()}
		for name, one := range r.all[q.GetTypeUrl()] {
			if whole || slices.Contains(q.GetResourceNamesSubscribe(), name) {
				out.Resources = append(out.Resources, &discoveryv3.Resource{Name: name, Version: version, Resource: one})
			}
		}
		if err := s.Send(out); err != nil {
			return err
		}
	}
}
