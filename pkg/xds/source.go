// Package xds owns the client of a control plane: it keeps the configuration of the
// process as that says.
//
//	feed      a stream, over and over                       channel.go, stream.go
//	  │ events
//	Source    one loop: what came is checked and answered   source.go, stage.go
//	  ├ ads.Client    what to say                           ads
//	  ├ resource      protobuf -> model                     resource
//	  └ world         what is complete -> a snapshot        state.go
//	  │ Apply
//	the server
package xds

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/network/credential"
	"github.com/weft-proxy/weft/pkg/upstream"
	"github.com/weft-proxy/weft/pkg/xds/ads"
	"github.com/weft-proxy/weft/pkg/xds/resource"
)

// Options are what a Source needs. All fields but those that say so are required.
type Options struct {
	// Bootstrap is where the control plane is, and who asks.
	Bootstrap config.Bootstrap
	// Apply makes a configuration the one in force, or says why it cannot be. One call
	// ends before the next.
	Apply func(ctx context.Context, next *config.Snapshot) error
	// ApplyClusters is Apply where nothing but the given clusters is new or changed; whole
	// returns the configuration with all of them.
	ApplyClusters func(ctx context.Context, changed []*config.Cluster, whole func() *config.Snapshot) error
	// ApplyRoutes is Apply where nothing but the given route tables has changed. nil: Apply
	// is called.
	ApplyRoutes func(ctx context.Context, changed []*config.RouteTable, whole func() *config.Snapshot) error
	// Capabilities are what resources may ask for.
	Capabilities resource.Capabilities
	// Clusters and Tables are where exchanges come for hosts and routes that Bootstrap.Lazy
	// leaves with the control plane, by the names of clusters and tables; nil: it leaves
	// nothing.
	Clusters, Routes OnDemand

	// Loads returns what tells how much clusters were asked, which is the caller's from then
	// on; nil: load is not reported.
	Loads   func() *upstream.LoadReporter
	Metrics *metrics.Registry // nil: nothing is counted
	Log     *slog.Logger
}

// Source keeps the configuration of a process as its control plane says.
type Source struct {
	opts         Options
	boot         *bootstrap // immutable once New returns
	reloader     *credential.Reloader
	events       chan event
	startChannel func(*xdsChannel) // has a feed run; nil: nothing runs yet, or any more. Guarded by work

	channels []*xdsChannel // guarded by work; the first has everything, the others have secrets

	// applyMu is held by who changes what is in force: the loop, or Rebase. It guards the
	// world, base, feeds and their ads.Clients.
	applyMu      sync.Mutex
	state        *state
	fileSnapshot *config.Snapshot // what the file says of itself; nil: nothing yet
	fileNames    fileNames        // names of base
	// staticResources are in the world; said is what the file says of them.
	staticResources *staticResources
	staticJSON      []byte
	deadlineTimer   *time.Timer // when the world is to be settled though nothing came

	cache    cacheWriter
	onDemand onDemandLoop
	metrics  sourceMetrics

	mu          sync.Mutex
	cacheStatus CacheStatus             // guarded by mu
	acks        map[typeKey]*ackHistory // guarded by mu; nil: to nothing yet

	// omittedClusters are clusters of control planes whose certificates could not be read. They
	// are left out, so that the rest of the configuration applies. Guarded by work.
	omittedClusters map[string]bool

	firstConfigLogged bool // that the first configuration is applied; guarded by work

	ready          atomic.Bool                           // see Ready
	resourceStatus map[string]map[string]*ResourceStatus // guarded by mu; by type and name
}

