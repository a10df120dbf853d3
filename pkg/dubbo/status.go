package dubbo

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/weft-proxy/weft/pkg/dubbo/plan"
	"github.com/weft-proxy/weft/pkg/registry"
)

// Status returns the state of all registries, publications and subscriptions.
func (d *Discovery) Status() Status {
	states := d.sessions.states()
	services := d.planner.status()
	status := Status{
		Host: d.settings.host, Port: d.settings.Config.ServerPort,
		Registries: make([]RegistryStatus, 0, len(states)),
		Published:  d.publisher.status(states),
		Subscribed: d.subscriber.status(time.Now(), states, services),
	}
	for s, state := range states {
		status.Registries = append(status.Registries, RegistryStatus{
			Type: s.key.registryType, Address: s.key.address, Username: s.key.username,
			Connected: state.Connected, Since: state.Since, Session: state.SessionID, Sessions: state.SessionCount, LastError: state.LastError,
		})
	}
	slices.SortFunc(status.Registries, func(a, b RegistryStatus) int {
		return cmp.Or(cmp.Compare(a.Type, b.Type), cmp.Compare(a.Address, b.Address), cmp.Compare(a.Username, b.Username))
	})
	failing := ""
	for key, s := range services {
		if name := key.String(); s.err != nil && (failing == "" || name < failing) {
			failing, status.LastError = name, fmt.Sprintf("%s: %v", name, s.err)
		}
	}
	return status
}

// Totals returns numbers for metrics.
func (d *Discovery) Totals() Totals {
	states := d.sessions.states()
	t := Totals{Registries: len(states), StateFileFailures: d.stateWriter.failures.Load()}
	t.Applied, t.ApplyFailures = d.planner.totals()
	t.Published, t.RegisteredServices = d.publisher.totals(states)
	for _, state := range states {
		if state.Connected {
			t.ConnectedRegistries++
		}
	}
	d.subscriber.count(&t, time.Now(), states, d.planner.status())
	return t
}

// status returns the services with subscriptions, sorted by name.
func (s *subscriber) status(now time.Time, states map[*session]registry.State, services map[registry.Service]serviceStatus) []ReferenceStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	statuses := make([]ReferenceStatus, 0, len(s.sources))
	for key, sources := range s.sources {
		statuses = append(statuses, sources.describe(key, now, states, services[key]))
	}
	slices.SortFunc(statuses, func(a, b ReferenceStatus) int { return cmp.Compare(a.Key, b.Key) })
	return statuses
}

// describe describes a service. The caller holds subscriber.mu.
func (subs subscriptions) describe(key registry.Service, now time.Time, states map[*session]registry.State, svc serviceStatus) ReferenceStatus {
	rs := ReferenceStatus{
		Key: key.String(), Interface: key.Interface, Group: key.Group, Version: key.Version, Methods: subs[0].spec.Service.Methods,
		Sources:   make([]SubscriptionStatus, 0, len(subs)),
		Providers: []Provider{},
	}
	retained := map[providerKey]bool{}
	for _, sub := range subs {
		rs.Sources = append(rs.Sources, sub.describe(now, states, svc))
		for _, r := range sub.retainedProviders {
			retained[providerKeyOf(r.url)] = true
		}
	}
	result := svc.result
	if result == nil {
		return rs
	}
	rs.LoadBalance, rs.Timeout, rs.Retries, rs.Warnings = result.LoadBalance, result.Timeout.String(), result.Retries, result.Warnings
	for i := range result.Providers {
		p := &result.Providers[i]
		provider := describeProvider(p)
		provider.Retained = retained[providerKeyOf(p.URL)]
		if last := len(rs.Providers) - 1; last >= 0 && rs.Providers[last].Address == provider.Address {
			rs.Providers[last] = rs.Providers[last].merge(provider)
			continue
		}
		rs.Providers = append(rs.Providers, provider)
	}
	return rs
}

func describeProvider(p *plan.Provider) Provider {
	svc := p.URL.Service()
	return Provider{
		Address: p.URL.Address(), Protocol: p.URL.Protocol, Weight: p.Weight, Application: p.URL.Get(parameterApplication),
		Group: svc.Group, Version: svc.Version, Registry: p.Registry, UnusedReason: p.UnusedReason,
	}
}

// merge combines p with other, which provides another group or version at the same address. The
// first provider that gets calls represents the address; the others become its variants.
func (p Provider) merge(other Provider) Provider {
	variants := p.Variants
	p.Variants = nil
	if p.UnusedReason != "" && other.UnusedReason == "" {
		other.Variants = append([]Provider{p}, variants...)
		return other
	}
	p.Variants = append(variants, other)
	return p
}

// describe describes a subscription. The caller holds subscriber.mu.
func (s *subscription) describe(now time.Time, states map[*session]registry.State, svc serviceStatus) SubscriptionStatus {
	st := SubscriptionStatus{
		Registry:   s.session.key.String(),
		Registered: s.consumer.isRegistered() && states[s.session].Connected,
		Since:      s.since,
		Received:   s.hasSnapshot(),
		ReceivedAt: s.evaluatedAt,
		Restored:   s.restored,
		Error:      s.consumer.errorText(),
	}
	if st.Error == "" && s.resolveErr != nil {
		st.Error = s.resolveErr.Error()
	}
	if st.Error == "" && svc.result != nil {
		st.Error = svc.result.Unrouted
	}
	if s.emptyProtected() {
		st.EmptySince = s.emptySince
	}
	if s.hasSnapshot() {
		st.Age = now.Sub(s.evaluatedAt).Truncate(time.Second).String()
	}
	if svc.err != nil {
		st.Error = svc.err.Error()
	}
	return st
}

// count adds the counts of the services with subscriptions to t.
func (s *subscriber) count(t *Totals, now time.Time, states map[*session]registry.State, services map[registry.Service]serviceStatus) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, sources := range s.sources {
		t.Subscribed++
		t.Providers += services[key].hosts
		t.count(sources, now, states)
	}
}

// count adds the subscriptions of one service to t. The caller holds subscriber.mu.
func (t *Totals) count(sources subscriptions, now time.Time, states map[*session]registry.State) {
	received, restored, protected := false, false, false
	for _, sub := range sources {
		received = received || sub.hasSnapshot()
		restored = restored || sub.hasSnapshot() && sub.restored
		protected = protected || sub.emptyProtected()
		if sub.hasSnapshot() && !states[sub.session].Connected {
			t.OldestSnapshot = max(t.OldestSnapshot, now.Sub(sub.evaluatedAt))
		}
	}
	if !received {
		t.WithoutSnapshot++
	}
	if restored {
		t.RestoredServices++
	}
	if protected {
		t.EmptyProtected++
	}
}
