package xds

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	secretv3 "github.com/envoyproxy/go-control-plane/envoy/service/secret/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/weft-proxy/weft/internal/testpki"
	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/layers"
	"github.com/weft-proxy/weft/pkg/xds/internal/xdstest"
	"github.com/weft-proxy/weft/pkg/xds/resource"
	"github.com/weft-proxy/weft/pkg/xds/transport"
)

// fakeServer is a control plane and SDS server that a test controls.
type fakeServer struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer
	secretv3.UnimplementedSecretDiscoveryServiceServer

	streams chan *adsStream
}

// adsStream is one stream of a fakeServer.
type adsStream struct {
	t        *testing.T
	stream   grpc.BidiStreamingServer[discoveryv3.DiscoveryRequest, discoveryv3.DiscoveryResponse]
	requests chan *discoveryv3.DiscoveryRequest
	nonces   int
}

func (s *fakeServer) StreamAggregatedResources(stream discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesServer) error {
	return s.serveStream(stream)
}

func (s *fakeServer) StreamSecrets(stream secretv3.SecretDiscoveryService_StreamSecretsServer) error {
	return s.serveStream(stream)
}

func (s *fakeServer) serveStream(stream grpc.BidiStreamingServer[discoveryv3.DiscoveryRequest, discoveryv3.DiscoveryResponse]) error {
	c := &adsStream{stream: stream, requests: make(chan *discoveryv3.DiscoveryRequest, 100)}
	s.streams <- c
	for {
		r, err := stream.Recv()
		if err != nil {
			return err
		}
		c.requests <- r
	}
}

// expectRequest returns the next request and fails the test unless it is for the type url.
func (c *adsStream) expectRequest(url string) *discoveryv3.DiscoveryRequest {
	c.t.Helper()
	r := <-c.requests
	if r.GetTypeUrl() != url {
		c.t.Fatalf("request for the type %s, want %s", r.GetTypeUrl(), url)
	}
	return r
}

// send sends resources of a type and returns the ACK or NACK. It discards earlier requests.
func (c *adsStream) send(url string, resources ...*anypb.Any) *discoveryv3.DiscoveryRequest {
	c.t.Helper()
	c.nonces++
	nonce := fmt.Sprint("n", c.nonces)
	if err := c.stream.Send(&discoveryv3.DiscoveryResponse{TypeUrl: url, VersionInfo: "v" + nonce, Nonce: nonce, Resources: resources}); err != nil {
		c.t.Fatal(err)
	}
	for {
		if r := <-c.requests; r.GetTypeUrl() == url && r.GetResponseNonce() == nonce {
			return r
		}
	}
}

// sendAccepted is send for resources of one type. It fails the test on a NACK.
func (c *adsStream) sendAccepted(resources ...xdstest.Resource) {
	c.t.Helper()
	var packed []*anypb.Any
	for _, r := range resources {
		packed = append(packed, &anypb.Any{TypeUrl: r.URL, Value: r.Body})
	}
	if r := c.send(resources[0].URL, packed...); r.GetErrorDetail() != nil {
		c.t.Fatalf("%s is rejected, want an ACK: %s", resources[0].Name, r.GetErrorDetail().GetMessage())
	}
}

// rig is a Source in a synctest bubble, with the servers that it connects to.
type rig struct {
	t        *testing.T
	source   *Source
	active   atomic.Pointer[config.Snapshot]
	applyErr func(next *config.Snapshot) error // returns the error of Apply; nil if Apply succeeds
	stop     map[string]func()                 // functions that stop the servers, by address

	mu        sync.Mutex
	serving   map[string]*bufconn.Listener // guarded by mu; reachable servers, by address
	dialTimes []time.Time                  // guarded by mu
}

// start returns a rig whose Source has applied an empty file. run starts the Source.
func start(t *testing.T) *rig {
	t.Helper()
	return startWith(t, func(*Options) {})
}

