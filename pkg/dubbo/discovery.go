// Package dubbo manages the Dubbo services that the local application provides and calls. It
// registers published services with registries, subscribes to references, and converts what
// registries report to clusters and a route table.
//
//	Publish, Unpublish, UnregisterAll     Subscribe, Unsubscribe     requests of the application
//	  │                                     │
//	publisher       publisher.go          subscriber       subscriber.go, subscription.go
//	  │ URLs and instances, instance.go     │ snapshots       resolve.go, metadata.go
//	  │                                     ▼
//	  │                                   planner          planner.go, apply.go, and package plan
//	  │                                     │ clusters and routes
//	  ▼                                     ▼
//	registries                            Options.Apply
//
// Each part owns its state, behind its own lock. Discovery connects the parts. They share:
//
//	session       a registry.Registry for each registry and user               session.go
//	registration  reconciles one URL or instance in a registry                 registration.go
//	stateWriter   desired state and snapshots, for the next start              statewriter.go, restore.go
//
// Each lock has a rank. A goroutine that holds a lock acquires only locks of a higher rank, and
// does not call a registry.Registry or Options.Apply. Builds with invariants check the ranks
// (mutex.go).
//
//	1  publisher, subscriber                     the requests, and their state in registries
//	2  registration, metadataCache, planner      one entry; revisions; the planned services
//	3  sessions, tasks, stateWriter              shared by the parts
package dubbo

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
)

// registryTimeout is how long a call of the API waits for a response of a registry.
const registryTimeout = 3 * time.Second

// maxServices is the maximum number of published services, and of subscribed services, per process.
// It protects the memory of Weft from an application that requests ever more services.
const maxServices = 1 << 14

var (
	errNoTLS      = errors.New("TLS is configured, but this build does not support it")
	errClosing    = errors.New("the process is shutting down")
	errNoResponse = errors.New("no response yet")
)

// Discovery publishes services, subscribes to services, and keeps clusters and routes in line with
// the registries. Its methods are safe for concurrent use. Run performs requests that were made
// before Run.
type Discovery struct {
	settings    *settings
	sessions    *sessions
	publisher   *publisher
	subscriber  *subscriber
	planner     *planner
	stateWriter *stateWriter
	tasks       tasks
	wake        chan struct{} // the loop has work
	ended       chan struct{} // closed at the end of Run, before it closes the sessions
}

// New returns a Discovery with the contents of the state file; Resources returns the clusters and
// routes restored from it. An error reports invalid configuration. New moves a state file that it
// cannot read, unless Options.CheckOnly is set, and logs the error.
func New(o Options) (*Discovery, error) {
	s, err := newSettings(o)
	if err != nil {
		return nil, err
	}
	d := &Discovery{settings: s, wake: make(chan struct{}, 1), ended: make(chan struct{})}
	d.stateWriter = newStateWriter(s, d.state)
	d.sessions = newSessions(s, d.wakeLoop)
	d.publisher = newPublisher(s, d.stateWriter, &d.tasks)
	d.planner = newPlanner(s, d.wakeLoop)
	d.subscriber = newSubscriber(s, d.stateWriter, &d.tasks, d.wakeLoop, d.planner.markDirty)
	d.planner.input = d.subscriber
	d.restore()
	return d, nil
}

// wakeLoop wakes the loop.
func (d *Discovery) wakeLoop() {
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// Run publishes services, subscribes and applies changes until ctx ends. It then closes all
// sessions, and returns nil when all its goroutines have ended. It must be called only once.
func (d *Discovery) Run(ctx context.Context) error {
	runCtx, cancel := context.WithCancel(ctx)
	defer cancel()
	d.tasks.start(runCtx)
	d.sessions.start()
	d.publisher.start()
	d.subscriber.start()
	d.planner.start()
	var writer sync.WaitGroup
	writer.Go(func() { d.stateWriter.run(runCtx) })
	d.loop(runCtx)
	writer.Wait()
	d.publisher.close()
	d.subscriber.close()
	d.stateWriter.write() // even without a change: the file contains the time of the shutdown
	close(d.ended)
	d.tasks.stop()
	var closeGroup sync.WaitGroup
	closeGroup.Go(d.sessions.close)
	d.subscriber.stopAll()
	closeGroup.Wait()
	d.tasks.wait()
	return nil
}

// loop starts and stops subscriptions, and reconciles changes.
func (d *Discovery) loop(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.wake:
		case <-timer.C:
		}
		d.sessions.logChanges()
		d.subscriber.startAndStop()
		timer.Reset(d.planner.reconcile(ctx))
	}
}

