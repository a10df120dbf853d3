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
// The other packages: bootstrap reads how to reach control planes, and the static resources;
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
	// Clusters and Routes report which clusters and route tables, by name, requests need, for the
	// resources that Bootstrap.OnDemand fetches on first use. nil if it fetches none.
	Clusters, Routes OnDemand

	// Loads returns a reporter of the load of clusters, which the caller of Loads owns. nil: the
	// Source does not report load.
	Loads   func() *upstream.LoadReporter
	Metrics *metrics.Registry // nil: no metrics
	Log     *slog.Logger
}

// Source applies the configuration that a control plane sends.
type Source struct {
	opts         Options
	boot         *bootstrap.Bootstrap // immutable once New returns
	reloader     *credential.Reloader
	network      transport.Network // immutable once Run is called; tests replace it
	events       chan event
	startChannel func(*channel) // runs a channel; nil unless Run is active. Guarded by stack

	channels []*channel // guarded by stack; the first is the ADS channel if there is one, the others serve secrets

	// stack is locked while the active configuration changes, by the event loop or another layer. It
	// guards state, file, staticJSON, nameConflicts and the channels' ads.Clients.
	stack         *layers.Stack
	state         *state.State
	file          *config.Bootstrap    // of the active file; nil before the first SetFile
	staticJSON    []byte               // static_resources of the file, which are in state
	nameConflicts map[resourceKey]bool // resources that were rejected for their names
	deadlineTimer *time.Timer          // fires when a reconcile is due although nothing has arrived

	cache    cacheLoop
	onDemand onDemandLoop
	metrics  sourceMetrics

	// omittedClusters are clusters of control planes whose certificates cannot be read. The Source
	// leaves them out, so that the rest of the configuration can become active. Guarded by stack.
	omittedClusters map[string]bool

	firstConfigLogged bool // logFirstConfig has logged; guarded by stack

	ready        atomic.Bool                               // see Ready
	activeStatic atomic.Pointer[bootstrap.StaticResources] // of the active file; set with the stack locked
}

// New returns a Source, which is a layer of o.Layers from then on. An error describes an invalid bootstrap; its type is FieldErrors.
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
		nameConflicts: map[resourceKey]bool{},
	}
	begun := time.Now()
	k := o.Capabilities
	k.UnknownFields = o.Bootstrap.UnknownFields
	s.state = state.New(state.Options{Bootstrap: boot, OnDemand: o.Bootstrap.OnDemand, Owner: s.otherOwner, Capabilities: k, Started: begun})
	s.state.StartWarmup(begun)
	s.omitUnreadableClusters()
	s.initCache()
	s.registerMetrics()
	s.startOnDemand()
	s.stack.Lock()
	err = s.addStaticResources(static)
	s.stack.Unlock()
	if err != nil {
		return nil, err
	}
	s.activeStatic.Store(static)
	s.stack.Add(s)
	if boot.ADSCluster == "" {
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
	f := s.newChannel(&channel{name: boot.ADSCluster, service: adsService(), mode: boot.Mode}, types...)
	f.client.SetSubscription(resource.RuntimeType, boot.RTDSNames())
	if boot.Subscriptions.CDS {
		f.client.SubscribeAll(resource.ClusterType)
	}
	if boot.Subscriptions.LDS {
		f.client.SubscribeAll(resource.ListenerType)
	}
	s.updateSubscriptions()
	return s, nil
}

// newChannel completes f and adds it to the channels. The caller has set its name, service and
// mode, and the secretSource of a channel that serves only secrets.
func (s *Source) newChannel(f *channel, types ...ads.Type) *channel {
	f.node, f.dialer = s.boot.Node, s.newDialer(f.name)
	f.log = s.opts.Log
	f.events, f.queueSignal = s.events, make(chan struct{}, 1)
	f.client = ads.New(f.mode, types...)
	s.channels = append(s.channels, f)
	s.registerChannelMetrics(f)
	return f
}

// newDialer returns a dialer for the cluster of a server.
func (s *Source) newDialer(cluster string) *transport.Dialer {
	return &transport.Dialer{Target: s.boot.Targets[cluster], Reloader: s.reloader, Network: s.network}
}

// Run follows the control plane until ctx ends, and returns when all its goroutines have ended. A
// control plane that cannot be reached, or whose certificates cannot be read, is not an error: the
// active configuration stays, and Run retries. Run fails if the address of xds_status cannot be
// bound.
func (s *Source) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var feeds sync.WaitGroup
	failures := make(chan error, 1)
	fail := func(err error) {
		select {
		case failures <- err:
		default: // report only the first failure
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

// startChannels runs the current channels, and those added later, on goroutines of group until ctx
// ends.
func (s *Source) startChannels(ctx context.Context, group *sync.WaitGroup) {
	launch := func(f *channel) { group.Go(func() { f.run(ctx) }) }
	s.stack.Lock()
	defer s.stack.Unlock()
	s.startChannel = launch
	for _, f := range s.channels {
		launch(f)
	}
	group.Go(func() { // keeps group from becoming empty while channels can still be added
		<-ctx.Done()
		s.stack.Lock()
		defer s.stack.Unlock()
		s.startChannel = nil
	})
}

// eventLoop handles events and timers until all channels have ended.
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
	f := e.channel
	switch {
	case e.opened:
		s.opts.Log.Info("connected to the control plane", logControl, f.name, logAddress, f.dialer.Target.Address)
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

// handleResponse applies the valid resources of a response, rejects the others and enqueues the ACK
// or NACK.
func (s *Source) handleResponse(ctx context.Context, f *channel, r *ads.Response) {
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
	f.history.RecordUpdate(u, wrong, f.client.Resources(u.Type), now)
	if answer, ok := f.client.Acknowledge(u, wrong); ok {
		f.history.RecordAck(u, answer.ErrorDetail, now)
		f.enqueue(answer)
	}
	f.history.ForgetRemoved(f.client, f.mode, r)
	s.updateSubscriptions()
	if f == s.mainChannel() {
		s.noteResponse(u)
		s.logFirstConfig()
	}
	s.updateResourceCounts()
}

// updateSubscriptions sends the subscription changes to all channels and drops the resources that
// are no longer subscribed.
func (s *Source) updateSubscriptions() {
	w := s.state.TakeSubscriptionChanges()
	if f := s.mainChannel(); f != nil {
		for _, of := range []struct {
			url    string
			change state.SubscriptionChange[string]
		}{
			{resource.EndpointType, w.Assignments}, {resource.RouteType, w.Routes}, {resource.DubboRouteType, w.DubboRoutes}, {resource.ExtensionType, w.Extensions},
		} {
			f.enqueue(f.client.UpdateSubscription(of.url, of.change.Added, of.change.Removed)...)
			f.history.Forget(of.url, of.change.Removed)
		}
	}
	more, less := map[resource.SecretSource][]string{}, map[resource.SecretSource][]string{}
	for _, r := range w.Secrets.Added {
		s.secretChannel(r.From)
		more[r.From] = append(more[r.From], r.Name)
	}
	for _, r := range w.Secrets.Removed {
		less[r.From] = append(less[r.From], r.Name)
	}
	for _, f := range s.channels {
		f.enqueue(f.client.UpdateSubscription(resource.SecretType, more[f.secretSource], less[f.secretSource])...)
		f.history.Forget(resource.SecretType, less[f.secretSource])
	}
	s.updateUnsubscribedCounts(w.ListenersChanged)
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
