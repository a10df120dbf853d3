package dubbo

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/upstream/discovery/dubbo/application"
	"github.com/weft-proxy/weft/pkg/upstream/discovery/dubbo/registry"
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

// presenceKey identifies a localInstance.
type presenceKey struct {
	kind, address string // of the registry
	application   string
	port          uint16
}

// localInstance is the instance of an application at one address that this process registers. All
// fields except key are guarded by Discovery.mu.
type localInstance struct {
	key     presenceKey // immutable
	entry   *registration
	members map[identity]*publication // services that the instance provides
	changes int                       // number of changes of members
	told    int                       // highest change that the registry has

	unlisted *registry.UnmappedError // why consumers do not find some members; nil: they find all
}

// goal is a condition that API calls wait for. The caller of met holds Discovery.mu.
type goal struct {
	entry *registration
	met   func() bool
}

// goal returns a goal for the current change of the instance; later changes do not affect it.
func (p *localInstance) goal() goal {
	e, change := p.entry, p.changes
	return goal{e, func() bool { return e.settled() || p.told >= change }}
}

// registrableInstance is a copy of a localInstance at one change.
type registrableInstance struct {
	h        *Discovery
	presence *localInstance
	number   int // of the change
	process  application.LocalInstance
	offers   []*application.ServiceInfo
}

// String returns a text that is unique per change.
func (a *registrableInstance) String() string {
	return fmt.Sprintf("instance://%s:%d/%s?change=%d", a.process.Host, a.process.Port, a.process.Application, a.number)
}

func (a *registrableInstance) register(ctx context.Context, r registry.Registry) error {
	err := r.RegisterInstance(ctx, application.NewInstanceRegistration(a.process, a.offers))
	var unlisted *registry.UnmappedError
	if err != nil && !errors.As(err, &unlisted) {
		return err
	}
	a.h.mu.Lock()
	defer a.h.mu.Unlock()
	a.presence.told = max(a.presence.told, a.number)
	a.h.noteUnlisted(a.presence, unlisted)
	return nil
}

// noteUnlisted records, and logs once, which members consumers do not find. mu is held.
func (h *Discovery) noteUnlisted(pr *localInstance, now *registry.UnmappedError) {
	before := pr.unlisted
	pr.unlisted = now
	if now != nil && (before == nil || before.Error() != now.Error()) {
		h.o.Log.Warn("consumers cannot find some services of an application", logRegistry, pr.entry.session.key.String(), logError, now)
	}
}

// unlisted returns why consumers do not find a publication, or "". mu is held.
func (p *publication) unlisted() string {
	if p.presence == nil || p.presence.unlisted == nil || !slices.Contains(p.presence.unlisted.Interfaces, p.wish.Service.Interface) {
		return ""
	}
	return fmt.Sprintf("the application is registered, but consumers cannot find it by this interface: %v", p.presence.unlisted.Err)
}

// unregister does nothing after a replacement, because the instance stays the same.
func (a *registrableInstance) unregister(ctx context.Context, r registry.Registry) error {
	a.h.mu.Lock()
	replaced := a.presence.entry.session.registry == r && a.presence.entry.desired != nil
	a.h.mu.Unlock()
	if replaced {
		return nil
	}
	p := a.process
	return r.UnregisterInstance(ctx, registry.Instance{Application: p.Application, Host: p.Host, Port: p.Port})
}

// entries returns the registrations of a publication. mu is held.
func (p *publication) entries() []*registration {
	all := []*registration{p.entry}
	if p.presence != nil {
		all = append(all, p.presence.entry)
	}
	return all
}

// goals returns the goals of a publication. mu is held.
func (p *publication) goals() []goal {
	all := []goal{{p.entry, p.entry.settled}}
	if p.presence != nil {
		all = append(all, p.presence.goal())
	}
	return all
}

// publish registers a publication in its mode. mu is held, as in all functions below.
func (h *Discovery) publish(p *publication) {
	mode := p.wish.mode
	h.joinInstance(p, mode != config.RegisterInterface)
	if mode == config.RegisterInstance {
		h.set(p.entry, nil)
		return
	}
	u := h.provider(p.wish, p.since)
	h.set(p.entry, &u)
}

// joinInstance adds a publication to its instance, or to none if wanted is false.
func (h *Discovery) joinInstance(p *publication, wanted bool) {
	u := h.provider(p.wish, p.since)
	key := presenceKey{p.wish.id.kind, p.wish.id.address, u.Get(parameterApplication), u.Port}
	if p.presence != nil && (!wanted || p.presence.key != key) {
		h.leaveInstance(p)
	}
	if !wanted {
		return
	}
	pr := h.presences[key]
	if pr == nil {
		pr = &localInstance{key: key, members: map[identity]*publication{}}
		h.presences[key] = pr
	}
	s, offer := h.session(p.wish.session), offerOf(p.wish, u)
	if pr.entry != nil && pr.entry.session == s && pr.entry.desired != nil && pr.members[p.wish.id] == p && maps.Equal(p.offer.Parameters, offer.Parameters) {
		return // nothing has changed
	}
	if pr.entry == nil || pr.entry.session != s {
		e := h.newEntry(s)
		e.presence = pr
		if pr.entry != nil && !pr.entry.ended { // else it ends by itself
			e.before = pr.entry // with other credentials
		}
		pr.entry = e
	}
	pr.entry.ended = false
	p.presence, p.offer = pr, offer
	pr.members[p.wish.id] = p
	h.updateInstance(pr)
}

// leaveInstance removes a publication from its instance, and ends the instance with the last one.
// It returns the goal of that change.
func (h *Discovery) leaveInstance(p *publication) goal {
	pr := p.presence
	p.presence = nil
	delete(pr.members, p.wish.id)
	if len(pr.members) == 0 {
		h.end(pr.entry)
		return goal{pr.entry, pr.entry.settled}
	}
	h.updateInstance(pr)
	return pr.goal()
}

// forgetInstance drops an instance whose registration has ended.
func (h *Discovery) forgetInstance(e *registration) {
	if pr := e.presence; pr != nil && pr.entry == e && h.presences[pr.key] == pr {
		delete(h.presences, pr.key)
	}
}

// updateInstance registers the current members of an instance, unless everything is withdrawn.
func (h *Discovery) updateInstance(pr *localInstance) {
	if h.withdrawn {
		return
	}
	pr.changes++
	a := &registrableInstance{h: h, presence: pr, number: pr.changes, offers: make([]*application.ServiceInfo, 0, len(pr.members))}
	var since time.Time
	for _, p := range pr.members {
		a.offers = append(a.offers, p.offer)
		since = earlier(since, p.since)
	}
	a.process = application.LocalInstance{Application: pr.key.application, Host: h.host, Port: pr.key.port, Since: since}
	h.setMatter(pr.entry, a)
}

// offerOf returns the entry of a service in the metadata: the parameters of its URL that do not
// depend on the host or the start time.
func offerOf(w *spec, u registry.URL) *application.ServiceInfo {
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
