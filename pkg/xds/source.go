// Package xds is the xDS client: it applies the configuration that a control plane sends.
//
//	channel     reconnecting stream to a control plane        channel.go, stream.go
//	  │ events
//	Source      event loop: stages, applies, ACKs, NACKs      source.go, apply.go
//	  ├ ads.Client    protocol state                          ads
//	  └ state.State   resources; which of them are active     state
//	  │ config.Delta
//	layers.Stack → the server
//
// The other packages: bootstrap reads the settings of control planes and the static resources;
// resource converts protobuf to the model; transport connects; cache keeps accepted resources on
// disk; load reports load; status reports the received and active resources.
package xds

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/layers"
	"github.com/weft-proxy/weft/pkg/network/credential"
	"github.com/weft-proxy/weft/pkg/upstream"
	"github.com/weft-proxy/weft/pkg/xds/ads"
	"github.com/weft-proxy/weft/pkg/xds/bootstrap"
	"github.com/weft-proxy/weft/pkg/xds/resource"
	"github.com/weft-proxy/weft/pkg/xds/state"
	"github.com/weft-proxy/weft/pkg/xds/transport"
)

// Options configure a Source. A field is required unless its comment says otherwise.
type Options struct {
	// Bootstrap defines how to reach the control plane, and identifies the node.
	Bootstrap config.Bootstrap
	// Layers is the stack to which the Source adds itself as the highest layer.
	Layers *layers.Stack
	// Capabilities are the features that resources may use.
	Capabilities resource.Capabilities
	// Clusters and Routes report the names of the clusters and route tables that requests need. They
	// may be nil unless Bootstrap.OnDemand enables on-demand loading.
	Clusters, Routes OnDemand

	// NewLoadReporter returns a new reporter of the load of clusters, which the Source owns. nil: the
	// Source does not report load.
	NewLoadReporter func() *upstream.LoadReporter
	Metrics         *metrics.Registry // nil: no metrics
	Log             *slog.Logger
}

// Source applies the configuration that a control plane sends.
type Source struct {
	opts         Options
	boot         *bootstrap.Bootstrap // immutable once New returns
	reloader     *credential.Reloader
	network      transport.Network // immutable once Run is called; tests replace it
	events       chan event
	startChannel func(*channel) // runs a channel; nil unless Run is active; guarded by stack

	channels []*channel // guarded by stack; the first is the ADS channel if there is one, the others serve one type each

	// stack is locked while the active configuration changes, by the event loop or another layer.
	// It guards state, file, staticJSON, nameConflicts, and the ads.Clients and histories of
	// channels.
	stack         *layers.Stack
	state         *state.State
	file          *config.Bootstrap           // bootstrap of the active file; nil until the first SetFile has completed
	staticJSON    []byte                      // static_resources of the file, as stored in state
	nameConflicts map[resourceKey]resourceKey // by rejected resource: the conflicting resource, which another layer already defines
	deadlineTimer *time.Timer                 // fires when a reconcile is due although nothing has arrived

	cache    cacheLoop
	onDemand onDemandLoop
	metrics  sourceMetrics

	// omittedClusters are clusters of control planes whose certificates cannot be read. The Source
	// leaves them out, so that the rest of the configuration can become active. Guarded by stack.
	omittedClusters map[string]bool

	firstConfigLogged bool // logFirstConfig has logged; guarded by stack

	ready        atomic.Bool                               // see Ready
	activeStatic atomic.Pointer[bootstrap.StaticResources] // static_resources of the active file
}

