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
	// patience is how long a control plane may be silent at the start before what it
	// said to an earlier process is used.
	patience = 5 * time.Second
	// remindEvery is how often it is logged that this is so.
	remindEvery = time.Minute
	// saveAfter is how long changes are gathered before they are saved; saveLimit is
	// how long a configuration that is not complete yet is waited for.
	saveAfter = 2 * time.Second
	saveLimit = time.Minute
	// saveEvery is how often what has not changed is saved, so that its age is known.
	saveEvery = 10 * time.Minute
)

// memory is what a Source knows of its store. Guarded by the Source's work.
type memory struct {
	store    *store         // nil: nothing is kept
	jobs     chan *lastGood // of one place: what is to be saved
	answered map[string]bool
	changed  time.Time // since when there is something to save; zero: there is nothing
	saving   *time.Timer
	silence  *time.Timer
	tried    bool // what was saved was looked at
}

// Kept is what is told of the resources that are kept on disk.
type Kept struct {
	Path    string    `json:"path"`          // of the file; "": none are kept
	Said    time.Time `json:"said,omitzero"` // when the control plane said what is in the file
	InUse   bool      `json:"in_use"`        // for want of a control plane that answers
	Failure string    `json:"failure,omitempty"`
}

// Kept returns what is told of the resources that are kept on disk.
func (s *Source) Kept() Kept {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.kept
}

func (s *Source) noteKept(change func(k *Kept)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.kept)
}

// keep makes the memory of a Source.
func (s *Source) keep() {
	m := &s.memory
	m.saving, m.silence = time.NewTimer(time.Hour), time.NewTimer(time.Hour)
	m.saving.Stop()
	m.silence.Stop()
	c := s.o.Bootstrap.Cache
	if c.Path == "" {
		return
	}
	m.answered, m.jobs = map[string]bool{}, make(chan *lastGood, 1)
	m.store = &store{dir: c.Path, who: identity{s.boot.node.GetId(), s.boot.node.GetCluster(), s.boot.control}}
	s.kept.Path = m.store.path()
}

// keptTypes are the types of resources that are kept, those before that others of
// them refer to. Secrets are not among them.
func keptTypes() []string {
	return []string{resource.RuntimeType, resource.ClusterType, resource.ListenerType, resource.EndpointType, resource.RouteType, resource.DubboRouteType, resource.ExtensionType}
}

// saveAll saves what it is given until there is nothing more to come.
func (s *Source) saveAll() {
	for g := range s.memory.jobs {
		err := s.memory.store.save(g)
		if err != nil {
			s.o.Log.Error("cannot write the xDS cache", logPath, s.memory.store.path(), logError, err)
		}
		s.noteKept(func(k *Kept) {
			k.Failure = ""
			if err != nil {
				k.Failure = err.Error()
			} else {
				k.Said = g.said
			}
		})
	}
}

// beginMemory starts what saves; end returns when all is saved.
func (s *Source) beginMemory() (end func()) {
	if s.memory.store == nil {
		return func() {}
	}
	s.memory.silence.Reset(patience)
	var saving sync.WaitGroup
	saving.Go(s.saveAll)
	return func() {
		s.work.Lock()
		if !s.memory.changed.IsZero() && s.complete() {
			s.save()
		}
		s.work.Unlock()
		close(s.memory.jobs)
		saving.Wait()
	}
}

// heard notes that the control plane has answered with u.
func (s *Source) heard(u ads.Update) {
	m := &s.memory
	if m.store == nil {
		return
	}
	m.silence.Stop()
	m.tried = true
	m.answered[u.Type] = true
	s.noteKept(func(k *Kept) {
		if k.InUse {
			s.o.Log.Info("the control plane responds again: the xDS cache is no longer in use")
		}
		k.InUse = false
	})
	if m.changed.IsZero() && len(u.Changed)+len(u.Removed) > 0 {
		m.changed = time.Now()
		m.saving.Reset(saveAfter)
	}
}

