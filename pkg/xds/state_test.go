package xds

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/weft-proxy/weft/internal/testpki"
	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/xds/resource"
)

// testResource is a resource as a control plane sends it. In tests a nil body means removal.
type testResource struct {
	url, name string
	body      []byte
}

func packAny(m proto.Message) *anypb.Any {
	a, err := anypb.New(m)
	if err != nil {
		panic(err)
	}
	return a
}

// adsSource returns an ADS config source. wait is its initial_fetch_timeout; 0 means no timeout.
func adsSource(wait time.Duration) *corev3.ConfigSource {
	return &corev3.ConfigSource{
		ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}},
		InitialFetchTimeout:   durationpb.New(wait),
	}
}

// clusterResource returns a cluster that gets its hosts from endpoints, and uses TLS if secret is
// not empty.
func clusterResource(name, endpoints, secret string, wait time.Duration) testResource {
	m := &clusterv3.Cluster{
		Name:                 name,
		ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS},
		EdsClusterConfig:     &clusterv3.Cluster_EdsClusterConfig{ServiceName: endpoints, EdsConfig: adsSource(wait)},
	}
	if secret != "" {
		m.TransportSocket = &corev3.TransportSocket{Name: "tls", ConfigType: &corev3.TransportSocket_TypedConfig{
			TypedConfig: packAny(&tlsv3.UpstreamTlsContext{CommonTlsContext: sdsContext(secret, adsSource(0))}),
		}}
	}
	return testResource{resource.ClusterType, name, serialized(m)}
}

func sdsContext(name string, from *corev3.ConfigSource) *tlsv3.CommonTlsContext {
	return &tlsv3.CommonTlsContext{TlsCertificateSdsSecretConfigs: []*tlsv3.SdsSecretConfig{{Name: name, SdsConfig: from}}}
}

func testAddress(port int) *corev3.Address {
	return &corev3.Address{Address: &corev3.Address_SocketAddress{
		SocketAddress: &corev3.SocketAddress{Address: "127.0.0.1", PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: uint32(port)}}, //nolint:gosec // a port
	}}
}

func endpointsResource(name string, ports ...int) testResource {
	l := &endpointv3.LocalityLbEndpoints{}
	for _, p := range ports {
		l.LbEndpoints = append(l.LbEndpoints, &endpointv3.LbEndpoint{
			HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{Address: testAddress(p)}},
		})
	}
	return testResource{resource.EndpointType, name, serialized(&endpointv3.ClusterLoadAssignment{ClusterName: name, Endpoints: []*endpointv3.LocalityLbEndpoints{l}})}
}

// listenerResource returns a listener that gets its routes from table, and uses TLS if secret is
// not empty.
func listenerResource(name string, port int, table, secret string, wait time.Duration) testResource {
	chain := &listenerv3.FilterChain{Filters: []*listenerv3.Filter{{
		Name: "http",
		ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: packAny(&hcmv3.HttpConnectionManager{
			StatPrefix:     name,
			RouteSpecifier: &hcmv3.HttpConnectionManager_Rds{Rds: &hcmv3.Rds{RouteConfigName: table, ConfigSource: adsSource(wait)}},
			HttpFilters:    []*hcmv3.HttpFilter{{Name: "router", ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: packAny(&routerv3.Router{})}}},
		})},
	}}}
	if secret != "" {
		chain.TransportSocket = &corev3.TransportSocket{Name: "tls", ConfigType: &corev3.TransportSocket_TypedConfig{
			TypedConfig: packAny(&tlsv3.DownstreamTlsContext{CommonTlsContext: sdsContext(secret, adsSource(0))}),
		}}
	}
	return testResource{resource.ListenerType, name, serialized(&listenerv3.Listener{Name: name, Address: testAddress(port), FilterChains: []*listenerv3.FilterChain{chain}})}
}

// routesResource returns routes that respond to every request with text.
func routesResource(name, text string) testResource {
	return testResource{resource.RouteType, name, serialized(&routev3.RouteConfiguration{Name: name, VirtualHosts: []*routev3.VirtualHost{{
		Name: "all", Domains: []string{"*"}, Routes: []*routev3.Route{{
			Match: &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: "/"}},
			Action: &routev3.Route_DirectResponse{DirectResponse: &routev3.DirectResponseAction{
				Status: 200, Body: &corev3.DataSource{Specifier: &corev3.DataSource_InlineString{InlineString: text}},
			}},
		}},
	}}})}
}

func inline(b []byte) *corev3.DataSource {
	return &corev3.DataSource{Specifier: &corev3.DataSource_InlineBytes{InlineBytes: b}}
}

