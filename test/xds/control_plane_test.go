package xds

import (
	"context"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/v3"
	"google.golang.org/grpc"
)

// waitTimeout is the timeout of operations that should complete immediately, on a busy machine.
const waitTimeout = 30 * time.Second

// apiTypes returns the protocol variants as api_type values of a bootstrap.
func apiTypes() []string { return []string{"GRPC", "DELTA_GRPC"} }

// singleNodeHash is a cache.NodeHash that does not distinguish nodes.
type singleNodeHash struct{}

// ID implements cache.NodeHash.
func (singleNodeHash) ID(*corev3.Node) string { return "all" }

// ack is an ACK or NACK of a response.
type ack struct {
	typeName   string // short type name, for example "Listener"
	nackDetail string // error detail of a NACK; "": an ACK
}

// controlPlane is a control plane: go-control-plane's server with its cache.
type controlPlane struct {
	t       testing.TB
	address string
	*resourceSet
	version int

	cache         cache.SnapshotCache
	endpointCache *cache.LinearCache // serves endpoints separately; nil: cache serves them
	stop          func()
	// partial means that the state-of-the-world variant responds to requests for a subset of the
	// resources.
	partial bool

	mu          sync.Mutex
	acks        []ack         // guarded by mu
	acksChanged chan struct{} // guarded by mu; closed and replaced when acks grows
	streamCount int           // number of opened streams; guarded by mu
	node        *corev3.Node  // node of the last request with one; guarded by mu
}

// newControlPlane starts a control plane without resources. It stops at the end of the test.
func newControlPlane(t testing.TB) *controlPlane {
	t.Helper()
	p := newStoppedControlPlane(t)
	p.start()
	return p
}

// newStoppedControlPlane returns a control plane that does not run until start.
func newStoppedControlPlane(t testing.TB) *controlPlane {
	p := &controlPlane{t: t, address: newHost() + ":18000", resourceSet: newResourceSet(), acksChanged: make(chan struct{}), stop: func() {}}
	t.Cleanup(func() { p.stop() })
	return p
}

// start starts to serve, from an empty cache.
func (p *controlPlane) start() {
	p.t.Helper()
	ln, err := net.Listen("tcp", p.address)
	if err != nil {
		p.t.Fatal(err)
	}
	p.cache = cache.NewSnapshotCache(!p.partial, singleNodeHash{}, nil)
	ctx, cancel := context.WithCancel(context.Background())
	s := grpc.NewServer(grpc.MaxRecvMsgSize(64 << 20))
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(s, server.NewServer(ctx, p.serverCache(), server.CallbackFuncs{
		StreamRequestFunc: func(_ int64, r *discoveryv3.DiscoveryRequest) error {
			p.recordRequest(r.GetNode(), r.GetTypeUrl(), r.GetResponseNonce(), r.GetErrorDetail().GetMessage())
			return nil
		},
		StreamDeltaRequestFunc: func(_ int64, r *discoveryv3.DeltaDiscoveryRequest) error {
			p.recordRequest(r.GetNode(), r.GetTypeUrl(), r.GetResponseNonce(), r.GetErrorDetail().GetMessage())
			return nil
		},
		StreamOpenFunc:      func(context.Context, int64, string) error { p.onStreamOpened(); return nil },
		DeltaStreamOpenFunc: func(context.Context, int64, string) error { p.onStreamOpened(); return nil },
	}))
	var wg sync.WaitGroup
	wg.Go(func() { _ = s.Serve(ln) }) // ends with Stop
	p.stop = sync.OnceFunc(func() {
		cancel()
		s.Stop()
		wg.Wait()
	})
}

// serverCache returns the cache of the server.
func (p *controlPlane) serverCache() cache.Cache {
	if p.endpointCache == nil {
		return p.cache
	}
	const endpoints, others = "endpoints", "others"
	return &cache.MuxCache{
		Classify: func(r *cache.Request) string {
			if r.GetTypeUrl() == resource.EndpointType {
				return endpoints
			}
			return others
		},
		ClassifyDelta: func(r *cache.DeltaRequest) string {
			if r.GetTypeUrl() == resource.EndpointType {
				return endpoints
			}
			return others
		},
		Caches: map[string]cache.Cache{endpoints: p.endpointCache, others: p.cache},
	}
}

func (p *controlPlane) onStreamOpened() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.streamCount++
}

func (p *controlPlane) streams() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.streamCount
}

func (p *controlPlane) recordRequest(node *corev3.Node, url, nonce, nackDetail string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if node != nil {
		p.node = node
	}
	if nonce == "" {
		return
	}
	p.acks = append(p.acks, ack{shortType(url), nackDetail})
	close(p.acksChanged)
	p.acksChanged = make(chan struct{})
}

func shortType(url string) string { return url[strings.LastIndexByte(url, '.')+1:] }

// publish serves the current resources.
func (p *controlPlane) publish() {
	p.t.Helper()
	p.version++
	s, err := p.snapshot(p.version)
	if err == nil {
		err = s.Consistent()
	}
	if err == nil {
		err = p.cache.SetSnapshot(p.t.Context(), "all", s)
	}
	if err != nil {
		p.t.Fatal(err)
	}
}

// ackCount returns the number of ACKs and NACKs.
func (p *controlPlane) ackCount() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.acks)
}

// await returns the first ACK or NACK, from the index from, for which matches returns true. It
// waits for one if necessary.
func (p *controlPlane) await(from int, matches func(ack) bool) ack {
	p.t.Helper()
	timeout := time.After(waitTimeout)
	for {
		p.mu.Lock()
		acks, changed := p.acks[from:], p.acksChanged
		p.mu.Unlock()
		if i := slices.IndexFunc(acks, matches); i >= 0 {
			return acks[i]
		}
		select {
		case <-changed:
		case <-timeout:
			p.t.Fatalf("no matching ACK or NACK after %v, but %v", waitTimeout, acks)
		}
	}
}

// nacks returns the NACKs.
func (p *controlPlane) nacks() (out []ack) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, a := range p.acks {
		if a.nackDetail != "" {
			out = append(out, a)
		}
	}
	return out
}
