// Command scale measures how Weft takes a large configuration from a control plane: how
// soon it is ready, what it holds, and what one change costs.
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
)

type sizes struct{ clusters, endpoints, routes, updates int }

func main() {
	bin := flag.String("bin", "bin/weft", "the program")
	delta := flag.Bool("delta", true, "ask for changes, not for all")
	var s sizes
	flag.IntVar(&s.clusters, "clusters", 10_000, "clusters")
	flag.IntVar(&s.endpoints, "endpoints", 10, "endpoints of each")
	flag.IntVar(&s.routes, "routes", 20_000, "routes of the table")
	flag.IntVar(&s.updates, "updates", 100, "changes of an endpoint that are timed; a tenth of that of a route")
	flag.Parse()
	if err := measure(*bin, *delta, s); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// everybody is who the resources are for.
type everybody struct{}

// ID is cache.NodeHash's.
func (everybody) ID(*corev3.Node) string { return "all" }

func measure(bin string, delta bool, s sizes) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	m := model{sizes: s, cache: cache.NewSnapshotCache(true, everybody{}, nil), acks: make(chan ack, 1024)}
	if err := m.publish(ctx, nil, nil); err != nil {
		return err
	}
	address, stop, err := m.serve(ctx)
	if err != nil {
		return err
	}
	defer stop()
	w, err := start(ctx, bin, address, delta)
	if err != nil {
		return err
	}
	defer w.end()
	began := time.Now()
	if err := w.answers(ctx); err != nil {
		return err
	}
	fmt.Printf("ready after %.2f s with %d clusters of %d endpoints and %d routes; %.2f s of CPU, %d MB resident\n",
		time.Since(began).Seconds(), s.clusters, s.endpoints, s.routes, w.cpu().Seconds(), w.resident()>>20)
	time.Sleep(3 * time.Second)
	idle := w.cpu()
	time.Sleep(3 * time.Second)
	fmt.Printf("idle: %.1f ms of CPU in 3 s, %d MB resident\n", ms(w.cpu()-idle), w.resident()>>20)
	if err := m.change(ctx, w, "endpoint", s.updates, resource.EndpointType, func(i int) ([]types.Resource, []types.Resource) {
		return []types.Resource{m.assignment(i%s.clusters, i+1)}, nil
	}); err != nil {
		return err
	}
	return m.change(ctx, w, "route", max(1, s.updates/10), resource.RouteType, func(i int) ([]types.Resource, []types.Resource) {
		return nil, []types.Resource{m.table(i + 1)}
	})
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// model is what the control plane serves.
type model struct {
	sizes
	cache   cache.SnapshotCache
	acks    chan ack
	version int
	all     map[resource.Type][]types.Resource
}

type ack struct {
	kind string
	at   time.Time
	why  string
}

// publish serves everything, with some resources in the place of those of their names.
func (m *model) publish(ctx context.Context, endpoints, routes []types.Resource) error {
	if m.all == nil {
		m.all = map[resource.Type][]types.Resource{resource.ListenerType: {m.listener()}, resource.RouteType: {m.table(0)}}
		for i := range m.clusters {
			m.all[resource.ClusterType] = append(m.all[resource.ClusterType], m.cluster(i))
			m.all[resource.EndpointType] = append(m.all[resource.EndpointType], m.assignment(i, 0))
		}
	}
	for _, r := range endpoints {
		i, err := strconv.Atoi(strings.TrimPrefix(cache.GetResourceName(r), "c"))
		if err != nil {
			return err
		}
		m.all[resource.EndpointType][i] = r
	}
	if routes != nil {
		m.all[resource.RouteType] = routes
	}
	m.version++
	snapshot, err := cache.NewSnapshot(strconv.Itoa(m.version), m.all)
	if err != nil {
		return err
	}
	return m.cache.SetSnapshot(ctx, "all", snapshot)
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

// assignment has the endpoints of a cluster; its revision is a weight.
func (m *model) assignment(i, revision int) *endpointv3.ClusterLoadAssignment {
	l := &endpointv3.LocalityLbEndpoints{}
	for e := range m.endpoints {
		l.LbEndpoints = append(l.LbEndpoints, &endpointv3.LbEndpoint{
			HostIdentifier:      &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{Address: tcp(fmt.Sprintf("127.%d.%d.%d", 1+i>>16, i>>8&255, i&255), 10_000+e)}},
			LoadBalancingWeight: wrapperspb.UInt32(uint32(1 + revision%100)),
		})
	}
	return &endpointv3.ClusterLoadAssignment{ClusterName: "c" + strconv.Itoa(i), Endpoints: []*endpointv3.LocalityLbEndpoints{l}}
}

func tcp(address string, port int) *corev3.Address {
	return &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
		Address: address, PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: uint32(port)},
	}}}
}

