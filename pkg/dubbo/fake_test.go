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
	openErr             error // why no session can be opened
	sessions            int
	opened              int
	closed              int
	lists               map[string][]string // providers by interface; no entry: no notification
	urls                map[string]bool     // registered URLs
	watchers            map[*fakeWatcher]bool
	availabilityChanged chan struct{} // closed and replaced when away or refusal changes
	changed             func()
	calls               []string
	metadata            map[string]string // by application and revision, such as "a/1"
	metadataRequests    []string          // the keys of metadata that were requested
	asking              func()            // State calls it once; may be nil

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
		return nil, errors.New("it is no address")
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.openErr != nil {
		return nil, f.openErr
	}
	f.opened++
	f.changed = o.Changed
	return f, nil
}

// set changes how the registry responds.
func (f *fakeRegistry) set(away bool, refusal error) {
	f.mu.Lock()
	f.unavailable, f.rejection = away, refusal
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
// requests. It holds mu during do.
func (f *fakeRegistry) accept(ctx context.Context, do func()) error {
	for {
		f.mu.Lock()
		away, refusal, turned := f.unavailable, f.rejection, f.availabilityChanged
		if !away {
			if refusal == nil {
				do()
			}
			f.mu.Unlock()
			return refusal
		}
		f.mu.Unlock()
		select {
		case <-turned:
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

// report sets the providers of an interface, as hosts with optional parameters, and notifies watchers.
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
		list, known := f.lists[w.service.Interface]
		if !f.unavailable && known && (iface == "" || iface == w.service.Interface) {
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
		all := map[string]string{"interface": s.Interface}
		if s.Group != "" {
			all["group"] = s.Group
		}
		if s.Version != "" {
			all["version"] = s.Version
		}
		urls = append(urls, u.With(all))
	}
	return urls
}

func (f *fakeRegistry) Metadata(ctx context.Context, application, revision string) ([]byte, error) {
	f.mu.Lock()
	key := application + "/" + revision
	f.metadataRequests = append(f.metadataRequests, key)
	text, there := f.metadata[key]
	f.mu.Unlock()
	switch {
	case text == noResponse:
		<-ctx.Done()
		return nil, ctx.Err()
	case there:
		return []byte(text), nil
	}
	return nil, registry.ErrNoMetadata
}

// noResponse marks metadata that never arrives.
const noResponse = "none"

func (f *fakeRegistry) State() registry.State {
	f.mu.Lock()
	asking := f.asking
	f.asking = nil
	f.mu.Unlock()
	if asking != nil {
		asking()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return registry.State{Connected: !f.unavailable, Sessions: f.sessions, Session: fmt.Sprint(f.sessions)}
}

func (f *fakeRegistry) Close(context.Context) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed++
	clear(f.urls)
	clear(f.instanceCalls.there)
}

// registered returns the registered URLs, without the consumers.
func (f *fakeRegistry) registered() (all []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for text := range f.urls {
		if u, err := registry.Parse(text); err == nil && u.Protocol == "dubbo" {
			all = append(all, shortURL(u))
		}
	}
	slices.Sort(all)
	return all
}

// testEnv is a Discovery with a fake registry, and the changes that it has applied.
type testEnv struct {
	*testing.T
	fake      *fakeRegistry
	discovery *dubbo.Discovery
	log       *slog.Logger // of the next Discovery; nil: none
	end       func()       // stops Run

	mu       sync.Mutex
	refuse   func(layers.Change) error
	clusters map[string]*config.Cluster
	routes   *config.RouteTable
	applies  int
}

// newRig returns a rig whose Discovery does not run yet.
func newRig(t *testing.T, c config.DubboRegistry) *testEnv {
	r := &testEnv{T: t, fake: newFakeRegistry(), clusters: map[string]*config.Cluster{}}
	r.discovery = r.newDiscovery(c)
	return r
}

func defaultConfig() config.DubboRegistry {
	return config.DubboRegistry{Enable: true, Host: "10.1.1.1", ServerPort: 20080}
}

func (r *testEnv) newDiscovery(c config.DubboRegistry) *dubbo.Discovery {
	log := r.log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	discovery, err := dubbo.New(dubbo.Options{
		Registries: map[string]registry.OpenFunc{"fake": r.fake.open, "memory": r.fake.open},
		Config:     c,
		Apply:      r.apply,
		Log:        log,
	})
	if err != nil {
		r.Fatal(err)
	}
	return discovery
}

func (r *testEnv) apply(_ context.Context, c layers.Change) error {
	r.mu.Lock()
	r.applies++
	refuse := r.refuse
	r.mu.Unlock()
	if refuse != nil {
		if err := refuse(c); err != nil { // may block
			return err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, cluster := range c.Clusters {
		r.clusters[cluster.Name] = cluster
	}
	for _, name := range c.Removed {
		delete(r.clusters, name)
	}
	if c.Routes != nil {
		r.routes = c.Routes
	}
	return nil
}

// run runs the Discovery until end is called.
func (r *testEnv) run() *testEnv {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := r.discovery.Run(ctx); err != nil {
			r.Error(err)
		}
	}()
	r.end = sync.OnceFunc(func() {
		cancel()
		<-ended
	})
	synctest.Wait()
	return r
}

// inForce returns the hosts of each applied cluster, and whether it has a route.
func (r *testEnv) inForce() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	routed := map[string]bool{}
	if r.routes != nil {
		for _, route := range r.routes.VirtualHosts[0].Routes {
			routed[route.Forward.Cluster] = true
		}
	}
	var parts []string
	for name, c := range r.clusters {
		hosts := make([]string, len(c.Hosts))
		for i, h := range c.Hosts {
			hosts[i] = strings.TrimSuffix(h.Address, ":20880")
		}
		text := name + "=" + strings.Join(hosts, ",")
		if !routed[name] {
			text += " without a route"
		}
		delete(routed, name)
		parts = append(parts, text)
	}
	for name := range routed {
		parts = append(parts, name+" has a route and is no cluster")
	}
	slices.Sort(parts)
	return strings.Join(parts, "; ")
}

func (r *testEnv) desired(want string) {
	r.Helper()
	if got := r.inForce(); got != want {
		r.Errorf("active: %q, want %q", got, want)
	}
}

// request returns a request for a service such as "x", "g/x" or "g/x:1".
func request(service string) dubbo.Request {
	q := dubbo.Request{Registry: dubbo.Registry{Type: "fake", Address: "h:1"}}
	group, rest, ok := strings.Cut(service, "/")
	if !ok {
		group, rest = "", service
	}
	q.Service.Group = group
	q.Service.Interface, q.Service.Version, _ = strings.Cut(rest, ":")
	q.Service.Methods = []string{"get"}
	return q
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// inSynctest runs a test with a rig in fake time.
func inSynctest(t *testing.T, c config.DubboRegistry, test func(r *testEnv)) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, c).run()
		defer r.end()
		test(r)
	})
}

// advanceClock advances the fake time.
func advanceClock(d time.Duration) {
	timer := time.NewTimer(d)
	<-timer.C
	synctest.Wait()
}
