package dubbo

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/upstream/discovery/dubbo/plan"
	"github.com/weft-proxy/weft/pkg/upstream/discovery/dubbo/registry"
)

// states returns the states of the sessions. The caller must not hold mu.
func (h *Discovery) states() map[*session]registry.State {
	h.mu.Lock()
	all := make(map[*session]registry.State, len(h.sessions))
	for _, s := range h.sessions {
		all[s] = registry.State{}
	}
	opened := make(map[*session]registry.Registry, len(all))
	for s := range all {
		if s.registry != nil {
			opened[s] = s.registry
		} else if s.err != nil {
			all[s] = registry.State{LastError: s.err.Error()}
		}
	}
	h.mu.Unlock()
	for s, r := range opened {
		all[s] = r.State()
	}
	return all
}

// Status returns everything that Discovery knows.
func (h *Discovery) Status() Status {
	states := h.states()
	now := time.Now()
	h.mu.Lock()
	defer h.mu.Unlock()
	all := Status{
		Host: h.host, Port: h.o.Config.ServerPort,
		Registries: make([]RegistryStatus, 0, len(states)),
		Published:  make([]PublishedStatus, 0, len(h.published)),
		Subscribed: make([]ReferenceStatus, 0, len(h.services)),
	}
	for s, state := range states {
		all.Registries = append(all.Registries, RegistryStatus{
			Type: s.key.kind, Address: s.key.address, Username: s.key.username,
			Connected: state.Connected, Since: state.Since, Session: state.Session, Sessions: state.Sessions, LastError: state.LastError,
		})
	}
	slices.SortFunc(all.Registries, func(a, b RegistryStatus) int {
		return cmp.Or(cmp.Compare(a.Type, b.Type), cmp.Compare(a.Address, b.Address), cmp.Compare(a.Username, b.Username))
	})
	for _, p := range h.published {
		all.Published = append(all.Published, h.describePublished(p, states))
	}
	slices.SortFunc(all.Published, func(a, b PublishedStatus) int {
		return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.Registry, b.Registry))
	})
	failing := ""
	for _, s := range h.services {
		if name := s.key.String(); s.err != nil && (failing == "" || name < failing) {
			failing, all.LastError = name, fmt.Sprintf("%s: %v", name, s.err)
		}
		if len(s.sources) > 0 {
			all.Subscribed = append(all.Subscribed, s.describe(now, states))
		}
	}
	slices.SortFunc(all.Subscribed, func(a, b ReferenceStatus) int { return cmp.Compare(a.Key, b.Key) })
	return all
}

// describePublished must be called with mu held.
func (h *Discovery) describePublished(p *publication, states map[*session]registry.State) PublishedStatus {
	d := PublishedStatus{
		Key:        p.wish.id.service.String(),
		Registry:   p.entry.session.key.String(),
		Interface:  p.wish.Service.Interface,
		Group:      p.wish.Service.Group,
		Version:    p.wish.Service.Version,
		Methods:    p.wish.Service.Methods,
		URL:        redactURL(h.provider(p.wish, p.since)),
		Registered: p.isThere(states),
		Since:      p.since,
	}
	if p.wish.mode != config.RegisterInterface {
		d.Mode = string(p.wish.mode)
	}
	for _, e := range p.entries() {
		d.Error = cmp.Or(d.Error, e.problem())
	}
	d.Error = cmp.Or(d.Error, p.unlisted())
	if d.Error == "" && h.withdrawn {
		d.Error = errEnding.Error()
	}
	return d
}

// isThere reports whether the registry has every registration of p that its mode requires. mu is
// held.
func (p *publication) isThere(states map[*session]registry.State) bool {
	switch p.wish.mode {
	case config.RegisterInstance:
		return p.presence != nil && p.presence.entry.isThere(states)
	case config.RegisterAll:
		return p.entry.isThere(states) && p.presence != nil && p.presence.entry.isThere(states)
	case config.RegisterInterface:
	}
	return p.entry.isThere(states)
}

// isThere reports whether the registry is connected and has the desired entry. mu is held.
func (e *registration) isThere(states map[*session]registry.State) bool {
	return e.desired != nil && e.settled() && states[e.session].Connected
}

// problem returns why the registry does not have the desired entry; "": it has, or nothing is known
// yet. mu is held.
func (e *registration) problem() string {
	switch {
	case e.session.err != nil:
		return e.session.err.Error()
	case e.err != nil:
		return e.err.Error()
	}
	return ""
}