func secretResource(name string, l testpki.Leaf) testResource {
	return testResource{resource.SecretType, name, serialized(&tlsv3.Secret{Name: name, Type: &tlsv3.Secret_TlsCertificate{
		TlsCertificate: &tlsv3.TlsCertificate{CertificateChain: inline(l.Cert), PrivateKey: inline(l.Key)},
	}})}
}

// applyResource sets a resource in w; a nil body removes it.
func applyResource(t testing.TB, w *state, r testResource, now time.Time) {
	t.Helper()
	var err error
	switch r.url {
	case resource.ClusterType:
		var c *resource.Cluster
		if r.body == nil {
			w.removeCluster(r.name)
		} else if c, err = resource.ReadCluster(r.body, testCapabilities()); err == nil {
			w.setCluster(r.name, c, now)
		}
	case resource.ListenerType:
		var l *resource.Listener
		if r.body == nil {
			w.removeListener(r.name)
		} else if l, err = resource.ReadListener(r.body, testCapabilities()); err == nil {
			w.setListener(r.name, l, now)
		}
	case resource.EndpointType:
		var a *resource.LoadAssignment
		if r.body != nil {
			a, err = resource.ReadLoadAssignment(r.body, testCapabilities())
		}
		w.setAssignment(r.name, a)
	case resource.RouteType:
		var table *resource.RouteTable
		if r.body != nil {
			table, err = resource.ReadRoutes(r.body, testCapabilities())
		}
		w.setTable(r.name, table)
	case resource.DubboRouteType:
		var table *resource.RouteTable
		if r.body != nil {
			table, err = resource.ReadDubboRoutes(r.body, testCapabilities())
		}
		w.setTable(resource.DubboTableName(r.name), table)
	case resource.ExtensionType:
		var e *resource.Extension
		if r.body != nil {
			e, err = resource.ReadExtension(r.body, testCapabilities())
		}
		w.setExtension(r.name, e)
	case resource.SecretType:
		s, failed := resource.ReadSecret(r.body, testCapabilities())
		err = failed
		w.setSecret(resource.SecretRef{Name: r.name}, s)
	}
	if err != nil {
		t.Fatalf("%s: %v", r.name, err)
	}
}

// checkConsistent fails t if an active resource lacks its hosts, secret or routes.
func checkConsistent(t testing.TB, w *state) {
	t.Helper()
	s := w.snapshot(&config.Snapshot{})
	for _, c := range s.Clusters {
		if len(c.Hosts) == 0 {
			t.Fatalf("cluster %s is active without hosts", c.Name)
		}
		if live := w.clusters[c.Name].active; len(live.Secrets()) > 0 && c.TLS.Certificate.Text == "" {
			t.Fatalf("cluster %s is active without its secret", c.Name)
		}
	}
	for _, l := range s.Listeners {
		for _, table := range w.listeners[l.Name].active.RouteConfigNames {
			if w.tables[table] == nil {
				t.Fatalf("listener %s is active without its routes", l.Name)
			}
		}
		for c := range l.Chains() {
			for _, context := range c.TLS {
				if context.Certificate.Text == "" {
					t.Fatalf("listener %s is active without its secret", l.Name)
				}
			}
		}
	}
}

// TestEveryResourceOrderConverges verifies that all orders of a few resources lead to the same
// configuration, from an empty state and from one in which every resource is replaced.
func TestEveryResourceOrderConverges(t *testing.T) {
	pki := testpki.New(t)
	older := []testResource{
		clusterResource("c", "e1", "s", 0), endpointsResource("e1", 1, 2), secretResource("s", pki.Issue(testpki.Spec{CommonName: "a"})),
		listenerResource("l", 80, "r1", "own", 0), routesResource("r1", "one"), secretResource("own", pki.Issue(testpki.Spec{CommonName: "b"})),
	}
	newer := []testResource{
		clusterResource("c", "e2", "s2", 0), endpointsResource("e2", 3), secretResource("s2", pki.Issue(testpki.Spec{CommonName: "c"})),
		listenerResource("l", 81, "r2", "own2", 0), routesResource("r2", "two"), secretResource("own2", pki.Issue(testpki.Spec{CommonName: "d"})),
	}
	now := time.Now()
	for name, start := range map[string][]testResource{"from nothing": nil, "from an older world": older} {
		t.Run(name, func(t *testing.T) {
			var want *config.Snapshot
			for order := range permutations(len(newer)) {
				w := newState()
				for _, r := range start {
					applyResource(t, w, r, now)
				}
				w.reconcile(now)
				before := w.snapshot(&config.Snapshot{})
				for _, i := range order {
					w.checkpoint()
					applyResource(t, w, newer[i], now)
					w.reconcile(now)
					checkConsistent(t, w)
					if got := w.snapshot(&config.Snapshot{}); len(got.Clusters) < len(before.Clusters) || len(got.Listeners) < len(before.Listeners) {
						t.Fatalf("order %v: a resource was removed before its replacement was active", order)
					}
				}
				w.takeSubscriptionChanges()
				got := w.snapshot(&config.Snapshot{})
				if want == nil {
					want = got
				}
				if !reflect.DeepEqual(got, want) {
					t.Fatalf("order %v ends otherwise:\n%+v\nwant\n%+v", order, got, want)
				}
			}
			if len(want.Clusters) != 1 || len(want.Listeners) != 1 || len(want.Routes) != 1 || len(want.Clusters[0].Hosts) != 1 {
				t.Fatalf("active: %+v, want all received resources", want)
			}
		})
	}
}

