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

	"github.com/weft-proxy/weft/pkg/upstream/discovery/dubbo/registry"
)

const (
	namesPerPage = 1000
	mostPages    = 200
	// documentsPerAsk is the number of configurations per query for changes.
	documentsPerAsk = 1000
	// mostSteps bounds how often one poll reads more because of what it has read: mapping,
	// applications, rules of applications.
	mostSteps = 5
)

// watcher contains what the server has reported. One goroutine owns it; workers fill the elements
// that it passes to them.
type watcher struct {
	r         *Registry
	names     map[string]bool            // existing services
	byKind    map[string][]string        // service names by interface, as listName writes it
	lists     map[string]*list           // by name; those in use
	documents map[configKey]*configEntry // those in use
	versions  uint64                     // last version of lists and documents
}

// list is a service of the server.
type list struct {
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
	there   bool
	text    string
	sum     string // MD5; "": it does not exist
}

func newWatcher(r *Registry) *watcher {
	return &watcher{r: r, lists: map[string]*list{}, documents: map[configKey]*configEntry{}}
}

// run polls until ctx ends.
func (w *watcher) run(ctx context.Context) {
	clock := time.NewTimer(0)
	defer clock.Stop()
	for {
		all := false
		select {
		case <-ctx.Done():
			return
		case <-w.r.look:
		case <-clock.C:
			all = true
		}
		subscriptions := w.r.subscribed()
		err := w.observe(ctx, subscriptions, all)
		if ctx.Err() != nil {
			return
		}
		w.r.noteResult(err)
		if err != nil && !isAway(err) {
			w.r.logOnce("cannot read the registrations", err)
		} else if err == nil {
			w.r.logOnce("cannot read the registrations", nil)
			w.tell(subscriptions)
		}
		if all {
			clock.Reset(pollEvery + time.Duration(len(w.lists))*pollPace)
		}
	}
}

func (r *Registry) subscribed() []*subscription {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Collect(maps.Keys(r.subscriptions))
}

// observe reads everything that the subscriptions need and that was not read before; if all is set,
// it also refreshes the rest. It returns an error if the registry is unavailable, or the list of
// services cannot be read.
func (w *watcher) observe(ctx context.Context, subscriptions []*subscription, all bool) error {
	if len(subscriptions) == 0 {
		clear(w.lists)
		clear(w.documents)
		_, _, err := w.page(ctx, 1, 1) // only to check the server
		return err
	}
	if err := w.catalogue(ctx); err != nil {
		return err
	}
	if all {
		if err := w.again(ctx); err != nil {
			return err
		}
	}
	for range mostSteps {
		lists, documents := w.needed(subscriptions)
		if len(lists) == 0 && len(documents) == 0 {
			return nil
		}
		if err := w.readDocuments(ctx, documents); err != nil {
			return err
		}
		if err := w.readLists(ctx, lists); err != nil {
			return err
		}
	}
	return nil
}

// page reads one page of service names.
func (w *watcher) page(ctx context.Context, number, size int) (names []string, count int, err error) {
	form := w.r.naming()
	form.Set("pageNo", strconv.Itoa(number))
	form.Set("pageSize", strconv.Itoa(size))
	body, err := w.r.client.call(ctx, request{method: http.MethodGet, path: "/v1/ns/service/list", form: form})
	if err != nil {
		return nil, 0, err
	}
	if names, count, err = parseNames(body); err != nil {
		return nil, 0, &answerError{err}
	}
	return names, count, nil
}

// catalogue reads the names of all services of the group.
func (w *watcher) catalogue(ctx context.Context) error {
	all := map[string]bool{}
	for number := 1; number <= mostPages; number++ {
		names, count, err := w.page(ctx, number, namesPerPage)
		if err != nil {
			return err
		}
		for _, name := range names {
			if _, after, grouped := strings.Cut(name, "@@"); grouped {
				name = after
			}
			all[name] = true
		}
		if len(names) == 0 || number*namesPerPage >= count {
			break
		}
	}
	w.names, w.byKind = all, map[string][]string{}
	for name := range all {
		if _, iface, ok := splitName(name); ok {
			iface = listName(iface)
			w.byKind[iface] = append(w.byKind[iface], name)
		}
	}
	for _, names := range w.byKind {
		slices.Sort(names)
	}
	return nil
}

// again refreshes what was read before.
func (w *watcher) again(ctx context.Context) error {
	if err := w.readDocuments(ctx, slices.Collect(maps.Values(w.documents))); err != nil {
		return err
	}
	var lists []*list
	for name, l := range w.lists {
		if w.names[name] {
			lists = append(lists, l)
		}
	}
	return w.readLists(ctx, lists)
}

