package nacos

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/weft-proxy/weft/pkg/registry"
)

const (
	namesPerPage = 1000
	maxPages     = 200
	// configsPerQuery is the number of configurations per query for changes.
	configsPerQuery = 1000
	// maxSteps bounds the rounds of reads in one poll, because a read may require further ones:
	// mapping, applications, rules of applications.
	maxSteps = 5
)

// watcher holds the services and configurations that the server has reported. One goroutine owns
// it; workers fill the elements that it passes to them.
type watcher struct {
	owner       *Registry
	names       map[string]bool            // existing services
	byInterface map[string][]string        // service names by interface, as escapeServiceName writes it
	services    map[string]*serviceEntry   // services in use, by name
	configs     map[configKey]*configEntry // configurations in use
	lastVersion uint64                     // last version of services and configs
}

// serviceEntry is a service of the server.
type serviceEntry struct {
	name      string
	version   uint64 // changes with the content; 0: not read yet
	raw       []byte
	urls      []registry.URL
	instances []instance
}

// configEntry is a configuration of the server.
type configEntry struct {
	configKey
	version uint64 // changes with the content; 0: not read yet
	exists  bool
	text    string
	sum     string // MD5 of text; "": the configuration does not exist, or was not read yet
}

func newWatcher(r *Registry) *watcher {
	return &watcher{owner: r, services: map[string]*serviceEntry{}, configs: map[configKey]*configEntry{}}
}

// run polls until ctx ends.
func (w *watcher) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		refresh := false
		select {
		case <-ctx.Done():
			return
		case <-w.owner.wakeWatcher:
		case <-timer.C:
			refresh = true
		}
		subscriptions := w.owner.listSubscriptions()
		err := w.poll(ctx, subscriptions, refresh)
		if ctx.Err() != nil {
			return
		}
		w.owner.noteResult(err)
		if err != nil && !isUnavailable(err) {
			w.owner.logOnce("cannot read the registrations", err)
		} else if err == nil {
			w.owner.logOnce("cannot read the registrations", nil)
			w.notify(subscriptions)
		}
		if refresh {
			timer.Reset(pollInterval + time.Duration(len(w.services))*pollIntervalPerService)
		}
	}
}

func (r *Registry) listSubscriptions() []*subscription {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Collect(maps.Keys(r.subscriptions))
}

// poll reads the services and configurations that the subscriptions need and that were not read
// before; if refresh is set, it also refreshes the others. It returns an error if the registry is
// unavailable, or the list of services or of changed configurations cannot be read.
func (w *watcher) poll(ctx context.Context, subscriptions []*subscription, refresh bool) error {
	if len(subscriptions) == 0 {
		clear(w.services)
		clear(w.configs)
		_, _, err := w.readPage(ctx, 1, 1) // only to check the server
		return err
	}
	if err := w.readServiceNames(ctx); err != nil {
		return err
	}
	if refresh {
		if err := w.refresh(ctx); err != nil {
			return err
		}
	}
	for range maxSteps {
		services, configs := w.updateNeeded(subscriptions)
		if len(services) == 0 && len(configs) == 0 {
			return nil
		}
		if err := w.readChangedConfigs(ctx, configs); err != nil {
			return err
		}
		if err := w.readServices(ctx, services); err != nil {
			return err
		}
	}
	return nil
}

// readPage reads one page of service names.
func (w *watcher) readPage(ctx context.Context, number, size int) (names []string, count int, err error) {
	form := w.owner.namespaceForm()
	form.Set("pageNo", strconv.Itoa(number))
	form.Set("pageSize", strconv.Itoa(size))
	body, err := w.owner.client.call(ctx, request{method: http.MethodGet, path: "/v1/ns/service/list", form: form})
	if err != nil {
		return nil, 0, err
	}
	if names, count, err = parseNames(body); err != nil {
		return nil, 0, &responseError{err}
	}
	return names, count, nil
}

// readServiceNames reads the names of all services of the group.
func (w *watcher) readServiceNames(ctx context.Context) error {
	found := map[string]bool{}
	for page := 1; page <= maxPages; page++ {
		names, count, err := w.readPage(ctx, page, namesPerPage)
		if err != nil {
			return err
		}
		for _, name := range names {
			if _, suffix, hasGroup := strings.Cut(name, "@@"); hasGroup {
				name = suffix
			}
			found[name] = true
		}
		if len(names) == 0 || page*namesPerPage >= count {
			break
		}
	}
	w.names, w.byInterface = found, map[string][]string{}
	for name := range found {
		if _, iface, ok := splitName(name); ok {
			iface = escapeServiceName(iface)
			w.byInterface[iface] = append(w.byInterface[iface], name)
		}
	}
	for _, names := range w.byInterface {
		slices.Sort(names)
	}
	return nil
}

// refresh reads the existing services in use again, and the configurations that have changed.
func (w *watcher) refresh(ctx context.Context) error {
	if err := w.readChangedConfigs(ctx, slices.Collect(maps.Values(w.configs))); err != nil {
		return err
	}
	var services []*serviceEntry
	for name, l := range w.services {
		if w.names[name] {
			services = append(services, l)
		}
	}
	return w.readServices(ctx, services)
}

