// Command scale measures how Weft handles a large configuration from a control plane: time until it
// is ready, memory, and the cost of one change.
//
//	go run ./test/xds/scale -bin bin/weft -clusters 10000 -endpoints 10 -routes 20000
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weft-proxy/weft/test/bench/process"
)

type sizes struct {
	clusters, endpoints, routes, hosts, updates int
	// changeInterval is the interval between two changes.
	changeInterval time.Duration
	// onDemand enables on-demand resources.
	onDemand bool
}

func main() {
	bin := flag.String("bin", "bin/weft", "path of the weft binary")
	delta := flag.Bool("delta", true, "use delta xDS instead of state of the world")
	var s sizes
	flag.IntVar(&s.clusters, "clusters", 10_000, "clusters")
	flag.IntVar(&s.endpoints, "endpoints", 10, "endpoints per cluster")
	flag.IntVar(&s.routes, "routes", 20_000, "routes in the route table")
	flag.IntVar(&s.hosts, "hosts", 200, "virtual hosts in the route table")
	flag.DurationVar(&s.changeInterval, "every", 20*time.Millisecond, "interval between two changes")
	flag.IntVar(&s.updates, "updates", 100, "endpoint changes to measure; then a tenth as many route changes")
	flag.BoolVar(&s.onDemand, "lazy", false, "enable xds_lazy, and measure the first requests to -updates clusters instead of changes")
	flag.Parse()
	if err := measure(*bin, *delta, s); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func measure(bin string, delta bool, s sizes) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	m := model{sizes: s, events: make(chan event, 1024)}
	m.publish()
	address, stop, err := m.serve(ctx)
	if err != nil {
		return err
	}
	defer stop()
	w, err := start(ctx, bin, address, delta, s.onDemand)
	if err != nil {
		return err
	}
	defer w.stop()
	started := time.Now()
	if err := w.awaitServing(ctx); err != nil {
		return err
	}
	fmt.Printf("ready after %.2f s with %d clusters of %d endpoints and %d routes; %.2f s of CPU, %d MB resident\n",
		time.Since(started).Seconds(), s.clusters, s.endpoints, s.routes, w.cpu().Seconds(), w.resident()>>20)
	time.Sleep(10 * time.Second) // until the memory that only the start needed is released
	idle := w.cpu()
	time.Sleep(3 * time.Second)
	fmt.Printf("idle: %.1f ms of CPU in 3 s, %d MB resident\n", ms(w.cpu()-idle), w.resident()>>20)
	if s.onDemand {
		return m.measureOnDemand(ctx, w)
	}
	if err := m.change(ctx, w, "endpoint", s.updates, resource.EndpointType, func(i int) types.Resource {
		return m.assignment(i%s.clusters, i+1)
	}); err != nil {
		return err
	}
	return m.change(ctx, w, "route", max(1, s.updates/10), resource.RouteType, func(i int) types.Resource { return m.table(i + 1) })
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// model is the content of the control plane.
type model struct {
	sizes
	caches map[string]*cache.LinearCache // by type URL
	events chan event
}

// event records that the control plane sent a response of a type, or received an ACK or NACK.
type event struct {
	typeURL    string
	at         time.Time
	ack        bool
	nackDetail string // error detail of a NACK
}

// publish fills the caches. A separate cache for each type keeps the cost of a change for the
// control plane low.
func (m *model) publish() {
	all := map[string]map[string]types.Resource{
		resource.ListenerType: {"scale": m.listener()}, resource.RouteType: {"table": m.table(0)},
		resource.ClusterType: {}, resource.EndpointType: {}, resource.SecretType: {}, resource.ExtensionConfigType: {},
	}
	for i := range m.clusters {
		name := "c" + strconv.Itoa(i)
		all[resource.ClusterType][name], all[resource.EndpointType][name] = m.cluster(i), m.assignment(i, 0)
	}
	m.caches = map[string]*cache.LinearCache{}
	for typeURL, resources := range all {
		m.caches[typeURL] = cache.NewLinearCache(typeURL, cache.WithInitialResources(resources))
	}
}

// mux returns a cache that combines all types.
func (m *model) mux() cache.Cache {
	mux := &cache.MuxCache{
		Classify:      func(r *cache.Request) string { return r.GetTypeUrl() },
		ClassifyDelta: func(r *cache.DeltaRequest) string { return r.GetTypeUrl() },
		Caches:        map[string]cache.Cache{},
	}
	for typeURL, c := range m.caches {
		mux.Caches[typeURL] = c
	}
	return mux
}

func (m *model) cluster(i int) *clusterv3.Cluster {
	name := "c" + strconv.Itoa(i)
	return &clusterv3.Cluster{
		Name:                 name,
		ConnectTimeout:       durationpb.New(time.Second),
		ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS},
		EdsClusterConfig:     &clusterv3.Cluster_EdsClusterConfig{ServiceName: name, EdsConfig: fromADS()},
	}
}

