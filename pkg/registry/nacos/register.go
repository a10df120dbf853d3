package nacos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/weft-proxy/weft/pkg/registry"
)

const (
	minBackoff = 500 * time.Millisecond
	maxBackoff = 10 * time.Second
	// instanceLossWindow is the period within which the loss of several instances counts as one
	// loss.
	instanceLossWindow = 5 * time.Second
)

// errSuperseded is the error of a request that a later request replaced.
var errSuperseded = errors.New("superseded by a later request")

// entry is the desired state of one instance of this process: registered with a URL, registered as
// an instance of an application, or not registered. Nacos has one instance for all URLs of a
// service with the same address. Mutable fields are guarded by Registry.mu.
type entry struct {
	key             string // immutable, like the next four
	service         string // name in Nacos
	host            string
	port            uint16
	retiredRevision *revision // if not nil, the entry only removes the metadata of this revision

	instance        *instanceState // state of an application instance; nil: the entry registers a URL
	url             registry.URL   // desired
	desiredText     string         // text of the desired URL or instance; "": unregister
	confirmedText   string         // text of the state that the server has confirmed; "": none
	mayBeRegistered bool           // the server may have the instance
	reconciling     bool           // a worker reconciles the entry
	dueAt           time.Time      // when the next reconcile is due
	failures        int            // consecutive failures
	waiters         []waiter
}

// waiter waits until the server has confirmed a desired state.
type waiter struct {
	desiredText string     // "": unregistered
	result      chan error // capacity 1
}

// Register registers a URL: see registry.Registry. It rejects a URL that Nacos cannot store. For
// URLs of one service with the same address, the last one wins.
func (r *Registry) Register(ctx context.Context, u registry.URL) error {
	return r.setDesired(ctx, u, u.String())
}

// Unregister reverts Register: see registry.Registry.
func (r *Registry) Unregister(ctx context.Context, u registry.URL) error {
	return r.setDesired(ctx, u, "")
}

func (r *Registry) setDesired(ctx context.Context, u registry.URL, text string) error {
	service, err := serviceName(u)
	if err != nil {
		return err
	}
	key := service + " " + u.Address()
	r.mu.Lock()
	e := r.entries[key]
	switch {
	case text == "" && (e == nil || e.desiredText != "" && e.desiredText != u.String()):
		r.mu.Unlock()
		return nil // the URL is not registered, or another URL replaced it
	case e == nil:
		e = &entry{key: key, service: service, host: u.Host, port: u.Port}
		r.entries[key] = e
	}
	if text != "" {
		e.url = u
	}
	result := e.setDesired(text)
	r.mu.Unlock()
	if u.Category() == registry.Consumers {
		signal(r.wakeWatcher) // the rules of the consumer's application now apply
	}
	return r.await(ctx, result, u.Service().String())
}

// setDesired sets the desired state, and returns the channel for the result. The caller holds mu.
func (e *entry) setDesired(text string) (result chan error) {
	w := waiter{text, make(chan error, 1)}
	e.desiredText, e.failures, e.dueAt = text, 0, time.Now()
	e.waiters = append(e.waiters, w)
	e.completeWaiters(nil)
	return w.result
}

// await waits for the result of a desired state.
func (r *Registry) await(ctx context.Context, result chan error, name string) (err error) {
	signal(r.wakeRegistrations)
	select {
	case err = <-result:
	case <-ctx.Done():
		err = context.Cause(ctx)
		if state := r.State(); !state.Connected && state.LastError != "" {
			err = fmt.Errorf("%w: %s", err, state.LastError)
		}
	case <-r.openCtx.Done():
		err = ErrClosed
	}
	if r.openCtx.Err() != nil {
		err = ErrClosed // Close overrides every result
	}
	if err != nil {
		return fmt.Errorf("%s at Nacos %s: %w", name, r.options.Address, err)
	}
	return nil
}

// completeWaiters sends errSuperseded to the waiters whose desired state was replaced. The others
// get err if it is not nil, or nil if the server has confirmed their state. The caller holds mu.
func (e *entry) completeWaiters(err error) {
	var remaining []waiter
	for _, w := range e.waiters {
		switch {
		case w.desiredText != e.desiredText:
			w.result <- errSuperseded
		case err != nil:
			w.result <- err
		case e.confirmedDesired():
			w.result <- nil
		default:
			remaining = append(remaining, w)
		}
	}
	e.waiters = remaining
}

