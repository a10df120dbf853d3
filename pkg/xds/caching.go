package xds

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/weft-proxy/weft/pkg/xds/ads"
	"github.com/weft-proxy/weft/pkg/xds/cache"
	"github.com/weft-proxy/weft/pkg/xds/resource"
)

const (
	// cacheFallbackDelay is how long a Source waits for the first response before it uses the
	// cache.
	cacheFallbackDelay = 5 * time.Second
	// cacheReminderInterval is the interval of log lines while the cache is in use.
	cacheReminderInterval = time.Minute
	// saveDelay is how long changes are collected before a save; maxSaveDelay is how long a save
	// waits for an incomplete configuration.
	saveDelay    = 2 * time.Second
	maxSaveDelay = time.Minute
	// saveInterval is how often an unchanged configuration is saved, to update its age.
	saveInterval = 10 * time.Minute
)

// cacheLoop is the cache part of the event loop: when to save and when to use the cache. Guarded by
// the Source's stack.
type cacheLoop struct {
	*cache.Cache // nil: no cache

	received      map[string]bool // types that had a response
	dirtySince    time.Time       // when the first unsaved change arrived; zero: none
	saveTimer     *time.Timer
	fallbackTimer *time.Timer
	loadAttempted bool // the cache was loaded, or is not needed
}

// initCache initializes the cache of a Source.
func (s *Source) initCache() {
	m := &s.cache
	m.saveTimer, m.fallbackTimer = time.NewTimer(time.Hour), time.NewTimer(time.Hour)
	m.saveTimer.Stop()
	m.fallbackTimer.Stop()
	c := s.opts.Bootstrap.Cache
	if c.Path == "" {
		return
	}
	m.received = map[string]bool{}
	m.Cache = cache.New(c.Path, cache.Owner{Node: s.boot.Node.GetId(), Cluster: s.boot.Node.GetCluster(), ControlPlane: s.boot.ADSCluster}, s.opts.Log)
}

// cachedTypes returns the resource types in the cache. A type comes before those it refers to.
// Secrets are never cached.
func cachedTypes() []string {
	return []string{resource.RuntimeType, resource.ClusterType, resource.ListenerType, resource.EndpointType, resource.RouteType, resource.DubboRouteType, resource.ExtensionType}
}

// startCache starts the cache; end stops it after the last save.
func (s *Source) startCache() (end func()) {
	if s.cache.Cache == nil {
		return func() {}
	}
	s.cache.fallbackTimer.Reset(cacheFallbackDelay)
	var saving sync.WaitGroup
	saving.Go(s.cache.Run)
	return func() {
		s.stack.Lock()
		if !s.cache.dirtySince.IsZero() && s.allTypesReceived() {
			s.queueSave()
		}
		s.stack.Unlock()
		s.cache.Close()
		saving.Wait()
	}
}

// noteResponse records a response of the control plane, which ends the use of the cache.
func (s *Source) noteResponse(u ads.Update) {
	m := &s.cache
	if m.Cache == nil {
		return
	}
	m.fallbackTimer.Stop()
	m.loadAttempted = true
	m.received[u.Type] = true
	if m.EndUse() {
		s.opts.Log.Info("the control plane responds again: the xDS cache is no longer in use")
	}
	if m.dirtySince.IsZero() && len(u.Changed)+len(u.Removed) > 0 {
		m.dirtySince = time.Now()
		m.saveTimer.Reset(saveDelay)
	}
}

// allTypesReceived reports whether each subscribed type has had a response.
func (s *Source) allTypesReceived() bool {
	for _, url := range cachedTypes() {
		all, names := s.channels[0].client.Subscription(url)
		if (all || len(names) > 0) && !s.cache.received[url] {
			return false
		}
	}
	return true
}

