package dubbo_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/dubbo"
	"github.com/weft-proxy/weft/pkg/layers"
	"github.com/weft-proxy/weft/pkg/registry"
)

// fakeRegistry is a registry that a test controls. It numbers its sessions.
type fakeRegistry struct {
	mu                  sync.Mutex
	unavailable         bool // the registry does not respond
	rejection           error
	openErr             error // error of open
	sessions            int
	opened              int
	closed              int
	lists               map[string][]string // providers by interface; no entry: no notification
	urls                map[string]bool     // registered URLs
	watchers            map[*fakeWatcher]bool
	availabilityChanged chan struct{} // closed and replaced when unavailable or rejection changes
	changed             func()
	calls               []string
	metadata            map[string]string // by application and revision, such as "a/1"
	metadataRequests    []string          // the keys of metadata that were requested
	onState             func()            // State calls it once; may be nil

	instanceCalls fakeInstances
}

type fakeWatcher struct {
	service registry.Service
	notify  func(registry.Snapshot)
}

func newFakeRegistry() *fakeRegistry {
	return &fakeRegistry{sessions: 1, lists: map[string][]string{}, urls: map[string]bool{}, watchers: map[*fakeWatcher]bool{}, availabilityChanged: make(chan struct{})}
}

func (f *fakeRegistry) open(o registry.Options) (registry.Registry, error) {
	if o.Address == "bad" {
		return nil, errors.New("invalid address")
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.openErr != nil {
		return nil, f.openErr
	}
	f.opened++
	f.changed = o.OnChange
	return f, nil
}

// set changes how the registry responds.
func (f *fakeRegistry) set(unavailable bool, rejection error) {
	f.mu.Lock()
	f.unavailable, f.rejection = unavailable, rejection
	close(f.availabilityChanged)
	f.availabilityChanged = make(chan struct{})
	f.mu.Unlock()
	f.notifyWatchers("")
	if f.changed != nil {
		f.changed()
	}
}

func (f *fakeRegistry) Register(ctx context.Context, u registry.URL) error {
	return f.accept(ctx, func() {
		f.urls[u.String()] = true
		f.calls = append(f.calls, "+"+shortURL(u))
	})
}

// accept waits while the registry is unavailable, and calls do unless the registry rejects
// requests. It holds mu during the call.
func (f *fakeRegistry) accept(ctx context.Context, do func()) error {
	for {
		f.mu.Lock()
		unavailable, rejection, changed := f.unavailable, f.rejection, f.availabilityChanged
		if !unavailable {
			if rejection == nil {
				do()
			}
			f.mu.Unlock()
			return rejection
		}
		f.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func shortURL(u registry.URL) string {
	text := u.Protocol + " " + u.Service().String()
	if m := u.Get("methods"); m != "" {
		text += "#" + m
	}
	return text
}

func (f *fakeRegistry) Unregister(_ context.Context, u registry.URL) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.urls, u.String())
	f.calls = append(f.calls, "-"+shortURL(u))
	return nil
}

func (f *fakeRegistry) Subscribe(s registry.Service, notify func(registry.Snapshot)) (stop func()) {
	w := &fakeWatcher{s, notify}
	f.mu.Lock()
	f.watchers[w] = true
	f.mu.Unlock()
	f.notifyWatchers(s.Interface)
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.watchers, w)
	}
}

// report sets the providers of an interface, as hosts with optional parameters, and notifies
// watchers.
func (f *fakeRegistry) report(iface string, providers ...string) {
	f.mu.Lock()
	f.lists[iface] = providers
	f.mu.Unlock()
	f.notifyWatchers(iface)
}

// notifyWatchers notifies the watchers of an interface; "": all watchers.
func (f *fakeRegistry) notifyWatchers(iface string) {
	type call struct {
		notify func(registry.Snapshot)
		view   registry.Snapshot
	}
	var calls []call
	f.mu.Lock()
	for w := range f.watchers {
		list, ok := f.lists[w.service.Interface]
		if !f.unavailable && ok && (iface == "" || iface == w.service.Interface) {
			calls = append(calls, call{w.notify, registry.Snapshot{Providers: providers(w.service, list)}})
		}
	}
	f.mu.Unlock()
	for _, c := range calls {
		c.notify(c.view)
	}
}

// providers returns URLs of a service at hosts such as "10.0.0.1?weight=3". A host may contain a
// group and a version if the service has none.
func providers(s registry.Service, hosts []string) (urls []registry.URL) {
	for _, host := range hosts {
		host, query, _ := strings.Cut(host, "?")
		u, err := registry.Parse(fmt.Sprintf("dubbo://%s:20880/%s?%s", host, s.Interface, query))
		if err != nil {
			panic(err)
		}
		parameters := map[string]string{"interface": s.Interface}
		if s.Group != "" {
			parameters["group"] = s.Group
		}
		if s.Version != "" {
			parameters["version"] = s.Version
		}
		urls = append(urls, u.With(parameters))
	}
	return urls
}

func (f *fakeRegistry) Metadata(ctx context.Context, application, revision string) ([]byte, error) {
	f.mu.Lock()
	key := application + "/" + revision
	f.metadataRequests = append(f.metadataRequests, key)
	text, ok := f.metadata[key]
	f.mu.Unlock()
	switch {
	case text == noResponse:
		<-ctx.Done()
		return nil, ctx.Err()
	case ok:
		return []byte(text), nil
	}
	return nil, registry.ErrNoMetadata
}