// needed drops what no subscription needs, and returns what is needed but was never read.
func (w *watcher) needed(subscriptions []*subscription) (lists []*list, documents []*configEntry) {
	names, ids := map[string]bool{}, map[configKey]bool{}
	callers := w.r.callers()
	for _, sub := range subscriptions {
		for _, name := range w.listsOf(sub.service) {
			if names[name] = true; w.lists[name] == nil {
				w.lists[name] = &list{name: name}
				lists = append(lists, w.lists[name])
			}
		}
		need := func(d configKey) {
			if ids[d] = true; w.documents[d] == nil {
				w.documents[d] = &configEntry{configKey: d}
				documents = append(documents, w.documents[d])
			}
		}
		if d, ok := mappingOf(sub.service.Interface); ok {
			need(d)
		}
		for _, rule := range rulesFor(sub.service, w.concerned(sub.service, callers)) {
			need(rule.configKey)
		}
	}
	maps.DeleteFunc(w.lists, func(name string, _ *list) bool { return !names[name] })
	maps.DeleteFunc(w.documents, func(d configKey, _ *configEntry) bool { return !ids[d] })
	return lists, documents
}

// callers returns the applications that this process has registered as consumers, by interface.
func (r *Registry) callers() map[string][]string {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := map[string][]string{}
	for _, e := range r.entries {
		if name := e.url.Get("application"); name != "" && e.text != "" && e.url.Category() == registry.Consumers {
			iface := e.url.Service().Interface
			all[iface] = append(all[iface], name)
		}
	}
	return all
}

// listsOf returns the Nacos services that belong to a Dubbo service.
func (w *watcher) listsOf(s registry.Service) []string {
	var names []string
	for _, name := range w.byKind[listName(s.Interface)] {
		if mayHold(name, s) {
			names = append(names, name)
		}
	}
	for _, name := range w.applications(s) {
		if name = listName(name); w.names[name] {
			names = append(names, name)
		}
	}
	return names
}

// applications returns the applications that the mapping names as providers (Dubbo 3).
func (w *watcher) applications(s registry.Service) []string {
	name, _ := mappingOf(s.Interface)
	if d := w.documents[name]; d != nil && d.there {
		return readMapping(d.text)
	}
	return nil
}

