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
	"sync"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/network/credential"
	"github.com/weft-proxy/weft/pkg/xds/ads"
	"github.com/weft-proxy/weft/pkg/xds/resource"
)

// Options are what a Source needs. All fields are required.
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
	Kinds resource.Kinds
	Log   *slog.Logger
}

// Source keeps the configuration of a process as its control plane says.
type Source struct {
	o      Options
	boot   *bootstrap // immutable
	store  *credential.Store
	events chan event
	feeds  []*feed // immutable

	// work is held by who changes what is in force: the loop, or Rebase. It guards the
	// world, base, and the ads.Clients of feeds.
	work  sync.Mutex
	world *world
	base  *config.Snapshot // what the file says, with the static clusters of boot; nil: nothing yet
	again *time.Timer      // when the world is to be settled though nothing came

	mu      sync.Mutex
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
	f := s.newFeed(boot.control, aggregated(), boot.form, types...)
	if boot.dynamic.clusters {
		f.client.WantAll(resource.ClusterType)
	}
	if boot.dynamic.listeners {
		f.client.WantAll(resource.ListenerType)
	}
	return s, nil
}

func (s *Source) newFeed(control string, of service, form ads.Form, types ...ads.Type) *feed {
	f := &feed{
		name:    control,
		service: of,
		form:    form,
		node:    s.boot.node,
		target:  s.boot.targets[control],
		store:   s.store,
		client:  ads.New(form, types...),
		events:  s.events,
		more:    make(chan struct{}, 1),
	}
	s.feeds = append(s.feeds, f)
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
	failures := make(chan error, len(s.feeds))
	for _, f := range s.feeds {
		feeds.Go(func() {
			if err := f.run(ctx); err != nil {
				failures <- err
				cancel()
			}
		})
	}
	feeds.Go(func() { s.store.Run(ctx) })
	ended := make(chan struct{})
	go func() {
		feeds.Wait()
		close(ended)
	}()
	s.loop(ctx, ended)
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
		case <-ended:
			return
		}
	}
}

// wake puts in force what has waited long enough for what it lacks.
func (s *Source) wake(ctx context.Context) {
	s.work.Lock()
	defer s.work.Unlock()
	if err := s.settle(ctx); err != nil {
		s.o.Log.Error("what has waited long enough cannot be put in force", logError, err)
	}
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
	wrong := s.put(ctx, u, now)
	for _, w := range wrong {
		s.o.Log.Warn("a resource was refused", logControl, f.name, logType, u.Type, logResource, w.Name, logReason, w.Reason)
	}
	s.track(f, u, wrong, now)
	if answer, ok := f.client.Conclude(u, wrong); ok {
		f.say(answer)
	}
	if u.Type == resource.ClusterType || u.Type == resource.ListenerType {
		s.ask(f)
	}
}

// mostAlone is how many resources are tried one by one if they cannot all be put in
// force.
const mostAlone = 256

// put puts in force what is good in an update, and returns what is not.
func (s *Source) put(ctx context.Context, u ads.Update, now time.Time) (wrong []ads.Wrong) {
	s.world.mark()
	wrong = s.take(u, now)
	err := s.settle(ctx)
	if err == nil {
		return wrong
	}
	// The outside world is against one of them: a port is in use, a file is gone.
	s.world.takeBack()
	if len(u.Changed) <= 1 || len(u.Changed) > mostAlone {
		s.restore(ctx)
		for _, n := range u.Changed {
			wrong = append(wrong, ads.Wrong{Name: n.Name, Reason: err.Error()})
		}
		return wrong
	}
	wrong = nil
	for i, n := range u.Changed {
		one := ads.Update{Type: u.Type, Changed: u.Changed[i : i+1]}
		if i == 0 {
			one.Removed = u.Removed
		}
		s.world.mark()
		bad := s.take(one, now)
		if err := s.settle(ctx); err != nil {
			s.world.takeBack()
			s.restore(ctx)
			bad = []ads.Wrong{{Name: n.Name, Reason: err.Error()}}
		}
		wrong = append(wrong, bad...)
	}
	return wrong
}

// restore puts in force what was before.
func (s *Source) restore(ctx context.Context) {
	if err := s.settle(ctx); err != nil {
		s.o.Log.Error("what was in force cannot be put in force again", logError, err)
	}
}

// take gives the world what is good in an update, and returns what is not.
func (s *Source) take(u ads.Update, now time.Time) (wrong []ads.Wrong) {
	for _, n := range u.Changed {
		if err := s.read(u.Type, n, now); err != nil {
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
func (s *Source) read(typeURL string, n ads.Resource, now time.Time) error {
	if s.isStatic(typeURL, n.Name) {
		return errors.New("the file has a static one of that name")
	}
	switch typeURL {
	case resource.ClusterType:
		c, err := resource.ReadCluster(n.Body)
		if err != nil {
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
		s.world.setSecret(resource.SecretRef{Name: n.Name}, secret)
	default:
		return fmt.Errorf("resources of type %s are not known", typeURL)
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

// settle puts in force what is complete.
func (s *Source) settle(ctx context.Context) error {
	now := time.Now()
	change, next := s.world.settle(now)
	s.again.Stop()
	if !next.IsZero() {
		s.again.Reset(next.Sub(now))
	}
	if change.empty() {
		return nil
	}
	whole := func() *config.Snapshot { return s.world.snapshot(s.base) }
	if change.routing || len(change.removed) > 0 {
		return s.o.Apply(ctx, whole())
	}
	return s.o.ApplyClusters(ctx, change.clusters, whole)
}

// ask says what is wanted now, and forgets the rest.
func (s *Source) ask(f *feed) {
	w := s.world.wanted()
	s.world.forget(w)
	f.say(f.client.Want(resource.EndpointType, w.assignments)...)
	f.say(f.client.Want(resource.RouteType, w.tables)...)
	var secrets []string
	for _, r := range w.secrets {
		secrets = append(secrets, r.Name)
	}
	f.say(f.client.Want(resource.SecretType, secrets)...)
}

// Keys of log lines.
const (
	logControl  = "control_plane"
	logError    = "error"
	logType     = "type"
	logResource = "resource"
	logReason   = "reason"
)
