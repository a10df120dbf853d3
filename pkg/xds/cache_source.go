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

// cacheWriter is the cache state of a Source. Guarded by the Source's applyMu.
type cacheWriter struct {
	file          *cacheFile         // nil: no cache
	saves         chan *cachedConfig // capacity 1: the configuration to save
	received      map[string]bool
	dirtySince    time.Time // when the first unsaved change arrived; zero: none
	saveTimer     *time.Timer
	fallbackTimer *time.Timer
	loadAttempted bool // the cache was loaded, or is not needed
}

// CacheStatus is the status of the xDS cache on disk.
type CacheStatus struct {
	Path       string    `json:"path"`          // of the file; "": no cache
	ReceivedAt time.Time `json:"said,omitzero"` // when the contents of the file arrived
	InUse      bool      `json:"in_use"`        // active because the control plane does not respond
	Failure    string    `json:"failure,omitempty"`
}

// CacheStatus returns the status of the xDS cache.
func (s *Source) CacheStatus() CacheStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cacheStatus
}

func (s *Source) updateCacheStatus(change func(k *CacheStatus)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.cacheStatus)
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
	m.received, m.saves = map[string]bool{}, make(chan *cachedConfig, 1)
	m.file = &cacheFile{dir: c.Path, owner: cacheOwner{s.boot.Node.GetId(), s.boot.Node.GetCluster(), s.boot.ADSCluster}}
	s.cacheStatus.Path = m.file.path()
}

// cachedTypes returns the resource types in the cache. A type comes before those it refers to.
// Secrets are never cached.
func cachedTypes() []string {
	return []string{resource.RuntimeType, resource.ClusterType, resource.ListenerType, resource.EndpointType, resource.RouteType, resource.DubboRouteType, resource.ExtensionType}
}

// saveLoop saves configurations until saves is closed.
func (s *Source) saveLoop() {
	for g := range s.cache.saves {
		err := s.cache.file.save(g)
		if err != nil {
			s.opts.Log.Error("cannot write the xDS cache", logPath, s.cache.file.path(), logError, err)
		}
		s.updateCacheStatus(func(k *CacheStatus) {
			k.Failure = ""
			if err != nil {
				k.Failure = err.Error()
			} else {
				k.ReceivedAt = g.receivedAt
			}
		})
	}
}

// startCache starts saveLoop; end stops it after the last save.
func (s *Source) startCache() (end func()) {
	if s.cache.file == nil {
		return func() {}
	}
	s.cache.fallbackTimer.Reset(cacheFallbackDelay)
	var saving sync.WaitGroup
	saving.Go(s.saveLoop)
	return func() {
		s.applyMu.Lock()
		if !s.cache.dirtySince.IsZero() && s.allTypesReceived() {
			s.queueSave()
		}
		s.applyMu.Unlock()
		close(s.cache.saves)
		saving.Wait()
	}
}

// noteResponse records a response of the control plane, which ends the use of the cache.
func (s *Source) noteResponse(u ads.Update) {
	m := &s.cache
	if m.file == nil {
		return
	}
	m.fallbackTimer.Stop()
	m.loadAttempted = true
	m.received[u.Type] = true
	s.updateCacheStatus(func(k *CacheStatus) {
		if k.InUse {
			s.opts.Log.Info("the control plane responds again: the xDS cache is no longer in use")
		}
		k.InUse = false
	})
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
	s.applyMu.Lock()
	defer s.applyMu.Unlock()
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
	g := &cachedConfig{receivedAt: time.Now()}
	for _, url := range cachedTypes() {
		held := s.channels[0].client.Resources(url)
		u := ads.Update{Type: url}
		for _, name := range slices.Sorted(maps.Keys(held)) {
			if !s.state.HasPrivateKey(url, name) {
				u.Changed = append(u.Changed, held[name])
			}
		}
		g.resources = append(g.resources, u)
	}
	s.cache.dirtySince = time.Time{}
	select {
	case <-s.cache.saves: // drops an older one
	default:
	}
	s.cache.saves <- g
}

// applyCacheIfSilent applies the cache when the control plane has not responded in time, and logs
// that it is in use at each reminder.
func (s *Source) applyCacheIfSilent(ctx context.Context) {
	s.applyMu.Lock()
	defer s.applyMu.Unlock()
	defer s.state.Checkpoint()
	if !s.cache.loadAttempted {
		s.cache.loadAttempted = true
		s.applyCache(ctx)
	}
	if k := s.CacheStatus(); k.InUse {
		s.opts.Log.Warn("the control plane does not respond: resources of the xDS cache are active, without secrets",
			logControl, s.channels[0].name, logAge, time.Since(k.ReceivedAt).Round(time.Second).String(), logPath, k.Path)
		s.cache.fallbackTimer.Reset(cacheReminderInterval)
	}
}

// applyCache applies the resources of the cache.
func (s *Source) applyCache(ctx context.Context) {
	now, f := time.Now(), s.channels[0]
	g, err := s.cache.file.load(now, s.opts.Bootstrap.Cache.MaxAge)
	if errors.Is(err, fs.ErrNotExist) {
		s.opts.Log.Warn("the control plane does not respond, and there is no xDS cache", logControl, f.name)
		return
	}
	if err != nil {
		s.opts.Log.Error("cannot use the xDS cache", logError, err)
		s.updateCacheStatus(func(k *CacheStatus) { k.Failure = err.Error() })
		return
	}
	for _, url := range cachedTypes() {
		for _, u := range g.resources {
			if u.Type == url {
				s.applyCachedType(ctx, f, u, now)
			}
		}
	}
	s.state.Checkpoint()
	s.state.SkipWarmup() // serve the cached configuration without what it lacks, such as secrets
	s.reconcileExpired(ctx)
	s.updateResourceCounts()
	s.updateCacheStatus(func(k *CacheStatus) { k.ReceivedAt, k.InUse = g.receivedAt, true })
	f.reconnect() // the current stream has not sent the restored versions
}

// applyCachedType applies the cached resources of a type. It drops those that are not subscribed or
// are rejected.
func (s *Source) applyCachedType(ctx context.Context, f *xdsChannel, u ads.Update, now time.Time) {
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
	s.recordNamedUpdate(f, u, wrong, now)
	if u.Type == resource.ListenerType {
		s.updateSubscriptions()
	}
}