// listening is the port of the listener.
const listening = 2090

func (m *model) listener() *listenerv3.Listener {
	hcm := pack(&hcmv3.HttpConnectionManager{
		StatPrefix:     "scale",
		RouteSpecifier: &hcmv3.HttpConnectionManager_Rds{Rds: &hcmv3.Rds{RouteConfigName: "table", ConfigSource: fromADS()}},
		HttpFilters:    []*hcmv3.HttpFilter{{Name: "router", ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: pack(&routerv3.Router{})}}},
	})
	return &listenerv3.Listener{
		Name: "scale", Address: tcp("127.0.0.1", listening),
		FilterChains: []*listenerv3.FilterChain{{Filters: []*listenerv3.Filter{{
			Name: "http", ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: hcm},
		}}}},
	}
}

func pack(m proto.Message) *anypb.Any {
	a, err := anypb.New(m)
	if err != nil {
		panic(err)
	}
	return a
}

// table has the routes, in virtual hosts of a hundred; its revision is a status.
func (m *model) table(revision int) *routev3.RouteConfiguration {
	t := &routev3.RouteConfiguration{Name: "table"}
	for n := 0; n < m.routes; n += 100 {
		v := &routev3.VirtualHost{Name: "v" + strconv.Itoa(n), Domains: []string{"h" + strconv.Itoa(n) + ".test"}}
		for r := n; r < min(n+100, m.routes); r++ {
			v.Routes = append(v.Routes, &routev3.Route{
				Match:  &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: "/" + strconv.Itoa(r) + "/"}},
				Action: &routev3.Route_Route{Route: &routev3.RouteAction{ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: "c" + strconv.Itoa(r%m.clusters)}}},
			})
		}
		t.VirtualHosts = append(t.VirtualHosts, v)
	}
	t.VirtualHosts = append(t.VirtualHosts, &routev3.VirtualHost{Name: "ready", Domains: []string{"*"}, Routes: []*routev3.Route{{
		Match:  &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Path{Path: "/ready"}},
		Action: &routev3.Route_DirectResponse{DirectResponse: &routev3.DirectResponseAction{Status: uint32(200 + revision%90)}},
	}}})
	return t
}

// serve begins to serve, and notes what is acknowledged.
func (m *model) serve(ctx context.Context) (address string, stop func(), err error) {
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	note := func(kind, nonce, refusal string) {
		if nonce == "" {
			return
		}
		select {
		case m.acks <- ack{kind, time.Now(), refusal}:
		default:
		}
	}
	s := grpc.NewServer(grpc.MaxRecvMsgSize(64<<20), grpc.MaxSendMsgSize(256<<20))
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(s, server.NewServer(ctx, m.cache, server.CallbackFuncs{
		StreamRequestFunc: func(_ int64, r *discoveryv3.DiscoveryRequest) error {
			note(r.GetTypeUrl(), r.GetResponseNonce(), r.GetErrorDetail().GetMessage())
			return nil
		},
		StreamDeltaRequestFunc: func(_ int64, r *discoveryv3.DeltaDiscoveryRequest) error {
			note(r.GetTypeUrl(), r.GetResponseNonce(), r.GetErrorDetail().GetMessage())
			return nil
		},
	}))
	go s.Serve(ln) //nolint:errcheck // it ends with the program
	return ln.Addr().String(), s.Stop, nil
}