// permutations yields all permutations of the integers below n.
func permutations(n int) func(yield func([]int) bool) {
	return func(yield func([]int) bool) {
		order := make([]int, 0, n)
		var next func() bool
		next = func() bool {
			if len(order) == n {
				return yield(slices.Clone(order))
			}
			for i := range n {
				if slices.Contains(order, i) {
					continue
				}
				order = append(order, i)
				more := next()
				order = order[:len(order)-1]
				if !more {
					return false
				}
			}
			return true
		}
		next()
	}
}

// TestActiveVersionFollowsItsResources verifies that an active version uses the updates of its
// endpoints and routes while its replacement is warming.
func TestActiveVersionFollowsItsResources(t *testing.T) {
	now, w := time.Now(), newState()
	hosts := func() int { return len(w.snapshot(&config.Snapshot{}).Clusters[0].Hosts) }
	for _, r := range []testResource{clusterResource("c", "e1", "", 0), endpointsResource("e1", 1), listenerResource("l", 80, "r1", "", 0), routesResource("r1", "one")} {
		applyResource(t, w, r, now)
	}
	w.reconcile(now)
	applyResource(t, w, clusterResource("c", "e2", "", 0), now)
	applyResource(t, w, listenerResource("l", 81, "r2", "", 0), now)
	if c, _ := w.reconcile(now); !c.empty() {
		t.Errorf("a warming replacement changes %+v", c)
	}
	applyResource(t, w, endpointsResource("e1", 1, 2), now)
	if c, _ := w.reconcile(now); len(c.clusters) != 1 || c.listenersChanged || hosts() != 2 {
		t.Errorf("changes: %+v, %d hosts; want the changed cluster and 2 hosts", c, hosts())
	}
	applyResource(t, w, routesResource("r1", "other"), now)
	if c, _ := w.reconcile(now); c.listenersChanged || len(c.activatedListeners)+len(c.clusters) != 0 || len(c.tables) != 1 {
		t.Errorf("changes: %+v, want the one changed table", c)
	}
	applyResource(t, w, endpointsResource("e2", 3, 4, 5), now)
	applyResource(t, w, routesResource("r2", "two"), now)
	if c, _ := w.reconcile(now); hosts() != 3 || !slices.Equal(c.activatedListeners, []string{"l"}) {
		t.Errorf("the replacements: %+v, %d hosts, want the listener started, and 3", c, hosts())
	}
}

// TestInitialFetchTimeout verifies that clusters and listeners become active without endpoints and
// routes after their timeout, but not without secrets.
func TestInitialFetchTimeout(t *testing.T) {
	start, w := time.Now(), newState()
	applyResource(t, w, clusterResource("soon", "none", "", 2*time.Second), start)
	applyResource(t, w, clusterResource("never", "none", "", 0), start)
	applyResource(t, w, clusterResource("unready", "none", "no secret", time.Second), start)
	applyResource(t, w, listenerResource("late", 80, "none", "", 5*time.Second), start)
	for _, step := range []struct {
		at                  time.Duration
		clusters, listeners int
		next                time.Duration // after start; 0 means never
	}{
		{0, 0, 0, time.Second},
		{time.Second, 0, 0, 2 * time.Second}, // the wait for a secret has no timeout
		{2*time.Second - 1, 0, 0, 2 * time.Second},
		{2 * time.Second, 1, 0, 5 * time.Second},
		{5 * time.Second, 1, 1, 0},
		{time.Hour, 1, 1, 0},
	} {
		_, next := w.reconcile(start.Add(step.at))
		s := w.snapshot(&config.Snapshot{})
		if len(s.Clusters) != step.clusters || len(s.Listeners) != step.listeners {
			t.Errorf("after %v there are %d clusters and %d listeners, want %d and %d", step.at, len(s.Clusters), len(s.Listeners), step.clusters, step.listeners)
		}
		if want := start.Add(step.next); step.next == 0 && !next.IsZero() || step.next != 0 && !next.Equal(want) {
			t.Errorf("after %v: the next reconcile is after %v, want %v", step.at, next.Sub(start), step.next)
		}
	}
	if routes := w.snapshot(&config.Snapshot{}).Routes; len(routes) != 1 || len(routes[0].VirtualHosts) != 0 {
		t.Errorf("a listener that is active without its routes has %+v, want none", routes)
	}
}