// New returns a Source. An error is one of the bootstrap: Problems.
func New(o Options) (*Source, error) {
	boot, err := readBootstrap(o.Bootstrap)
	if err != nil {
		k := o.Capabilities
		k.Node, k.Runtime = resource.NodeOf(boot.node), layeredRuntime{layers: boot.layers}.merge().merged
		return nil, boot.addListenerErrors(err, k)
	}
	s := &Source{
		opts:           o,
		boot:           boot,
		deadlineTimer:  time.NewTimer(time.Hour),
		reloader:       credential.NewReloader(o.Log, func(error) {}),
		events:         make(chan event),
		state:          newState(),
		resourceStatus: map[string]map[string]*ResourceStatus{},
		staticJSON:     o.Bootstrap.StaticResources,
	}
	s.opts.Capabilities.Node = resource.NodeOf(boot.node)
	s.omitUnreadableClusters()
	s.registerMetrics()
	s.startOnDemand()
	s.initCache()
	begun := time.Now()
	s.state.runtime = layeredRuntime{layers: boot.layers, startedAt: begun}.merge()
	s.state.startWarmup(boot.subscriptions.cds, boot.subscriptions.cdsTimeout, begun)
	if err := s.addStaticResources(); err != nil {
		return nil, err
	}
	if boot.adsCluster == "" {
		s.updateSubscriptions()
		return s, nil
	}
	types := []ads.Type{
		{URL: resource.RuntimeType},
		{URL: resource.ClusterType, AllResourcesRequiredInSotW: true},
		{URL: resource.EndpointType},
		{URL: resource.ListenerType, AllResourcesRequiredInSotW: true},
		{URL: resource.RouteType},
		{URL: resource.DubboRouteType},
		{URL: resource.ExtensionType},
		{URL: resource.SecretType},
	}
	f := s.newChannel(&xdsChannel{name: boot.adsCluster, service: adsService(), mode: boot.mode}, types...)
	f.client.SetSubscription(resource.RuntimeType, s.state.runtime.rtdsNames())
	if boot.subscriptions.cds {
		f.client.SubscribeAll(resource.ClusterType)
	}
	if boot.subscriptions.lds {
		f.client.SubscribeAll(resource.ListenerType)
	}
	s.updateSubscriptions()
	return s, nil
}

// newChannel completes f, which says whom it asks and how, and adds it to the feeds.
func (s *Source) newChannel(f *xdsChannel, types ...ads.Type) *xdsChannel {
	f.node, f.target = s.boot.node, s.boot.targets[f.name]
	f.log = s.opts.Log
	f.reloader, f.events, f.queueSignal = s.reloader, s.events, make(chan struct{}, 1)
	f.client = ads.New(f.mode, types...)
	s.channels = append(s.channels, f)
	s.registerChannelMetrics(f)
	return f
}

// Run follows the control plane until ctx ends. It returns when all that it started has
// ended. A control plane that is away, or whose certificates cannot be read, is no error:
// the current configuration stays, and Run tries again. The error is that the address of
// xds_status cannot be bound.
func (s *Source) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var feeds sync.WaitGroup
	failures := make(chan error, 1)
	fail := func(err error) {
		select {
		case failures <- err:
		default: // the first one is told
		}
		cancel()
	}
	if err := s.startStatusServer(ctx, &feeds, fail); err != nil {
		return err
	}
	s.startLoadReports(ctx, &feeds)
	s.startChannels(ctx, &feeds)
	feeds.Go(func() { s.reloader.Run(ctx) })
	ended := make(chan struct{})
	go func() {
		feeds.Wait()
		close(ended)
	}()
	end := s.startCache()
	s.eventLoop(ctx, ended)
	end()
	select {
	case err := <-failures:
		return err
	default:
		return nil
	}
}

// startChannels has all feeds run until ctx ends, on goroutines of the group, and those that
// there will be.
func (s *Source) startChannels(ctx context.Context, group *sync.WaitGroup) {
	launch := func(f *xdsChannel) { group.Go(func() { f.run(ctx) }) }
	s.applyMu.Lock()
	defer s.applyMu.Unlock()
	s.startChannel = launch
	for _, f := range s.channels {
		launch(f)
	}
	group.Go(func() { // until it ends the group is waited for, and others may join it
		<-ctx.Done()
		s.applyMu.Lock()
		defer s.applyMu.Unlock()
		s.startChannel = nil
	})
}

// eventLoop deals with what happens until all feeds have ended.
func (s *Source) eventLoop(ctx context.Context, ended <-chan struct{}) {
	defer s.deadlineTimer.Stop()
	defer s.onDemand.idleTimer.Stop()
	for {
		select {
		case e := <-s.events:
			s.handleEvent(ctx, e)
			close(e.done)
		case <-s.deadlineTimer.C:
			s.onDeadline(ctx)
		case <-s.onDemand.clusters:
			s.subscribeRequested(ctx)
		case <-s.onDemand.routes:
			s.subscribeRequested(ctx)
		case <-s.onDemand.idleTimer.C:
			s.unsubscribeIdle(ctx)
		case <-s.cache.saveTimer.C:
			s.saveIfDue()
		case <-s.cache.fallbackTimer.C:
			s.applyCacheIfSilent(ctx)
		case <-ended:
			return
		}
	}
}