// New returns a Source and adds it to o.Layers. An error describes an invalid bootstrap.
func New(o Options) (*Source, error) {
	boot, static, err := bootstrap.Read(o.Bootstrap, o.Capabilities)
	if err != nil {
		return nil, err
	}
	s := &Source{
		opts:          o,
		boot:          boot,
		deadlineTimer: time.NewTimer(time.Hour),
		reloader:      credential.NewReloader(o.Log, func(error) {}),
		events:        make(chan event),
		stack:         o.Layers,
		staticJSON:    o.Bootstrap.StaticResources,
		nameConflicts: map[resourceKey]resourceKey{},
	}
	started := time.Now()
	capabilities := o.Capabilities
	capabilities.UnknownFields = o.Bootstrap.UnknownFields
	s.state = state.New(state.Options{Bootstrap: boot, OnDemand: o.Bootstrap.OnDemand, Owner: s.otherOwner, Capabilities: capabilities, Started: started})
	s.state.StartWarmup(started)
	s.omitUnreadableClusters()
	s.initCache()
	s.registerMetrics()
	s.startOnDemand()
	if err := s.addStaticResources(static); err != nil {
		return nil, err
	}
	s.activeStatic.Store(static)
	s.stack.Add(s)
	if boot.ADSCluster != "" {
		ch := s.newChannel(&channel{name: boot.ADSCluster, service: adsService(), mode: boot.Mode}, resourceTypes()...)
		ch.client.SetSubscription(resource.RuntimeType, boot.RTDSNames())
	}
	for i := range boot.Sources {
		s.addTypeChannel(&boot.Sources[i])
	}
	if boot.Subscriptions.CDS {
		s.channelOf(resource.ClusterType).client.SubscribeAll(resource.ClusterType)
	}
	if boot.Subscriptions.LDS {
		s.channelOf(resource.ListenerType).client.SubscribeAll(resource.ListenerType)
	}
	s.updateSubscriptions()
	return s, nil
}

// resourceTypes returns the types of resources of a control plane.
func resourceTypes() []ads.Type {
	return []ads.Type{
		{URL: resource.RuntimeType},
		{URL: resource.ClusterType, AllResourcesRequiredInSotW: true},
		{URL: resource.EndpointType},
		{URL: resource.ListenerType, AllResourcesRequiredInSotW: true},
		{URL: resource.RouteType},
		{URL: resource.DubboRouteType},
		{URL: resource.ExtensionType},
		{URL: resource.SecretType},
	}
}

// newChannel completes ch and adds it to the channels. The caller has set its name, service and
// mode, and the secretSource of a channel that serves only secrets.
func (s *Source) newChannel(ch *channel, types ...ads.Type) *channel {
	ch.node, ch.dialer = s.boot.Node, s.newDialer(ch.name)
	ch.log = s.opts.Log
	ch.events, ch.queueSignal = s.events, make(chan struct{}, 1)
	ch.client = ads.New(ch.mode, types...)
	s.channels = append(s.channels, ch)
	s.registerChannelMetrics(ch)
	return ch
}

// newDialer returns a dialer for an xDS server. cluster is the name of the server's cluster in
// static_resources.
func (s *Source) newDialer(cluster string) *transport.Dialer {
	return &transport.Dialer{Target: s.boot.Targets[cluster], Reloader: s.reloader, Network: s.network}
}

// Run follows the control plane until ctx ends, and returns after all its goroutines have ended. A
// control plane that cannot be reached, or whose certificates cannot be read, is not an error: the
// active configuration stays, and Run retries. Run fails if it cannot bind the address of
// xds_status or if that socket fails later.
func (s *Source) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var tasks sync.WaitGroup
	failures := make(chan error, 1)
	fail := func(err error) {
		select {
		case failures <- err:
		default: // report only the first failure
		}
		cancel()
	}
	if err := s.startStatusServer(ctx, &tasks, fail); err != nil {
		return err
	}
	s.startLoadReports(ctx, &tasks)
	s.startChannels(ctx, &tasks)
	tasks.Go(func() { s.reloader.Run(ctx) })
	ended := make(chan struct{})
	go func() {
		tasks.Wait()
		close(ended)
	}()
	stopCache := s.startCache()
	s.eventLoop(ctx, ended)
	stopCache()
	select {
	case err := <-failures:
		return err
	default:
		return nil
	}
}

// startChannels runs the current channels, and those added later, on goroutines of group until ctx
// ends.
func (s *Source) startChannels(ctx context.Context, group *sync.WaitGroup) {
	launch := func(ch *channel) { group.Go(func() { ch.run(ctx) }) }
	s.stack.Lock()
	defer s.stack.Unlock()
	s.startChannel = launch
	for _, ch := range s.channels {
		launch(ch)
	}
	group.Go(func() { // keeps group from becoming empty while channels can still be added
		<-ctx.Done()
		s.stack.Lock()
		defer s.stack.Unlock()
		s.startChannel = nil
	})
}