// startWith is start with options that change modifies.
func startWith(t *testing.T, change func(*Options)) *rig {
	t.Helper()
	r := &rig{t: t, serving: map[string]*bufconn.Listener{}, stop: map[string]func(){}}
	b := xdstest.Bootstrap("GRPC")
	b.StaticResources = []byte(strings.Replace(string(b.StaticResources), `{"name": "control"`, `{"name": "agent", "load_assignment": {"cluster_name": "agent", "endpoints": [
		{"lb_endpoints": [{"endpoint": {"address": {"pipe": {"path": "/run/agent"}}}}]}]}}, {"name": "control"`, 1))
	apply := func(next *config.Snapshot) error {
		if r.applyErr != nil {
			if err := r.applyErr(next); err != nil {
				return err
			}
		}
		r.active.Store(next)
		return nil
	}
	o := Options{
		Bootstrap: b,
		Layers:    layers.New(func(_ context.Context, d config.Delta) error { return apply(d.Next()) }),
		Log:       slog.New(slog.DiscardHandler),
	}
	change(&o)
	var err error
	if r.source, err = New(o); err != nil {
		t.Fatal(err)
	}
	r.source.network = transport.Network{Dial: r.dial, MaxMessageSize: 1 << 20}
	r.source.channels[0].dialer = r.source.newDialer("control")
	if err := r.source.stack.SetFile(t.Context(), &config.Snapshot{}); err != nil {
		t.Fatal(err)
	}
	return r
}

// Addresses of the control plane in xdstest.Bootstrap and of the SDS agent in startWith.
const (
	controlAddress = "127.0.0.1:1"
	agentAddress   = "/run/agent"
)

func (r *rig) run() {
	ctx, cancel := context.WithCancel(r.t.Context())
	ended := make(chan error)
	go func() { ended <- r.source.Run(ctx) }()
	r.t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			r.t.Error(err)
		}
		for _, stop := range r.stop {
			stop()
		}
	})
}

func (r *rig) dial(ctx context.Context, _, address string) (net.Conn, error) {
	r.mu.Lock()
	r.dialTimes = append(r.dialTimes, time.Now())
	ln := r.serving[address]
	r.mu.Unlock()
	if ln != nil {
		return ln.DialContext(ctx)
	}
	return nil, errors.New("no server at this address")
}

// serve starts a server at address.
func (r *rig) serve(address string) *fakeServer {
	s := &fakeServer{streams: make(chan *adsStream, 10)}
	g, ln := grpc.NewServer(), bufconn.Listen(1<<20)
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(g, s)
	secretv3.RegisterSecretDiscoveryServiceServer(g, s)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = g.Serve(ln)
	}()
	r.listenAt(address, ln)
	r.stop[address] = func() {
		g.Stop()
		<-ended
		r.listenAt(address, nil)
	}
	return s
}

// listenAt makes address reachable through ln, or unreachable if ln is nil.
func (r *rig) listenAt(address string, ln *bufconn.Listener) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.serving[address] = ln
}

// nextStream returns the next stream of s.
func (r *rig) nextStream(s *fakeServer) *adsStream {
	c := <-s.streams
	c.t = r.t
	return c
}

// runAndAccept runs the Source with a control plane and returns the first stream.
func (r *rig) runAndAccept() *adsStream {
	s := r.serve(controlAddress)
	r.run()
	return r.nextStream(s)
}

// listeners returns the names of the active listeners.
func (r *rig) listeners() (names []string) {
	synctest.Wait()
	for _, l := range r.active.Load().Listeners {
		names = append(names, l.Name)
	}
	return names
}

// sendInitial sends a cluster with its endpoints and a listener with its routes.
func (r *rig) sendInitial(c *adsStream) {
	r.t.Helper()
	c.expectRequest(resource.ClusterType)
	c.expectRequest(resource.ListenerType)
	c.sendAccepted(xdstest.Cluster("c", "e", "", 0))
	c.expectRequest(resource.EndpointType)
	c.sendAccepted(xdstest.Endpoints("e", 1, 2))
	c.sendAccepted(xdstest.Listener("l", 80, "r", "", 0))
	c.expectRequest(resource.RouteType)
	c.sendAccepted(xdstest.Routes("r", "one"))
	if got := r.listeners(); !slices.Equal(got, []string{"l"}) {
		r.t.Fatalf("active: %v, want l", got)
	}
}

