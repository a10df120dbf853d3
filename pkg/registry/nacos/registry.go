// Package nacos implements a registry on Nacos as Dubbo uses it, over the HTTP API. It registers
// URLs and applications as ephemeral instances, which it keeps alive by heartbeats, and polls for
// changes of services. README.md describes the data in Nacos, the effects of failures, and why the
// package uses this API.
//
//	Register, Unregister   the desired state                         register.go
//	RegisterInstance       the instances of applications             registerinstance.go
//	registrationLoop       reconciles the state, sends heartbeats    register.go
//	Subscribe              the subscriptions                         subscribe.go
//	watcher                polls the server, see pollInterval        watch.go
//	client                 requests, failover, tokens                client.go
//	layout, decode         names and formats; no I/O                 layout.go, decode.go
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

	"github.com/weft-proxy/weft/pkg/registry"
)

const (
	// maxWorkers bounds, per session, the entries that registrationLoop reconciles concurrently,
	// and the concurrent requests of the watcher. It also bounds the mappings that one entry writes
	// concurrently.
	maxWorkers = 16
	// defaultSessionTimeout is how long Nacos treats an instance without heartbeats as healthy. It
	// removes the instance after twice that time.
	defaultSessionTimeout = 15 * time.Second
	minSessionTimeout     = 3 * time.Second
	maxSessionTimeout     = time.Hour
	// minConsumerSessionTimeout is the minimum session timeout of consumers. It is long, because
	// consumers get no calls: a dead one does no harm.
	minConsumerSessionTimeout = 90 * time.Second
	// heartbeatsPerSession is the minimum number of heartbeats per session timeout.
	heartbeatsPerSession = 3
	// pollInterval is the interval between polls of the watcher.
	pollInterval = time.Second
	// pollIntervalPerService is added to pollInterval for each service that the watcher polls, to
	// limit the load on the server.
	pollIntervalPerService = 2 * time.Millisecond
)

// ErrClosed is the error of calls after Close.
var ErrClosed = errors.New("the registry is closed")

// Registry is a session with a Nacos server or cluster. It is a registry.Registry.
type Registry struct {
	// immutable
	options           registry.Options
	location          location
	client            *client
	log               *slog.Logger
	stateTracker      *registry.StateTracker
	requestCtx        context.Context    //nolint:containedctx // of the requests of the Registry's goroutines; ends at the latest with the ctx of Close
	cancelRequests    context.CancelFunc // cancels requestCtx
	openCtx           context.Context    //nolint:containedctx // ends with Close; then the entries are unregistered
	close             func()             // cancels openCtx
	ended             chan struct{}      // closed when all goroutines have ended
	wakeRegistrations chan struct{}      // wakes registrationLoop; capacity 1
	wakeWatcher       chan struct{}      // wakes the watcher; capacity 1

	mu               sync.Mutex
	entries          map[string]*entry          // guarded by mu; by key
	subscriptions    map[*subscription]struct{} // guarded by mu
	lastErrors       map[string]string          // guarded by mu; the last logged error, by operation
	retiredCount     uint64                     // guarded by mu; number of retired revisions
	lastInstanceLoss time.Time                  // guarded by mu; when the server last lost instances
}

// New opens a session. It is a registry.OpenFunc: the address is "host:port,host:port/context",
// Root "namespace/group", and SessionTimeout defaults to 15 s.
func New(options registry.Options) (registry.Registry, error) {
	return open(options)
}

