package dubbo

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/dubbo/plan"
	"github.com/weft-proxy/weft/pkg/registry"
)

// sessionStates returns the states of the sessions. The caller must not hold mu.
func (h *Discovery) sessionStates() map[*session]registry.State {
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
	states := h.sessionStates()
	now := time.Now()
	h.mu.Lock()
	defer h.mu.Unlock()
	all := Status{
		Host: h.host, Port: h.options.Config.ServerPort,
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
		Key:        p.spec.id.service.String(),
		Registry:   p.urlRegistration.session.key.String(),
		Interface:  p.spec.Service.Interface,
		Group:      p.spec.Service.Group,
		Version:    p.spec.Service.Version,
		Methods:    p.spec.Service.Methods,
		URL:        redactURL(h.providerURL(p.spec, p.since)),
		Registered: p.isRegistered(states),
		Since:      p.since,
	}
	if p.spec.mode != config.RegisterInterface {
		d.Mode = string(p.spec.mode)
	}
	for _, e := range p.registrations() {
		d.Error = cmp.Or(d.Error, e.errorText())
	}
	d.Error = cmp.Or(d.Error, p.unmappedReason())
	if d.Error == "" && h.withdrawn {
		d.Error = errClosing.Error()
	}
	return d
}

// isRegistered reports whether the registry has every registration of p that its mode requires. mu is
// held.
func (p *publication) isRegistered(states map[*session]registry.State) bool {
	switch p.spec.mode {
	case config.RegisterInstance:
		return p.instance != nil && p.instance.registration.isRegistered(states)
	case config.RegisterAll:
		return p.urlRegistration.isRegistered(states) && p.instance != nil && p.instance.registration.isRegistered(states)
	case config.RegisterInterface:
	}
	return p.urlRegistration.isRegistered(states)
}

// isRegistered reports whether the registry is connected and has the desired entry. mu is held.
func (e *registration) isRegistered(states map[*session]registry.State) bool {
	return e.desired != nil && e.settled() && states[e.session].Connected
}

// errorText returns why the registry does not have the desired entry; "": it has, or nothing is known
// yet. mu is held.
func (e *registration) errorText() string {
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
	first := s.sources[0].spec.Service
	d := ReferenceStatus{
		Key: s.key.String(), Interface: s.key.Interface, Group: s.key.Group, Version: s.key.Version, Methods: first.Methods,
		Sources:   make([]SubscriptionStatus, 0, len(s.sources)),
		Providers: []Provider{},
	}
	kept := map[providerKey]bool{}
	for _, source := range s.sources {
		d.Sources = append(d.Sources, source.describe(now, states))
		for _, k := range source.retained {
			kept[providerKeyOf(k.url)] = true
		}
	}
	o := s.result
	if o == nil {
		return d
	}
	d.LoadBalance, d.Timeout, d.Retries, d.Warnings = o.LoadBalance, o.Timeout.String(), o.Retries, o.Warnings
	for i := range o.Providers {
		p := &o.Providers[i]
		one := describeProvider(p)
		one.Retained = kept[providerKeyOf(p.URL)]
		if last := len(d.Providers) - 1; last >= 0 && d.Providers[last].Address == one.Address {
			d.Providers[last] = d.Providers[last].merge(one)
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
		Group: of.Group, Version: of.Version, Registry: p.Registry, UnusedReason: p.UnusedReason,
	}
}

// merge merges a provider at the same address with another group or version. The first one that gets
// calls represents the address.
func (p Provider) merge(other Provider) Provider {
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
		Registered: s.consumer.isRegistered(states),
		Since:      s.since,
		Received:   s.hasSnapshot(),
		ReceivedAt: s.evaluatedAt,
		Restored:   s.restored,
		Error:      s.consumer.errorText(),
	}
	if d.Error == "" && s.unresolved != nil {
		d.Error = s.unresolved.Error()
	}
	if o := s.service.result; d.Error == "" && o != nil {
		d.Error = o.Unrouted
	}
	if s.emptyProtected() {
		d.EmptySince = s.emptySince
	}
	if s.hasSnapshot() {
		d.Age = now.Sub(s.evaluatedAt).Truncate(time.Second).String()
	}
	if s.service.err != nil {
		d.Error = s.service.err.Error()
	}
	return d
}

// Totals returns numbers for metrics.
func (h *Discovery) Totals() Totals {
	states := h.sessionStates()
	now := time.Now()
	h.mu.Lock()
	defer h.mu.Unlock()
	t := Totals{
		Registries: len(states), Published: len(h.published),
		Applied: h.appliedChanges.Load(), ApplyFailures: h.applyFailures.Load(), StateFileFailures: h.saveFailures.Load(),
	}
	for _, state := range states {
		if state.Connected {
			t.Connected++
		}
	}
	for _, p := range h.published {
		if p.isRegistered(states) {
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
	if s.active.clusters != nil {
		t.Providers += len(s.active.clusters[0].Hosts)
	}
	known, restored, doubted := false, false, false
	for _, source := range s.sources {
		known = known || source.hasSnapshot()
		restored = restored || source.hasSnapshot() && source.restored
		doubted = doubted || source.emptyProtected()
		if source.hasSnapshot() && !states[source.session].Connected {
			t.OldestSnapshot = max(t.OldestSnapshot, now.Sub(source.evaluatedAt))
		}
	}
	if !known {
		t.WithoutSnapshot++
	}
	if restored {
		t.Restored++
	}
	if doubted {
		t.EmptyProtected++
	}
}
