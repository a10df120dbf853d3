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

	"github.com/weft-proxy/weft/pkg/upstream/discovery/dubbo/registry"
)

const (
	firstPause   = 500 * time.Millisecond
	longestPause = 10 * time.Second
	// forgotOnce is the period within which several forgotten instances count as one loss.
	forgotOnce = 5 * time.Second
)

// errSuperseded is returned for a request that a later one replaced.
var errSuperseded = errors.New("superseded by a later request")

// entry is the desired state of one instance of this process: registered with a URL, or not
// registered. Nacos has one instance for all URLs of a service with the same address. Mutable
// fields are guarded by Registry.mu.
type entry struct {
	key     string // immutable, like the next four
	service string // name in Nacos
	host    string
	port    uint16
	retired *revision // remove only the metadata of this revision; nil: an instance

	said     *instanceState // of an application instance; nil: the instance of a URL
	url      registry.URL   // desired
	text     string         // text of the desired state; "": unregister
	have     string         // text of the state that the server has confirmed; "": none known
	begun    bool           // the server may have the instance
	working  bool
	at       time.Time // when the entry is due
	failures int       // consecutive
	waiters  []waiter
}

// waiter waits until the server has confirmed a desired state.
type waiter struct {
	text   string     // "": unregistered
	answer chan error // capacity 1
}

// Register registers a URL: see registry.Registry. It rejects a URL that Nacos cannot store. For
// URLs of one service with the same address, the last one wins.
func (r *Registry) Register(ctx context.Context, u registry.URL) error {
	return r.wish(ctx, u, u.String())
}

// Unregister reverts Register: see registry.Registry.
func (r *Registry) Unregister(ctx context.Context, u registry.URL) error {
	return r.wish(ctx, u, "")
}

func (r *Registry) wish(ctx context.Context, u registry.URL, text string) error {
	service, err := serviceName(u)
	if err != nil {
		return err
	}
	key := service + " " + u.Address()
	r.mu.Lock()
	e := r.entries[key]
	switch {
	case text == "" && (e == nil || e.text != "" && e.text != u.String()):
		r.mu.Unlock()
		return nil // it is not registered, or another URL replaced it
	case e == nil:
		e = &entry{key: key, service: service, host: u.Host, port: u.Port}
		r.entries[key] = e
	}
	if text != "" {
		e.url = u
	}
	answer := e.wish(text)
	r.mu.Unlock()
	if u.Category() == registry.Consumers {
		poke(r.look) // rules of its application apply from now on
	}
	return r.await(ctx, answer, u.Service().String())
}

// wish sets the desired state, and returns the channel for the result. mu is held.
func (e *entry) wish(text string) (answer chan error) {
	w := waiter{text, make(chan error, 1)}
	e.text, e.failures, e.at = text, 0, time.Now()
	e.waiters = append(e.waiters, w)
	e.answer(nil)
	return w.answer
}

// await waits for the result of a desired state.
func (r *Registry) await(ctx context.Context, answer chan error, what string) (err error) {
	poke(r.keep)
	select {
	case err = <-answer:
	case <-ctx.Done():
		err = context.Cause(ctx)
		if state := r.State(); !state.Connected && state.LastError != "" {
			err = fmt.Errorf("%w: %s", err, state.LastError)
		}
	case <-r.work.Done():
		err = ErrClosed
	}
	if r.work.Err() != nil {
		err = ErrClosed // Close overrides every result
	}
	if err != nil {
		return fmt.Errorf("%s at Nacos %s: %w", what, r.options.Address, err)
	}
	return nil
}

// answer completes the waiters whose desired state is reached or superseded; a non-nil err
// completes all others, too. mu is held.
func (e *entry) answer(err error) {
	var left []waiter
	for _, w := range e.waiters {
		switch {
		case w.text != e.text:
			w.answer <- errSuperseded
		case err != nil:
			w.answer <- err
		case e.settled():
			w.answer <- nil
		default:
			left = append(left, w)
		}
	}
	e.waiters = left
}