func open(options registry.Options) (*Registry, error) {
	servers, err := parseAddress(options.Address, options.TLS != nil)
	if err != nil {
		return nil, err
	}
	loc, err := parseRoot(options.Root)
	if err != nil {
		return nil, err
	}
	if d := options.SessionTimeout; d != 0 && (d < minSessionTimeout || d > maxSessionTimeout) {
		return nil, fmt.Errorf("session timeout %v: must be between %v and %v", d, minSessionTimeout, maxSessionTimeout)
	}
	if options.Log == nil {
		options.Log = slog.New(slog.DiscardHandler)
	}
	requestCtx, cancelRequests := context.WithCancel(context.Background())
	openCtx, cancelOpen := context.WithCancelCause(requestCtx)
	r := &Registry{
		options:           options,
		location:          loc,
		client:            newClient(servers, options),
		log:               options.Log,
		requestCtx:        requestCtx,
		cancelRequests:    cancelRequests,
		openCtx:           openCtx,
		close:             func() { cancelOpen(ErrClosed) },
		ended:             make(chan struct{}),
		wakeRegistrations: make(chan struct{}, 1),
		wakeWatcher:       make(chan struct{}, 1),
		stateTracker:      registry.NewStateTracker(registry.State{Since: time.Now()}, options.OnChange),
		entries:           map[string]*entry{},
		subscriptions:     map[*subscription]struct{}{},
		lastErrors:        map[string]string{},
	}
	var wg sync.WaitGroup
	wg.Go(r.registrationLoop)
	wg.Go(func() { newWatcher(r).run(openCtx) })
	go func() {
		wg.Wait()
		cancelRequests()
		r.client.close()
		r.stateTracker.End()
		close(r.ended)
	}()
	return r, nil
}

// Close unregisters all registrations: see registry.Registry. While the registry is unavailable, it
// leaves them to expire.
func (r *Registry) Close(ctx context.Context) {
	r.close()
	select {
	case <-r.ended:
	case <-ctx.Done():
		r.cancelRequests()
		<-r.ended
	}
	r.mu.Lock()
	subscriptions := slices.Collect(maps.Keys(r.subscriptions))
	r.mu.Unlock()
	for _, s := range subscriptions {
		s.End()
	}
}

// State returns the state of the session.
func (r *Registry) State() registry.State { return r.stateTracker.State() }

// noteResult updates the state after a request. A rejection only sets LastError. When a server
// responds after an outage, a new session begins, and all registrations become due.
func (r *Registry) noteResult(err error) {
	if err != nil && r.requestCtx.Err() != nil {
		return // Close canceled the request
	}
	if err != nil && !isUnavailable(err) {
		r.stateTracker.Update(func(s *registry.State) { s.LastError = err.Error() })
		return
	}
	reconnected := false
	server := r.client.server()
	r.stateTracker.Update(func(s *registry.State) {
		switch {
		case err != nil && s.Connected:
			*s = registry.State{Since: time.Now(), SessionCount: s.SessionCount, LastError: err.Error()}
		case err != nil:
			s.LastError = err.Error()
		case !s.Connected:
			reconnected = true
			s.Connected, s.Since = true, time.Now()
			s.SessionID = server
			s.SessionCount++
		default:
			s.SessionID = server
		}
	})
	if reconnected {
		r.recheckAll()
		signal(r.wakeWatcher)
	}
}

// logOnce logs an error of an operation once until the error changes; a nil err clears it.
func (r *Registry) logOnce(operation string, err error) {
	r.mu.Lock()
	previous := r.lastErrors[operation]
	if err == nil {
		delete(r.lastErrors, operation)
		r.mu.Unlock()
		return
	}
	r.lastErrors[operation] = err.Error()
	r.mu.Unlock()
	if previous != err.Error() {
		r.log.Warn("problem with Nacos", "operation", operation, "error", err)
	}
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// forEach calls f for all items, several concurrently, until f returns an error for which
// isUnavailable returns true, or ctx ends. It returns that error, or the cause of ctx.
func forEach[T any](ctx context.Context, items []T, f func(context.Context, T) error) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var wg sync.WaitGroup
	semaphore := make(chan struct{}, maxWorkers)
	for _, item := range items {
		select {
		case semaphore <- struct{}{}:
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			break
		}
		wg.Go(func() {
			defer func() { <-semaphore }()
			if err := f(ctx, item); err != nil && isUnavailable(err) {
				stop(err)
			}
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}
