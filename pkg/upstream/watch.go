package upstream

import (
	"log/slog"
	"sync"

	"github.com/weft-proxy/weft/pkg/config"
)

// watch brings what a discovery finds into a cluster. Until its change is
// committed it only remembers.
type watch struct {
	cluster *Cluster        // immutable
	config  *config.Cluster // immutable
	log     *slog.Logger    // immutable
	stop    func()          // immutable once newWatch has returned
	first   chan struct{}   // closed when the first attempt is over

	mu    sync.Mutex
	phase phase         // guarded by mu
	tried bool          // guarded by mu; first is closed
	known bool          // guarded by mu; hosts were found
	hosts []config.Host // guarded by mu; kept until goLive
}

// phase is how far a watch has come: prepared, then live, then over; a change
// that is rolled back leaves out live.
type phase uint8

const (
	prepared phase = iota
	live
	over
)

func newWatch(c *Cluster, cfg *config.Cluster, d Discovery, log *slog.Logger) *watch {
	w := &watch{cluster: c, config: cfg, log: log, first: make(chan struct{})}
	w.stop = d.Watch(cfg, w.update)
	return w
}

// update is what the discovery calls.
func (w *watch) update(hosts []config.Host, err error) {
	if err != nil {
		w.log.Warn("cluster hosts not found", logCluster, w.config.Name, logError, err)
	}
	retire(w.learn(hosts, err))
}

// learn takes in what the discovery says and returns the hosts that are gone.
func (w *watch) learn(hosts []config.Host, err error) (gone []*Host) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.tried {
		w.tried = true
		close(w.first)
	}
	switch {
	case err != nil || w.phase == over:
	case w.phase == live:
		return w.cluster.install(w.config, hosts)
	default:
		w.known, w.hosts = true, hosts
	}
	return nil
}

// goLive installs the cluster with the hosts that were found and returns those
// that are gone. If none were found yet, it goes on with the hosts that it had
// under the configuration before.
func (w *watch) goLive() (gone []*Host) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.known {
		w.hosts = w.cluster.entries(w.config.Type)
	}
	gone = w.cluster.install(w.config, w.hosts)
	w.phase, w.hosts = live, nil
	return gone
}

// end makes every later update have no effect.
func (w *watch) end() {
	w.mu.Lock()
	w.phase = over
	w.mu.Unlock()
	w.stop()
}

// entries returns the hosts that the cluster has now, if they mean the same to a
// discovery of that kind: they were found by one, or are the addresses that a cluster of
// names had before it had names.
func (c *Cluster) entries(kind config.ClusterType) []config.Host {
	s := c.state.Load()
	if s == nil || s.removed {
		return nil
	}
	if before := s.config.Type; before != kind && !(before == config.ClusterStatic && kind == config.ClusterStrictDNS) {
		return nil
	}
	entries := make([]config.Host, len(s.hosts))
	for i, h := range s.hosts {
		entries[i] = *h.Config()
	}
	return entries
}
