// Package xds owns the client of a control plane: it keeps the configuration of the
// process as that says.
//
//	feed      a stream, over and over                       feed.go, stream.go
//	  │ events
//	Source    one loop: what came is checked and answered   source.go
//	  ├ ads.Client    what to say                           ads
//	  ├ resource      protobuf -> model                     resource
//	  └ world         what is complete -> a snapshot        world.go
//	  │ Apply
//	the server
package xds

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/network/credential"
	"github.com/weft-proxy/weft/pkg/xds/ads"
	"github.com/weft-proxy/weft/pkg/xds/resource"
)

// Options are what a Source needs. All fields but Metrics are required.
type Options struct {
	// Bootstrap is where the control plane is, and who asks.
	Bootstrap config.Bootstrap
	// Apply makes a configuration the one in force, or says why it cannot be. One call
	// ends before the next.
	Apply func(ctx context.Context, next *config.Snapshot) error
	// ApplyClusters is Apply where nothing but the given clusters is new or changed; whole
	// returns the configuration with all of them.
	ApplyClusters func(ctx context.Context, changed []*config.Cluster, whole func() *config.Snapshot) error
	// Kinds are what resources may ask for.
	Kinds   resource.Kinds
	Metrics *metrics.Registry // nil: nothing is counted
	Log     *slog.Logger
}

// Source keeps the configuration of a process as its control plane says.
type Source struct {
	o      Options
	boot   *bootstrap // immutable
	store  *credential.Store
	events chan event
	launch func(*feed) // has a feed run; nil: nothing runs yet. The loop's

	feeds []*feed // guarded by work; the first has everything, the others have secrets

	// work is held by who changes what is in force: the loop, or Rebase. It guards the
	// world, base, feeds and their ads.Clients.
	work  sync.Mutex
	world *world
	base  *config.Snapshot // what the file says, with the static clusters of boot; nil: nothing yet
	again *time.Timer      // when the world is to be settled though nothing came

	memory memory
	meter  meter

	mu      sync.Mutex
	kept    Kept                 // guarded by mu
	replied map[topicOf]*replies // guarded by mu; nil: to nothing yet

	ready   atomic.Bool                     // see Ready
	tracked map[string]map[string]*Resource // guarded by mu; by type and name
}

// New returns a Source. An error is one of the bootstrap, and names the field.
func New(o Options) (*Source, error) {
	boot, err := readBootstrap(o.Bootstrap)
	if err != nil {
		return nil, err
	}
	s := &Source{
		o:       o,
		boot:    boot,
		again:   time.NewTimer(time.Hour),
		store:   credential.NewStore(o.Log, func(error) {}),
		events:  make(chan event),
		world:   newWorld(),
		tracked: map[string]map[string]*Resource{},
	}
	s.meterAll()
	if boot.control == "" {
		return s, nil
	}
	types := []ads.Type{
		{URL: resource.ClusterType, Whole: true},
		{URL: resource.EndpointType},
		{URL: resource.ListenerType, Whole: true},
		{URL: resource.RouteType},
		{URL: resource.SecretType},
	}
	f := s.newFeed(&feed{name: boot.control, service: aggregated(), form: boot.form}, types...)
	s.keep()
	if boot.dynamic.clusters {
		f.client.WantAll(resource.ClusterType)
	}
	if boot.dynamic.listeners {
		f.client.WantAll(resource.ListenerType)
	}
	return s, nil
}

// newFeed completes f, which says whom it asks and how, and adds it to the feeds.
func (s *Source) newFeed(f *feed, types ...ads.Type) *feed {
	f.node, f.target = s.boot.node, s.boot.targets[f.name]
	f.store, f.events, f.more = s.store, s.events, make(chan struct{}, 1)
	f.client = ads.New(f.form, types...)
	s.feeds = append(s.feeds, f)
	s.meterFeed(f)
	return f
}

// secretFeed returns the feed of one who has secrets, which is begun if there is none.
func (s *Source) secretFeed(from resource.SecretSource) *feed {
	for _, f := range s.feeds {
		if f.secrets == from {
			return f
		}
	}
	f := &feed{name: from.Cluster, service: secrets(), secrets: from, form: ads.StateOfTheWorld}
	if from.Delta {
		f.form = ads.Delta
	}
	s.newFeed(f, ads.Type{URL: resource.SecretType})
	if s.launch != nil {
		s.launch(f)
	}
	return f
}

// Rebase takes what the file says, without what comes from the control plane, and puts
// both in force. It is called once before Run, and after that by whoever has read the
// file again. A bootstrap that has changed counts at the next start only.
func (s *Source) Rebase(ctx context.Context, file *config.Snapshot) error {
	s.work.Lock()
	defer s.work.Unlock()
	next := *file
	next.Clusters = append(file.Clusters[:len(file.Clusters):len(file.Clusters)], s.boot.clusters...)
	if err := s.o.Apply(ctx, s.world.snapshot(&next)); err != nil {
		return err
	}
	if s.base != nil && !reflect.DeepEqual(file.Bootstrap, s.o.Bootstrap) {
		s.o.Log.Warn("dynamic_resources, static_resources and node count at the next start")
	}
	s.base = &next
	return nil
}