// onDeadline puts in force what has waited long enough for what it lacks.
func (s *Source) onDeadline(ctx context.Context) {
	s.applyMu.Lock()
	defer s.applyMu.Unlock()
	defer s.state.commit()
	s.state.checkpoint()
	s.reconcileExpired(ctx)
	s.updateSubscriptions()
}

// reconcileExpired puts in force what has become complete though nothing came: it has waited for
// long enough, or it is used now, or not any more. Where that cannot be, all but the
// listeners to blame are in force. s.work is held, and the world marked.
func (s *Source) reconcileExpired(ctx context.Context) {
	c, err := s.reconcile(ctx)
	if err == nil {
		return
	}
	s.state.rollback()
	for _, name := range c.activatedListeners {
		s.state.holdBack(name)
	}
	now := time.Now()
	for _, one := range c.clusters {
		s.state.restartWait(one.Name, now)
	}
	s.opts.Log.Error("cannot apply resources that finished warming", logError, err)
	s.reapplyActive(ctx)
	s.applyHeldListeners(ctx, c.activatedListeners)
}

func (s *Source) handleEvent(ctx context.Context, e event) {
	s.applyMu.Lock()
	defer s.applyMu.Unlock()
	defer s.state.commit()
	f := e.channel
	switch {
	case e.opened:
		s.opts.Log.Info("connected to the control plane", logControl, f.name, logAddress, f.target.address)
		s.addOmittedCluster(ctx, f.name)
		f.enqueue(f.client.StreamOpened()...)
	case e.response == nil:
		f.client.StreamClosed()
		if ctx.Err() == nil {
			s.opts.Log.Warn("disconnected from the control plane: the last accepted resources stay active", logControl, f.name, logError, e.streamErr)
		}
	default:
		s.handleResponse(ctx, f, e.response)
	}
}

// handleResponse takes a response: what is good in it is put in force, the rest refused.
func (s *Source) handleResponse(ctx context.Context, f *xdsChannel, r *ads.Response) {
	u, ok := f.client.Receive(*r)
	if !ok {
		s.opts.Log.Warn("ignored a response without a subscription", logControl, f.name, logType, r.Type)
		return
	}
	now := time.Now()
	wrong := s.applyUpdate(ctx, f, u, now)
	for _, w := range wrong {
		s.opts.Log.Warn("resource rejected", logControl, f.name, logType, u.Type, logResource, w.Name, logReason, w.Reason)
	}
	s.countResponse(f, u, wrong)
	s.recordNamedUpdate(f, u, wrong, now)
	if answer, ok := f.client.Acknowledge(u, wrong); ok {
		s.recordAck(f, u, answer.ErrorDetail, now)
		f.enqueue(answer)
	}
	s.dropRemovedStatus(f, r)
	s.updateSubscriptions()
	if f == s.mainChannel() {
		s.noteResponse(u)
		s.logFirstConfig()
	}
	s.updateResourceCounts()
}

// applyUpdate puts in force what is good in an update, and returns what is not.
func (s *Source) applyUpdate(ctx context.Context, f *xdsChannel, u ads.Update, now time.Time) (wrong []ads.ResourceError) {
	s.state.checkpoint()
	wrong = s.stageUpdate(f, u, now)
	c, err := s.reconcile(ctx)
	if err == nil {
		return wrong
	}
	// The outside world is against one of them: a port is in use, a file is gone.
	s.state.rollback()
	if u.Type != resource.ListenerType && len(c.activatedListeners) > 0 {
		// Perhaps against a listener that is complete by this, and not against this.
		s.state.checkpoint()
		wrong = s.stageUpdate(f, u, now)
		for _, name := range c.activatedListeners {
			s.state.holdBack(name)
		}
		if _, err := s.reconcile(ctx); err == nil {
			s.applyHeldListeners(ctx, c.activatedListeners)
			return wrong
		}
		s.state.rollback()
	}
	tries := maxApplyAttempts
	return s.applyBisected(ctx, f, u, now, err, &tries)
}

// maxApplyAttempts is how often parts of an update that cannot be put in force are tried.
const maxApplyAttempts = 256

