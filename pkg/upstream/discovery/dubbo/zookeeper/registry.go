// Package zookeeper speaks with ZooKeeper as Dubbo does: it registers URLs as ephemeral
// nodes, and follows what is said of services. README.md lists what is written where, and
// what happens on each kind of loss.
//
// One goroutine, the loop, owns what is wanted and what is known. It reads letters from a
// mailbox, in which callers, the library's events, timers and workers put functions:
//
//	Register, Subscribe …   a wish                         register.go, subscribe.go
//	an event of a watch     the node is to be read again   tree.go
//	the session             all is to be done again        session.go
//	a worker's result       what the server answered
//
// Workers, at most mostWorkers at a time, wait for the server's answers; the library
// writes what they ask for one after the other on one connection, so that many requests
// are under way at once.
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

	"github.com/weft-proxy/weft/pkg/upstream/discovery/dubbo/registry"
)

const (
	// mostWorkers bounds the requests under way.
	mostWorkers = 64
	// defaultSession is shorter than Java's minute: a process that died is called by
	// nobody after it.
	defaultSession = 30 * time.Second
	leastSession   = time.Second
	mostSession    = time.Hour
	// sweepEvery is how long until all that is wanted is compared with what is there. It is
	// for what no watch tells, as a node of ours that somebody removed, and costs the server
	// a request for each node: of 10,000 processes with 20 services each about 5,000 a second.
	sweepEvery = 5 * time.Minute
	// sweepAfter is how long until that is done after a session was resumed.
	sweepAfter = time.Second
)

// ErrClosed is returned once the Registry is closed.
var ErrClosed = errors.New("the registry is closed")

// Registry is a session with a ZooKeeper, alone or an ensemble. It is a
// registry.Registry.
type Registry struct {
	// immutable
	options  registry.Options
	layout   layout
	servers  []string
	log      *slog.Logger
	standing *registry.StateTracker
	acl      []zk.ACL // of nodes that it creates
	mailbox  *callbackQueue
	closing  chan struct{} // closed: the loop is to end
	abort    chan struct{} // closed: it is to end without a farewell
	ended    chan struct{} // closed: it has ended
	close    func()        // closes closing, once

	mu            sync.Mutex
	subscriptions map[*subscription]struct{} // guarded by mu

	closingClients sync.WaitGroup // goroutines that wait for a client

	// owned by the loop
	session   session
	entries   map[string]*registration              // by path: what is registered, or to be removed
	consumers map[string]map[*registration]struct{} // by interface: those of entries that are
	nodes     map[string]*node                      // by path: what is read and watched
	services  map[string]*service
	stale     map[*service]struct{} // whose views may be others now
	inquiries map[*metadataRead]struct{}
	past      []*revision // that nobody may be of any more
	queue     []job
	workers   int
	sweeping  []func() // what is to be compared when there is nothing else to do
	nextSweep time.Time
}

// New opens a session. It is a registry.OpenFunc: the address is
// "host:port,host:port/chroot", Root is "/dubbo" unless given, SessionTimeout 30 s.
// With a username, nodes are created so that only who knows the password can read or
// change them, as Dubbo does.
func New(options registry.Options) (registry.Registry, error) {
	servers, chroot, err := parseAddress(options.Address)
	if err != nil {
		return nil, err
	}
	places, err := newLayout(chroot, options.Root)
	if err != nil {
		return nil, err
	}
	if strings.Contains(options.Username, ":") {
		return nil, fmt.Errorf("the username %q has a colon", options.Username)
	}
	if options.SessionTimeout == 0 {
		options.SessionTimeout = defaultSession
	}
	if d := options.SessionTimeout; d < leastSession || d > mostSession {
		return nil, fmt.Errorf("a session of %v: it may be of %v to %v", d, leastSession, mostSession)
	}
	if options.Log == nil {
		options.Log = slog.New(slog.DiscardHandler)
	}
	r := &Registry{
		options:       options,
		layout:        places,
		servers:       servers,
		log:           options.Log,
		acl:           zk.WorldACL(zk.PermAll),
		mailbox:       newMailbox(),
		closing:       make(chan struct{}),
		abort:         make(chan struct{}),
		ended:         make(chan struct{}),
		entries:       map[string]*registration{},
		consumers:     map[string]map[*registration]struct{}{},
		nodes:         map[string]*node{},
		services:      map[string]*service{},
		stale:         map[*service]struct{}{},
		inquiries:     map[*metadataRead]struct{}{},
		subscriptions: map[*subscription]struct{}{},
		standing:      registry.NewStanding(registry.State{Since: time.Now()}, options.Changed),
		nextSweep:     time.Now().Add(jitter(sweepEvery)),
	}
	r.close = sync.OnceFunc(func() { close(r.closing) })
	if options.Username != "" {
		r.acl = zk.AuthACL(zk.PermAll)
	}
	go r.loop()
	return r, nil
}

