// Package xds owns the client of a control plane: it keeps the configuration of the
// process as that says.
//
//	feed      a stream, over and over                       feed.go, stream.go
//	  │ events
//	Source    one loop: what came is checked and answered   source.go, take.go
//	  ├ ads.Client    what to say                           ads
//	  ├ resource      protobuf -> model                     resource
//	  └ world         what is complete -> a snapshot        world.go
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
	// Kinds are what resources may ask for.
	Kinds resource.Kinds
	// Clusters and Tables are where exchanges come for hosts and routes that Bootstrap.Lazy
	// leaves with the control plane, by the names of clusters and tables; nil: it leaves
	// nothing.
	Clusters, Tables OnDemand

	// Loads returns what tells how much clusters were asked, which is the caller's from then
	// on; nil: load is not reported.
	Loads   func() *upstream.LoadReporter
	Metrics *metrics.Registry // nil: nothing is counted
	Log     *slog.Logger
}

// Source keeps the configuration of a process as its control plane says.
type Source struct {
	o      Options
	boot   *bootstrap // immutable once New returns
	store  *credential.Reloader
	events chan event
	launch func(*feed) // has a feed run; nil: nothing runs yet, or any more. Guarded by work

	feeds []*feed // guarded by work; the first has everything, the others have secrets

	// work is held by who changes what is in force: the loop, or Rebase. It guards the
	// world, base, feeds and their ads.Clients.
	work   sync.Mutex
	world  *world
	base   *config.Snapshot // what the file says of itself; nil: nothing yet
	static static           // names of base
	// fixtures are in the world; said is what the file says of them.
	fixtures *fixtures
	said     []byte
	again    *time.Timer // when the world is to be settled though nothing came

	memory memory
	naps   naps
	meter  meter

	mu      sync.Mutex
	kept    Kept                 // guarded by mu
	replied map[topicOf]*replies // guarded by mu; nil: to nothing yet

	// unreadable are clusters of control planes whose certificates could not be read. They
	// are left out, so that the rest of the configuration applies. Guarded by work.
	unreadable map[string]bool

	announced bool // that the first configuration is applied; guarded by work

	ready   atomic.Bool                     // see Ready
	tracked map[string]map[string]*Resource // guarded by mu; by type and name
}

// New returns a Source. An error is one of the bootstrap: Problems.
func New(o Options) (*Source, error) {
	boot, err := readBootstrap(o.Bootstrap)
	if err != nil {
		k := o.Kinds
		k.Node, k.Runtime = resource.NodeOf(boot.node), runtime{layers: boot.layers}.settled().now
		return nil, boot.withListeners(err, k)
	}
	s := &Source{
		o:       o,
		boot:    boot,
		again:   time.NewTimer(time.Hour),
		store:   credential.NewStore(o.Log, func(error) {}),
		events:  make(chan event),
		world:   newWorld(),
		tracked: map[string]map[string]*Resource{},
		said:    o.Bootstrap.Static,
	}
	s.o.Kinds.Node = resource.NodeOf(boot.node)
	s.holdUnreadable()
	s.meterAll()
	s.beginNaps()
	s.keep()
	begun := time.Now()
	s.world.runtime = runtime{layers: boot.layers, begun: begun}.settled()
	s.world.warmUp(boot.dynamic.clusters, boot.dynamic.clustersLimit, begun)
	if err := s.beginStatic(); err != nil {
		return nil, err
	}
	if boot.control == "" {
		s.ask()
		return s, nil
	}
	types := []ads.Type{
		{URL: resource.RuntimeType},
		{URL: resource.ClusterType, Whole: true},
		{URL: resource.EndpointType},
		{URL: resource.ListenerType, Whole: true},
		{URL: resource.RouteType},
		{URL: resource.DubboRouteType},
		{URL: resource.ExtensionType},
		{URL: resource.SecretType},
	}
	f := s.newFeed(&feed{name: boot.control, service: aggregated(), form: boot.form}, types...)
	f.client.Want(resource.RuntimeType, s.world.runtime.names())
	if boot.dynamic.clusters {
		f.client.WantAll(resource.ClusterType)
	}
	if boot.dynamic.listeners {
		f.client.WantAll(resource.ListenerType)
	}
	s.ask()
	return s, nil
}

// newFeed completes f, which says whom it asks and how, and adds it to the feeds.
func (s *Source) newFeed(f *feed, types ...ads.Type) *feed {
	f.node, f.target = s.boot.node, s.boot.targets[f.name]
	f.log = s.o.Log
	f.store, f.events, f.more = s.store, s.events, make(chan struct{}, 1)
	f.client = ads.New(f.form, types...)
	s.feeds = append(s.feeds, f)
	s.meterFeed(f)
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
	if err := s.beginStatus(ctx, &feeds, fail); err != nil {
		return err
	}
	s.beginReports(ctx, &feeds)
	s.beginFeeds(ctx, &feeds)
	feeds.Go(func() { s.store.Run(ctx) })
	ended := make(chan struct{})
	go func() {
		feeds.Wait()
		close(ended)
	}()
	end := s.beginMemory()
	s.loop(ctx, ended)
	end()
	select {
	case err := <-failures:
		return err
	default:
		return nil
	}
}

