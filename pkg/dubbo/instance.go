package dubbo

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/dubbo/application"
	"github.com/weft-proxy/weft/pkg/registry"
)

// An application registers one instance (Dubbo 3) for all its services at an address, with metadata
// that contain all of them:
//
//	Publish, Unpublish ──▶ joinInstance ──▶ members ──▶ the instance's registration
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
// fields except key are guarded by Discovery.mu.
type localInstance struct {
	key          instanceKey // immutable
	registration *registration
	members      map[identity]*publication // services that the instance provides
	changes      int                       // number of changes of members
	told         int                       // highest change that the registry has

	unmapped *registry.UnmappedError // why consumers do not find some members; nil: they find all
}

// goal is a condition that API calls wait for. The caller of met holds Discovery.mu.
type goal struct {
	registration *registration
	met          func() bool
}

// goal returns a goal for the current change of the instance; later changes do not affect it.
func (p *localInstance) goal() goal {
	e, change := p.registration, p.changes
	return goal{e, func() bool { return e.settled() || p.told >= change }}
}

// registrableInstance is a copy of a localInstance at one change.
type registrableInstance struct {
	discovery *Discovery
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
	var unlisted *registry.UnmappedError
	if err != nil && !errors.As(err, &unlisted) {
		return err
	}
	a.discovery.mu.Lock()
	defer a.discovery.mu.Unlock()
	a.instance.told = max(a.instance.told, a.change)
	a.discovery.recordUnmapped(a.instance, unlisted)
	return nil
}

// recordUnmapped records, and logs once, which members consumers do not find. mu is held.
func (h *Discovery) recordUnmapped(pr *localInstance, now *registry.UnmappedError) {
	before := pr.unmapped
	pr.unmapped = now
	if now != nil && (before == nil || before.Error() != now.Error()) {
		h.options.Log.Warn("consumers cannot find some services of an application", logRegistry, pr.registration.session.key.String(), logError, now)
	}
}

// unmappedReason returns why consumers do not find a publication, or "". mu is held.
func (p *publication) unmappedReason() string {
	if p.instance == nil || p.instance.unmapped == nil || !slices.Contains(p.instance.unmapped.Interfaces, p.spec.Service.Interface) {
		return ""
	}
	return fmt.Sprintf("the application is registered, but consumers cannot find it by this interface: %v", p.instance.unmapped.Err)
}

// unregister does nothing after a replacement, because the instance stays the same.
func (a *registrableInstance) unregister(ctx context.Context, r registry.Registry) error {
	a.discovery.mu.Lock()
	replaced := a.instance.registration.session.registry == r && a.instance.registration.desired != nil
	a.discovery.mu.Unlock()
	if replaced {
		return nil
	}
	p := a.local
	return r.UnregisterInstance(ctx, registry.Instance{Application: p.Application, Host: p.Host, Port: p.Port})
}

// registrations returns the registrations of a publication. mu is held.
func (p *publication) registrations() []*registration {
	all := []*registration{p.urlRegistration}
	if p.instance != nil {
		all = append(all, p.instance.registration)
	}
	return all
}

// goals returns the goals of a publication. mu is held.
func (p *publication) goals() []goal {
	all := []goal{{p.urlRegistration, p.urlRegistration.settled}}
	if p.instance != nil {
		all = append(all, p.instance.goal())
	}
	return all
}

// publish registers a publication in its mode. mu is held, as in all functions below.
func (h *Discovery) publish(p *publication) {
	mode := p.spec.mode
	h.joinInstance(p, mode != config.RegisterInterface)
	if mode == config.RegisterInstance {
		h.set(p.urlRegistration, nil)
		return
	}
	u := h.providerURL(p.spec, p.since)
	h.set(p.urlRegistration, &u)
}

// joinInstance adds a publication to its instance, or to none if wanted is false.
func (h *Discovery) joinInstance(p *publication, wanted bool) {
	u := h.providerURL(p.spec, p.since)
	key := instanceKey{p.spec.id.kind, p.spec.id.address, u.Get(parameterApplication), u.Port}
	if p.instance != nil && (!wanted || p.instance.key != key) {
		h.leaveInstance(p)
	}
	if !wanted {
		return
	}
	pr := h.instances[key]
	if pr == nil {
		pr = &localInstance{key: key, members: map[identity]*publication{}}
		h.instances[key] = pr
	}
	s, offer := h.openSession(p.spec.session), serviceInfoOf(p.spec, u)
	if pr.registration != nil && pr.registration.session == s && pr.registration.desired != nil && pr.members[p.spec.id] == p && maps.Equal(p.serviceInfo.Parameters, offer.Parameters) {
		return // nothing has changed
	}
	if pr.registration == nil || pr.registration.session != s {
		e := h.newRegistration(s)
		e.instance = pr
		if pr.registration != nil && !pr.registration.releasePending { // else it ends by itself
			e.predecessor = pr.registration // with other credentials
		}
		pr.registration = e
	}
	pr.registration.releasePending = false
	p.instance, p.serviceInfo = pr, offer
	pr.members[p.spec.id] = p
	h.updateInstance(pr)
}

// leaveInstance removes a publication from its instance, and ends the instance with the last one.
// It returns the goal of that change.
func (h *Discovery) leaveInstance(p *publication) goal {
	pr := p.instance
	p.instance = nil
	delete(pr.members, p.spec.id)
	if len(pr.members) == 0 {
		h.endRegistration(pr.registration)
		return goal{pr.registration, pr.registration.settled}
	}
	h.updateInstance(pr)
	return pr.goal()
}

// dropInstance drops an instance whose registration has ended.
func (h *Discovery) dropInstance(e *registration) {
	if pr := e.instance; pr != nil && pr.registration == e && h.instances[pr.key] == pr {
		delete(h.instances, pr.key)
	}
}

// updateInstance registers the current members of an instance, unless everything is withdrawn.
func (h *Discovery) updateInstance(pr *localInstance) {
	if h.withdrawn {
		return
	}
	pr.changes++
	a := &registrableInstance{discovery: h, instance: pr, change: pr.changes, services: make([]*application.ServiceInfo, 0, len(pr.members))}
	var since time.Time
	for _, p := range pr.members {
		a.services = append(a.services, p.serviceInfo)
		since = earlierOf(since, p.since)
	}
	a.local = application.LocalInstance{Application: pr.key.application, Host: h.host, Port: pr.key.port, Since: since}
	h.setDesired(pr.registration, a)
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