// acquireSession returns a session that the caller releases. If this call opened the session,
// acquireSession starts the registrations and subscriptions that have waited for it.
func (d *Discovery) acquireSession(key sessionKey) (*session, error) {
	s, opened, err := d.sessions.acquire(key)
	if opened {
		d.publisher.start()
		d.subscriber.start()
	}
	return s, err
}

// checkCapacity returns an error if there are maxServices services and exists is false.
func checkCapacity(exists bool, services int) error {
	if exists || services < maxServices {
		return nil
	}
	return &FieldError{"service", fmt.Sprintf("limit of %d services reached", maxServices)}
}

// Publish publishes a service of this application. It returns when the registry has the service. An
// error that wraps ErrPending means that the registry does not have the service yet and Weft keeps
// trying. Publish replaces an earlier publication with the same registry and service. A *FieldError
// reports an invalid request, which had no effect.
func (d *Discovery) Publish(ctx context.Context, r Request) error {
	sp, err := d.settings.validate(r, opPublish)
	if err != nil {
		return err
	}
	if err := d.publisher.check(sp); err != nil {
		return err
	}
	s, err := d.acquireSession(sp.session)
	if err != nil {
		return err
	}
	goals, err := d.publisher.publish(sp, s)
	s.release()
	if err != nil {
		return err
	}
	if err := d.await(ctx, goals); err != nil {
		return fmt.Errorf("%w: %w", ErrPending, err)
	}
	return nil
}

// Unpublish reverts Publish. A *FieldError reports an invalid request. An error that wraps
// ErrNotFound means that the service is not published. Any other error says why the registry may
// still have the service.
func (d *Discovery) Unpublish(ctx context.Context, r Request) error {
	sp, err := d.settings.validate(r, opRemove)
	if err != nil {
		return err
	}
	goals, err := d.publisher.unpublish(sp)
	if err != nil {
		return err
	}
	if err := d.await(ctx, goals); err != nil {
		return fmt.Errorf("the registry may still have the service: %w", err)
	}
	return nil
}

// await waits for goals, and returns the first error.
func (d *Discovery) await(ctx context.Context, goals []goal) error {
	for _, g := range goals {
		if err := g.await(ctx, d.ended); err != nil {
			return err
		}
	}
	return nil
}

// UnregisterAll unregisters all published services but leaves them in the state file for the next
// start. So that consumers can notice, it then waits for UnregisterWait or until ctx ends. It does
// not wait if no service was registered, or no registry has confirmed that it unregistered one.
// Discovery publishes nothing after UnregisterAll.
func (d *Discovery) UnregisterAll(ctx context.Context) { d.publisher.unregisterAll(ctx, d.ended) }

// Subscribe subscribes to a service. It returns when the cluster and routes of the service are
// active with the providers that the registry reported. If the registry does not respond within a
// few seconds, Subscribe returns nil, and the providers follow later. A *FieldError reports an
// invalid request, which had no effect. Any other error says why the service is not active; Weft
// keeps trying.
func (d *Discovery) Subscribe(ctx context.Context, r Request) error {
	sp, err := d.settings.validate(r, opSubscribe)
	if err != nil {
		return err
	}
	if err := d.subscriber.check(sp); err != nil {
		return err
	}
	s, err := d.acquireSession(sp.session)
	if err != nil {
		return err
	}
	err = d.subscriber.subscribe(sp, s)
	s.release()
	if err != nil {
		return err
	}
	return d.planner.await(ctx, d.planner.request(sp.id.service), d.ended)
}

// Unsubscribe reverts Subscribe, and returns when the change is active. A *FieldError reports an
// invalid request. An error that wraps ErrNotFound means that there is no subscription. Any other
// error says why the change is not active; Weft keeps trying.
func (d *Discovery) Unsubscribe(ctx context.Context, r Request) error {
	sp, err := d.settings.validate(r, opRemove)
	if err != nil {
		return err
	}
	if err := d.subscriber.unsubscribe(sp); err != nil {
		return err
	}
	return d.planner.await(ctx, d.planner.request(sp.id.service), d.ended)
}

// ReapplyRestored makes Run apply the services of the state file as new ones, for a caller that
// could not start with the result of Resources. It must be called before Run.
func (d *Discovery) ReapplyRestored() { d.planner.reapplyRestored() }

// Resources returns the clusters and the route table after all changes so far, including a change
// that is being applied. The table is never nil.
func (d *Discovery) Resources() (clusters []*config.Cluster, routes *config.RouteTable) {
	return d.planner.resources()
}

// The keys of log records.
const (
	logRegistry = "registry"
	logSession  = "session"
	logService  = "service"
	logServices = "services"
	logFile     = "file"
	logMovedTo  = "moved_to"
	logError    = "error"
	logURL      = "url"

	logApplication = "application"
)