// saveIfDue saves the accepted resources if it is time.
func (s *Source) saveIfDue() {
	s.stack.Lock()
	defer s.stack.Unlock()
	m := &s.cache
	if !m.dirtySince.IsZero() && !s.allTypesReceived() && time.Since(m.dirtySince) < maxSaveDelay {
		m.saveTimer.Reset(saveDelay)
		return
	}
	if !m.dirtySince.IsZero() || s.channels[0].isConnected() {
		s.queueSave()
	}
	m.saveTimer.Reset(saveInterval)
}

// queueSave queues the accepted resources for a save, except those with a private key.
func (s *Source) queueSave() {
	g := &cache.Contents{ReceivedAt: time.Now()}
	for _, url := range cachedTypes() {
		held := s.channels[0].client.Resources(url)
		u := ads.Update{Type: url}
		for _, name := range slices.Sorted(maps.Keys(held)) {
			if !s.state.HasPrivateKey(url, name) {
				u.Changed = append(u.Changed, held[name])
			}
		}
		g.Resources = append(g.Resources, u)
	}
	s.cache.dirtySince = time.Time{}
	s.cache.Save(g)
}

// applyCacheIfSilent applies the cache when the control plane has not responded in time, and logs
// that it is in use at each reminder.
func (s *Source) applyCacheIfSilent(ctx context.Context) {
	s.stack.Lock()
	defer s.stack.Unlock()
	defer s.state.Checkpoint()
	if !s.cache.loadAttempted {
		s.cache.loadAttempted = true
		s.applyCache(ctx)
	}
	if k := s.cache.Status(); k.InUse {
		s.opts.Log.Warn("the control plane does not respond: resources of the xDS cache are active, without secrets",
			logControl, s.channels[0].name, logAge, time.Since(k.ReceivedAt).Round(time.Second).String(), logPath, k.Path)
		s.cache.fallbackTimer.Reset(cacheReminderInterval)
	}
}

// applyCache applies the resources of the cache.
func (s *Source) applyCache(ctx context.Context) {
	now, f := time.Now(), s.channels[0]
	g, err := s.cache.Load(now, s.opts.Bootstrap.Cache.MaxAge)
	if errors.Is(err, fs.ErrNotExist) {
		s.opts.Log.Warn("the control plane does not respond, and there is no xDS cache", logControl, f.name)
		return
	}
	if err != nil {
		s.opts.Log.Error("cannot use the xDS cache", logError, err)
		return
	}
	for _, url := range cachedTypes() {
		for _, u := range g.Resources {
			if u.Type == url {
				s.applyCachedType(ctx, f, u, now)
			}
		}
	}
	s.state.Checkpoint()
	s.state.SkipWarmup() // serve the cached configuration without what it lacks, such as secrets
	s.reconcileExpired(ctx)
	s.updateResourceCounts()
	s.cache.SetInUse(g)
	f.reconnect() // the current stream has not sent the restored versions
}

// applyCachedType applies the cached resources of a type. It drops those that are not subscribed or
// are rejected.
func (s *Source) applyCachedType(ctx context.Context, f *channel, u ads.Update, now time.Time) {
	s.subscribeCached(u, now)
	all, names := f.client.Subscription(u.Type)
	if !all {
		wanted := map[string]bool{}
		for _, name := range names {
			wanted[name] = true
		}
		u.Changed = slices.DeleteFunc(u.Changed, func(n ads.Resource) bool { return !wanted[n.Name] })
	}
	wrong := s.applyUpdate(ctx, f, u, now)
	bad := map[string]bool{}
	for _, w := range wrong {
		bad[w.Name] = true
		s.opts.Log.Warn("resource of the xDS cache rejected", logType, u.Type, logResource, w.Name, logReason, w.Reason)
	}
	for _, n := range u.Changed {
		if !bad[n.Name] {
			f.client.Restore(u.Type, n)
		}
	}
	f.history.RecordUpdate(u, wrong, f.client.Resources(u.Type), now)
	if u.Type == resource.ListenerType {
		s.updateSubscriptions()
	}
}
