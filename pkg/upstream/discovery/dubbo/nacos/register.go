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
	// forgotOnce is within what time the server forgets several instances at once.
	forgotOnce = 5 * time.Second
)

// errSuperseded is returned to who asked for something else than what was asked for later.
var errSuperseded = errors.New("superseded: something else was asked for since")

// entry is a wish about an instance of ours: that it is there, with which URL, or that it
// is not. Nacos has one instance for all URLs of a service with the same address. What is
// not immutable is guarded by Registry.mu.
type entry struct {
	key     string // immutable, as the next four
	service string // in Nacos
	host    string
	port    uint16
	retired *revision // whose metadata are to be removed, and nothing else; nil: an instance

	said     *instanceState // of the instance of an application; nil: it is of the URL
	url      registry.URL   // what is wanted
	text     string         // url as text; "": it is to be gone
	have     string         // what the server said it has, as text; "": nothing, as far as is known
	begun    bool           // the server may have something
	working  bool
	at       time.Time // when there is something to be done
	failures int       // in a row
	waiters  []waiter
}

// waiter is who waits for a wish.
type waiter struct {
	text   string     // "": to be gone
	answer chan error // of capacity 1
}

// Register makes a URL known: see registry.Registry. A URL that cannot be in Nacos is
// refused, and no wish. Of the URLs of a service with the same address the last one
// counts.
func (r *Registry) Register(ctx context.Context, u registry.URL) error {
	return r.wish(ctx, u, u.String())
}

// Unregister takes back what Register said: see registry.Registry.
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
		return nil // it is not there, or another is in its place
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
		poke(r.look) // rules of its application count from now on
	}
	return r.await(ctx, answer, u.Service().String())
}

// wish makes another wish, and returns where it is answered. mu is held.
func (e *entry) wish(text string) (answer chan error) {
	w := waiter{text, make(chan error, 1)}
	e.text, e.failures, e.at = text, 0, time.Now()
	e.waiters = append(e.waiters, w)
	e.answer(nil)
	return w.answer
}

// await returns what became of a wish.
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
		err = ErrClosed // whatever was so before
	}
	if err != nil {
		return fmt.Errorf("%s at Nacos %s: %w", what, r.options.Address, err)
	}
	return nil
}

// answer tells those whose wish is true, or no wish any more; with err, which says why it
// is not true, all. mu is held.
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

// settled reports whether the server has it so, as far as is known.
func (e *entry) settled() bool { return e.text == e.have && (e.text != "" || !e.begun) }

// registrationLoop makes wishes true, and sends heartbeats, until Close; then it takes everything
// back.
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

// due returns the entries for which there is something to be done, which are working from
// now on, and how long until there is more.
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

// recheckAll has all entries looked after at once: the server may have forgotten them.
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

// reconcile does what an entry needs: one request.
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
			r.logOnce("the server refuses an instance of "+e.service, err)
		} else if err == nil {
			r.logOnce("the server refuses an instance of "+e.service, nil)
		}
	}
	if !known {
		r.forgotten(e)
		if said != nil {
			said.papers.pause = 0 // they may be forgotten, too
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.note(e, text, known, err)
}

const instancePath = "/v1/ns/instance"

// note takes in what became of a request that was to make text true. mu is held.
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
		e.at = now // it is another wish by now
	case err != nil && !isAway(err):
		if text == "" {
			e.begun = false // the server forgets it by itself
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

// form returns what names an instance.
func (r *Registry) form(e *entry) url.Values {
	form := r.naming()
	form.Set("serviceName", e.service)
	form.Set("ip", e.host)
	form.Set("port", strconv.Itoa(int(e.port)))
	form.Set("clusterName", "DEFAULT")
	form.Set("ephemeral", "true")
	return form
}

// naming returns the namespace and group of services.
func (r *Registry) naming() url.Values {
	form := url.Values{"groupName": {r.place.group}}
	if r.place.namespace != "" {
		form.Set("namespaceId", r.place.namespace)
	}
	return form
}

// beat sends a heartbeat, and returns whether the server knows the instance.
func (r *Registry) beat(ctx context.Context, e *entry) (known bool, err error) {
	form := r.form(e)
	// Here alone Nacos wants the name with the group before it.
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

// forgotten takes in that the server has forgotten an instance: what Nacos has of a
// process is another session then, though no connection was lost. If one is forgotten
// all may be, so that all are looked after, and count as one loss.
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
		s.LastError = "the server has forgotten what was registered"
	})
	poke(r.keep)
}

// session returns how long Nacos keeps a URL that it does not hear of.
func (r *Registry) session(u registry.URL) time.Duration {
	if d := r.sessionIn(u); d != 0 {
		return d
	}
	return defaultSession
}

// sessionIn returns the session that an instance has to ask for; 0: none.
func (r *Registry) sessionIn(u registry.URL) time.Duration {
	if u.Category() == registry.Consumers {
		return max(consumerSession, r.options.SessionTimeout)
	}
	return r.options.SessionTimeout
}

// unregisterAll takes back all that was registered, if there is a server that answers.
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
		r.log.Warn("Nacos: what was registered was not taken back, and is forgotten with the session", "error", err)
	}
}

// backoff returns how long to wait after so many failures, half of which is chance.
func backoff(failures int) time.Duration {
	return jitter(min(firstPause<<min(failures-1, 10), longestPause))
}

// jitter returns between half of d and d.
func jitter(d time.Duration) time.Duration {
	return d/2 + rand.N(d/2+1) //nolint:gosec // it is no secret
}