// Run follows the control plane until ctx ends. It returns when all that it started
// has ended. The error is one of the bootstrap that shows only now, as a certificate
// that cannot be read; a control plane that is away is none.
func (s *Source) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var feeds sync.WaitGroup
	failures := make(chan error, 1)
	// A feed is launched by the loop while it deals with an event of another one, which
	// has not ended therefore: feeds.Wait does not return before.
	s.launch = func(f *feed) {
		feeds.Go(func() {
			err := f.run(ctx)
			switch {
			case err == nil:
			case f.secrets == resource.SecretSource{}:
				failures <- err
				cancel()
			default:
				s.o.Log.Error("a source of secrets cannot be asked: what needs them is not put in force", logError, err)
			}
		})
	}
	s.work.Lock()
	for _, f := range s.feeds {
		s.launch(f)
	}
	s.work.Unlock()
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

// loop deals with what happens until all feeds have ended.
func (s *Source) loop(ctx context.Context, ended <-chan struct{}) {
	defer s.again.Stop()
	for {
		select {
		case e := <-s.events:
			s.handle(ctx, e)
			close(e.done)
		case <-s.again.C:
			s.wake(ctx)
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
	s.world.mark()
	c, err := s.settle(ctx)
	if err == nil {
		return
	}
	s.world.takeBack()
	s.world.mark()
	for _, name := range c.started {
		s.world.hold(name)
	}
	now := time.Now()
	for _, one := range c.clusters {
		s.world.postpone(one.Name, now)
	}
	s.o.Log.Error("what has waited long enough cannot be put in force", logError, err)
	s.restore(ctx)
	s.start(ctx, c.started)
}

func (s *Source) handle(ctx context.Context, e event) {
	s.work.Lock()
	defer s.work.Unlock()
	f := e.feed
	switch {
	case e.opened:
		s.o.Log.Info("asking the control plane", logControl, f.name)
		f.say(f.client.Start()...)
	case e.response == nil:
		f.client.End()
		if ctx.Err() == nil {
			s.o.Log.Warn("the control plane is away: what it said last stays in force", logControl, f.name, logError, e.ended)
		}
	default:
		s.respond(ctx, f, e.response)
	}
}

// respond takes a response: what is good in it is put in force, the rest refused.
func (s *Source) respond(ctx context.Context, f *feed, r *ads.Response) {
	u, ok := f.client.Receive(*r)
	if !ok {
		s.o.Log.Warn("a response that nobody asked for", logControl, f.name, logType, r.Type)
		return
	}
	now := time.Now()
	wrong := s.put(ctx, f, u, now)
	for _, w := range wrong {
		s.o.Log.Warn("a resource was refused", logControl, f.name, logType, u.Type, logResource, w.Name, logReason, w.Reason)
	}
	s.count(f, u, wrong)
	s.trackKnown(f, u, wrong, now)
	if answer, ok := f.client.Conclude(u, wrong); ok {
		s.reply(f, u, answer.Refusal, now)
		f.say(answer)
	}
	if u.Type == resource.ClusterType || u.Type == resource.ListenerType {
		s.ask()
	}
	if f == s.feeds[0] {
		s.heard(u)
	}
	s.recount()
}

// trackKnown is track of what has a name of its own.
func (s *Source) trackKnown(f *feed, u ads.Update, wrong []ads.Wrong, now time.Time) {
	madeUp := map[string]bool{}
	known := u
	known.Changed = nil
	for _, n := range u.Changed {
		if n.Fault == "" {
			known.Changed = append(known.Changed, n)
		} else {
			madeUp[n.Name] = true
		}
	}
	named := slices.DeleteFunc(slices.Clone(wrong), func(w ads.Wrong) bool { return madeUp[w.Name] })
	s.track(f, known, named, now)
}

// refused notes that a resource that was accepted is not in force after all.
func (s *Source) refused(typeURL, name, reason string, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.tracked[typeURL][name]; r != nil {
		r.Refused, r.At = reason, at
	}
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
// halves of it are, and halves of these.
func (s *Source) putParts(ctx context.Context, f *feed, u ads.Update, now time.Time, err error, tries *int) (wrong []ads.Wrong) {
	if len(u.Changed) <= 1 || *tries <= 0 {
		s.restore(ctx)
		for _, n := range u.Changed {
			wrong = append(wrong, ads.Wrong{Name: n.Name, Reason: err.Error()})
		}
		return wrong
	}
	half := len(u.Changed) / 2
	for _, part := range []ads.Update{
		{Type: u.Type, Changed: u.Changed[:half], Removed: u.Removed},
		{Type: u.Type, Changed: u.Changed[half:]},
	} {
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
			s.o.Log.Error("a listener cannot be put in force", logResource, name, logReason, err)
			s.refused(resource.ListenerType, name, err.Error(), time.Now())
		}
	}
}

// restore puts in force what was before.
func (s *Source) restore(ctx context.Context) {
	if _, err := s.settle(ctx); err != nil {
		s.o.Log.Error("what was in force cannot be put in force again", logError, err)
	}
}

// take gives the world what is good in an update, and returns what is not.
func (s *Source) take(f *feed, u ads.Update, now time.Time) (wrong []ads.Wrong) {
	for _, n := range u.Changed {
		if err := s.read(f, u.Type, n, now); err != nil {
			wrong = append(wrong, ads.Wrong{Name: n.Name, Reason: err.Error()})
		}
	}
	for _, name := range u.Removed {
		switch u.Type {
		case resource.ClusterType:
			s.world.removeCluster(name)
		case resource.ListenerType:
			s.world.removeListener(name)
		case resource.EndpointType:
			s.world.setAssignment(name, nil)
		case resource.RouteType:
			s.world.setTable(name, nil)
		}
	}
	return wrong
}

// read reads a resource into the world. What it leaves out of account is noted.
func (s *Source) read(f *feed, typeURL string, n ads.Resource, now time.Time) error {
	if n.Fault != "" {
		return errors.New(n.Fault)
	}
	if name, err := resource.Name(n.Body); err != nil {
		return err
	} else if name != n.Name {
		return fmt.Errorf("is called %q in itself", name)
	}
	if s.isStatic(typeURL, n.Name) {
		return errors.New("the file has a static one of that name")
	}
	switch typeURL {
	case resource.ClusterType:
		c, err := resource.ReadCluster(n.Body)
		if err != nil {
			return err
		}
		if err := s.reachable(c.Secrets()); err != nil {
			return err
		}
		s.world.setCluster(n.Name, c, now)
	case resource.EndpointType:
		a, err := resource.ReadEndpoints(n.Body)
		if err != nil {
			return err
		}
		s.world.setAssignment(n.Name, a)
	case resource.ListenerType:
		l, err := resource.ReadListener(n.Body, s.o.Kinds)
		if err != nil {
			return err
		}
		if err := s.reachable(l.Secrets()); err != nil {
			return err
		}
		s.world.setListener(n.Name, l, now)
	case resource.RouteType:
		t, err := resource.ReadRoutes(n.Body, s.o.Kinds)
		if err != nil {
			return err
		}
		s.world.setTable(n.Name, t)
	case resource.SecretType:
		secret, err := resource.ReadSecret(n.Body)
		if err != nil {
			return err
		}
		s.world.setSecret(resource.SecretRef{Name: n.Name, From: f.secrets}, secret)
	default:
		return fmt.Errorf("resources of type %s are not known", typeURL)
	}
	return nil
}

// reachable reports as an error that one of the secrets is nobody's who can be asked.
func (s *Source) reachable(all []resource.SecretRef) error {
	for _, r := range all {
		if _, ok := s.boot.targets[r.From.Cluster]; !ok && r.From.Cluster != "" {
			return fmt.Errorf("secret %q: envoy_grpc.cluster_name: %q is no cluster of static_resources with an address", r.Name, r.From.Cluster)
		}
	}
	return nil
}

func (s *Source) isStatic(typeURL, name string) bool {
	switch typeURL {
	case resource.ClusterType:
		for _, c := range s.base.Clusters {
			if c.Name == name {
				return true
			}
		}
	case resource.ListenerType:
		for _, l := range s.base.Listeners {
			if l.Name == name {
				return true
			}
		}
	case resource.RouteType:
		for _, t := range s.base.Routes {
			if t.Name == name {
				return true
			}
		}
	}
	return false
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
	if c.routing || len(c.removed) > 0 {
		return c, s.o.Apply(ctx, whole())
	}
	return c, s.o.ApplyClusters(ctx, c.clusters, whole)
}

// ask says what is wanted now, to everybody, and forgets the rest.
func (s *Source) ask() {
	w := s.world.wanted()
	s.world.forget(w)
	f := s.feeds[0]
	f.say(f.client.Want(resource.EndpointType, w.assignments)...)
	f.say(f.client.Want(resource.RouteType, w.tables)...)
	secrets := map[resource.SecretSource][]string{}
	for _, r := range w.secrets {
		if r.From != f.secrets {
			s.secretFeed(r.From)
		}
		secrets[r.From] = append(secrets[r.From], r.Name)
	}
	for _, f := range s.feeds {
		f.say(f.client.Want(resource.SecretType, secrets[f.secrets])...)
	}
}

// Keys of log lines.
const (
	logPath     = "path"
	logAge      = "age"
	logControl  = "control_plane"
	logError    = "error"
	logType     = "type"
	logResource = "resource"
	logReason   = "reason"
)
