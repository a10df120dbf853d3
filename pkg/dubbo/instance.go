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
// that describes all of them:
//
//	publish ────▶ reconcileMembership ──▶ members ──▶ the instance's registration
//	unpublish ──▶ leaveInstance ────────────┘           │ registrableInstance
//	                                                    ▼
//	                      registry.RegisterInstance, or UnregisterInstance after the last member

// parameterRegisterMode is Dubbo's parameter for how a provider is registered.
const parameterRegisterMode = "register-mode"

// instanceKey identifies a localInstance.
type instanceKey struct {
	registryType, address string // of the registry
	application           string
	port                  uint16
}

// localInstance is the instance of an application at one address that this process registers. All
// fields except key are guarded by publisher.mu.
type localInstance struct {
	key          instanceKey // immutable
	registration *registration
	members      map[identity]*publication // services that the instance provides
	changes      int                       // number of changes of members

	unmapped *registry.UnmappedError // why consumers do not find some members; nil: they find all of them
}

// registrableInstance is an immutable copy of a localInstance after a change of its members.
type registrableInstance struct {
	publisher *publisher
	instance  *localInstance
	change    int // localInstance.changes at the time of the copy
	local     application.LocalInstance
	services  []*application.ServiceInfo
}

// String returns a text that identifies the instance and the change.
func (ri *registrableInstance) String() string {
	return fmt.Sprintf("instance://%s:%d/%s?change=%d", ri.local.Host, ri.local.Port, ri.local.Application, ri.change)
}

func (ri *registrableInstance) register(ctx context.Context, r registry.Registry) error {
	err := r.RegisterInstance(ctx, application.NewInstanceRegistration(ri.local, ri.services))
	var unmapped *registry.UnmappedError
	if err != nil && !errors.As(err, &unmapped) {
		return err
	}
	ri.publisher.recordUnmapped(ri.instance, unmapped)
	return nil
}

// recordUnmapped records the members that consumers cannot find, and logs each new error.
func (p *publisher) recordUnmapped(i *localInstance, current *registry.UnmappedError) {
	p.mu.Lock()
	defer p.mu.Unlock()
	previous := i.unmapped
	i.unmapped = current
	if current != nil && (previous == nil || previous.Error() != current.Error()) {
		p.settings.Log.Warn("consumers cannot find some services of an application", logRegistry, i.registration.session.key.String(), logError, current)
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

// unregister does nothing if a newer copy is desired: the registry has one entry for all copies.
func (ri *registrableInstance) unregister(ctx context.Context, r registry.Registry) error {
	if ri.publisher.isReplaced(ri.instance, r) {
		return nil
	}
	i := ri.local
	return r.UnregisterInstance(ctx, registry.Instance{Application: i.Application, Host: i.Host, Port: i.Port})
}

// isReplaced reports whether a newer copy of instance i is desired in registry r.
func (p *publisher) isReplaced(i *localInstance, r registry.Registry) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return i.registration.session.openRegistry() == r && i.registration.isDesired()
}

// reconcileMembership adds a publication to its instance, or removes it if desired is false. The
// caller holds mu, as for leaveInstance and updateInstance.
func (p *publisher) reconcileMembership(pub *publication, desired bool) {
	u := p.settings.providerURL(pub.spec, pub.since)
	key := instanceKey{pub.spec.id.registryType, pub.spec.id.address, u.Get(parameterApplication), u.Port}
	if pub.instance != nil && (!desired || pub.instance.key != key) {
		p.leaveInstance(pub)
	}
	if !desired {
		return
	}
	i := p.instances[key]
	if i == nil {
		i = &localInstance{key: key, members: map[identity]*publication{}}
		p.instances[key] = i
	}
	s, info := pub.urlRegistration.session, serviceInfoOf(pub.spec, u)
	if reg := i.registration; reg != nil && reg.session == s && reg.isDesired() && i.members[pub.spec.id] == pub && maps.Equal(pub.serviceInfo.Parameters, info.Parameters) {
		return // pub is a member with the same parameters
	}
	if reg := i.registration; reg == nil || reg.session != s || !reg.revive() {
		if reg != nil && reg.isEnding() {
			reg = nil // the old registration is already ending: the new one does not have to end it
		}
		i.registration = newRegistration(s, reg, p.instanceOptions(i))
	}
	pub.instance, pub.serviceInfo = i, info
	i.members[pub.spec.id] = pub
	p.updateInstance(i)
}

// instanceOptions returns the options for the registration of i.
func (p *publisher) instanceOptions(i *localInstance) registrationOptions {
	o := p.urlOptions
	o.onRegistered = func(reg *registration) { p.endReplaced(i, reg) }
	o.onEnd = func(reg *registration) { p.dropInstance(i, reg) }
	return o
}

// leaveInstance removes a publication from its instance. It ends the instance if no member is left.
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

// updateInstance registers the current members of an instance, unless UnregisterAll was called.
func (p *publisher) updateInstance(i *localInstance) {
	if p.unregisteredAll {
		return
	}
	i.changes++
	ri := &registrableInstance{publisher: p, instance: i, change: i.changes, services: make([]*application.ServiceInfo, 0, len(i.members))}
	var since time.Time
	for _, pub := range i.members {
		ri.services = append(ri.services, pub.serviceInfo)
		since = earlierOf(since, pub.since)
	}
	ri.local = application.LocalInstance{Application: i.key.application, Host: p.settings.host, Port: i.key.port, Since: since}
	i.registration.set(ri)
}

// endReplaced runs when the registry has confirmed an instance. For each member that is not
// registered by URL, it ends the predecessor of the member's URL registration. The predecessor has
// other credentials. The caller does not hold mu.
func (p *publisher) endReplaced(i *localInstance, reg *registration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if i.registration != reg || !reg.isRegistered() { // endReplaced runs again for the newer copy
		return
	}
	for _, pub := range i.members {
		if !pub.urlRegistration.isDesired() {
			pub.urlRegistration.endPredecessor()
		}
	}
}

// dropInstance drops an instance whose registration has ended. The caller does not hold mu.
func (p *publisher) dropInstance(i *localInstance, reg *registration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if i.registration == reg && p.instances[i.key] == i {
		delete(p.instances, i.key)
	}
}

// serviceInfoOf returns the entry of a service in the metadata: the parameters of its URL that do
// not depend on the host or the start time.
func serviceInfoOf(sp *spec, u registry.URL) *application.ServiceInfo {
	info := &application.ServiceInfo{Service: sp.id.service, Protocol: u.Protocol, Path: u.Path, Parameters: map[string]string{}}
	copyParam := func(name string) {
		if value := u.Get(name); value != "" {
			info.Parameters[name] = value
		}
	}
	for _, name := range [...]string{
		registry.ParameterInterface, registry.ParameterGroup, registry.ParameterVersion, parameterMethods,
		parameterApplication, parameterDubbo, parameterSide, "dynamic", "generic",
	} {
		copyParam(name)
	}
	for name := range sp.Service.Parameters {
		if name != parameterRegisterMode {
			copyParam(name)
		}
	}
	return info
}