// Close ends the session and so what was registered: see registry.Registry. The server
// is given a second for it.
func (r *Registry) Close(ctx context.Context) {
	r.close()
	select {
	case <-r.ended:
	case <-ctx.Done():
		r.abandon()
	}
	r.mu.Lock()
	all := slices.Collect(maps.Keys(r.subscriptions))
	r.mu.Unlock()
	for _, s := range all {
		s.End()
	}
}

// keep remembers whom Close has to wait for.
func (r *Registry) keep(s *subscription) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.subscriptions[s] = struct{}{}
}

func (r *Registry) forget(s *subscription) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.subscriptions, s)
}

// abandon lets the session end by itself.
func (r *Registry) abandon() {
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case <-r.abort:
	default:
		close(r.abort)
	}
}

// State says how it stands with the session.
func (r *Registry) State() registry.State { return r.standing.State() }

// loop does what letters say until the Registry is closed.
func (r *Registry) loop() {
	defer close(r.ended)
	r.open()
	clock := time.NewTimer(0)
	defer clock.Stop()
	for {
		select {
		case <-r.closing:
			r.finish()
			return
		case <-r.mailbox.wake:
			for _, letter := range r.mailbox.take() {
				letter()
			}
		case <-clock.C:
		}
		r.step()
		clock.Reset(time.Until(r.nextSweep))
	}
}

// step does what follows from letters.
func (r *Registry) step() {
	for len(r.stale) > 0 { // range may pass over a service that refresh marks again
		for s := range r.stale {
			delete(r.stale, s)
			r.refresh(s)
		}
	}
	if now := time.Now(); now.After(r.nextSweep) {
		r.nextSweep = now.Add(jitter(sweepEvery))
		r.resync()
	}
	if len(r.queue) == 0 && r.workers == 0 && len(r.sweeping) > 0 && r.session.ready {
		n := min(len(r.sweeping), mostWorkers/8)
		for _, compare := range r.sweeping[:n] {
			compare()
		}
		r.sweeping = r.sweeping[n:]
	}
	r.startWorkers()
}

// job is asked for work when its turn comes, on the loop. Work runs on a worker, and
// returns what the loop is to do with the result.
type (
	job  func() work
	work func(*zk.Conn) (result func())
)

// enqueue gives a job to the next worker that is free while there is a session.
func (r *Registry) enqueue(j job) { r.queue = append(r.queue, j) }

func (r *Registry) startWorkers() {
	if !r.session.ready {
		return
	}
	started := 0
	for _, next := range r.queue {
		if r.workers == mostWorkers {
			break
		}
		started++
		w := next()
		if w == nil {
			continue
		}
		r.workers++
		conn := r.session.client.conn
		go func() {
			result := w(conn)
			r.mailbox.post(func() {
				r.workers--
				result()
			})
		}()
	}
	r.queue = r.queue[started:]
	if len(r.queue) == 0 {
		r.queue = nil
	}
}

// finish ends the session, workers and deliveries.
func (r *Registry) finish() {
	client := r.session.client
	r.session.ready, r.session.client = false, nil // letters that are left find none
	client.end(r.abort)
	r.closingClients.Wait()
	for r.workers > 0 {
		<-r.mailbox.wake
		for _, letter := range r.mailbox.take() {
			letter()
		}
	}
	r.standing.End()
}

// afterFunc calls a letter on the loop after a while.
func (r *Registry) afterFunc(d time.Duration, letter func()) {
	time.AfterFunc(d, func() { r.mailbox.post(letter) })
}