// TestReconnectBackoff verifies that the Source reconnects with a random backoff, and that accepted
// resources stay active meanwhile.
func TestReconnectBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t)
		r.sendInitial(r.runAndAccept())
		before := r.active.Load()
		r.stop[controlAddress]()
		r.mu.Lock()
		r.dialTimes = nil
		r.mu.Unlock()
		time.Sleep(time.Hour)
		synctest.Wait()
		var backoffs []time.Duration
		r.mu.Lock()
		for i, dialTime := range r.dialTimes[1:] {
			backoffs = append(backoffs, dialTime.Sub(r.dialTimes[i]))
		}
		r.mu.Unlock()
		if n := len(backoffs); n < 100 || n > 300 {
			t.Errorf("%d connects in an hour, want one every 15 to 30 s", n)
		}
		for i, p := range backoffs {
			if i > 7 && (p < transport.MaxBackoff/2 || p > transport.MaxBackoff) || p > transport.MaxBackoff || p < transport.MinBackoff/2 {
				t.Errorf("backoff %d = %v, want %v to %v", i, p, transport.MinBackoff/2, transport.MaxBackoff)
			}
		}
		if slices.Equal(backoffs[20:30], backoffs[30:40]) {
			t.Error("the backoffs are not random")
		}
		if !slices.Equal(r.listeners(), []string{"l"}) || len(r.active.Load().Clusters) != len(before.Clusters) {
			t.Errorf("active: %+v, want %+v", r.active.Load(), before)
		}
		// The control plane has restarted without state.
		c := r.nextStream(r.serve(controlAddress))
		if got := c.expectRequest(resource.ClusterType); got.GetNode().GetId() != "test" || got.GetVersionInfo() == "" || got.GetResponseNonce() != "" {
			t.Errorf("first request = %v, want the node, the accepted version and no nonce", got)
		}
		if got := c.expectRequest(resource.EndpointType); !slices.Equal(got.GetResourceNames(), []string{"e"}) {
			t.Errorf("subscribed to endpoints %v, want e", got.GetResourceNames())
		}
		c.expectRequest(resource.ListenerType)
		c.expectRequest(resource.RouteType)
		c.sendAccepted(xdstest.Endpoints("e", 1, 2, 3))
		synctest.Wait()
		clusters := r.active.Load().Clusters
		index := slices.IndexFunc(clusters, func(cluster *config.Cluster) bool { return cluster.Name == "c" })
		if n := len(clusters[index].Hosts); n != 3 {
			t.Errorf("%d hosts, want 3", n)
		}
	})
}

// TestFlappingControlPlaneBackoff verifies that a response does not reset the backoff if the
// control plane disconnects right after it.
func TestFlappingControlPlaneBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t)
		s := r.serve(controlAddress)
		r.run()
		started := time.Now()
		for range 12 {
			c := r.nextStream(s)
			c.expectRequest(resource.ClusterType)
			c.sendAccepted(xdstest.Cluster("c", "e", "", 0))
			r.stop[controlAddress]()
			s = r.serve(controlAddress)
		}
		// Eleven backoffs: 0.5, 1, 2, 4, 8, 16 and five times 30 s, each randomly up to half less.
		if elapsed := time.Since(started); elapsed < 90*time.Second || elapsed > 4*time.Minute {
			t.Errorf("12 broken streams took %v, want backoffs that reach 15 to 30 s", elapsed)
		}
	})
}

// TestInvalidResourcesAreRejected verifies that a response with an invalid resource gets a NACK,
// and that a valid response after it gets an ACK.
func TestInvalidResourcesAreRejected(t *testing.T) {
	valid := map[string]xdstest.Resource{resource.ListenerType: xdstest.Listener("l", 80, "r", "", 0), resource.RouteType: xdstest.Routes("r", "one")}
	unsupported := &listenerv3.Listener{Name: "u", Address: xdstest.Address(81)}
	for _, c := range []struct {
		name string
		url  string
		bad  *anypb.Any
		want []string
	}{
		{"malformed protobuf", resource.ListenerType, &anypb.Any{TypeUrl: resource.ListenerType, Value: []byte{0xff, 0xff}}, []string{"resources[0]: "}},
		{"protobuf of another message", resource.ListenerType, &anypb.Any{TypeUrl: resource.ListenerType, Value: []byte("\n\x01x\x12\x03abc")}, []string{"x: "}},
		{"no name", resource.ListenerType, &anypb.Any{TypeUrl: resource.ListenerType}, []string{"resources[0]: the resource has no name"}},
		{"another type", resource.ListenerType, &anypb.Any{TypeUrl: resource.ClusterType, Value: xdstest.Cluster("c", "e", "", 0).Body}, []string{"resources[0]: the resource has another type", resource.ClusterType}},
		{"unknown type", resource.RouteType, &anypb.Any{TypeUrl: "type.googleapis.com/unknown"}, []string{"resources[0]: the resource has another type", "unknown"}},
		{"missing field", resource.ListenerType, &anypb.Any{TypeUrl: resource.ListenerType, Value: xdstest.Marshal(unsupported)}, []string{"u: filter_chains: is empty"}},
		{"unknown SDS cluster", resource.ListenerType, securedListenerAny("s", "nobody"), []string{`l2: secret "s"`, `"nobody" is not a cluster of static_resources`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := start(t)
				stream := r.runAndAccept()
				r.sendInitial(stream)
				ack := stream.send(c.url, c.bad, &anypb.Any{TypeUrl: c.url, Value: valid[c.url].Body})
				for _, text := range c.want {
					if !strings.Contains(ack.GetErrorDetail().GetMessage(), text) {
						t.Errorf("rejected with %q, want a text with %q", ack.GetErrorDetail().GetMessage(), text)
					}
				}
				if got := r.listeners(); !slices.Equal(got, []string{"l"}) {
					t.Errorf("active: %v, want only l", got)
				}
				stream.sendAccepted(valid[resource.ListenerType], xdstest.Listener("m", 81, "r", "", 0))
				if got := r.listeners(); !slices.Equal(got, []string{"l", "m"}) {
					t.Errorf("after a valid listener, active: %v, want l and m", got)
				}
			})
		})
	}
}

