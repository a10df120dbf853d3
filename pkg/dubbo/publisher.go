package dubbo

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/dubbo/application"
	"github.com/weft-proxy/weft/pkg/registry"
)

// publisher registers the services that the local application provides: each by its URL, by the
// instance of its application (instance.go), or by both. Its methods are safe for concurrent use.
// With mu held, they call only registrations, sessions and the state writer.
type publisher struct {
	settings   *settings           // immutable
	state      *stateWriter        // immutable
	urlOptions registrationOptions // immutable; the options of URL registrations

	mu              mutex[rank1]
	timestamps      timestamps // guarded by mu, like all fields below
	published       map[identity]*publication
	instances       map[instanceKey]*localInstance
	unregisteredAll bool // UnregisterAll was called
	closed          bool // publish and unpublish return errClosing, because the state file is about to be written
}

// publication is a service that is provided on this machine. All fields are guarded by
// publisher.mu.
type publication struct {
	spec            *spec
	since           time.Time
	urlRegistration *registration            // has no desired URL in the mode RegisterInstance
	instance        *localInstance           // the instance that provides the service; nil: only the URL is registered
	serviceInfo     *application.ServiceInfo // describes the service in the metadata of instance
}

func newPublisher(s *settings, state *stateWriter, t *tasks) *publisher {
	return &publisher{
		settings:   s,
		state:      state,
		urlOptions: registrationOptions{tasks: t, log: s.Log},
		published:  map[identity]*publication{},
		instances:  map[instanceKey]*localInstance{},
	}
}

// check returns why a service cannot be published, before the caller opens a session for it.
func (p *publisher) check(sp *spec) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.checkLocked(sp)
}

func (p *publisher) checkLocked(sp *spec) error {
	if err := checkCapacity(p.published[sp.id] != nil, len(p.published)); err != nil {
		return err
	}
	if p.closed {
		return errClosing
	}
	return nil
}

// publish registers a service over a session, and returns goals: the versions of its registrations
// that the registry must confirm. It replaces an earlier publication with the same registry and
// service. The error is a *FieldError or wraps errClosing.
func (p *publisher) publish(sp *spec, s *session) ([]goal, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.checkLocked(sp); err != nil {
		return nil, err
	}
	old := p.published[sp.id]
	pub := old
	if old == nil || old.spec.session != sp.session {
		var predecessor *registration
		pub = &publication{since: p.timestamps.next()}
		if old != nil { // the request has other credentials
			predecessor, pub.instance = old.urlRegistration, old.instance
		}
		pub.urlRegistration = newRegistration(s, predecessor, p.urlOptions)
		p.published[sp.id] = pub
	}
	if old == nil || !reflect.DeepEqual(old.spec.Request, sp.Request) {
		p.state.save(saveSoon)
	}
	pub.spec = sp
	if p.unregisteredAll {
		return nil, fmt.Errorf("%w: %w", ErrPending, errClosing)
	}
	p.register(pub)
	return goalsOf(pub.registrations()), nil
}

// register registers a publication in its mode. The caller holds mu.
func (p *publisher) register(pub *publication) {
	mode := pub.spec.mode
	p.reconcileMembership(pub, mode != config.RegisterInterface)
	if mode == config.RegisterInstance {
		pub.urlRegistration.set(nil)
		if pub.instance.registration.isRegistered() { // otherwise endReplaced ends the predecessor later
			pub.urlRegistration.endPredecessor()
		}
		return
	}
	pub.urlRegistration.setURL(p.settings.providerURL(pub.spec, pub.since))
}

// unpublish reverts publish, and returns the goals that the caller awaits. The error wraps
// ErrNotFound or errClosing.
func (p *publisher) unpublish(sp *spec) ([]goal, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, errClosing
	}
	pub := p.published[sp.id]
	if pub == nil {
		return nil, fmt.Errorf("%s at %s: %w", sp.id.service, sp.session, ErrNotFound)
	}
	delete(p.published, sp.id)
	registrations := pub.registrations()
	if pub.instance != nil {
		p.leaveInstance(pub)
	}
	pub.urlRegistration.end()
	p.state.save(saveSoon)
	return goalsOf(registrations), nil
}

