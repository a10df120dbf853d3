package dubbo_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/dubbo"
	"github.com/weft-proxy/weft/pkg/layers"
)

// model is a testEnv with the expected state.
type model struct {
	*testEnv
	config       config.DubboRegistry
	rng          *rand.Rand
	published    map[string]bool
	subscribed   map[string]time.Time // by service: when the model subscribed
	current      map[string][]string  // last reported hosts of an interface
	lastNonEmpty map[string]time.Time // when a service last had a provider
	unavailable  bool
	history      []string
}

// TestRandomOperationsConverge randomly calls the API, changes snapshots, disconnects the registry,
// replaces its session, rejects changes and restarts. It verifies that no service becomes empty
// within EmptyProtection of its last provider, and that everything reaches the desired state when
// the disturbances end.
func TestRandomOperationsConverge(t *testing.T) {
	seeds := uint64(24)
	if testing.Short() {
		seeds = 5
	}
	for seed := range seeds {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			c := defaultConfig()
			c.StateFile = filepath.Join(t.TempDir(), "state.json")
			synctest.Test(t, func(t *testing.T) {
				m := &model{
					testEnv: newTestEnv(t, c), config: c, rng: rand.New(rand.NewPCG(seed, 0)),
					published: map[string]bool{}, subscribed: map[string]time.Time{}, current: map[string][]string{}, lastNonEmpty: map[string]time.Time{},
				}
				m.run()
				defer func() { m.end() }()
				for range 120 {
					m.randomStep()
					synctest.Wait()
					m.checkNotEmptied()
				}
				m.endDisturbances()
				m.checkDesiredState()
				if t.Failed() {
					t.Log("steps:\n" + strings.Join(m.history, "\n"))
				}
			})
		})
	}
}

func (m *model) record(format string, args ...any) {
	m.history = append(m.history, fmt.Sprintf("%s  ", time.Now().Format("15:04:05"))+fmt.Sprintf(format, args...))
}

// services returns the services for random choices: two per interface.
func services() []string { return []string{"x", "x:1", "y", "g/y", "z", "z:2"} }

func interfaceOf(service string) string {
	_, name, ok := strings.Cut(service, "/")
	if !ok {
		name = service
	}
	name, _, _ = strings.Cut(name, ":")
	return name
}

func (m *model) randomStep() {
	names := services()
	service := names[m.rng.IntN(len(names))]
	switch m.rng.IntN(14) {
	case 0, 1:
		m.record("publish %s", service)
		m.published[service] = true
		m.checkError(m.discovery.Publish(m.Context(), m.request(service)))
	case 2:
		m.record("unpublish %s", service)
		m.checkError(m.discovery.Unpublish(m.Context(), m.request(service)))
		delete(m.published, service)
	case 3, 4:
		m.record("subscribe %s", service)
		m.noteSubscribed(service)
		m.checkError(m.discovery.Subscribe(m.Context(), m.request(service)))
	case 5:
		m.record("unsubscribe %s", service)
		m.checkError(m.discovery.Unsubscribe(m.Context(), m.request(service)))
		delete(m.subscribed, service)
	case 6, 7, 8:
		m.report(interfaceOf(service), m.rng.IntN(5))
	case 9:
		m.report(interfaceOf(service), 0)
	case 10:
		m.unavailable = !m.unavailable
		m.record("registry unavailable: %v", m.unavailable)
		m.fake.mu.Lock()
		m.fake.sessions++
		m.fake.mu.Unlock()
		m.fake.set(m.unavailable, nil)
		m.noteProviders()
	case 11:
		d := time.Duration(m.rng.IntN(400)) * time.Second
		m.record("advance the clock by %v", d)
		advanceClock(d)
	case 12:
		m.toggleRejection()
	case 13:
		m.restartOrBurst()
	}
}

func (m *model) noteSubscribed(service string) {
	if _, ok := m.subscribed[service]; !ok {
		m.subscribed[service] = time.Now()
		delete(m.lastNonEmpty, service)
	}
	m.noteProviders()
}

// checkError verifies that an error is one of the expected ones.
func (m *model) checkError(err error) {
	if err != nil && !errors.Is(err, dubbo.ErrPending) && !errors.Is(err, dubbo.ErrNotFound) && !errors.Is(err, errRejected) {
		m.Errorf("unexpected error: %v", err)
	}
}

func (m *model) request(service string) dubbo.Request {
	req := request(service)
	if m.rng.IntN(4) == 0 {
		req.Service.Methods = []string{"get", fmt.Sprint("m", m.rng.IntN(3))}
	}
	if m.rng.IntN(8) == 0 {
		req.Service.Parameters = map[string]string{"timeout": fmt.Sprint(100 + m.rng.IntN(3))}
	}
	return req
}

func (m *model) report(iface string, n int) {
	hosts := []string{}
	for i := range 6 {
		if len(hosts) < n && m.rng.IntN(2) == 0 {
			hosts = append(hosts, fmt.Sprintf("10.0.0.%d", i+1))
		}
	}
	m.record("report %s at %v", iface, hosts)
	m.current[iface] = hosts
	m.fake.report(iface, hosts...)
	m.noteProviders()
}