// confirmedDesired reports whether the server has confirmed the desired state.
func (e *entry) confirmedDesired() bool {
	return e.desiredText == e.confirmedText && (e.desiredText != "" || !e.mayBeRegistered)
}

// registrationLoop reconciles entries and sends heartbeats until Close. It then unregisters all
// entries.
func (r *Registry) registrationLoop() {
	var workers sync.WaitGroup
	semaphore := make(chan struct{}, maxWorkers)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		due, next := r.dueEntries()
		for _, e := range due {
			select {
			case semaphore <- struct{}{}:
			case <-r.openCtx.Done():
			}
			if r.openCtx.Err() != nil {
				break
			}
			workers.Go(func() {
				r.reconcile(r.requestCtx, e)
				<-semaphore
				signal(r.wakeRegistrations)
			})
		}
		timer.Reset(next)
		select {
		case <-r.openCtx.Done():
			workers.Wait()
			r.unregisterAll()
			return
		case <-r.wakeRegistrations:
		case <-timer.C:
		}
	}
}

// dueEntries returns the entries that are due, marks them as reconciling, and returns the time
// until the next entry is due.
func (r *Registry) dueEntries() (due []*entry, next time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	next = time.Hour
	for _, e := range r.entries {
		if e.reconciling {
			continue
		}
		if wait := e.dueAt.Sub(now); wait > 0 {
			next = min(next, wait)
			continue
		}
		e.reconciling = true
		due = append(due, e)
	}
	return due, next
}

// recheckAll makes all registrations due, because the server may have lost them.
func (r *Registry) recheckAll() {
	r.mu.Lock()
	for _, e := range r.entries {
		if e.retiredRevision == nil {
			e.dueAt = time.Now()
		}
	}
	r.mu.Unlock()
	signal(r.wakeRegistrations)
}