// unregisterAll implements Discovery.UnregisterAll. The publications stay in published, so that the
// state file contains them.
func (p *publisher) unregisterAll(ctx context.Context, ended <-chan struct{}) {
	var registrations []*registration
	p.mu.Lock()
	p.unregisteredAll = true
	for _, i := range p.instances {
		registrations = append(registrations, i.registration.unregisterAll()...)
	}
	for _, pub := range p.published {
		registrations = append(registrations, pub.urlRegistration.unregisterAll()...)
	}
	p.mu.Unlock()
	if len(registrations) == 0 {
		return
	}
	awaitCtx, cancel := context.WithTimeoutCause(ctx, registryTimeout, errNoResponse)
	defer cancel()
	var errs []error
	for _, g := range goalsOf(registrations) {
		if err := g.await(awaitCtx, ended); err != nil {
			errs = append(errs, err)
		}
	}
	if len(errs) > 0 {
		p.settings.Log.Warn("registrations may remain in their registries", "registrations", len(errs), logError, errs[0])
	}
	if len(errs) == len(registrations) {
		return
	}
	timer := time.NewTimer(p.settings.Config.UnregisterWait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// start starts all registrations whose session is open.
func (p *publisher) start() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, pub := range p.published {
		pub.urlRegistration.start()
	}
	for _, i := range p.instances {
		i.registration.start()
	}
}

// close makes publish and unpublish return errClosing.
func (p *publisher) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
}

// restore publishes a service of the state file. It does nothing if the service is published.
func (p *publisher) restore(sp *spec, s *session, since time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.published[sp.id] != nil {
		return
	}
	p.timestamps.skip(since)
	pub := &publication{spec: sp, since: since, urlRegistration: newRegistration(s, nil, p.urlOptions)}
	p.published[sp.id] = pub
	p.register(pub)
}

// stateEntries returns the publications for the state file.
func (p *publisher) stateEntries() []stateEntry {
	p.mu.Lock()
	defer p.mu.Unlock()
	entries := make([]stateEntry, 0, len(p.published))
	for _, pub := range p.published {
		entries = append(entries, stateEntry{pub.spec.Request, pub.since})
	}
	return entries
}

// status returns the publications in the order of their names.
func (p *publisher) status(states map[*session]registry.State) []PublishedStatus {
	p.mu.Lock()
	defer p.mu.Unlock()
	statuses := make([]PublishedStatus, 0, len(p.published))
	for _, pub := range p.published {
		statuses = append(statuses, p.describe(pub, states))
	}
	slices.SortFunc(statuses, func(a, b PublishedStatus) int {
		return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.Registry, b.Registry))
	})
	return statuses
}

// describe returns the status of a publication. The caller holds mu.
func (p *publisher) describe(pub *publication, states map[*session]registry.State) PublishedStatus {
	st := PublishedStatus{
		Key:        pub.spec.id.service.String(),
		Registry:   pub.urlRegistration.session.key.String(),
		Interface:  pub.spec.Service.Interface,
		Group:      pub.spec.Service.Group,
		Version:    pub.spec.Service.Version,
		Methods:    pub.spec.Service.Methods,
		URL:        redactURL(p.settings.providerURL(pub.spec, pub.since)),
		Registered: pub.isRegistered(states),
		Since:      pub.since,
	}
	if pub.spec.mode != config.RegisterInterface {
		st.Mode = string(pub.spec.mode)
	}
	for _, reg := range pub.registrations() {
		st.Error = cmp.Or(st.Error, reg.errorText())
	}
	st.Error = cmp.Or(st.Error, pub.unmappedReason())
	if st.Error == "" && p.unregisteredAll {
		st.Error = errClosing.Error()
	}
	return st
}

// totals returns the number of publications, and the number of publications that the registries
// have.
func (p *publisher) totals(states map[*session]registry.State) (published, registered int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, pub := range p.published {
		if pub.isRegistered(states) {
			registered++
		}
	}
	return len(p.published), registered
}

// isRegistered reports whether the registry has every registration that the mode requires. The
// caller holds publisher.mu.
func (pub *publication) isRegistered(states map[*session]registry.State) bool {
	isConfirmed := func(reg *registration) bool { return reg.isRegistered() && states[reg.session].Connected }
	switch pub.spec.mode {
	case config.RegisterInstance:
		return pub.instance != nil && isConfirmed(pub.instance.registration)
	case config.RegisterAll:
		return isConfirmed(pub.urlRegistration) && pub.instance != nil && isConfirmed(pub.instance.registration)
	case config.RegisterInterface:
	}
	return isConfirmed(pub.urlRegistration)
}

// registrations returns the registrations of a publication. The caller holds publisher.mu.
func (pub *publication) registrations() []*registration {
	list := []*registration{pub.urlRegistration}
	if pub.instance != nil {
		list = append(list, pub.instance.registration)
	}
	return list
}