// beginFeeds has all feeds run until ctx ends, on goroutines of the group, and those that
// there will be.
func (s *Source) beginFeeds(ctx context.Context, group *sync.WaitGroup) {
	launch := func(f *feed) { group.Go(func() { f.run(ctx) }) }
	s.work.Lock()
	defer s.work.Unlock()
	s.launch = launch
	for _, f := range s.feeds {
		launch(f)
	}
	group.Go(func() { // until it ends the group is waited for, and others may join it
		<-ctx.Done()
		s.work.Lock()
		defer s.work.Unlock()
		s.launch = nil
	})
}

// loop deals with what happens until all feeds have ended.
func (s *Source) loop(ctx context.Context, ended <-chan struct{}) {
	defer s.again.Stop()
	defer s.naps.sweep.Stop()
	for {
		select {
		case e := <-s.events:
			s.handle(ctx, e)
			close(e.done)
		case <-s.again.C:
			s.wake(ctx)
		case <-s.naps.clusters:
			s.rouse(ctx)
		case <-s.naps.tables:
			s.rouse(ctx)
		case <-s.naps.sweep.C:
			s.doze(ctx)
		case <-s.memory.saving.C:
			s.saveNow()
		case <-s.memory.silence.C:
			s.silent(ctx)
		case <-ended:
			return
		}
	}
}

// wake puts in force what has waited long enough for what it lacks.
func (s *Source) wake(ctx context.Context) {
	s.work.Lock()
	defer s.work.Unlock()
	defer s.world.commit()
	s.world.mark()
	s.settleLate(ctx)
	s.ask()
}

// settleLate puts in force what has become complete though nothing came: it has waited for
// long enough, or it is used now, or not any more. Where that cannot be, all but the
// listeners to blame are in force. s.work is held, and the world marked.
func (s *Source) settleLate(ctx context.Context) {
	c, err := s.settle(ctx)
	if err == nil {
		return
	}
	s.world.takeBack()
	for _, name := range c.started {
		s.world.hold(name)
	}
	now := time.Now()
	for _, one := range c.clusters {
		s.world.postpone(one.Name, now)
	}
	s.o.Log.Error("cannot apply resources that finished warming", logError, err)
	s.restore(ctx)
	s.start(ctx, c.started)
}

func (s *Source) handle(ctx context.Context, e event) {
	s.work.Lock()
	defer s.work.Unlock()
	defer s.world.commit()
	f := e.feed
	switch {
	case e.opened:
		s.o.Log.Info("connected to the control plane", logControl, f.name, logAddress, f.target.address)
		s.admitCluster(ctx, f.name)
		f.say(f.client.Start()...)
	case e.response == nil:
		f.client.End()
		if ctx.Err() == nil {
			s.o.Log.Warn("disconnected from the control plane: the last accepted resources stay active", logControl, f.name, logError, e.ended)
		}
	default:
		s.respond(ctx, f, e.response)
	}
}

// respond takes a response: what is good in it is put in force, the rest refused.
func (s *Source) respond(ctx context.Context, f *feed, r *ads.Response) {
	u, ok := f.client.Receive(*r)
	if !ok {
		s.o.Log.Warn("ignored a response without a subscription", logControl, f.name, logType, r.Type)
		return
	}
	now := time.Now()
	wrong := s.put(ctx, f, u, now)
	for _, w := range wrong {
		s.o.Log.Warn("resource rejected", logControl, f.name, logType, u.Type, logResource, w.Name, logReason, w.Reason)
	}
	s.count(f, u, wrong)
	s.trackKnown(f, u, wrong, now)
	if answer, ok := f.client.Conclude(u, wrong); ok {
		s.reply(f, u, answer.Refusal, now)
		f.say(answer)
	}
	s.untrackGone(f, r)
	s.ask()
	if f == s.plane() {
		s.heard(u)
		s.announce()
	}
	s.recount()
}

// put puts in force what is good in an update, and returns what is not.
func (s *Source) put(ctx context.Context, f *feed, u ads.Update, now time.Time) (wrong []ads.Wrong) {
	s.world.mark()
	wrong = s.take(f, u, now)
	c, err := s.settle(ctx)
	if err == nil {
		return wrong
	}
	// The outside world is against one of them: a port is in use, a file is gone.
	s.world.takeBack()
	if u.Type != resource.ListenerType && len(c.started) > 0 {
		// Perhaps against a listener that is complete by this, and not against this.
		s.world.mark()
		wrong = s.take(f, u, now)
		for _, name := range c.started {
			s.world.hold(name)
		}
		if _, err := s.settle(ctx); err == nil {
			s.start(ctx, c.started)
			return wrong
		}
		s.world.takeBack()
	}
	tries := mostTries
	return s.putParts(ctx, f, u, now, err, &tries)
}