// updateNeeded drops services and configurations that no subscription needs, and adds those that a
// subscription needs. It returns those that it has added.
func (w *watcher) updateNeeded(subscriptions []*subscription) (services []*serviceEntry, configs []*configEntry) {
	names, keys := map[string]bool{}, map[configKey]bool{}
	consumers := w.owner.consumerApplications()
	for _, sub := range subscriptions {
		for _, name := range w.serviceNamesOf(sub.service) {
			if names[name] = true; w.services[name] == nil {
				w.services[name] = &serviceEntry{name: name}
				services = append(services, w.services[name])
			}
		}
		addConfig := func(key configKey) {
			if keys[key] = true; w.configs[key] == nil {
				w.configs[key] = &configEntry{configKey: key}
				configs = append(configs, w.configs[key])
			}
		}
		if key, ok := mappingKey(sub.service.Interface); ok {
			addConfig(key)
		}
		for _, rule := range rulesFor(sub.service, w.ruleApplications(sub.service, consumers)) {
			addConfig(rule.configKey)
		}
	}
	maps.DeleteFunc(w.services, func(name string, _ *serviceEntry) bool { return !names[name] })
	maps.DeleteFunc(w.configs, func(key configKey, _ *configEntry) bool { return !keys[key] })
	return services, configs
}

// consumerApplications returns the applications that this process has registered as consumers, by
// interface.
func (r *Registry) consumerApplications() map[string][]string {
	r.mu.Lock()
	defer r.mu.Unlock()
	applications := map[string][]string{}
	for _, e := range r.entries {
		if name := e.url.Get("application"); name != "" && e.desiredText != "" && e.url.Category() == registry.Consumers {
			iface := e.url.Service().Interface
			applications[iface] = append(applications[iface], name)
		}
	}
	return applications
}

// serviceNamesOf returns the Nacos services that belong to a Dubbo service.
func (w *watcher) serviceNamesOf(s registry.Service) []string {
	var names []string
	for _, name := range w.byInterface[escapeServiceName(s.Interface)] {
		if mayContain(name, s) {
			names = append(names, name)
		}
	}
	for _, name := range w.applications(s) {
		if name = escapeServiceName(name); w.names[name] {
			names = append(names, name)
		}
	}
	return names
}

// applications returns the applications that the mapping names as providers (Dubbo 3).
func (w *watcher) applications(s registry.Service) []string {
	key, _ := mappingKey(s.Interface)
	if config := w.configs[key]; config != nil && config.exists {
		return readMapping(config.text)
	}
	return nil
}