// securedListenerAny returns a listener that gets its certificate from an SDS cluster.
func securedListenerAny(secret, cluster string) *anypb.Any {
	return &anypb.Any{TypeUrl: resource.ListenerType, Value: xdstest.SecuredListener("l2", secret, cluster).Body}
}

// TestUnrequestedResponsesAreIgnored verifies that a response of an unknown type gets no ACK or
// NACK, and that a response above the size limit ends the stream. Neither changes the active
// configuration.
func TestUnrequestedResponsesAreIgnored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t)
		s := r.serve(controlAddress)
		r.run()
		c := r.nextStream(s)
		r.sendInitial(c)
		if err := c.stream.Send(&discoveryv3.DiscoveryResponse{TypeUrl: "type.googleapis.com/unknown", Nonce: "x"}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if len(c.requests) != 0 {
			t.Errorf("request after a response of an unknown type: %v, want none", <-c.requests)
		}
		huge := &anypb.Any{TypeUrl: resource.RouteType, Value: make([]byte, 2<<20)}
		if err := c.stream.Send(&discoveryv3.DiscoveryResponse{TypeUrl: resource.RouteType, Nonce: "y", Resources: []*anypb.Any{huge}}); err != nil {
			t.Fatal(err)
		}
		reconnected := r.nextStream(s)
		reconnected.expectRequest(resource.ClusterType)
		if got := r.listeners(); !slices.Equal(got, []string{"l"}) {
			t.Errorf("active: %v, want only l", got)
		}
	})
}

// withoutPort returns an applyErr function for which port is in use.
func withoutPort(port string) func(*config.Snapshot) error {
	return func(next *config.Snapshot) error {
		for _, l := range next.Listeners {
			if strings.HasSuffix(l.Address, port) {
				return fmt.Errorf("listener %s: port %s is in use", l.Name, port)
			}
		}
		return nil
	}
}

// TestOnlyFailingListenerIsRejected verifies that the other listeners of a response are active when
// one of them cannot be applied.
func TestOnlyFailingListenerIsRejected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t)
		r.applyErr = withoutPort(":99")
		c := r.runAndAccept()
		r.sendInitial(c)
		var packed []*anypb.Any
		for _, l := range []xdstest.Resource{xdstest.Listener("a", 80, "r", "", 0), xdstest.Listener("b", 81, "r", "", 0), xdstest.Listener("bad", 99, "r", "", 0), xdstest.Listener("z", 82, "r", "", 0)} {
			packed = append(packed, &anypb.Any{TypeUrl: l.URL, Value: l.Body})
		}
		if got := c.send(resource.ListenerType, packed...).GetErrorDetail().GetMessage(); got != "bad: listener bad: port :99 is in use" {
			t.Errorf("rejected with %q, want only bad", got)
		}
		if got := r.listeners(); !slices.Equal(got, []string{"a", "b", "z"}) {
			t.Errorf("active: %v, want a, b and z", got)
		}
	})
}