func fromADS() *corev3.ConfigSource {
	return &corev3.ConfigSource{
		ResourceApiVersion:    corev3.ApiVersion_V3,
		ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}},
	}
}

// assignment returns the endpoints of a cluster; revision changes their weight.
func (m *model) assignment(i, revision int) *endpointv3.ClusterLoadAssignment {
	l := &endpointv3.LocalityLbEndpoints{}
	for e := range m.endpoints {
		l.LbEndpoints = append(l.LbEndpoints, &endpointv3.LbEndpoint{
			HostIdentifier:      &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{Address: tcp(fmt.Sprintf("127.%d.%d.%d", 1+i>>16, i>>8&255, i&255), 10_000+e)}},
			LoadBalancingWeight: wrapperspb.UInt32(uint32(1 + revision)),
		})
	}
	return &endpointv3.ClusterLoadAssignment{ClusterName: "c" + strconv.Itoa(i), Endpoints: []*endpointv3.LocalityLbEndpoints{l}}
}

func tcp(address string, port int) *corev3.Address {
	return &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
		Address: address, PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: uint32(port)},
	}}}
}

// listenPort is the port of the listener.
const listenPort = 2090

func (m *model) listener() *listenerv3.Listener {
	hcm := mustAny(&hcmv3.HttpConnectionManager{
		StatPrefix:     "scale",
		RouteSpecifier: &hcmv3.HttpConnectionManager_Rds{Rds: &hcmv3.Rds{RouteConfigName: "table", ConfigSource: fromADS()}},
		HttpFilters:    []*hcmv3.HttpFilter{{Name: "router", ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: mustAny(&routerv3.Router{})}}},
	})
	return &listenerv3.Listener{
		Name: "scale", Address: tcp("127.0.0.1", listenPort),
		FilterChains: []*listenerv3.FilterChain{{Filters: []*listenerv3.Filter{{
			Name: "http", ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: hcm},
		}}}},
	}
}

func mustAny(m proto.Message) *anypb.Any {
	a, err := anypb.New(m)
	if err != nil {
		panic(err)
	}
	return a
}

// routesPerHost returns the number of routes per virtual host.
func (m *model) routesPerHost() int { return max(1, m.routes/max(1, m.hosts)) }

// table returns the routes; revision changes the cluster of one of them.
func (m *model) table(revision int) *routev3.RouteConfiguration {
	t := &routev3.RouteConfiguration{Name: "table"}
	routesPerHost := m.routesPerHost()
	for n := 0; n < m.routes; n += routesPerHost {
		v := &routev3.VirtualHost{Name: "v" + strconv.Itoa(n), Domains: []string{"h" + strconv.Itoa(n) + ".test"}}
		for r := n; r < min(n+routesPerHost, m.routes); r++ {
			cluster := r
			if r == m.routes/2 {
				cluster += revision
			}
			v.Routes = append(v.Routes, &routev3.Route{
				Match:  &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: "/" + strconv.Itoa(r) + "/"}},
				Action: &routev3.Route_Route{Route: &routev3.RouteAction{ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: "c" + strconv.Itoa(cluster%m.clusters)}}},
			})
		}
		t.VirtualHosts = append(t.VirtualHosts, v)
	}
	t.VirtualHosts = append(t.VirtualHosts, &routev3.VirtualHost{Name: "ready", Domains: []string{"*"}, Routes: []*routev3.Route{{
		Match:  &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Path{Path: "/ready"}},
		Action: &routev3.Route_DirectResponse{DirectResponse: &routev3.DirectResponseAction{Status: 200}},
	}}})
	return t
}

// serve starts the control plane and records responses, ACKs and NACKs.
func (m *model) serve(ctx context.Context) (address string, stop func(), err error) {
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	record := func(e event) {
		e.at = time.Now()
		select {
		case m.events <- e:
		default:
		}
	}
	recordACK := func(typeURL, nonce, nackDetail string) {
		if nonce != "" {
			record(event{typeURL: typeURL, ack: true, nackDetail: nackDetail})
		}
	}
	s := grpc.NewServer(grpc.MaxRecvMsgSize(64<<20), grpc.MaxSendMsgSize(256<<20))
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(s, server.NewServer(ctx, m.mux(), server.CallbackFuncs{
		StreamRequestFunc: func(_ int64, r *discoveryv3.DiscoveryRequest) error {
			recordACK(r.GetTypeUrl(), r.GetResponseNonce(), r.GetErrorDetail().GetMessage())
			return nil
		},
		StreamDeltaRequestFunc: func(_ int64, r *discoveryv3.DeltaDiscoveryRequest) error {
			recordACK(r.GetTypeUrl(), r.GetResponseNonce(), r.GetErrorDetail().GetMessage())
			return nil
		},
		StreamResponseFunc: func(_ context.Context, _ int64, _ *discoveryv3.DiscoveryRequest, r *discoveryv3.DiscoveryResponse) {
			record(event{typeURL: r.GetTypeUrl()})
		},
		StreamDeltaResponseFunc: func(_ int64, _ *discoveryv3.DeltaDiscoveryRequest, r *discoveryv3.DeltaDiscoveryResponse) {
			record(event{typeURL: r.GetTypeUrl()})
		},
	}))
	go s.Serve(ln) //nolint:errcheck // ends with the program
	return ln.Addr().String(), s.Stop, nil
}