// noResponse marks metadata that never arrives.
const noResponse = "none"

func (f *fakeRegistry) State() registry.State {
	f.mu.Lock()
	onState := f.onState
	f.onState = nil
	f.mu.Unlock()
	if onState != nil {
		onState()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return registry.State{Connected: !f.unavailable, SessionCount: f.sessions, SessionID: fmt.Sprint(f.sessions)}
}

func (f *fakeRegistry) Close(context.Context) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed++
	clear(f.urls)
	clear(f.instanceCalls.registered)
}

// registered returns the registered URLs, without the consumers.
func (f *fakeRegistry) registered() (list []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for text := range f.urls {
		if u, err := registry.Parse(text); err == nil && u.Protocol == "dubbo" {
			list = append(list, shortURL(u))
		}
	}
	slices.Sort(list)
	return list
}

// testEnv is a Discovery with a fake registry, and the clusters and routes that it has applied.
type testEnv struct {
	*testing.T
	fake      *fakeRegistry
	discovery *dubbo.Discovery
	log       *slog.Logger // of the next Discovery; nil: none
	end       func()       // stops Run

	mu       sync.Mutex
	reject   func(layers.Change) error
	clusters map[string]*config.Cluster
	routes   *config.RouteTable
	applies  int
}

// newTestEnv returns an environment whose Discovery does not run yet.
func newTestEnv(t *testing.T, c config.DubboRegistry) *testEnv {
	env := &testEnv{T: t, fake: newFakeRegistry(), clusters: map[string]*config.Cluster{}}
	env.discovery = env.newDiscovery(c)
	return env
}

func defaultConfig() config.DubboRegistry {
	return config.DubboRegistry{Enable: true, Host: "10.1.1.1", ServerPort: 20080}
}

func (env *testEnv) newDiscovery(c config.DubboRegistry) *dubbo.Discovery {
	log := env.log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	discovery, err := dubbo.New(dubbo.Options{
		Registries: map[string]registry.OpenFunc{"fake": env.fake.open, "memory": env.fake.open},
		Config:     c,
		Apply:      env.apply,
		Log:        log,
	})
	if err != nil {
		env.Fatal(err)
	}
	return discovery
}

func (env *testEnv) apply(_ context.Context, c layers.Change) error {
	env.mu.Lock()
	env.applies++
	reject := env.reject
	env.mu.Unlock()
	if reject != nil {
		if err := reject(c); err != nil { // may block
			return err
		}
	}
	env.mu.Lock()
	defer env.mu.Unlock()
	for _, cluster := range c.Clusters {
		env.clusters[cluster.Name] = cluster
	}
	for _, name := range c.Removed {
		delete(env.clusters, name)
	}
	if c.Routes != nil {
		env.routes = c.Routes
	}
	return nil
}

// run runs the Discovery until end is called.
func (env *testEnv) run() *testEnv {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := env.discovery.Run(ctx); err != nil {
			env.Error(err)
		}
	}()
	env.end = sync.OnceFunc(func() {
		cancel()
		<-ended
	})
	synctest.Wait()
	return env
}

// activeHosts returns the hosts of each applied cluster, and whether it has a route.
func (env *testEnv) activeHosts() string {
	env.mu.Lock()
	defer env.mu.Unlock()
	hasRoute := map[string]bool{}
	if env.routes != nil {
		for _, route := range env.routes.VirtualHosts[0].Routes {
			hasRoute[route.Forward.Cluster] = true
		}
	}
	var parts []string
	for name, c := range env.clusters {
		hosts := make([]string, len(c.Hosts))
		for i, h := range c.Hosts {
			hosts[i] = strings.TrimSuffix(h.Address, ":20880")
		}
		text := name + "=" + strings.Join(hosts, ",")
		if !hasRoute[name] {
			text += " without a route"
		}
		delete(hasRoute, name)
		parts = append(parts, text)
	}
	for name := range hasRoute {
		parts = append(parts, name+" has a route, but there is no cluster")
	}
	slices.Sort(parts)
	return strings.Join(parts, "; ")
}

func (env *testEnv) wantActive(want string) {
	env.Helper()
	if got := env.activeHosts(); got != want {
		env.Errorf("active hosts %q, want %q", got, want)
	}
}

// request returns a request for a service such as "x", "g/x" or "g/x:1".
func request(service string) dubbo.Request {
	req := dubbo.Request{Registry: dubbo.Registry{Type: "fake", Address: "h:1"}}
	group, rest, ok := strings.Cut(service, "/")
	if !ok {
		group, rest = "", service
	}
	req.Service.Group = group
	req.Service.Interface, req.Service.Version, _ = strings.Cut(rest, ":")
	req.Service.Methods = []string{"get"}
	return req
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// inSynctest runs a test with a testEnv in fake time.
func inSynctest(t *testing.T, c config.DubboRegistry, test func(env *testEnv)) {
	synctest.Test(t, func(t *testing.T) {
		env := newTestEnv(t, c).run()
		defer env.end()
		test(env)
	})
}

// advanceClock advances the fake time.
func advanceClock(d time.Duration) {
	timer := time.NewTimer(d)
	<-timer.C
	synctest.Wait()
}
