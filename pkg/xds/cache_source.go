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
	// cacheFallbackDelay is how long a control plane may be silent at the start before what it
	// said to an earlier process is used.
	cacheFallbackDelay = 5 * time.Second
	// cacheReminderInterval is how often it is logged that this is so.
	cacheReminderInterval = time.Minute
	// saveDelay is how long changes are gathered before they are saved; maxSaveDelay is
	// how long a configuration that is not complete yet is waited for.
	saveDelay    = 2 * time.Second
	maxSaveDelay = time.Minute
	// saveInterval is how often what has not changed is saved, so that its age is known.
	saveInterval = 10 * time.Minute
)

// cacheWriter is what a Source knows of its store. Guarded by the Source's work.
type cacheWriter struct {
	file          *cacheFile         // nil: nothing is kept
	saves         chan *cachedConfig // of one place: what is to be saved
	received      map[string]bool
	dirtySince    time.Time // since when there is something to save; zero: there is nothing
	saveTimer     *time.Timer
	fallbackTimer *time.Timer
	loadAttempted bool // what was saved was looked at
}

// CacheStatus is what is told of the resources that are kept on disk.
type CacheStatus struct {
	Path       string    `json:"path"`          // of the file; "": none are kept
	ReceivedAt time.Time `json:"said,omitzero"` // when the control plane said what is in the file
	InUse      bool      `json:"in_use"`        // for want of a control plane that answers
	Failure    string    `json:"failure,omitempty"`
}

// CacheStatus returns what is told of the resources that are kept on disk.
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

// initCache makes the memory of a Source.
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
	m.file = &cacheFile{dir: c.Path, owner: cacheOwner{s.boot.node.GetId(), s.boot.node.GetCluster(), s.boot.adsCluster}}
	s.cacheStatus.Path = m.file.path()
}

// cachedTypes are the types of resources that are kept, those before that others of
// them refer to. Secrets are not among them.
func cachedTypes() []string {
	return []string{resource.RuntimeType, resource.ClusterType, resource.ListenerType, resource.EndpointType, resource.RouteType, resource.DubboRouteType, resource.ExtensionType}
}

// saveLoop saves what it is given until there is nothing more to come.
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

// startCache starts what saves; end returns when all is saved.
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

// noteResponse notes that the control plane has answered with u.
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

// allTypesReceived reports whether each type that is asked for has been answered.
func (s *Source) allTypesReceived() bool {
	for _, url := range cachedTypes() {
		all, names := s.channels[0].client.Subscription(url)
		if (all || len(names) > 0) && !s.cache.received[url] {
			return false
		}
	}
	return true
}

// saveIfDue saves what is held, if it is time for that.
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

// queueSave has what is held saved, but for what holds a key.
func (s *Source) queueSave() {
	g := &cachedConfig{receivedAt: time.Now()}
	for _, url := range cachedTypes() {
		held := s.channels[0].client.Resources(url)
		u := ads.Update{Type: url}
		for _, name := range slices.Sorted(maps.Keys(held)) {
			if !s.state.hasPrivateKey(url, name) {
				u.Changed = append(u.Changed, held[name])
			}
		}
		g.resources = append(g.resources, u)
	}
	s.cache.dirtySince = time.Time{}
	select {
	case <-s.cache.saves: // it is older
	default:
	}
	s.cache.saves <- g
}

// applyCacheIfSilent uses what is kept when the control plane has been silent for too long, and
// says so again and again.
func (s *Source) applyCacheIfSilent(ctx context.Context) {
	s.applyMu.Lock()
	defer s.applyMu.Unlock()
	defer s.state.commit()
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

// applyCache puts in force what is kept.
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
	s.state.skipWarmup() // who keeps a configuration wants to serve by it at once
	for _, url := range cachedTypes() {
		for _, u := range g.resources {
			if u.Type == url {
				s.applyCachedType(ctx, f, u, now)
			}
		}
	}
	s.updateResourceCounts()
	s.updateCacheStatus(func(k *CacheStatus) { k.ReceivedAt, k.InUse = g.receivedAt, true })
	f.reconnect() // a stream that has begun does not know of what is held
}

// applyCachedType puts the kept resources of a type in force. One that is not wanted, or
// that would be refused now, is not held.
func (s *Source) applyCachedType(ctx context.Context, f *xdsChannel, u ads.Update, now time.Time) {
	s.subscribeCached(u, now)
	all, names := f.client.Subscription(u.Type)
	if !all {
		wanted := newSet(names)
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