// settled reports whether the server has the desired state, as far as is known.
func (e *entry) settled() bool { return e.text == e.have && (e.text != "" || !e.begun) }

// registrationLoop reconciles entries and sends heartbeats until Close, and then unregisters
// everything.
func (r *Registry) registrationLoop() {
	var workers sync.WaitGroup
	places := make(chan struct{}, mostWorkers)
	clock := time.NewTimer(0)
	defer clock.Stop()
	for {
		due, next := r.due()
		for _, e := range due {
			select {
			case places <- struct{}{}:
			case <-r.work.Done():
			}
			if r.work.Err() != nil {
				break
			}
			workers.Go(func() {
				r.reconcile(r.life, e)
				<-places
				poke(r.keep)
			})
		}
		clock.Reset(next)
		select {
		case <-r.work.Done():
			workers.Wait()
			r.unregisterAll()
			return
		case <-r.keep:
		case <-clock.C:
		}
	}
}

// due returns the entries that are due, marks them as working, and returns the time until the next
// one.
func (r *Registry) due() (due []*entry, next time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	next = time.Hour
	for _, e := range r.entries {
		if e.working {
			continue
		}
		if wait := e.at.Sub(now); wait > 0 {
			next = min(next, wait)
			continue
		}
		e.working = true
		due = append(due, e)
	}
	return due, next
}

// recheckAll makes all entries due, because the server may have forgotten them.
func (r *Registry) recheckAll() {
	r.mu.Lock()
	for _, e := range r.entries {
		if e.retired == nil {
			e.at = time.Now()
		}
	}
	r.mu.Unlock()
	poke(r.keep)
}