// describe must be called with mu held.
func (s *service) describe(now time.Time, states map[*session]registry.State) ReferenceStatus {
	first := s.sources[0].wish.Service
	d := ReferenceStatus{
		Key: s.key.String(), Interface: s.key.Interface, Group: s.key.Group, Version: s.key.Version, Methods: first.Methods,
		Sources:   make([]SubscriptionStatus, 0, len(s.sources)),
		Providers: []Provider{},
	}
	kept := map[provision]bool{}
	for _, source := range s.sources {
		d.Sources = append(d.Sources, source.describe(now, states))
		for _, k := range source.retained {
			kept[provisionOf(k.url)] = true
		}
	}
	o := s.outcome
	if o == nil {
		return d
	}
	d.LoadBalance, d.Timeout, d.Retries, d.Warnings = o.LoadBalance, o.Timeout.String(), o.Retries, o.Warnings
	for i := range o.Providers {
		p := &o.Providers[i]
		one := describeProvider(p)
		one.Retained = kept[provisionOf(p.URL)]
		if last := len(d.Providers) - 1; last >= 0 && d.Providers[last].Address == one.Address {
			d.Providers[last] = d.Providers[last].with(one)
			continue
		}
		d.Providers = append(d.Providers, one)
	}
	return d
}

func describeProvider(p *plan.Provider) Provider {
	of := p.URL.Service()
	return Provider{
		Address: p.URL.Address(), Protocol: p.URL.Protocol, Weight: p.Weight, Application: p.URL.Get(parameterApplication),
		Group: of.Group, Version: of.Version, Registry: p.Registry, UnusedReason: p.Unused,
	}
}

// with merges a provider at the same address with another group or version. The first one that gets
// calls represents the address.
func (p Provider) with(other Provider) Provider {
	beside := p.Variants
	p.Variants = nil
	if p.UnusedReason != "" && other.UnusedReason == "" {
		other.Variants = append([]Provider{p}, beside...)
		return other
	}
	p.Variants = append(beside, other)
	return p
}

// describe must be called with mu held.
func (s *subscription) describe(now time.Time, states map[*session]registry.State) SubscriptionStatus {
	d := SubscriptionStatus{
		Registry:   s.session.key.String(),
		Registered: s.consumer.isThere(states),
		Since:      s.since,
		Received:   s.known(),
		ReceivedAt: s.listed,
		Restored:   s.restored,
		Error:      s.consumer.problem(),
	}
	if d.Error == "" && s.unresolved != nil {
		d.Error = s.unresolved.Error()
	}
	if o := s.service.outcome; d.Error == "" && o != nil {
		d.Error = o.Unrouted
	}
	if s.emptyProtected() {
		d.EmptySince = s.emptied
	}
	if s.known() {
		d.Age = now.Sub(s.listed).Truncate(time.Second).String()
	}
	if s.service.err != nil {
		d.Error = s.service.err.Error()
	}
	return d
}

// Totals returns numbers for metrics.
func (h *Discovery) Totals() Totals {
	states := h.states()
	now := time.Now()
	h.mu.Lock()
	defer h.mu.Unlock()
	t := Totals{
		Registries: len(states), Published: len(h.published),
		Applied: h.applied.Load(), NotApplied: h.failed.Load(), StateFileFails: h.unsaved.Load(),
	}
	for _, state := range states {
		if state.Connected {
			t.Connected++
		}
	}
	for _, p := range h.published {
		if p.isThere(states) {
			t.Registered++
		}
	}
	for _, s := range h.services {
		if len(s.sources) > 0 {
			t.Subscribed++
			t.count(s, now, states)
		}
	}
	return t
}

// count adds a service. Discovery.mu is held.
func (t *Totals) count(s *service, now time.Time, states map[*session]registry.State) {
	if s.place.clusters != nil {
		t.Providers += len(s.place.clusters[0].Hosts)
	}
	known, restored, doubted := false, false, false
	for _, source := range s.sources {
		known = known || source.known()
		restored = restored || source.known() && source.restored
		doubted = doubted || source.emptyProtected()
		if source.known() && !states[source.session].Connected {
			t.OldestSnapshot = max(t.OldestSnapshot, now.Sub(source.listed))
		}
	}
	if !known {
		t.Unanswered++
	}
	if restored {
		t.Restored++
	}
	if doubted {
		t.EmptyProtected++
	}
}
