package upstream

import (
	"log/slog"
	"sync"

	"github.com/weft-proxy/weft/pkg/config"
)

// watch passes the hosts that a discovery finds to a cluster. Until the change is committed, the
// watch only stores the hosts.
type watch struct {
	cluster *Cluster        // immutable
	config  *config.Cluster // immutable
	log     *slog.Logger    // immutable
	stop    func()          // immutable once newWatch has returned
	// firstResult is closed when the first discovery has succeeded or failed.
	firstResult chan struct{}

	mu         sync.Mutex
	phase      phase         // guarded by mu
	firstDone  bool          // guarded by mu; firstResult is closed
	hostsFound bool          // guarded by mu; hosts is a result of the discovery
	hosts      []config.Host // guarded by mu; kept until goLive
}

// phase is the state of a watch: prepared, then live, then ended. If the change is rolled back, a
// watch goes from prepared to ended.
type phase uint8

const (
	watchPrepared phase = iota
	watchLive
	watchEnded
)

func newWatch(c *Cluster, cfg *config.Cluster, d Discovery, log *slog.Logger) *watch {
	w := &watch{cluster: c, config: cfg, log: log, firstResult: make(chan struct{})}
	w.stop = d.Watch(cfg, w.update)
	return w
}

// update is the callback of the discovery.
func (w *watch) update(hosts []config.Host, err error) {
	if err != nil {
		w.log.Warn("cluster hosts not found", logCluster, w.config.Name, logError, err)
	}
	drainHosts(w.applyResult(hosts, err))
}

// applyResult applies a result of the discovery and returns the removed hosts.
func (w *watch) applyResult(hosts []config.Host, err error) (removed []*Host) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.firstDone {
		w.firstDone = true
		close(w.firstResult)
	}
	switch {
	case err != nil || w.phase == watchEnded:
	case w.phase == watchLive:
		return w.cluster.install(w.config, hosts)
	default:
		w.hostsFound, w.hosts = true, hosts
	}
	return nil
}

// goLive installs the cluster with the discovered hosts and returns the removed hosts. If the
// discovery has not succeeded yet, the cluster keeps the hosts that reusableHosts returns.
func (w *watch) goLive() (removed []*Host) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.hostsFound {
		w.hosts = w.cluster.reusableHosts(w.config.Type)
	}
	removed = w.cluster.install(w.config, w.hosts)
	w.phase, w.hosts = watchLive, nil
	return removed
}

// close ends the watch: it stops the discovery, and later updates have no effect.
func (w *watch) close() {
	w.mu.Lock()
	w.phase = watchEnded
	w.mu.Unlock()
	w.stop()
}

// reusableHosts returns the current hosts of the cluster if a cluster of clusterType can keep them:
// its type is unchanged, or a static cluster becomes a STRICT_DNS cluster.
func (c *Cluster) reusableHosts(clusterType config.ClusterType) []config.Host {
	s := c.state.Load()
	if s == nil || s.removed {
		return nil
	}
	if previous := s.config.Type; previous != clusterType && !(previous == config.ClusterStatic && clusterType == config.ClusterStrictDNS) {
		return nil
	}
	entries := make([]config.Host, len(s.hosts))
	for i, h := range s.hosts {
		entries[i] = *h.Config()
	}
	return entries
}