// TestRoutesAreAcceptedWhenListenerFails verifies that routes are accepted although one of the
// listeners that wait for them cannot be applied. The other listeners become active.
func TestRoutesAreAcceptedWhenListenerFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t)
		r.applyErr = withoutPort(":99")
		c := r.runAndAccept()
		r.sendInitial(c)
		c.sendAccepted(xdstest.Listener("a", 81, "late", "", 0), xdstest.Listener("bad", 99, "late", "", 0), xdstest.Listener("l", 80, "r", "", 0))
		c.sendAccepted(xdstest.Routes("late", "text"))
		if got := r.listeners(); !slices.Equal(got, []string{"a", "l"}) {
			t.Errorf("active: %v, want a and l", got)
		}
		reason := rejectReason(t, r.source, resource.ListenerType, "bad")
		if !strings.Contains(reason, "in use") {
			t.Errorf("reject reason of the listener = %q, want the reason of Apply", reason)
		}
		c.sendAccepted(xdstest.Listener("a", 81, "late", "", 0), xdstest.Listener("bad", 98, "late", "", 0), xdstest.Listener("l", 80, "r", "", 0))
		if got := r.listeners(); !slices.Equal(got, []string{"a", "bad", "l"}) {
			t.Errorf("with another port, active: %v, want all", got)
		}
	})
}

// TestInitialFetchTimeoutWithoutUpdates verifies that warming listeners become active after their
// initial_fetch_timeout, without any update.
func TestInitialFetchTimeoutWithoutUpdates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t)
		c := r.runAndAccept()
		c.expectRequest(resource.ClusterType)
		c.expectRequest(resource.ListenerType)
		c.send(resource.ClusterType)
		c.sendAccepted(xdstest.Listener("slow", 80, "none", "", 10*time.Second), xdstest.Listener("slower", 81, "none", "", 20*time.Second))
		for _, step := range []struct {
			wait time.Duration
			want int
		}{{10*time.Second - 1, 0}, {1, 1}, {10*time.Second - 1, 1}, {1, 2}} {
			time.Sleep(step.wait)
			if got := r.listeners(); len(got) != step.want {
				t.Errorf("%d active listeners, want %d", len(got), step.want)
			}
		}
	})
}

// TestSecretsFromSDSCluster verifies that the Source requests a secret from the SDS cluster that
// the listener names, and not from the control plane.
func TestSecretsFromSDSCluster(t *testing.T) {
	pki := testpki.New(t)
	first, second := pki.Issue(testpki.Spec{CommonName: "first"}), pki.Issue(testpki.Spec{CommonName: "second"})
	synctest.Test(t, func(t *testing.T) {
		r := start(t)
		s, agent := r.serve(controlAddress), r.serve(agentAddress)
		r.run()
		c := r.nextStream(s)
		r.sendInitial(c)
		c.sendAccepted(xdstest.Listener("l", 80, "r", "", 0), xdstest.SecuredListener("secured", "default", "agent"))
		if got := r.listeners(); !slices.Equal(got, []string{"l"}) {
			t.Errorf("without its certificate, active: %v, want only l", got)
		}
		secrets := r.nextStream(agent)
		if got := secrets.expectRequest(resource.SecretType); !slices.Equal(got.GetResourceNames(), []string{"default"}) || got.GetNode().GetId() != "test" {
			t.Errorf("request to the agent = %v, want the secret name and the node", got)
		}
		for _, leaf := range []testpki.Leaf{first, second} {
			secrets.sendAccepted(xdstest.Secret("default", leaf))
			if got := r.listeners(); !slices.Equal(got, []string{"l", "secured"}) {
				t.Fatalf("active: %v, want both", got)
			}
			for chain := range r.active.Load().Listeners[1].Chains() {
				if chain.TLS[0].Certificate.Text != string(leaf.Cert) {
					t.Error("the certificate is not the latest one")
				}
			}
		}
		for len(c.requests) > 0 {
			if got := <-c.requests; got.GetTypeUrl() == resource.SecretType {
				t.Errorf("the control plane got the request %v, want no SDS request", got)
			}
		}
		// The agent disconnects: its secret stays active, and the Source requests it again.
		r.stop[agentAddress]()
		if got := r.listeners(); len(got) != 2 {
			t.Errorf("active: %v, want both", got)
		}
		r.nextStream(r.serve(agentAddress)).expectRequest(resource.SecretType)
		// No listener refers to a secret anymore.
		c.sendAccepted(xdstest.Listener("l", 80, "r", "", 0))
		if got := r.listeners(); len(got) != 1 {
			t.Errorf("active: %v, want only l", got)
		}
	})
}