// mostTries is how often parts of an update that cannot be put in force are tried.
const mostTries = 256

// putParts is put of an update that cannot be put in force as a whole because of err:
// what it takes away is, and halves of what it changes, and halves of these.
func (s *Source) putParts(ctx context.Context, f *feed, u ads.Update, now time.Time, err error, tries *int) (wrong []ads.Wrong) {
	half := len(u.Changed) / 2
	parts := []ads.Update{{Type: u.Type, Changed: u.Changed[:half]}, {Type: u.Type, Changed: u.Changed[half:]}}
	switch {
	case *tries > 0 && len(u.Changed) > 0 && len(u.Removed) > 0:
		parts = []ads.Update{{Type: u.Type, Removed: u.Removed}, {Type: u.Type, Changed: u.Changed}}
	case len(u.Changed) <= 1 || *tries <= 0:
		s.restore(ctx)
		for _, n := range u.Changed {
			wrong = append(wrong, ads.Wrong{Name: n.Name, Reason: err.Error()})
		}
		for _, name := range u.Removed {
			wrong = append(wrong, ads.Wrong{Name: name, Reason: err.Error()})
		}
		return wrong
	}
	for _, part := range parts {
		*tries--
		s.world.mark()
		bad := s.take(f, part, now)
		if _, err := s.settle(ctx); err != nil {
			s.world.takeBack()
			bad = s.putParts(ctx, f, part, now, err, tries)
		}
		wrong = append(wrong, bad...)
	}
	return wrong
}

// start puts held listeners in force, one by one. One that cannot be stays held, until
// something else is said of it.
func (s *Source) start(ctx context.Context, names []string) {
	for _, name := range names {
		s.world.mark()
		s.world.release(name)
		if _, err := s.settle(ctx); err != nil {
			s.world.takeBack()
			s.restore(ctx)
			s.o.Log.Error("cannot apply listener", logResource, name, logReason, err)
			s.refused(resource.ListenerType, name, err.Error(), time.Now())
		}
	}
}

// restore puts in force what was before. If that cannot be, it is tried again with what
// comes next.
func (s *Source) restore(ctx context.Context) {
	s.world.mark()
	if _, err := s.settle(ctx); err != nil {
		s.world.takeBack()
		s.o.Log.Error("cannot restore the previous configuration", logError, err)
	}
}

// settle puts in force what is complete: it returns what that changes, or would have.
func (s *Source) settle(ctx context.Context) (change, error) {
	now := time.Now()
	c, next := s.world.settle(now)
	s.again.Stop()
	if !next.IsZero() {
		s.again.Reset(next.Sub(now))
	}
	if c.empty() {
		return c, nil
	}
	whole := func() *config.Snapshot { return s.world.snapshot(s.base) }
	switch routes := len(c.tables) > 0; {
	case c.routing || len(c.removed) > 0 || routes && (len(c.clusters) > 0 || s.o.ApplyRoutes == nil):
		return c, s.o.Apply(ctx, whole())
	case routes:
		return c, s.o.ApplyRoutes(ctx, c.tables, whole)
	}
	return c, s.o.ApplyClusters(ctx, c.clusters, whole)
}

// ask says what is wanted now, to everybody, and forgets the rest.
func (s *Source) ask() {
	w := s.world.turn()
	s.untrack(&w)
	if f := s.plane(); f != nil {
		http, dubbo := tablesOf(w.tables.more)
		noHTTP, noDubbo := tablesOf(w.tables.less)
		f.say(f.client.Change(resource.EndpointType, w.assignments.more, w.assignments.less)...)
		f.say(f.client.Change(resource.RouteType, http, noHTTP)...)
		f.say(f.client.Change(resource.DubboRouteType, dubbo, noDubbo)...)
		f.say(f.client.Change(resource.ExtensionType, w.extensions.more, w.extensions.less)...)
	}
	more, less := map[resource.SecretSource][]string{}, map[resource.SecretSource][]string{}
	for _, r := range sorted(w.secrets.more) {
		s.secretFeed(r.From)
		more[r.From] = append(more[r.From], r.Name)
	}
	for _, r := range w.secrets.less {
		less[r.From] = append(less[r.From], r.Name)
	}
	for _, f := range s.feeds {
		f.say(f.client.Change(resource.SecretType, more[f.secrets], less[f.secrets])...)
	}
	s.countAsleep(w.listeners)
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