// noteProviders records which services have providers now.
func (m *model) noteProviders() {
	for service := range m.subscribed {
		if len(m.current[interfaceOf(service)]) > 0 && !m.unavailable {
			m.lastNonEmpty[service] = time.Now()
		}
	}
}

var errRejected = errors.New("rejected at random")

// retryTime is the time until rejected changes have been retried.
const retryTime = time.Minute

func (m *model) toggleRejection() {
	reject := m.rng.IntN(3) > 0
	m.record("reject a third of the changes: %v", reject)
	n := 0
	rejectEveryThird := func(layers.Change) error {
		if n++; n%3 == 0 {
			return errRejected
		}
		return nil
	}
	m.mu.Lock()
	wasRejecting := m.reject != nil
	if m.reject = nil; reject {
		m.reject = rejectEveryThird
	}
	m.mu.Unlock()
	if wasRejecting && !reject {
		advanceClock(retryTime) // until then rejected changes may be missing
	}
}

func (m *model) restartOrBurst() {
	if m.rng.IntN(2) == 0 {
		m.record("restart")
		m.restart(m.config)
		m.run()
		m.noteProviders()
		return
	}
	m.record("subscribe to all services concurrently")
	var wg sync.WaitGroup
	for _, service := range services() {
		m.noteSubscribed(service)
		req := m.request(service)
		wg.Go(func() { m.checkError(m.discovery.Subscribe(m.Context(), req)) })
	}
	wg.Wait()
}

// checkNotEmptied verifies that no service that recently had providers is without hosts.
func (m *model) checkNotEmptied() {
	m.noteProviders()
	m.mu.Lock()
	defer m.mu.Unlock()
	for service, lastSeen := range m.lastNonEmpty {
		if _, ok := m.subscribed[service]; !ok || m.reject != nil {
			continue
		}
		c := m.clusters[service]
		if c != nil && len(c.Hosts) == 0 && time.Since(lastSeen) < config.DefaultEmptyProtection-time.Second {
			m.Errorf("%s has no hosts; its last provider was reported %v ago", service, time.Since(lastSeen))
		}
	}
}

// endDisturbances ends all disturbances, and waits until everything is reconciled.
func (m *model) endDisturbances() {
	m.record("end of the disturbances")
	m.mu.Lock()
	m.reject = nil
	m.mu.Unlock()
	m.unavailable = false
	m.fake.set(false, nil)
	for _, iface := range []string{"x", "y", "z"} {
		m.report(iface, 3)
	}
	advanceClock(11 * time.Minute)
}

// checkDesiredState compares the state of the Discovery and of the registry with the model.
func (m *model) checkDesiredState() {
	m.mu.Lock()
	got := map[string]string{}
	for name, c := range m.clusters {
		hosts := []string{}
		for _, h := range c.Hosts {
			hosts = append(hosts, strings.TrimSuffix(h.Address, ":20880"))
		}
		got[name] = strings.Join(hosts, " ")
	}
	m.mu.Unlock()
	want := map[string]string{}
	for service := range m.subscribed {
		want[service] = strings.Join(m.current[interfaceOf(service)], " ")
	}
	if !maps.Equal(got, want) {
		m.Errorf("active: %v, want %v", got, want)
	}
	m.checkRoutes()
	if registered := m.fake.registered(); len(registered) != len(m.published) {
		m.Errorf("registered: %q, want %v", registered, slices.Sorted(maps.Keys(m.published)))
	}
	s := m.discovery.Status()
	for _, p := range s.Published {
		if !m.published[p.Key] || !p.Registered || p.Error != "" {
			m.Errorf("published: %+v, want it registered without an error", p)
		}
	}
	for _, reference := range s.Subscribed {
		if source := reference.Sources[0]; !source.Registered || !source.Received || source.Restored || source.Error != "" {
			m.Errorf("subscribed: %+v, want it registered, with a snapshot of this session and no error", reference)
		}
	}
	if len(s.Published) != len(m.published) || len(s.Subscribed) != len(m.subscribed) || s.LastError != "" {
		m.Errorf("%d published, %d subscribed, last error %q; want %d, %d and none", len(s.Published), len(s.Subscribed), s.LastError, len(m.published), len(m.subscribed))
	}
	m.fake.mu.Lock()
	defer m.fake.mu.Unlock()
	if len(m.fake.watchers) != len(m.subscribed) {
		m.Errorf("%d subscriptions, want %d", len(m.fake.watchers), len(m.subscribed))
	}
}

// checkRoutes verifies that each cluster has routes, and that Resources returns what was
// applied.
func (m *model) checkRoutes() {
	if text := m.activeHosts(); strings.Contains(text, "route") {
		m.Errorf("active: %s, want a route for each cluster", text)
	}
	clusters, routes := m.discovery.Resources()
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(clusters) != len(m.clusters) || m.routes != nil && len(routes.VirtualHosts[0].Routes) != len(m.routes.VirtualHosts[0].Routes) {
		m.Errorf("Resources has %d clusters, want the %d active ones and as many routes as are active", len(clusters), len(m.clusters))
	}
	for _, c := range clusters {
		if m.clusters[c.Name] != c {
			m.Errorf("cluster %s of Resources differs from the active one", c.Name)
		}
	}
}