// concerned returns the applications whose rules apply to a service: its providers, and its
// consumers in this process.
func (w *watcher) concerned(s registry.Service, callers map[string][]string) []string {
	names := slices.Concat(w.applications(s), callers[s.Interface])
	for _, name := range w.byKind[listName(s.Interface)] {
		if l := w.lists[name]; l != nil {
			for _, u := range l.urls {
				names = append(names, u.Get("application"))
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// readLists reads services. A service that cannot be read keeps its previous content.
func (w *watcher) readLists(ctx context.Context, lists []*list) error {
	var mu sync.Mutex
	return each(ctx, lists, func(ctx context.Context, l *list) error {
		form := w.r.naming()
		form.Set("serviceName", l.name)
		form.Set("healthyOnly", "false")
		body, err := w.r.client.call(ctx, request{method: http.MethodGet, path: instancePath + "/list", form: form})
		var raw json.RawMessage
		if err == nil {
			if raw, err = rawHosts(body); err != nil {
				err = &answerError{err}
			}
		}
		matter := "cannot read the service " + l.name
		if err != nil {
			if !isAway(err) && ctx.Err() == nil {
				w.r.logOnce(matter, err)
			}
			return err
		}
		if l.version != 0 && slices.Equal(l.raw, raw) {
			return nil
		}
		all, err := parseHosts(raw)
		w.r.logOnce("skipped an invalid entry of the service "+l.name, err)
		if err != nil && all == nil && l.version != 0 {
			return nil // nothing of it is valid
		}
		w.r.logOnce(matter, nil)
		mu.Lock()
		l.version = w.next()
		mu.Unlock()
		l.raw, l.instances, l.urls = slices.Clone(raw), all, nil
		if _, _, ok := splitName(l.name); !ok {
			return nil // of an application
		}
		for i := range all {
			if u, ok := all[i].url(); ok && all[i].living() {
				l.urls = append(l.urls, u)
			}
		}
		return nil
	})
}

// readDocuments reads the documents that have changed.
func (w *watcher) readDocuments(ctx context.Context, documents []*configEntry) error {
	for some := range slices.Chunk(documents, documentsPerAsk) {
		var asked []byte
		papers := map[configKey]*configEntry{}
		for _, p := range some {
			asked = appendAsked(asked, p.configKey, p.sum, w.r.place.namespace)
			papers[p.configKey] = p
		}
		changed, err := w.r.changed(ctx, asked)
		if err != nil {
			return err
		}
		var others []*configEntry
		for _, d := range changed {
			if p := papers[d]; p != nil {
				others = append(others, p)
				delete(papers, d)
			}
		}
		for _, p := range papers {
			if p.version == 0 {
				p.version = w.next() // it does not exist, as assumed
			}
		}
		if err := w.fetch(ctx, others); err != nil {
			return err
		}
	}
	return nil
}

// changed returns the configurations of asked (see appendAsked) that differ.
func (r *Registry) changed(ctx context.Context, asked []byte) ([]configKey, error) {
	body, err := r.client.call(ctx, request{
		method: http.MethodPost, path: configPath + "/listener",
		form: url.Values{"Listening-Configs": {string(asked)}},
		// Return the current differences immediately, without long polling.
		header: http.Header{"Long-Pulling-Timeout": {"10000"}, "Long-Pulling-Timeout-No-Hangup": {"true"}},
	})
	if err != nil {
		return nil, err
	}
	changed, err := parseChanged(body)
	if err != nil {
		return nil, &answerError{err}
	}
	return changed, nil
}

func (w *watcher) next() uint64 {
	w.versions++
	return w.versions
}

// fetch reads documents. A document that cannot be read keeps its previous content.
func (w *watcher) fetch(ctx context.Context, papers []*configEntry) error {
	var mu sync.Mutex
	return each(ctx, papers, func(ctx context.Context, p *configEntry) error {
		text, there, err := w.r.document(ctx, p.configKey)
		if err != nil {
			if !isAway(err) && ctx.Err() == nil {
				w.r.logOnce("cannot read the configuration "+p.id, err)
			}
			return err
		}
		mu.Lock()
		p.version = w.next()
		mu.Unlock()
		p.there, p.text, p.sum = there, string(text), ""
		if there {
			p.sum = sumOf(p.text)
		}
		return nil
	})
}

// document reads a configuration.
func (r *Registry) document(ctx context.Context, d configKey) (text []byte, there bool, err error) {
	text, err = r.client.call(ctx, request{method: http.MethodGet, path: configPath, form: r.documentForm(d)})
	if isNone(err) {
		return nil, false, nil
	}
	return text, err == nil, err
}

// tell notifies the subscriptions whose snapshot is complete and has changed.
func (w *watcher) tell(subscriptions []*subscription) {
	callers := w.r.callers()
	for _, sub := range subscriptions {
		rules := rulesFor(sub.service, w.concerned(sub.service, callers))
		marks, complete := w.marks(sub.service, rules)
		if !complete || marks == sub.marks {
			continue
		}
		sub.marks = marks
		sub.Notify(w.view(sub.service, rules))
	}
}

// marks returns a text that changes with the snapshot of a service; false: the snapshot is not
// complete.
func (w *watcher) marks(s registry.Service, rules []rule) (marks string, complete bool) {
	var b strings.Builder
	b.WriteByte('.') // not "": there is a snapshot
	for _, name := range w.listsOf(s) {
		l := w.lists[name]
		if l == nil || l.version == 0 {
			return "", false
		}
		fmt.Fprintf(&b, " %d", l.version)
	}
	if name, ok := mappingOf(s.Interface); ok {
		if d := w.documents[name]; d == nil || d.version == 0 {
			return "", false
		}
	}
	for _, r := range rules {
		d := w.documents[r.configKey]
		if d == nil || d.version == 0 {
			return "", false
		}
		if d.there {
			fmt.Fprintf(&b, " %d", d.version)
		}
	}
	return b.String(), true
}

// view returns the snapshot of a service.
func (w *watcher) view(s registry.Service, rules []rule) (v registry.Snapshot) {
	seen := map[string]bool{}
	for _, name := range w.listsOf(s) {
		category, _, ok := splitName(name)
		if !ok {
			for i := range w.lists[name].instances {
				v.Instances = append(v.Instances, w.lists[name].instances[i].member(name))
			}
			continue
		}
		for _, u := range w.lists[name].urls {
			text := u.String()
			if !s.Accepts(u) || seen[text] {
				continue
			}
			seen[text] = true
			switch category {
			case registry.Providers:
				v.Providers = append(v.Providers, u)
			case registry.Configurators:
				v.Configurators = append(v.Configurators, u)
			case registry.Routers:
				v.Routers = append(v.Routers, u)
			}
		}
	}
	for _, r := range rules {
		d := w.documents[r.configKey]
		switch {
		case !d.there:
		case r.category == registry.Configurators:
			v.Configurators = append(v.Configurators, r.url(d.text))
		default:
			v.Routers = append(v.Routers, r.url(d.text))
		}
	}
	return v
}