// reconcile takes the next step for an entry.
func (r *Registry) reconcile(ctx context.Context, e *entry) {
	if e.retired != nil {
		r.forget(ctx, e)
		return
	}
	r.mu.Lock()
	text, u, said, beats := e.text, e.url, e.said, e.text != "" && e.text == e.have
	gone := text == "" && !e.begun
	if text != "" {
		e.begun = true
	}
	r.mu.Unlock()
	known := true
	var err error
	switch {
	case gone:
	case text == "":
		_, err = r.client.call(ctx, request{method: http.MethodDelete, path: instancePath, form: r.form(e)})
	case beats:
		if known, err = r.beat(ctx, e); err == nil && known && said != nil {
			err = r.provide(ctx, said)
		}
	default:
		metadata := metadataOf(u, r.sessionIn(u))
		if said != nil {
			metadata = preserving(said.metadata(), r.sessionIn(u))
			if err = r.provide(ctx, said); err != nil {
				break
			}
		}
		form := r.form(e)
		form.Set("metadata", metadata)
		form.Set("weight", "1")
		form.Set("enabled", "true")
		form.Set("healthy", "true")
		_, err = r.client.call(ctx, request{method: http.MethodPost, path: instancePath, form: form})
	}
	if !gone {
		r.noteResult(err)
		if err != nil && !isAway(err) {
			r.logOnce("cannot register an instance of "+e.service, err)
		} else if err == nil {
			r.logOnce("cannot register an instance of "+e.service, nil)
		}
	}
	if !known {
		r.forgotten(e)
		if said != nil {
			said.papers.pause = 0 // the server may have lost the configurations, too
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.note(e, text, known, err)
}

const instancePath = "/v1/ns/instance"

// note records the result of a step that aimed at text. mu is held.
func (r *Registry) note(e *entry, text string, known bool, err error) {
	e.working = false
	now := time.Now()
	switch {
	case err == nil && text == "":
		e.have, e.begun = "", false
	case err == nil && known:
		e.have = text
	case err == nil:
		e.have = ""
	}
	if err != nil {
		e.failures++
		e.at = now.Add(backoff(e.failures))
	} else {
		e.failures = 0
		e.at = now.Add(jitter(r.session(e.url) / beatsIn))
	}
	switch {
	case e.text != text:
		e.at = now // the desired state has changed during the step
	case err != nil && !isAway(err):
		if text == "" {
			e.begun = false // the server drops it when its heartbeats end
		}
		e.answer(err)
	case !known:
		e.at = now
	}
	e.answer(nil)
	if e.text == "" && !e.begun {
		delete(r.entries, e.key)
	}
}

// form returns the parameters that identify an instance.
func (r *Registry) form(e *entry) url.Values {
	form := r.naming()
	form.Set("serviceName", e.service)
	form.Set("ip", e.host)
	form.Set("port", strconv.Itoa(int(e.port)))
	form.Set("clusterName", "DEFAULT")
	form.Set("ephemeral", "true")
	return form
}

// naming returns the parameters for the namespace and group of services.
func (r *Registry) naming() url.Values {
	form := url.Values{"groupName": {r.place.group}}
	if r.place.namespace != "" {
		form.Set("namespaceId", r.place.namespace)
	}
	return form
}

// beat sends a heartbeat, and reports whether the server knows the instance.
func (r *Registry) beat(ctx context.Context, e *entry) (known bool, err error) {
	form := r.form(e)
	// Only this request requires the group as a prefix of the name.
	form.Set("serviceName", r.place.group+"@@"+e.service)
	body, err := r.client.call(ctx, request{method: http.MethodPut, path: instancePath + "/beat", form: form})
	if err != nil {
		return true, err
	}
	if known, err = parseBeat(body); err != nil {
		return true, &answerError{err}
	}
	return known, nil
}

// forgotten handles an instance that the server has forgotten. Nacos then has a new session of the
// process, although no connection was lost. If it has forgotten one instance, it may have forgotten
// all: forgotten makes all entries due, and counts one loss.
func (r *Registry) forgotten(e *entry) {
	r.mu.Lock()
	lost := e.text != "" && time.Since(r.forgot) > forgotOnce
	if lost {
		r.forgot = time.Now()
		for _, other := range r.entries {
			if other != e && other.retired == nil {
				other.at = r.forgot
			}
		}
	}
	r.mu.Unlock()
	if !lost {
		return
	}
	r.standing.Update(func(s *registry.State) {
		s.Sessions++
		s.LastError = "the server has lost the registrations"
	})
	poke(r.keep)
}

// session returns how long Nacos keeps a URL without heartbeats.
func (r *Registry) session(u registry.URL) time.Duration {
	if d := r.sessionIn(u); d != 0 {
		return d
	}
	return defaultSession
}

// sessionIn returns the session timeout that the instance must request; 0: none.
func (r *Registry) sessionIn(u registry.URL) time.Duration {
	if u.Category() == registry.Consumers {
		return max(consumerSession, r.options.SessionTimeout)
	}
	return r.options.SessionTimeout
}

// unregisterAll unregisters everything, if a server is connected.
func (r *Registry) unregisterAll() {
	r.mu.Lock()
	var left []*entry
	for _, e := range r.entries {
		if e.text, e.working = "", true; e.begun {
			left = append(left, e)
		}
	}
	r.mu.Unlock()
	if !r.State().Connected {
		return
	}
	err := each(r.life, left, func(ctx context.Context, e *entry) error {
		_, err := r.client.call(ctx, request{method: http.MethodDelete, path: instancePath, form: r.form(e)})
		return err
	})
	if err != nil {
		r.log.Warn("cannot unregister from Nacos; registrations expire with the session", "error", err)
	}
}

// backoff returns the wait time after consecutive failures, with jitter.
func backoff(failures int) time.Duration {
	return jitter(min(firstPause<<min(failures-1, 10), longestPause))
}

// jitter returns a random duration from d/2 to d.
func jitter(d time.Duration) time.Duration {
	return d/2 + rand.N(d/2+1) //nolint:gosec // it is no secret
}