// complete reports whether each type that is asked for has been answered.
func (s *Source) complete() bool {
	for _, url := range keptTypes() {
		all, names := s.feeds[0].client.Wanted(url)
		if (all || len(names) > 0) && !s.memory.answered[url] {
			return false
		}
	}
	return true
}

// saveNow saves what is held, if it is time for that.
func (s *Source) saveNow() {
	s.work.Lock()
	defer s.work.Unlock()
	m := &s.memory
	if !m.changed.IsZero() && !s.complete() && time.Since(m.changed) < saveLimit {
		m.saving.Reset(saveAfter)
		return
	}
	if !m.changed.IsZero() || s.feeds[0].isConnected() {
		s.save()
	}
	m.saving.Reset(saveEvery)
}

// save has what is held saved, but for what holds a key.
func (s *Source) save() {
	g := &lastGood{said: time.Now()}
	for _, url := range keptTypes() {
		held := s.feeds[0].client.Held(url)
		u := ads.Update{Type: url}
		for _, name := range slices.Sorted(maps.Keys(held)) {
			if !s.world.hasKey(url, name) {
				u.Changed = append(u.Changed, held[name])
			}
		}
		g.resources = append(g.resources, u)
	}
	s.memory.changed = time.Time{}
	select {
	case <-s.memory.jobs: // it is older
	default:
	}
	s.memory.jobs <- g
}

// silent uses what is kept when the control plane has been silent for too long, and
// says so again and again.
func (s *Source) silent(ctx context.Context) {
	s.work.Lock()
	defer s.work.Unlock()
	defer s.world.commit()
	if !s.memory.tried {
		s.memory.tried = true
		s.recall(ctx)
	}
	if k := s.Kept(); k.InUse {
		s.o.Log.Warn("the control plane does not respond: resources of the xDS cache are active, without secrets",
			logControl, s.feeds[0].name, logAge, time.Since(k.Said).Round(time.Second).String(), logPath, k.Path)
		s.memory.silence.Reset(remindEvery)
	}
}

// recall puts in force what is kept.
func (s *Source) recall(ctx context.Context) {
	now, f := time.Now(), s.feeds[0]
	g, err := s.memory.store.load(now, s.o.Bootstrap.Cache.MaxAge)
	if errors.Is(err, fs.ErrNotExist) {
		s.o.Log.Warn("the control plane does not respond, and there is no xDS cache", logControl, f.name)
		return
	}
	if err != nil {
		s.o.Log.Error("cannot use the xDS cache", logError, err)
		s.noteKept(func(k *Kept) { k.Failure = err.Error() })
		return
	}
	s.world.skipWarmup() // who keeps a configuration wants to serve by it at once
	for _, url := range keptTypes() {
		for _, u := range g.resources {
			if u.Type == url {
				s.recallType(ctx, f, u, now)
			}
		}
	}
	s.recount()
	s.noteKept(func(k *Kept) { k.Said, k.InUse = g.said, true })
	f.restart() // a stream that has begun does not know of what is held
}

// recallType puts the kept resources of a type in force. One that is not wanted, or
// that would be refused now, is not held.
func (s *Source) recallType(ctx context.Context, f *feed, u ads.Update, now time.Time) {
	s.rouseKept(u, now)
	all, names := f.client.Wanted(u.Type)
	if !all {
		wanted := set(names)
		u.Changed = slices.DeleteFunc(u.Changed, func(n ads.Resource) bool { return !wanted[n.Name] })
	}
	wrong := s.put(ctx, f, u, now)
	bad := map[string]bool{}
	for _, w := range wrong {
		bad[w.Name] = true
		s.o.Log.Warn("resource of the xDS cache rejected", logType, u.Type, logResource, w.Name, logReason, w.Reason)
	}
	for _, n := range u.Changed {
		if !bad[n.Name] {
			f.client.Keep(u.Type, n)
		}
	}
	s.trackKnown(f, u, wrong, now)
	if u.Type == resource.ListenerType {
		s.ask()
	}
}