// randomResource returns a random resource. Its body may be nil, which means removal, unless it is
// a secret.
func randomResource(r *rand.Rand, secrets []testResource) testResource {
	name := func(of string, n int) string { return fmt.Sprint(of, r.IntN(n)) }
	maybe := func(s string) string {
		if r.IntN(3) == 0 {
			return s
		}
		return ""
	}
	var one testResource
	switch r.IntN(8) {
	case 0:
		one = clusterResource(name("c", 3), name("e", 3), maybe(name("s", 3)), time.Duration(r.IntN(2))*time.Hour)
	case 1:
		one = endpointsResource(name("e", 3), 1+r.IntN(9))
	case 2:
		one = listenerResource(name("l", 3), 80+r.IntN(3), name("r", 3), maybe(name("s", 3)), time.Duration(r.IntN(2))*time.Hour)
	case 3:
		one = routesResource(name("r", 3), name("text", 5))
	case 4:
		one = extensionResource(name("x", 3), name("host", 5))
	case 6:
		if one = dubboRoutesResource(name("d", 2), name("c", 3)); r.IntN(2) == 0 {
			one = dubboListenerResource(name("l", 3), name("d", 2), time.Duration(r.IntN(2))*time.Hour)
		}
	case 5:
		one = filteredListenerResource(name("l", 3), name("r", 3), time.Duration(r.IntN(2))*time.Hour, name("x", 3), name("x", 3))
	default:
		one = secrets[r.IntN(len(secrets))]
	}
	if r.IntN(4) == 0 && one.url != resource.SecretType {
		one.body = nil
	}
	return one
}

// TestRollbackRestoresState verifies that a state that applies and rolls back additional resources
// stays equal to one that never received them.
func TestRollbackRestoresState(t *testing.T) {
	pki := testpki.New(t)
	var secrets []testResource
	for i := range 3 {
		secrets = append(secrets, secretResource(fmt.Sprint("s", i), pki.Issue(testpki.Spec{CommonName: "a"})))
	}
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		now := time.Now()
		one, other := newState(), newState()
		for range 30 {
			now = now.Add(time.Duration(r.IntN(40)) * time.Minute)
			one.checkpoint()
			other.checkpoint()
			common := randomResource(r, secrets)
			applyResource(t, one, common, now)
			applyResource(t, other, common, now)
			one.reconcile(now)
			other.reconcile(now)
			if r.IntN(2) == 0 {
				one.checkpoint()
				for range 1 + r.IntN(3) {
					applyResource(t, one, randomResource(r, secrets), now)
					if r.IntN(2) == 0 {
						one.holdBack(fmt.Sprint("l", r.IntN(3)))
					}
					one.reconcile(now)
				}
				one.rollback()
				one.reconcile(now)
			}
			_, oneNext := one.reconcile(now)
			_, otherNext := other.reconcile(now)
			a, b := one.snapshot(&config.Snapshot{}), other.snapshot(&config.Snapshot{})
			if !reflect.DeepEqual(a, b) || !oneNext.Equal(otherNext) || !reflect.DeepEqual(one.referenced(), other.referenced()) {
				t.Fatalf("seed %d: it is not as before:\n%+v\nwant\n%+v", seed, a, b)
			}
		}
	}
}

// securedListenerResource returns a listener that gets its certificate from an SDS cluster.
func securedListenerResource(name, secret, cluster string) testResource {
	from := &corev3.ConfigSource{ConfigSourceSpecifier: &corev3.ConfigSource_ApiConfigSource{ApiConfigSource: &corev3.ApiConfigSource{
		ApiType: corev3.ApiConfigSource_GRPC,
		GrpcServices: []*corev3.GrpcService{{TargetSpecifier: &corev3.GrpcService_EnvoyGrpc_{
			EnvoyGrpc: &corev3.GrpcService_EnvoyGrpc{ClusterName: cluster},
		}}},
	}}}
	m := &listenerv3.Listener{}
	if err := proto.Unmarshal(listenerResource(name, 443, "r", "", 0).body, m); err != nil {
		panic(err)
	}
	m.FilterChains[0].TransportSocket = &corev3.TransportSocket{Name: "tls", ConfigType: &corev3.TransportSocket_TypedConfig{
		TypedConfig: packAny(&tlsv3.DownstreamTlsContext{CommonTlsContext: sdsContext(secret, from)}),
	}}
	return testResource{resource.ListenerType, name, serialized(m)}
}
