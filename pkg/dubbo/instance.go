package dubbo

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/weft-proxy/weft/pkg/dubbo/application"
	"github.com/weft-proxy/weft/pkg/registry"
)

// An application registers one instance (Dubbo 3) for all its services at an address, with metadata
// that contain all of them:
//
//	publish, unpublish ──▶ joinInstance ──▶ members ──▶ the instance's registration
//	                                                      │ registrableInstance
//	                                                      ▼
//	                        registry.RegisterInstance, or UnregisterInstance after the last

// parameterRegisterMode is Dubbo's parameter for how a provider is registered.
const parameterRegisterMode = "register-mode"

// instanceKey identifies a localInstance.
type instanceKey struct {
	kind, address string // of the registry
	application   string
	port          uint16
}

// localInstance is the instance of an application at one address that this process registers. All
// fields except key are guarded by publisher.mu.
type localInstance struct {
	key          instanceKey // immutable
	registration *registration
	members      map[identity]*publication // services that the instance provides
	changes      int                       // number of changes of members

	unmapped *registry.UnmappedError // why consumers do not find some members; nil: they find all
}

// registrableInstance is an immutable copy of a localInstance at one change.
type registrableInstance struct {
	publisher *publisher
	instance  *localInstance
	change    int // of the change
	local     application.LocalInstance
	services  []*application.ServiceInfo
}

// String returns a text that is unique per change.
func (a *registrableInstance) String() string {
	return fmt.Sprintf("instance://%s:%d/%s?change=%d", a.local.Host, a.local.Port, a.local.Application, a.change)
}

func (a *registrableInstance) register(ctx context.Context, r registry.Registry) error {
	err := r.RegisterInstance(ctx, application.NewInstanceRegistration(a.local, a.services))
	var unmapped *registry.UnmappedError
	if err != nil && !errors.As(err, &unmapped) {
		return err
	}
	a.publisher.recordUnmapped(a.instance, unmapped)
	return nil
}

// recordUnmapped records, and logs once, which members consumers do not find.
func (p *publisher) recordUnmapped(i *localInstance, now *registry.UnmappedError) {
	p.mu.Lock()
	defer p.mu.Unlock()
	before := i.unmapped
	i.unmapped = now
	if now != nil && (before == nil || before.Error() != now.Error()) {
		p.settings.Log.Warn("consumers cannot find some services of an application", logRegistry, i.registration.session.key.String(), logError, now)
	}
}

// unmappedReason returns why consumers do not find a publication, or "". The caller holds
// publisher.mu.
func (pub *publication) unmappedReason() string {
	if pub.instance == nil || pub.instance.unmapped == nil || !slices.Contains(pub.instance.unmapped.Interfaces, pub.spec.Service.Interface) {
		return ""
	}
	return fmt.Sprintf("the application is registered, but consumers cannot find it by this interface: %v", pub.instance.unmapped.Err)
}

// unregister does nothing after a replacement, because the instance stays the same.
func (a *registrableInstance) unregister(ctx context.Context, r registry.Registry) error {
	if a.publisher.isReplaced(a.instance, r) {
		return nil
	}
	i := a.local
	return r.UnregisterInstance(ctx, registry.Instance{Application: i.Application, Host: i.Host, Port: i.Port})
}

// isReplaced reports whether an instance is desired in a registry again.
func (p *publisher) isReplaced(i *localInstance, r registry.Registry) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return i.registration.session.open() == r && i.registration.isDesired()
}

// joinInstance adds a publication to its instance, or to none if wanted is false. The caller holds
// mu, as in the functions below.
func (p *publisher) joinInstance(pub *publication, wanted bool) {
	u := p.settings.providerURL(pub.spec, pub.since)
	key := instanceKey{pub.spec.id.kind, pub.spec.id.address, u.Get(parameterApplication), u.Port}
	if pub.instance != nil && (!wanted || pub.instance.key != key) {
		p.leaveInstance(pub)
	}
	if !wanted {
		return
	}
	i := p.instances[key]
	if i == nil {
		i = &localInstance{key: key, members: map[identity]*publication{}}
		p.instances[key] = i
	}
	s, info := pub.urlRegistration.session, serviceInfoOf(pub.spec, u)
	if e := i.registration; e != nil && e.session == s && e.isDesired() && i.members[pub.spec.id] == pub && maps.Equal(pub.serviceInfo.Parameters, info.Parameters) {
		return // nothing has changed
	}
	if e := i.registration; e == nil || e.session != s || !e.revive() {
		if e != nil && e.isEnding() {
			e = nil // it ends by itself
		}
		i.registration = newRegistration(s, e, p.instanceRegistration(i))
	}
	pub.instance, pub.serviceInfo = i, info
	i.members[pub.spec.id] = pub
	p.updateInstance(i)
}

// instanceRegistration returns the options of a registration of an instance.
func (p *publisher) instanceRegistration(i *localInstance) registrationOptions {
	o := p.registrations
	o.onRegistered = func(e *registration) { p.endReplaced(i, e) }
	o.onEnd = func(e *registration) { p.dropInstance(i, e) }
	return o
}

// leaveInstance removes a publication from its instance, and ends the instance with the last one.
func (p *publisher) leaveInstance(pub *publication) {
	i := pub.instance
	pub.instance = nil
	delete(i.members, pub.spec.id)
	if len(i.members) > 0 {
		p.updateInstance(i)
	} else if i.registration.end() {
		delete(p.instances, i.key)
	}
}

// updateInstance registers the current members of an instance, unless everything is withdrawn.
func (p *publisher) updateInstance(i *localInstance) {
	if p.withdrawn {
		return
	}
	i.changes++
	a := &registrableInstance{publisher: p, instance: i, change: i.changes, services: make([]*application.ServiceInfo, 0, len(i.members))}
	var since time.Time
	for _, pub := range i.members {
		a.services = append(a.services, pub.serviceInfo)
		since = earlierOf(since, pub.since)
	}
	a.local = application.LocalInstance{Application: i.key.application, Host: p.settings.host, Port: i.key.port, Since: since}
	i.registration.set(a)
}

// endReplaced ends the URLs with other credentials that an instance replaces, when the registry has
// the instance: the predecessors of members that have no URL of their own. The caller does not hold
// mu.
func (p *publisher) endReplaced(i *localInstance, e *registration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if i.registration != e || !e.isRegistered() { // the next change follows
		return
	}
	for _, pub := range i.members {
		if !pub.urlRegistration.isDesired() {
			pub.urlRegistration.endPredecessor()
		}
	}
}

// dropInstance drops an instance whose registration has ended. The caller does not hold mu.
func (p *publisher) dropInstance(i *localInstance, e *registration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if i.registration == e && p.instances[i.key] == i {
		delete(p.instances, i.key)
	}
}

// serviceInfoOf returns the entry of a service in the metadata: the parameters of its URL that do not
// depend on the host or the start time.
func serviceInfoOf(w *spec, u registry.URL) *application.ServiceInfo {
	o := &application.ServiceInfo{Service: w.id.service, Protocol: u.Protocol, Path: u.Path, Parameters: map[string]string{}}
	keep := func(name string) {
		if value := u.Get(name); value != "" {
			o.Parameters[name] = value
		}
	}
	for _, name := range [...]string{
		registry.ParameterInterface, registry.ParameterGroup, registry.ParameterVersion, parameterMethods,
		parameterApplication, parameterDubbo, parameterSide, "dynamic", "generic",
	} {
		keep(name)
	}
	for name := range w.Service.Parameters {
		if name != parameterRegisterMode {
			keep(name)
		}
	}
	return o
}
