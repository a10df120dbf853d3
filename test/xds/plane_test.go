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

// patience is the timeout of operations that should complete immediately, on a busy machine.
const patience = 30 * time.Second

// forms returns the protocol variants as api_type values of a bootstrap.
func forms() []string { return []string{"GRPC", "DELTA_GRPC"} }

// everybody is a cache.NodeHash that does not distinguish nodes.
type everybody struct{}

// ID implements cache.NodeHash.
func (everybody) ID(*corev3.Node) string { return "all" }

// answer is an ACK or NACK of a response.
type answer struct {
	kind    string // short type name, for example "Listener"
	refusal string // error detail of a NACK; "": an ACK
}

// plane is a control plane: go-control-plane's server with its cache.
type plane struct {
	t       testing.TB
	address string
	*world
	version int

	cache cache.SnapshotCache
	apart *cache.LinearCache // serves endpoints separately; nil: cache serves them
	stop  func()
	// partial means that the state-of-the-world variant responds to requests for a subset of the
	// resources.
	partial bool

	mu      sync.Mutex
	answers []answer      // guarded by mu
	more    chan struct{} // guarded by mu; closed and replaced when answers grows
	asked   int           // number of opened streams; guarded by mu
	node    *corev3.Node  // node of the last request with one; guarded by mu
}

// newPlane starts a control plane without resources. It stops at the end of the test.
func newPlane(t testing.TB) *plane {
	t.Helper()
	p := newStopped(t)
	p.start()
	return p
}

// newStopped returns a control plane that start starts.
func newStopped(t testing.TB) *plane {
	p := &plane{t: t, address: newHost() + ":18000", world: newWorld(), more: make(chan struct{}), stop: func() {}}
	t.Cleanup(func() { p.stop() })
	return p
}

// start starts to serve, from an empty cache.
func (p *plane) start() {
	p.t.Helper()
	ln, err := net.Listen("tcp", p.address)
	if err != nil {
		p.t.Fatal(err)
	}
	p.cache = cache.NewSnapshotCache(!p.partial, everybody{}, nil)
	ctx, cancel := context.WithCancel(context.Background())
	s := grpc.NewServer(grpc.MaxRecvMsgSize(64 << 20))
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(s, server.NewServer(ctx, p.caches(), server.CallbackFuncs{
		StreamRequestFunc: func(_ int64, r *discoveryv3.DiscoveryRequest) error {
			p.note(r.GetNode(), r.GetTypeUrl(), r.GetResponseNonce(), r.GetErrorDetail().GetMessage())
			return nil
		},
		StreamDeltaRequestFunc: func(_ int64, r *discoveryv3.DeltaDiscoveryRequest) error {
			p.note(r.GetNode(), r.GetTypeUrl(), r.GetResponseNonce(), r.GetErrorDetail().GetMessage())
			return nil
		},
		StreamOpenFunc:      func(context.Context, int64, string) error { p.opened(); return nil },
		DeltaStreamOpenFunc: func(context.Context, int64, string) error { p.opened(); return nil },
	}))
	var serving sync.WaitGroup
	serving.Go(func() { _ = s.Serve(ln) }) // ends with Stop
	p.stop = sync.OnceFunc(func() {
		cancel()
		s.Stop()
		serving.Wait()
	})
}

// caches returns the cache of the server.
func (p *plane) caches() cache.Cache {
	if p.apart == nil {
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
		Caches: map[string]cache.Cache{endpoints: p.apart, others: p.cache},
	}
}

func (p *plane) opened() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked++
}

func (p *plane) streams() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.asked
}

func (p *plane) note(node *corev3.Node, url, nonce, refusal string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if node != nil {
		p.node = node
	}
	if nonce == "" {
		return
	}
	p.answers = append(p.answers, answer{kindOf(url), refusal})
	close(p.more)
	p.more = make(chan struct{})
}

func kindOf(url string) string { return url[strings.LastIndexByte(url, '.')+1:] }

// publish serves the current resources of the world.
func (p *plane) publish() {
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

// heard returns the number of answers.
func (p *plane) heard() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.answers)
}

// await returns the first answer after the first from ones for which wanted returns true.
func (p *plane) await(from int, wanted func(answer) bool) answer {
	p.t.Helper()
	limit := time.After(patience)
	for {
		p.mu.Lock()
		all, more := p.answers[from:], p.more
		p.mu.Unlock()
		if i := slices.IndexFunc(all, wanted); i >= 0 {
			return all[i]
		}
		select {
		case <-more:
		case <-limit:
			p.t.Fatalf("the answer that is waited for has not come after %v, but %v", patience, all)
		}
	}
}

// refusals returns the NACKs.
func (p *plane) refusals() (all []answer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, a := range p.answers {
		if a.refusal != "" {
			all = append(all, a)
		}
	}
	return all
}
