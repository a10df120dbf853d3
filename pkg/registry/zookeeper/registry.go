// Package zookeeper implements a registry on ZooKeeper as Dubbo uses it. It registers URLs and
// instances as ephemeral znodes, and watches services. README.md describes the data in ZooKeeper
// and the effects of failures.
//
// One goroutine, the loop, owns the desired state and the last known state of the server. It runs
// callbacks from a queue, to which callers, the library's events, timers and workers post:
//
//	Register, Subscribe …   a change of the desired state      register.go, subscribe.go
//	a watch event           the znode must be read again       nodes.go
//	a session event         connected, disconnected, expired   session.go
//	a worker's result       the response of the server
//
// Workers, at most maxWorkers at a time, wait for responses of the server. The library pipelines
// their requests on one connection.
package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/weft-proxy/weft/pkg/registry"
)

const (
	// maxWorkers bounds the requests in flight.
	maxWorkers = 64
	// defaultSessionTimeout is shorter than the minute of Dubbo for Java, so that consumers stop
	// calling a dead process sooner.
	defaultSessionTimeout = 30 * time.Second
	minSessionTimeout     = time.Second
	maxSessionTimeout     = time.Hour
	// sweepInterval is the maximum interval of full comparisons with the server. They detect
	// changes that no watch reports, such as a deleted znode of this process. They cost one request
	// per znode. With 10,000 processes, 20 services per process and about 6 znodes per service, the
	// servers get about 5,000 requests per second.
	sweepInterval = 5 * time.Minute
	// sweepDelay is the maximum delay of a full comparison after a session was resumed.
	sweepDelay = time.Second
)

// ErrClosed is the error of calls after Close.
var ErrClosed = errors.New("the registry is closed")

// Registry is a session with a ZooKeeper server or ensemble. It is a registry.Registry.
type Registry struct {
	// immutable
	options      registry.Options
	layout       layout
	servers      []string
	log          *slog.Logger
	stateTracker *registry.StateTracker
	acl          []zk.ACL // of znodes that the Registry creates
	callbacks    *callbackQueue
	closing      chan struct{} // closed to end the loop
	abort        chan struct{} // closed to end the loop without waiting for the server
	ended        chan struct{} // closed when the loop has ended
	close        func()        // closes closing once

	mu            sync.Mutex
	subscriptions map[*subscription]struct{} // guarded by mu

	closingClients sync.WaitGroup // goroutines that close a client or send credentials

	// owned by the loop
	session            session
	entries            map[string]*registration              // registrations and pending removals, by path
	consumers          map[string]map[*registration]struct{} // by interface: the consumers in entries
	nodes              map[string]*node                      // nodes that are read and watched, by path
	interfaces         map[string]*subscribedInterface
	staleInterfaces    map[*subscribedInterface]struct{} // interfaces whose snapshots may have changed
	metadataReads      map[*metadataRead]struct{}
	retiredRevisions   []*revision // revisions whose metadata is to be removed, oldest first
	jobs               []job
	workerCount        int
	pendingComparisons []func() // comparisons to run when the loop is idle
	nextSweep          time.Time
}

// New opens a session. It is a registry.OpenFunc: the address is "host:port,host:port/chroot", Root
// defaults to "/dubbo", and SessionTimeout to 30 s. With a username, only clients with the same
// credentials can read or change the znodes that the Registry creates, as in Dubbo.
func New(options registry.Options) (registry.Registry, error) {
	servers, chroot, err := parseAddress(options.Address)
	if err != nil {
		return nil, err
	}
	l, err := newLayout(chroot, options.Root)
	if err != nil {
		return nil, err
	}
	if strings.Contains(options.Username, ":") {
		return nil, fmt.Errorf("the username %q contains a colon", options.Username)
	}
	if options.SessionTimeout == 0 {
		options.SessionTimeout = defaultSessionTimeout
	}
	if d := options.SessionTimeout; d < minSessionTimeout || d > maxSessionTimeout {
		return nil, fmt.Errorf("session timeout %v: must be between %v and %v", d, minSessionTimeout, maxSessionTimeout)
	}
	if options.Log == nil {
		options.Log = slog.New(slog.DiscardHandler)
	}
	r := &Registry{
		options:         options,
		layout:          l,
		servers:         servers,
		log:             options.Log,
		acl:             zk.WorldACL(zk.PermAll),
		callbacks:       newCallbackQueue(),
		closing:         make(chan struct{}),
		abort:           make(chan struct{}),
		ended:           make(chan struct{}),
		entries:         map[string]*registration{},
		consumers:       map[string]map[*registration]struct{}{},
		nodes:           map[string]*node{},
		interfaces:      map[string]*subscribedInterface{},
		staleInterfaces: map[*subscribedInterface]struct{}{},
		metadataReads:   map[*metadataRead]struct{}{},
		subscriptions:   map[*subscription]struct{}{},
		stateTracker:    registry.NewStateTracker(registry.State{Since: time.Now()}, options.OnChange),
		nextSweep:       time.Now().Add(jitter(sweepInterval)),
	}
	r.close = sync.OnceFunc(func() { close(r.closing) })
	if options.Username != "" {
		r.acl = zk.AuthACL(zk.PermAll)
	}
	go r.loop()
	return r, nil
}

