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
	// saveDelay is how long a Source collects changes before a save. maxSaveDelay is the longest
	// time that a save waits until allTypesReceived returns true.
	saveDelay    = 2 * time.Second
	maxSaveDelay = time.Minute
	// saveInterval is how often an unchanged configuration is saved, to renew its time of receipt.
	saveInterval = 10 * time.Minute
)

// cacheLoop is the part of the event loop that decides when to save and when to use the cache. The
// lock of the stack guards its fields.
type cacheLoop struct {
	*cache.Cache // nil: no cache

	receivedTypes map[string]bool // type URLs that have had a response
	dirtySince    time.Time       // when the first unsaved change arrived; zero: there is none
	saveTimer     *time.Timer
	fallbackTimer *time.Timer
	loadAttempted bool // the Source tried to load the cache, or the control plane responded first
}

// initCache initializes the cache of a Source.
func (s *Source) initCache() {
	c := &s.cache
	c.saveTimer, c.fallbackTimer = time.NewTimer(time.Hour), time.NewTimer(time.Hour)
	c.saveTimer.Stop()
	c.fallbackTimer.Stop()
	settings := s.opts.Bootstrap.Cache
	if settings.Path == "" {
		return
	}
	c.receivedTypes = map[string]bool{}
	c.Cache = cache.New(settings.Path, cache.Owner{Node: s.boot.Node.GetId(), Cluster: s.boot.Node.GetCluster(), ControlPlane: s.boot.ADSCluster}, s.opts.Log)
}

// cachedTypes returns the resource types in the cache. A type precedes the types it refers to.
// Secrets are never cached.
func cachedTypes() []string {
	return []string{resource.RuntimeType, resource.ClusterType, resource.ListenerType, resource.EndpointType, resource.RouteType, resource.DubboRouteType, resource.ExtensionType}
}

// startCache starts the cache; stop stops it after the last save.
func (s *Source) startCache() (stop func()) {
	if s.cache.Cache == nil {
		return func() {}
	}
	s.cache.fallbackTimer.Reset(cacheFallbackDelay)
	var wg sync.WaitGroup
	wg.Go(s.cache.Run)
	return func() {
		s.stack.Lock()
		if !s.cache.dirtySince.IsZero() && s.allTypesReceived() {
			s.queueSave()
		}
		s.stack.Unlock()
		s.cache.Close()
		wg.Wait()
	}
}

// recordResponse records a response of the control plane, which ends the use of the cache.
func (s *Source) recordResponse(u ads.Update) {
	c := &s.cache
	if c.Cache == nil {
		return
	}
	c.fallbackTimer.Stop()
	c.loadAttempted = true
	c.receivedTypes[u.Type] = true
	if c.EndUse() {
		s.opts.Log.Info("the control plane responds again: the xDS cache is no longer in use")
	}
	if c.dirtySince.IsZero() && len(u.Changed)+len(u.Removed) > 0 {
		c.dirtySince = time.Now()
		c.saveTimer.Reset(saveDelay)
	}
}

// allTypesReceived reports whether each subscribed type of cachedTypes has had a response.
func (s *Source) allTypesReceived() bool {
	for _, url := range cachedTypes() {
		wildcard, names := s.channels[0].client.Subscription(url)
		if (wildcard || len(names) > 0) && !s.cache.receivedTypes[url] {
			return false
		}
	}
	return true
}

// saveIfDue runs when saveTimer fires. It queues a save, but waits up to maxSaveDelay until
// allTypesReceived returns true. It saves unchanged resources only while the control plane is
// connected.
func (s *Source) saveIfDue() {
	s.stack.Lock()
	defer s.stack.Unlock()
	c := &s.cache
	if !c.dirtySince.IsZero() && !s.allTypesReceived() && time.Since(c.dirtySince) < maxSaveDelay {
		c.saveTimer.Reset(saveDelay)
		return
	}
	if !c.dirtySince.IsZero() || s.channels[0].isConnected() {
		s.queueSave()
	}
	c.saveTimer.Reset(saveInterval)
}

// queueSave queues the accepted resources for a save, except those with a private key.
func (s *Source) queueSave() {
	contents := &cache.Contents{ReceivedAt: time.Now()}
	for _, url := range cachedTypes() {
		accepted := s.channels[0].client.Resources(url)
		u := ads.Update{Type: url}
		for _, name := range slices.Sorted(maps.Keys(accepted)) {
			if !s.state.HasPrivateKey(url, name) {
				u.Changed = append(u.Changed, accepted[name])
			}
		}
		contents.Resources = append(contents.Resources, u)
	}
	s.cache.dirtySince = time.Time{}
	s.cache.Save(contents)
}

// applyCacheIfSilent applies the cache if the control plane has not responded in time. Each call
// logs a warning while the cache is in use.
func (s *Source) applyCacheIfSilent(ctx context.Context) {
	s.stack.Lock()
	defer s.stack.Unlock()
	defer s.state.Checkpoint()
	if !s.cache.loadAttempted {
		s.cache.loadAttempted = true
		s.applyCache(ctx)
	}
	if status := s.cache.Status(); status.InUse {
		s.opts.Log.Warn("the control plane does not respond: resources of the xDS cache are active, without secrets",
			logControl, s.channels[0].name, logAge, time.Since(status.ReceivedAt).Round(time.Second).String(), logPath, status.Path)
		s.cache.fallbackTimer.Reset(cacheReminderInterval)
	}
}

// applyCache applies the resources of the cache.
func (s *Source) applyCache(ctx context.Context) {
	now, ch := time.Now(), s.channels[0]
	contents, err := s.cache.Load(now, s.opts.Bootstrap.Cache.MaxAge)
	if errors.Is(err, fs.ErrNotExist) {
		s.opts.Log.Warn("the control plane does not respond, and there is no xDS cache", logControl, ch.name)
		return
	}
	if err != nil {
		s.opts.Log.Error("cannot use the xDS cache", logError, err)
		return
	}
	for _, url := range cachedTypes() {
		for _, u := range contents.Resources {
			if u.Type == url {
				s.applyCachedType(ctx, ch, u, now)
			}
		}
	}
	s.state.Checkpoint()
	s.state.SkipWarmup() // the cache lacks secrets: do not wait for them
	s.reconcileExpired(ctx)
	s.updateResourceCounts()
	s.cache.SetInUse(contents)
	ch.reconnect() // in delta, the requests of a new stream contain the versions of the restored resources
}

// applyCachedType applies the cached resources of a type. It drops those that are not subscribed or
// are rejected.
func (s *Source) applyCachedType(ctx context.Context, ch *channel, u ads.Update, now time.Time) {
	s.subscribeCached(u, now)
	wildcard, names := ch.client.Subscription(u.Type)
	if !wildcard {
		subscribed := map[string]bool{}
		for _, name := range names {
			subscribed[name] = true
		}
		u.Changed = slices.DeleteFunc(u.Changed, func(r ads.Resource) bool { return !subscribed[r.Name] })
	}
	rejected := s.applyUpdate(ctx, ch, u, now)
	isRejected := map[string]bool{}
	for _, rejection := range rejected {
		isRejected[rejection.Name] = true
		s.opts.Log.Warn("resource of the xDS cache rejected", logType, u.Type, logResource, rejection.Name, logReason, rejection.Reason)
	}
	for _, r := range u.Changed {
		if !isRejected[r.Name] {
			ch.client.Restore(u.Type, r)
		}
	}
	ch.history.RecordUpdate(u, rejected, ch.client.Resources(u.Type), now)
	if u.Type == resource.ListenerType {
		s.updateSubscriptions()
	}
}