// change publishes changes at a fixed interval and prints the time from response to ACK and the CPU
// time of each.
func (m *model) change(ctx context.Context, w *weft, label string, times int, typeURL string, next func(i int) types.Resource) error {
	var total, longest time.Duration
	ticker := time.NewTicker(m.changeInterval)
	defer ticker.Stop()
	before := w.cpu()
	for i := range times {
		<-ticker.C
		for len(m.events) > 0 {
			<-m.events
		}
		changed := next(i)
		if err := m.caches[typeURL].UpdateResource(cache.GetResourceName(changed), changed); err != nil {
			return err
		}
		sent, err := m.awaitEvent(ctx, typeURL, false)
		if err != nil {
			return err
		}
		acknowledged, err := m.awaitEvent(ctx, typeURL, true)
		if err != nil {
			return err
		}
		took := acknowledged.Sub(sent)
		total += took
		longest = max(longest, took)
	}
	fmt.Printf("one %s changed: active after %.2f ms (at most %.2f), %.2f ms of CPU; %d times\n", label,
		ms(total)/float64(times), ms(longest), ms(w.cpu()-before)/float64(times), times)
	return nil
}

// awaitEvent returns the time of the next response of a type, or of its ACK; a NACK is an error.
func (m *model) awaitEvent(ctx context.Context, typeURL string, ack bool) (time.Time, error) {
	for {
		select {
		case e := <-m.events:
			switch {
			case e.typeURL != typeURL || e.ack != ack:
			case e.nackDetail != "":
				return e.at, errors.New("NACK: " + e.nackDetail)
			default:
				return e.at, nil
			}
		case <-ctx.Done():
			return time.Time{}, ctx.Err()
		}
	}
}

// weft is the process under test.
type weft struct {
	cmd *exec.Cmd
	dir string
}

func start(ctx context.Context, bin, controlPlane string, delta, onDemand bool) (*weft, error) {
	dir, err := os.MkdirTemp("", "weft-scale")
	if err != nil {
		return nil, err
	}
	host, port, err := net.SplitHostPort(controlPlane)
	if err != nil {
		return nil, err
	}
	apiType := "GRPC"
	if delta {
		apiType = "DELTA_GRPC"
	}
	level, lazyKey := "WARN", ""
	if onDemand {
		level, lazyKey = "ERROR", `"xds_lazy": {},` // do not log hosts that refuse connections
	}
	file := filepath.Join(dir, "xds.json")
	text := fmt.Sprintf(`{"servers": [{"default_log_level": %q}], "node": {"id": "scale", "cluster": "scale"},
"dynamic_resources": {"ads_config": {"api_type": %q, "grpc_services": [{"envoy_grpc": {"cluster_name": "control"}}]}, "cds_config": {"ads": {}}, "lds_config": {"ads": {}}},
%s
"static_resources": {"clusters": [{"name": "control", "load_assignment": {"cluster_name": "control", "endpoints": [
{"lb_endpoints": [{"endpoint": {"address": {"socket_address": {"address": %q, "port_value": %s}}}}]}]}}]}}`, level, apiType, lazyKey, host, port)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, bin, "start", "-c", file)
	cmd.Stderr = os.Stderr
	return &weft{cmd, dir}, cmd.Start()
}

func (w *weft) stop() {
	_ = w.cmd.Process.Signal(syscall.SIGTERM)
	_ = w.cmd.Wait()
	_ = os.RemoveAll(w.dir)
}

// awaitServing waits until the listener responds.
func (w *weft) awaitServing(ctx context.Context) error {
	for ctx.Err() == nil {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d/ready", listenPort), nil)
		if err != nil {
			return err
		}
		if resp, err := http.DefaultClient.Do(r); err == nil {
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
		}
		time.Sleep(5 * time.Millisecond)
	}
	return ctx.Err()
}

// cpu returns the CPU time of the process.
func (w *weft) cpu() time.Duration {
	used, err := process.CPUTime([]int{w.cmd.Process.Pid})
	if err != nil {
		return 0 // the process has exited
	}
	return used
}

// resident returns the resident memory in bytes.
func (w *weft) resident() int64 {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", w.cmd.Process.Pid))
	if err != nil {
		return 0
	}
	pages, _ := strconv.ParseInt(strings.Fields(string(b))[1], 10, 64)
	return pages * int64(os.Getpagesize())
}