// ruleApplications returns the applications whose rules apply to a service: its providers, and its
// consumers in this process.
func (w *watcher) ruleApplications(s registry.Service, consumers map[string][]string) []string {
	names := slices.Concat(w.applications(s), consumers[s.Interface])
	for _, name := range w.byInterface[escapeServiceName(s.Interface)] {
		if l := w.services[name]; l != nil {
			for _, u := range l.urls {
				names = append(names, u.Get("application"))
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// readServices reads services. A service that cannot be read keeps its previous content.
func (w *watcher) readServices(ctx context.Context, services []*serviceEntry) error {
	var mu sync.Mutex
	return forEach(ctx, services, func(ctx context.Context, l *serviceEntry) error {
		form := w.owner.namespaceForm()
		form.Set("serviceName", l.name)
		form.Set("healthyOnly", "false")
		body, err := w.owner.client.call(ctx, request{method: http.MethodGet, path: instancePath + "/list", form: form})
		var raw json.RawMessage
		if err == nil {
			if raw, err = rawHosts(body); err != nil {
				err = &responseError{err}
			}
		}
		operation := "cannot read the service " + l.name
		if err != nil {
			if !isUnavailable(err) && ctx.Err() == nil {
				w.owner.logOnce(operation, err)
			}
			return err
		}
		if l.version != 0 && slices.Equal(l.raw, raw) {
			return nil
		}
		hosts, err := parseHosts(raw)
		w.owner.logOnce("skipped an invalid entry of the service "+l.name, err)
		if err != nil && hosts == nil && l.version != 0 {
			return nil // no entry is valid: keep the previous content
		}
		w.owner.logOnce(operation, nil)
		mu.Lock()
		l.version = w.nextVersion()
		mu.Unlock()
		l.raw, l.instances, l.urls = slices.Clone(raw), hosts, nil
		if _, _, ok := splitName(l.name); !ok {
			return nil // the service holds instances of an application
		}
		for i := range hosts {
			if u, ok := hosts[i].url(); ok && hosts[i].isHealthy() {
				l.urls = append(l.urls, u)
			}
		}
		return nil
	})
}

// readChangedConfigs reads the configurations that have changed.
func (w *watcher) readChangedConfigs(ctx context.Context, configs []*configEntry) error {
	for chunk := range slices.Chunk(configs, configsPerQuery) {
		var query []byte
		unchanged := map[configKey]*configEntry{}
		for _, c := range chunk {
			query = appendConfigQuery(query, c.configKey, c.sum, w.owner.location.namespace)
			unchanged[c.configKey] = c
		}
		changed, err := w.owner.changedConfigs(ctx, query)
		if err != nil {
			return err
		}
		var differing []*configEntry
		for _, key := range changed {
			if c := unchanged[key]; c != nil {
				differing = append(differing, c)
				delete(unchanged, key)
			}
		}
		for _, c := range unchanged {
			if c.version == 0 {
				c.version = w.nextVersion() // the server confirms that the configuration does not exist
			}
		}
		if err := w.fetchConfigs(ctx, differing); err != nil {
			return err
		}
	}
	return nil
}

// changedConfigs returns the configurations of query (see appendConfigQuery) that differ.
func (r *Registry) changedConfigs(ctx context.Context, query []byte) ([]configKey, error) {
	body, err := r.client.call(ctx, request{
		method: http.MethodPost, path: configPath + "/listener",
		form: url.Values{"Listening-Configs": {string(query)}},
		// Return the current differences immediately, without long polling.
		header: http.Header{"Long-Pulling-Timeout": {"10000"}, "Long-Pulling-Timeout-No-Hangup": {"true"}},
	})
	if err != nil {
		return nil, err
	}
	changed, err := parseChanged(body)
	if err != nil {
		return nil, &responseError{err}
	}
	return changed, nil
}

func (w *watcher) nextVersion() uint64 {
	w.lastVersion++
	return w.lastVersion
}

// fetchConfigs reads configurations. A configuration that cannot be read keeps its previous
// content.
func (w *watcher) fetchConfigs(ctx context.Context, configs []*configEntry) error {
	var mu sync.Mutex
	return forEach(ctx, configs, func(ctx context.Context, c *configEntry) error {
		text, exists, err := w.owner.readConfig(ctx, c.configKey)
		if err != nil {
			if !isUnavailable(err) && ctx.Err() == nil {
				w.owner.logOnce("cannot read the configuration "+c.id, err)
			}
			return err
		}
		mu.Lock()
		c.version = w.nextVersion()
		mu.Unlock()
		c.exists, c.text, c.sum = exists, string(text), ""
		if exists {
			c.sum = md5Sum(c.text)
		}
		return nil
	})
}

// readConfig reads a configuration.
func (r *Registry) readConfig(ctx context.Context, d configKey) (text []byte, exists bool, err error) {
	text, err = r.client.call(ctx, request{method: http.MethodGet, path: configPath, form: r.configForm(d)})
	if isNotFound(err) {
		return nil, false, nil
	}
	return text, err == nil, err
}

// notify notifies the subscriptions whose snapshot is complete and has changed.
func (w *watcher) notify(subscriptions []*subscription) {
	consumers := w.owner.consumerApplications()
	for _, sub := range subscriptions {
		rules := rulesFor(sub.service, w.ruleApplications(sub.service, consumers))
		fingerprint, complete := w.fingerprint(sub.service, rules)
		if !complete || fingerprint == sub.fingerprint {
			continue
		}
		sub.fingerprint = fingerprint
		sub.Notify(w.snapshot(sub.service, rules))
	}
}

// fingerprint returns a text that changes with the snapshot of a service. complete is false if
// parts of the snapshot were not read yet.
func (w *watcher) fingerprint(s registry.Service, rules []rule) (text string, complete bool) {
	var b strings.Builder
	b.WriteByte('.') // "" means that there was no snapshot yet
	for _, name := range w.serviceNamesOf(s) {
		l := w.services[name]
		if l == nil || l.version == 0 {
			return "", false
		}
		fmt.Fprintf(&b, " %d", l.version)
	}
	if name, ok := mappingKey(s.Interface); ok {
		if d := w.configs[name]; d == nil || d.version == 0 {
			return "", false
		}
	}
	for _, r := range rules {
		d := w.configs[r.configKey]
		if d == nil || d.version == 0 {
			return "", false
		}
		if d.exists {
			fmt.Fprintf(&b, " %d", d.version)
		}
	}
	return b.String(), true
}

// snapshot returns the snapshot of a service.
func (w *watcher) snapshot(s registry.Service, rules []rule) (snap registry.Snapshot) {
	seen := map[string]bool{}
	for _, name := range w.serviceNamesOf(s) {
		category, _, ok := splitName(name)
		if !ok {
			for i := range w.services[name].instances {
				snap.Instances = append(snap.Instances, w.services[name].instances[i].toInstance(name))
			}
			continue
		}
		for _, u := range w.services[name].urls {
			text := u.String()
			if !s.Accepts(u) || seen[text] {
				continue
			}
			seen[text] = true
			switch category {
			case registry.Providers:
				snap.Providers = append(snap.Providers, u)
			case registry.Configurators:
				snap.Configurators = append(snap.Configurators, u)
			case registry.Routers:
				snap.Routers = append(snap.Routers, u)
			}
		}
	}
	for _, r := range rules {
		d := w.configs[r.configKey]
		switch {
		case !d.exists:
		case r.category == registry.Configurators:
			snap.Configurators = append(snap.Configurators, r.url(d.text))
		default:
			snap.Routers = append(snap.Routers, r.url(d.text))
		}
	}
	return snap
}
