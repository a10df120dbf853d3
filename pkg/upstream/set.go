package upstream

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"weak"

	"github.com/weft-proxy/weft/internal/demand"
	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/upstream/health"
	"github.com/weft-proxy/weft/pkg/upstream/tasks"
)

// Set holds the clusters of the process by name.
type Set struct {
	env env // immutable

	changeMu sync.Mutex // held by Commit, DrainRemoved, and a LoadReporter that reads hosts

	mu              sync.RWMutex
	configured      map[string]*Cluster              // guarded by mu
	placeholders    map[string]weak.Pointer[Cluster] // guarded by mu; not configured, but possibly referred to
	pendingRemovals map[*Cluster]*Change             // guarded by mu; removed clusters, and the change that drains them
	watches         map[*Cluster]*watch              // guarded by mu; of clusters with discovery
	changing        bool                             // guarded by mu; a Change is open
}

// NewSet returns a set without clusters.
func NewSet(o Options) *Set {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	s := &Set{
		env:             env{Options: o, tasks: tasks.New(o.Log), hostRequests: demand.NewRequestQueue()},
		configured:      make(map[string]*Cluster),
		placeholders:    make(map[string]weak.Pointer[Cluster]),
		pendingRemovals: make(map[*Cluster]*Change),
		watches:         make(map[*Cluster]*watch),
	}
	s.env.findOrCreate = s.Get
	s.env.checks = health.NewScheduler(func(p *protocol.PanicError) { p.Log(o.Log, "checking a host") })
	return s
}

// Get returns the Cluster of a name that the configuration mentions. If the cluster is not
// configured, Get returns a placeholder. For a name from a request use Find, which creates none.
func (s *Set) Get(name string) *Cluster {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.configured[name]; c != nil {
		return c
	}
	return s.placeholder(name)
}

// placeholder returns the Cluster of a name that is not configured. The caller holds s.mu.
func (s *Set) placeholder(name string) *Cluster {
	if c := s.placeholders[name].Value(); c != nil {
		return c
	}
	c := &Cluster{name: name, env: &s.env}
	c.initBreakers()
	s.placeholders[name] = weak.Make(c)
	return c
}

// Find returns a configured cluster, or nil if there is none of that name.
func (s *Set) Find(name string) *Cluster {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.configured[name]
}

// Change adds, changes and removes clusters of a Set when it is committed. Its methods must not be
// called concurrently. It ends with the first call of Commit or Rollback; later calls do nothing,
// so that Rollback can be deferred.
type Change struct {
	set     *Set
	edits   []edit
	removed []*Cluster
	ended   bool // Commit or Rollback was called

	committed bool // Commit applied the change
}

// edit is a cluster that is new or has changed.
type edit struct {
	cluster *Cluster
	config  *config.Cluster
	watch   *watch // nil if the cluster has no discovery
}

// Prepare validates clusters and begins to discover the hosts of those that are new or have
// changed; it does not affect active clusters. An error names every rejected cluster. No other
// change can be prepared until this one ends.
//
// The set keeps the values that clusters points to: the caller must not change them afterwards.
func (s *Set) Prepare(clusters []*config.Cluster) (*Change, error) {
	return s.prepare(clusters, true)
}

// PrepareSome is like Prepare, but clusters that are not in the list stay configured. Its cost does
// not grow with their number.
func (s *Set) PrepareSome(clusters []*config.Cluster) (*Change, error) {
	return s.prepare(clusters, false)
}

// Check returns the error that Prepare would return, and changes nothing.
func (s *Set) Check(clusters []*config.Cluster) error {
	change, err := s.diff(clusters, true)
	if err != nil {
		return err
	}
	change.Rollback()
	return nil
}

// prepare implements Prepare and PrepareSome. If complete is true, it removes the configured
// clusters that are not in the list.
func (s *Set) prepare(clusters []*config.Cluster, complete bool) (*Change, error) {
	change, err := s.diff(clusters, complete)
	if err != nil {
		return nil, err
	}
	for i := range change.edits {
		e := &change.edits[i]
		if d := s.env.Discoveries[e.config.Type]; d != nil {
			e.watch = newWatch(e.cluster, e.config, d, s.env.Log)
		}
	}
	return change, nil
}