// applyBisected is put of an update that cannot be put in force as a whole because of err:
// what it takes away is, and halves of what it changes, and halves of these.
func (s *Source) applyBisected(ctx context.Context, f *xdsChannel, u ads.Update, now time.Time, err error, tries *int) (wrong []ads.ResourceError) {
	half := len(u.Changed) / 2
	parts := []ads.Update{{Type: u.Type, Changed: u.Changed[:half]}, {Type: u.Type, Changed: u.Changed[half:]}}
	switch {
	case *tries > 0 && len(u.Changed) > 0 && len(u.Removed) > 0:
		parts = []ads.Update{{Type: u.Type, Removed: u.Removed}, {Type: u.Type, Changed: u.Changed}}
	case len(u.Changed) <= 1 || *tries <= 0:
		s.reapplyActive(ctx)
		for _, n := range u.Changed {
			wrong = append(wrong, ads.ResourceError{Name: n.Name, Reason: err.Error()})
		}
		for _, name := range u.Removed {
			wrong = append(wrong, ads.ResourceError{Name: name, Reason: err.Error()})
		}
		return wrong
	}
	for _, part := range parts {
		*tries--
		s.state.checkpoint()
		bad := s.stageUpdate(f, part, now)
		if _, err := s.reconcile(ctx); err != nil {
			s.state.rollback()
			bad = s.applyBisected(ctx, f, part, now, err, tries)
		}
		wrong = append(wrong, bad...)
	}
	return wrong
}

// applyHeldListeners puts held listeners in force, one by one. One that cannot be stays held, until
// something else is said of it.
func (s *Source) applyHeldListeners(ctx context.Context, names []string) {
	for _, name := range names {
		s.state.checkpoint()
		s.state.release(name)
		if _, err := s.reconcile(ctx); err != nil {
			s.state.rollback()
			s.reapplyActive(ctx)
			s.opts.Log.Error("cannot apply listener", logResource, name, logReason, err)
			s.recordRejection(resource.ListenerType, name, err.Error(), time.Now())
		}
	}
}

// reapplyActive puts in force what was before. If that cannot be, it is tried again with what
// comes next.
func (s *Source) reapplyActive(ctx context.Context) {
	s.state.checkpoint()
	if _, err := s.reconcile(ctx); err != nil {
		s.state.rollback()
		s.opts.Log.Error("cannot restore the previous configuration", logError, err)
	}
}

// reconcile puts in force what is complete: it returns what that changes, or would have.
func (s *Source) reconcile(ctx context.Context) (change, error) {
	now := time.Now()
	c, next := s.state.reconcile(now)
	s.deadlineTimer.Stop()
	if !next.IsZero() {
		s.deadlineTimer.Reset(next.Sub(now))
	}
	if c.empty() {
		return c, nil
	}
	whole := func() *config.Snapshot { return s.state.snapshot(s.fileSnapshot) }
	switch routes := len(c.tables) > 0; {
	case c.listenersChanged || len(c.removedClusters) > 0 || routes && (len(c.clusters) > 0 || s.opts.ApplyRoutes == nil):
		return c, s.opts.Apply(ctx, whole())
	case routes:
		return c, s.opts.ApplyRoutes(ctx, c.tables, whole)
	}
	return c, s.opts.ApplyClusters(ctx, c.clusters, whole)
}

// updateSubscriptions says what is wanted now, to everybody, and forgets the rest.
func (s *Source) updateSubscriptions() {
	w := s.state.takeSubscriptionChanges()
	s.dropUnsubscribedStatus(&w)
	if f := s.mainChannel(); f != nil {
		http, dubbo := splitTables(w.tables.added)
		noHTTP, noDubbo := splitTables(w.tables.removed)
		f.enqueue(f.client.UpdateSubscription(resource.EndpointType, w.assignments.added, w.assignments.removed)...)
		f.enqueue(f.client.UpdateSubscription(resource.RouteType, http, noHTTP)...)
		f.enqueue(f.client.UpdateSubscription(resource.DubboRouteType, dubbo, noDubbo)...)
		f.enqueue(f.client.UpdateSubscription(resource.ExtensionType, w.extensions.added, w.extensions.removed)...)
	}
	more, less := map[resource.SecretSource][]string{}, map[resource.SecretSource][]string{}
	for _, r := range sortedSecrets(w.secrets.added) {
		s.secretChannel(r.From)
		more[r.From] = append(more[r.From], r.Name)
	}
	for _, r := range w.secrets.removed {
		less[r.From] = append(less[r.From], r.Name)
	}
	for _, f := range s.channels {
		f.enqueue(f.client.UpdateSubscription(resource.SecretType, more[f.secretSource], less[f.secretSource])...)
	}
	s.updateUnsubscribedCounts(w.listenersChanged)
}

// Keys of log lines.
const (
	logPath     = "path"
	logAge      = "age"
	logControl  = "control_plane"
	logAddress  = "address"
	logError    = "error"
	logType     = "type"
	logResource = "resource"
	logReason   = "reason"
)
