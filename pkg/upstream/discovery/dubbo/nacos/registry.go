// Package nacos speaks with Nacos as Dubbo does, over its HTTP API: it registers URLs as
// ephemeral instances, which it keeps alive by heartbeats, and looks for changes of what
// is said of services. README.md lists what is written where, what happens on each kind
// of loss, and why it is this API.
//
//	Register, Unregister   wishes                                  register.go
//	keeper                 makes them true, and sends heartbeats   register.go
//	Subscribe              who is told of what                     subscribe.go
//	watcher                what the server says, once a second     watch.go
//	client                 requests, servers, tokens               client.go
//	layout, decode         names and texts; no I/O                 layout.go, decode.go
package nacos

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/weft-proxy/weft/pkg/upstream/discovery/dubbo/registry"
)

const (
	// mostWorkers bounds the requests under way, of either goroutine.
	mostWorkers = 16
	// defaultSession is how long Nacos keeps an instance that it does not hear of as one
	// to be called; it is forgotten after twice that.
	defaultSession = 15 * time.Second
	leastSession   = 3 * time.Second
	mostSession    = time.Hour
	// consumerSession is that of consumers, whom nobody calls.
	consumerSession = 90 * time.Second
	// beatsIn is how many heartbeats a session has room for.
	beatsIn = 3
	// pollEvery is how long the watcher waits from one look to the next.
	pollEvery = time.Second
	// pollPace is what each list adds to that, so that many cost the server no more.
	pollPace = 2 * time.Millisecond
)

// ErrClosed is returned once the Registry is closed.
var ErrClosed = errors.New("the registry is closed")

// Registry is a session with a Nacos, alone or a cluster. It is a registry.Registry.
type Registry struct {
	// immutable
	options  registry.Options
	place    location
	client   *client
	log      *slog.Logger
	standing *registry.StateTracker
	life     context.Context    //nolint:containedctx // of all requests; Close ends it if they last too long
	hurry    context.CancelFunc // ends life
	work     context.Context    //nolint:containedctx // until Close: then what was registered is taken back
	close    func()             // ends work
	ended    chan struct{}      // closed: all goroutines have ended
	keep     chan struct{}      // the keeper has something to do; capacity 1
	look     chan struct{}      // so has the watcher; capacity 1

	mu            sync.Mutex
	entries       map[string]*entry          // guarded by mu; by key
	subscriptions map[*subscription]struct{} // guarded by mu
	said          map[string]string          // guarded by mu; what was logged last, by matter
	pasts         uint64                     // guarded by mu; revisions that were left
	forgot        time.Time                  // guarded by mu; when the server was found to have forgotten instances
}

// New opens a session. It is a registry.OpenFunc: the address is
// "host:port,host:port/context", Root "namespace/group", SessionTimeout 15 s unless given.
func New(options registry.Options) (registry.Registry, error) {
	return open(options)
}

func open(options registry.Options) (*Registry, error) {
	servers, err := parseAddress(options.Address, options.TLS != nil)
	if err != nil {
		return nil, err
	}
	place, err := parseRoot(options.Root)
	if err != nil {
		return nil, err
	}
	if d := options.SessionTimeout; d != 0 && (d < leastSession || d > mostSession) {
		return nil, fmt.Errorf("a session of %v: it may be of %v to %v", d, leastSession, mostSession)
	}
	if options.Log == nil {
		options.Log = slog.New(slog.DiscardHandler)
	}
	life, hurry := context.WithCancel(context.Background())
	work, end := context.WithCancelCause(life)
	r := &Registry{
		options:       options,
		place:         place,
		client:        newClient(servers, options),
		log:           options.Log,
		life:          life,
		hurry:         hurry,
		work:          work,
		close:         func() { end(ErrClosed) },
		ended:         make(chan struct{}),
		keep:          make(chan struct{}, 1),
		look:          make(chan struct{}, 1),
		standing:      registry.NewStanding(registry.State{Since: time.Now()}, options.Changed),
		entries:       map[string]*entry{},
		subscriptions: map[*subscription]struct{}{},
		said:          map[string]string{},
	}
	var running sync.WaitGroup
	running.Go(r.registrationLoop)
	running.Go(func() { newWatcher(r).run(work) })
	go func() {
		running.Wait()
		hurry()
		r.client.close()
		r.standing.End()
		close(r.ended)
	}()
	return r, nil
}

// Close takes back what was registered: see registry.Registry. It does not wait for a
// server that is away.
func (r *Registry) Close(ctx context.Context) {
	r.close()
	select {
	case <-r.ended:
	case <-ctx.Done():
		r.hurry()
		<-r.ended
	}
	r.mu.Lock()
	all := slices.Collect(maps.Keys(r.subscriptions))
	r.mu.Unlock()
	for _, s := range all {
		s.End()
	}
}

// State says how it stands with the session.
func (r *Registry) State() registry.State { return r.standing.State() }

// noteResult takes in how a request went. A server that has answered is there, whatever it
// said; after it was away there is another session, and all wishes are looked after.
func (r *Registry) noteResult(err error) {
	if err != nil && r.life.Err() != nil {
		return // it was Close
	}
	if err != nil && !isAway(err) {
		r.standing.Update(func(s *registry.State) { s.LastError = err.Error() })
		return
	}
	back := false
	server := r.client.server()
	r.standing.Update(func(s *registry.State) {
		switch {
		case err != nil && s.Connected:
			*s = registry.State{Since: time.Now(), Sessions: s.Sessions, LastError: err.Error()}
		case err != nil:
			s.LastError = err.Error()
		case !s.Connected:
			back = true
			s.Connected, s.Since = true, time.Now()
			s.Session = server
			s.Sessions++
		default:
			s.Session = server
		}
	})
	if back {
		r.recheckAll()
		poke(r.look)
	}
}

// logOnce logs what is wrong with a matter, once until it is something else; a nil err
// says that nothing is any more.
func (r *Registry) logOnce(matter string, err error) {
	r.mu.Lock()
	before := r.said[matter]
	if err == nil {
		delete(r.said, matter)
		r.mu.Unlock()
		return
	}
	r.said[matter] = err.Error()
	r.mu.Unlock()
	if before != err.Error() {
		r.log.Warn("Nacos does not do as it is asked", "matter", matter, "error", err)
	}
}

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// each calls f for all items, several at a time, until one returns an error that says
// that the server is away, or ctx ends; it returns that error.
func each[T any](ctx context.Context, items []T, f func(context.Context, T) error) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var all sync.WaitGroup
	places := make(chan struct{}, mostWorkers)
	for _, item := range items {
		select {
		case places <- struct{}{}:
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			break
		}
		all.Go(func() {
			defer func() { <-places }()
			if err := f(ctx, item); err != nil && isAway(err) {
				stop(err)
			}
		})
	}
	all.Wait()
	return context.Cause(ctx)
}