// diff validates clusters and opens a Change with those that are new, changed or removed.
func (s *Set) diff(clusters []*config.Cluster, complete bool) (*Change, error) {
	var errs []error
	names := make(map[string]struct{}, len(clusters))
	change := &Change{set: s}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.changing {
		return nil, errChangeOpen
	}
	for _, cfg := range clusters {
		if _, duplicate := names[cfg.Name]; duplicate {
			errs = append(errs, fmt.Errorf("cluster %s is configured twice", cfg.Name))
			continue
		}
		names[cfg.Name] = struct{}{}
		c := s.configured[cfg.Name]
		if c != nil && sameCluster(c.lastConfig(), cfg) {
			continue
		}
		if err := s.env.validate(cfg); err != nil {
			errs = append(errs, err)
			continue
		}
		if c == nil {
			c = s.placeholder(cfg.Name) // the edit below keeps it alive
		}
		change.edits = append(change.edits, edit{cluster: c, config: cfg})
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	if complete {
		change.removed = s.unlistedClusters(names)
	}
	s.changing = true
	return change, nil
}

// unlistedClusters returns the configured clusters that are not among names. The caller holds s.mu.
func (s *Set) unlistedClusters(names map[string]struct{}) (clusters []*Cluster) {
	for name, c := range s.configured {
		if _, listed := names[name]; !listed {
			clusters = append(clusters, c)
		}
	}
	return clusters
}

// Warm waits until the first discovery of hosts has succeeded or failed for every cluster with
// discovery in the change. If ctx ends first, Warm returns an error; the change can still be
// committed.
func (c *Change) Warm(ctx context.Context) error {
	for i := range c.edits {
		w := c.edits[i].watch
		if w == nil {
			continue
		}
		select {
		case <-w.firstResult:
		case <-ctx.Done():
			return fmt.Errorf("cluster %s: waiting for its hosts: %w", c.edits[i].config.Name, context.Cause(ctx))
		}
	}
	return nil
}

// Commit applies the change: it replaces clusters one by one. Exchanges in flight stay at their
// hosts; their retries use the new state. Removed clusters keep serving routes that refer to them
// until DrainRemoved.
func (c *Change) Commit() {
	if c.ended {
		return
	}
	c.ended = true
	c.set.changeMu.Lock()
	defer c.set.changeMu.Unlock()
	for i := range c.edits {
		e := &c.edits[i]
		c.set.stopWatch(e.cluster)
		if e.watch != nil {
			drainHosts(e.watch.goLive())
		} else {
			drainHosts(e.cluster.install(e.config, e.config.Hosts))
		}
	}
	c.set.recordConfigured(c)
	c.committed = true
}

// DrainRemoved drains the clusters that a committed change removed; later exchanges get NoCluster.
// The caller calls it when the previous routes are no longer used. A cluster that was configured
// again stays; if it was removed once more, the later change drains it. DrainRemoved may be called
// on another goroutine than Commit, and after the Commit of later changes.
func (c *Change) DrainRemoved() {
	if !c.committed {
		return
	}
	c.set.changeMu.Lock()
	defer c.set.changeMu.Unlock()
	for _, removed := range c.removed {
		if c.set.takePendingRemoval(removed, c) {
			c.set.stopWatch(removed)
			drainHosts(removed.remove())
		}
	}
}

// Rollback drops the change; the set is unchanged.
func (c *Change) Rollback() {
	if c.ended {
		return
	}
	c.ended = true
	for i := range c.edits {
		if w := c.edits[i].watch; w != nil {
			w.close()
		}
	}
	c.set.mu.Lock()
	defer c.set.mu.Unlock()
	c.set.changing = false
}

// takePendingRemoval reports whether change removed the cluster and no later change configured it
// again. It returns true only once, so that the cluster is drained once.
func (s *Set) takePendingRemoval(c *Cluster, change *Change) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pendingRemovals[c] != change {
		return false
	}
	delete(s.pendingRemovals, c)
	return true
}

// stopWatch stops the discovery of a cluster's hosts.
func (s *Set) stopWatch(c *Cluster) {
	s.mu.Lock()
	w := s.watches[c]
	delete(s.watches, c)
	s.mu.Unlock()
	if w != nil {
		w.close()
	}
}

// recordConfigured records the configured clusters after a change.
func (s *Set) recordConfigured(change *Change) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range change.edits {
		e := &change.edits[i]
		s.configured[e.config.Name] = e.cluster
		delete(s.placeholders, e.config.Name)
		delete(s.pendingRemovals, e.cluster)
		if e.watch != nil {
			s.watches[e.cluster] = e.watch
		}
	}
	for _, removed := range change.removed {
		delete(s.configured, removed.name)
		s.placeholders[removed.name] = weak.Make(removed)
		s.pendingRemovals[removed] = change
	}
	for name, ref := range s.placeholders {
		if ref.Value() == nil {
			delete(s.placeholders, name)
		}
	}
	s.changing = false
}

// Close takes every cluster out of service: it closes idle connections immediately, and connections
// in use when their exchange ends. It returns when no timer or goroutine of the set is left. The
// caller calls it once, after the last change and its DrainRemoved.
func (s *Set) Close() {
	s.mu.Lock()
	clusters := make([]*Cluster, 0, len(s.configured))
	for _, c := range s.configured {
		clusters = append(clusters, c)
	}
	clear(s.configured)
	s.mu.Unlock()
	for _, c := range clusters {
		s.stopWatch(c)
		drainHosts(c.remove())
	}
	s.env.close()
}