// eventLoop handles events and timers until ended is closed, after all channels have stopped.
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
			s.unsubscribeIdle(ctx, time.Now())
		case <-s.cache.saveTimer.C:
			s.saveIfDue()
		case <-s.cache.fallbackTimer.C:
			s.applyCacheIfSilent(ctx)
		case <-ended:
			return
		}
	}
}

// onDeadline applies the resources whose wait for dependencies has timed out.
func (s *Source) onDeadline(ctx context.Context) {
	s.stack.Lock()
	defer s.stack.Unlock()
	defer s.state.Checkpoint()
	s.state.Checkpoint()
	s.reconcileExpired(ctx)
	s.updateSubscriptions()
	s.logFirstConfig()
}

func (s *Source) handleEvent(ctx context.Context, e event) {
	s.stack.Lock()
	defer s.stack.Unlock()
	defer s.state.Checkpoint()
	ch := e.channel
	switch {
	case e.opened:
		if ch.path != "" {
			s.opts.Log.Info("reading resources from a file", logPath, ch.path, logType, ch.onlyType)
		} else {
			s.opts.Log.Info("connected to the control plane", logControl, ch.name, logAddress, ch.dialer.Target.Address)
			s.addOmittedCluster(ctx, ch.name)
		}
		ch.enqueue(ch.client.StreamOpened()...)
	case e.response == nil:
		ch.client.StreamClosed()
		if ctx.Err() == nil {
			s.opts.Log.Warn("disconnected from the control plane: the last accepted resources stay active", logControl, ch.name, logError, e.streamErr)
		}
	default:
		s.handleResponse(ctx, ch, e.response)
	}
}

// handleResponse applies the valid resources of a response, rejects the others and enqueues the ACK
// or NACK.
func (s *Source) handleResponse(ctx context.Context, ch *channel, r *ads.Response) {
	u, ok := ch.client.Receive(*r)
	if !ok {
		s.opts.Log.Warn("ignored a response of a type that is not subscribed", logControl, ch.name, logType, r.Type)
		return
	}
	now := time.Now()
	rejected := s.applyUpdate(ctx, ch, u, now)
	for _, rejection := range rejected {
		s.opts.Log.Warn("resource rejected", logControl, ch.name, logType, u.Type, logResource, rejection.Name, logReason, rejection.Reason)
	}
	s.countResponse(ch, u, rejected)
	ch.history.RecordUpdate(u, rejected, ch.client.Resources(u.Type), now)
	if ack, ok := ch.client.Acknowledge(u, rejected); ok {
		ch.history.RecordAck(u, ack.ErrorDetail, now)
		ch.enqueue(ack)
	}
	ch.history.ForgetRemoved(ch.client, ch.mode, r)
	s.updateSubscriptions()
	if ch == s.mainChannel() {
		s.recordResponse(u)
	}
	if ch == s.mainChannel() || ch.onlyType != "" {
		s.logFirstConfig()
	}
	s.updateResourceCounts()
}

// updateSubscriptions sends the subscription changes to all channels and drops the resources that
// are no longer subscribed.
func (s *Source) updateSubscriptions() {
	changes := s.state.TakeSubscriptionChanges()
	if ch := s.mainChannel(); ch != nil {
		for _, sub := range []struct {
			url    string
			change state.SubscriptionChange[string]
		}{
			{resource.EndpointType, changes.Assignments}, {resource.RouteType, changes.Routes}, {resource.DubboRouteType, changes.DubboRoutes}, {resource.ExtensionType, changes.Extensions},
		} {
			ch.enqueue(ch.client.UpdateSubscription(sub.url, sub.change.Added, sub.change.Removed)...)
			ch.history.Forget(sub.url, sub.change.Removed)
		}
	}
	added, removed := map[resource.SecretSource][]string{}, map[resource.SecretSource][]string{}
	for _, r := range changes.Secrets.Added {
		s.secretChannel(r.From)
		added[r.From] = append(added[r.From], r.Name)
	}
	for _, r := range changes.Secrets.Removed {
		removed[r.From] = append(removed[r.From], r.Name)
	}
	for _, ch := range s.channels {
		if ch.onlyType != "" {
			continue
		}
		ch.enqueue(ch.client.UpdateSubscription(resource.SecretType, added[ch.secretSource], removed[ch.secretSource])...)
		ch.history.Forget(resource.SecretType, removed[ch.secretSource])
	}
	s.updateUnsubscribedCounts(changes.ListenersChanged)
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