// change publishes changes one after the other and tells what each costs.
func (m *model) change(ctx context.Context, w *weft, what string, times int, kind string, next func(i int) (endpoints, routes []types.Resource)) error {
	var waited, longest time.Duration
	before := w.cpu()
	for i := range times {
		for len(m.acks) > 0 {
			<-m.acks
		}
		endpoints, routes := next(i)
		published := time.Now()
		if err := m.publish(ctx, endpoints, routes); err != nil {
			return err
		}
		published = latest(published, time.Now()) // what publishing costs is the control plane's
		at, err := m.acknowledged(ctx, kind)
		if err != nil {
			return err
		}
		took := max(0, at.Sub(published))
		waited += took
		longest = max(longest, took)
	}
	fmt.Printf("one %s changed: in force after %.2f ms (at most %.2f), %.2f ms of CPU; %d times\n", what,
		ms(waited)/float64(times), ms(longest), ms(w.cpu()-before)/float64(times), times)
	return nil
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func (m *model) acknowledged(ctx context.Context, kind string) (time.Time, error) {
	for {
		select {
		case a := <-m.acks:
			if a.kind == kind {
				if a.why != "" {
					return a.at, errors.New("refused: " + a.why)
				}
				return a.at, nil
			}
		case <-ctx.Done():
			return time.Time{}, ctx.Err()
		}
	}
}

// weft is the process that is measured.
type weft struct {
	cmd *exec.Cmd
	dir string
}

func start(ctx context.Context, bin, control string, delta bool) (*weft, error) {
	dir, err := os.MkdirTemp("", "weft-scale")
	if err != nil {
		return nil, err
	}
	host, port, err := net.SplitHostPort(control)
	if err != nil {
		return nil, err
	}
	form := "GRPC"
	if delta {
		form = "DELTA_GRPC"
	}
	file := filepath.Join(dir, "xds.json")
	text := fmt.Sprintf(`{"servers": [{"default_log_level": "WARN"}], "node": {"id": "scale", "cluster": "scale"},
"dynamic_resources": {"ads_config": {"api_type": %q, "grpc_services": [{"envoy_grpc": {"cluster_name": "control"}}]}, "cds_config": {"ads": {}}, "lds_config": {"ads": {}}},
"static_resources": {"clusters": [{"name": "control", "load_assignment": {"cluster_name": "control", "endpoints": [
{"lb_endpoints": [{"endpoint": {"address": {"socket_address": {"address": %q, "port_value": %s}}}}]}]}}]}}`, form, host, port)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, bin, "start", "-c", file)
	cmd.Stderr = os.Stderr
	return &weft{cmd, dir}, cmd.Start()
}

func (w *weft) end() {
	_ = w.cmd.Process.Signal(syscall.SIGTERM)
	_ = w.cmd.Wait()
	_ = os.RemoveAll(w.dir)
}

// answers waits until the listener does.
func (w *weft) answers(ctx context.Context) error {
	for ctx.Err() == nil {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d/ready", listening), nil)
		if err != nil {
			return err
		}
		if a, err := http.DefaultClient.Do(r); err == nil {
			_ = a.Body.Close()
			if a.StatusCode == http.StatusOK {
				return nil
			}
		}
		time.Sleep(5 * time.Millisecond)
	}
	return ctx.Err()
}

// cpu is the processor time that its threads have used.
func (w *weft) cpu() time.Duration {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", w.cmd.Process.Pid))
	if err != nil {
		return 0
	}
	var sum time.Duration
	for _, t := range threads {
		if b, err := os.ReadFile(t); err == nil {
			n, _ := strconv.ParseInt(strings.Fields(string(b))[0], 10, 64)
			sum += time.Duration(n)
		}
	}
	return sum
}

// resident is the memory that it has, in bytes.
func (w *weft) resident() int64 {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", w.cmd.Process.Pid))
	if err != nil {
		return 0
	}
	pages, _ := strconv.ParseInt(strings.Fields(string(b))[1], 10, 64)
	return pages * int64(os.Getpagesize())
}