// reconcile performs the next step for an entry: it registers or unregisters it, sends a heartbeat,
// or removes a retired revision.
func (r *Registry) reconcile(ctx context.Context, e *entry) {
	if e.retiredRevision != nil {
		r.removeRevision(ctx, e)
		return
	}
	r.mu.Lock()
	text, u, inst, beat := e.desiredText, e.url, e.instance, e.desiredText != "" && e.desiredText == e.confirmedText
	unregistered := text == "" && !e.mayBeRegistered
	if text != "" {
		e.mayBeRegistered = true
	}
	r.mu.Unlock()
	registered := true
	var err error
	switch {
	case unregistered:
	case text == "":
		_, err = r.client.call(ctx, request{method: http.MethodDelete, path: instancePath, form: r.instanceForm(e)})
	case beat:
		if registered, err = r.sendHeartbeat(ctx, e); err == nil && registered && inst != nil {
			err = r.writeConfigs(ctx, inst)
		}
	default:
		metadata := metadataOf(u, r.requestedTimeout(u))
		if inst != nil {
			metadata = encodeMetadata(inst.metadata(), r.requestedTimeout(u))
			if err = r.writeConfigs(ctx, inst); err != nil {
				break
			}
		}
		form := r.instanceForm(e)
		form.Set("metadata", metadata)
		form.Set("weight", "1")
		form.Set("enabled", "true")
		form.Set("healthy", "true")
		_, err = r.client.call(ctx, request{method: http.MethodPost, path: instancePath, form: form})
	}
	if !unregistered {
		r.noteResult(err)
		if err != nil && !isUnavailable(err) {
			r.logOnce("cannot register an instance of "+e.service, err)
		} else if err == nil {
			r.logOnce("cannot register an instance of "+e.service, nil)
		}
	}
	if !registered {
		r.onInstanceLoss(e)
		if inst != nil {
			inst.configs.interval = 0 // the server may have lost the configurations, too
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.recordStep(e, text, registered, err)
}

const instancePath = "/v1/ns/instance"

// recordStep records the result of a step whose desired state was text. The caller holds mu.
func (r *Registry) recordStep(e *entry, text string, registered bool, err error) {
	e.reconciling = false
	now := time.Now()
	switch {
	case err == nil && text == "":
		e.confirmedText, e.mayBeRegistered = "", false
	case err == nil && registered:
		e.confirmedText = text
	case err == nil:
		e.confirmedText = ""
	}
	if err != nil {
		e.failures++
		e.dueAt = now.Add(backoff(e.failures))
	} else {
		e.failures = 0
		e.dueAt = now.Add(jitter(r.sessionTimeout(e.url) / heartbeatsPerSession))
	}
	switch {
	case e.desiredText != text:
		e.dueAt = now // the desired state has changed during the step
	case err != nil && !isUnavailable(err):
		if text == "" {
			e.mayBeRegistered = false // without heartbeats, the server removes the instance
		}
		e.completeWaiters(err)
	case !registered:
		e.dueAt = now
	}
	e.completeWaiters(nil)
	if e.desiredText == "" && !e.mayBeRegistered {
		delete(r.entries, e.key)
	}
}

// instanceForm returns the parameters that identify an instance.
func (r *Registry) instanceForm(e *entry) url.Values {
	form := r.namespaceForm()
	form.Set("serviceName", e.service)
	form.Set("ip", e.host)
	form.Set("port", strconv.Itoa(int(e.port)))
	form.Set("clusterName", "DEFAULT")
	form.Set("ephemeral", "true")
	return form
}

// namespaceForm returns the parameters for the namespace and group of services.
func (r *Registry) namespaceForm() url.Values {
	form := url.Values{"groupName": {r.location.group}}
	if r.location.namespace != "" {
		form.Set("namespaceId", r.location.namespace)
	}
	return form
}

// sendHeartbeat sends a heartbeat, and reports whether the instance is registered at the server.
func (r *Registry) sendHeartbeat(ctx context.Context, e *entry) (registered bool, err error) {
	form := r.instanceForm(e)
	// Only this request requires the group as a prefix of the name.
	form.Set("serviceName", r.location.group+"@@"+e.service)
	body, err := r.client.call(ctx, request{method: http.MethodPut, path: instancePath + "/beat", form: form})
	if err != nil {
		return true, err
	}
	if registered, err = parseHeartbeat(body); err != nil {
		return true, &responseError{err}
	}
	return registered, nil
}

// onInstanceLoss handles an instance that the server has lost. The server may have lost all
// instances, so onInstanceLoss makes all registrations due, and counts a new session, at most one
// within instanceLossWindow.
func (r *Registry) onInstanceLoss(e *entry) {
	r.mu.Lock()
	newLoss := e.desiredText != "" && time.Since(r.lastInstanceLoss) > instanceLossWindow
	if newLoss {
		r.lastInstanceLoss = time.Now()
		for _, other := range r.entries {
			if other != e && other.retiredRevision == nil {
				other.dueAt = r.lastInstanceLoss
			}
		}
	}
	r.mu.Unlock()
	if !newLoss {
		return
	}
	r.stateTracker.Update(func(s *registry.State) {
		s.SessionCount++
		s.LastError = "the server has lost the registrations"
	})
	signal(r.wakeRegistrations)
}

// sessionTimeout returns how long Nacos treats an instance with the URL u as healthy without
// heartbeats.
func (r *Registry) sessionTimeout(u registry.URL) time.Duration {
	if d := r.requestedTimeout(u); d != 0 {
		return d
	}
	return defaultSessionTimeout
}

// requestedTimeout returns the session timeout that the instance must request; 0: none.
func (r *Registry) requestedTimeout(u registry.URL) time.Duration {
	if u.Category() == registry.Consumers {
		return max(minConsumerSessionTimeout, r.options.SessionTimeout)
	}
	return r.options.SessionTimeout
}

// unregisterAll unregisters all entries, if a server is connected.
func (r *Registry) unregisterAll() {
	r.mu.Lock()
	var entries []*entry
	for _, e := range r.entries {
		if e.desiredText, e.reconciling = "", true; e.mayBeRegistered {
			entries = append(entries, e)
		}
	}
	r.mu.Unlock()
	if !r.State().Connected {
		return
	}
	err := forEach(r.requestCtx, entries, func(ctx context.Context, e *entry) error {
		_, err := r.client.call(ctx, request{method: http.MethodDelete, path: instancePath, form: r.instanceForm(e)})
		return err
	})
	if err != nil {
		r.log.Warn("cannot unregister from Nacos; registrations expire with the session", "error", err)
	}
}

// backoff returns the backoff after consecutive failures, with jitter.
func backoff(failures int) time.Duration {
	return jitter(min(minBackoff<<min(failures-1, 10), maxBackoff))
}

// jitter returns a random duration from d/2 to d.
func jitter(d time.Duration) time.Duration {
	return d/2 + rand.N(d/2+1) //nolint:gosec // not a secret
}