// Close ends the session and with it all registrations: see registry.Registry. It waits for the
// server at most closeTimeout.
func (r *Registry) Close(ctx context.Context) {
	r.close()
	select {
	case <-r.ended:
	case <-ctx.Done():
		r.abandon()
	}
	r.mu.Lock()
	subscriptions := slices.Collect(maps.Keys(r.subscriptions))
	r.mu.Unlock()
	for _, s := range subscriptions {
		s.End()
	}
}

// trackSubscription records a subscription, so that Close ends it.
func (r *Registry) trackSubscription(s *subscription) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.subscriptions[s] = struct{}{}
}

func (r *Registry) untrackSubscription(s *subscription) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.subscriptions, s)
}

// abandon stops waiting for the server; the session then expires.
func (r *Registry) abandon() {
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case <-r.abort:
	default:
		close(r.abort)
	}
}

// State returns the state of the session.
func (r *Registry) State() registry.State { return r.stateTracker.State() }

// loop runs callbacks until Close.
func (r *Registry) loop() {
	defer close(r.ended)
	r.connectClient()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-r.closing:
			r.shutdown()
			return
		case <-r.callbacks.wake:
			for _, f := range r.callbacks.take() {
				f()
			}
		case <-timer.C:
		}
		r.runAfterCallbacks()
		timer.Reset(time.Until(r.nextSweep))
	}
}

// runAfterCallbacks refreshes stale interfaces, starts comparisons that are due, and starts
// workers.
func (r *Registry) runAfterCallbacks() {
	for len(r.staleInterfaces) > 0 { // range may miss an interface that refresh marks again
		for s := range r.staleInterfaces {
			delete(r.staleInterfaces, s)
			r.refresh(s)
		}
	}
	if now := time.Now(); now.After(r.nextSweep) {
		r.nextSweep = now.Add(jitter(sweepInterval))
		r.resync()
	}
	if len(r.jobs) == 0 && r.workerCount == 0 && len(r.pendingComparisons) > 0 && r.session.ready {
		n := min(len(r.pendingComparisons), maxWorkers/8)
		for _, compare := range r.pendingComparisons[:n] {
			compare()
		}
		r.pendingComparisons = r.pendingComparisons[n:]
	}
	r.startWorkers()
}

// The loop calls a job when a worker is available. The job returns the work for the worker; nil:
// none. The work returns a function that processes its result, which the loop then calls.
type (
	job  func() work
	work func(*client) (result func())
)

// enqueue queues a job. The loop calls the job when a session is ready and a worker is available.
func (r *Registry) enqueue(j job) { r.jobs = append(r.jobs, j) }

func (r *Registry) startWorkers() {
	if !r.session.ready {
		return
	}
	started := 0
	for _, j := range r.jobs {
		if r.workerCount == maxWorkers {
			break
		}
		started++
		w := j()
		if w == nil {
			continue
		}
		r.workerCount++
		client := r.session.client
		go func() {
			result := w(client)
			r.callbacks.post(func() {
				r.workerCount--
				result()
			})
		}()
	}
	r.jobs = r.jobs[started:]
	if len(r.jobs) == 0 {
		r.jobs = nil
	}
}

// shutdown ends the session and the workers.
func (r *Registry) shutdown() {
	client := r.session.client
	r.session.ready, r.session.client = false, nil // remaining callbacks find no client
	client.end(r.abort)
	r.closingClients.Wait()
	for r.workerCount > 0 {
		<-r.callbacks.wake
		for _, f := range r.callbacks.take() {
			f()
		}
	}
	r.stateTracker.End()
}

// afterFunc runs a callback on the loop after d.
func (r *Registry) afterFunc(d time.Duration, f func()) {
	time.AfterFunc(d, func() { r.callbacks.post(f) })
}
