package upstream

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// LoadReporter tells how much the hosts of clusters were asked, from one report to the next.
// Reports are differences of what hosts count anyway, so that exchanges cost nothing
// more, and each is told once: what a host had when it left the configuration is told
// later. All methods are one goroutine's.
type LoadReporter struct {
	set *Set // immutable

	all   bool                 // all clusters are followed
	names map[string]time.Time // or these, and since when
	since time.Time            // of all
	last  time.Time            // of the last report, or since when anything is followed

	mu   sync.Mutex
	left map[*Host]time.Time // guarded by mu; hosts that are gone, and since when they have had nothing to tell
}

// Loads returns what tells of the set's load. It follows no cluster yet. It ends what was
// returned before.
func (s *Set) Loads() *LoadReporter {
	l := &LoadReporter{set: s, left: map[*Host]time.Time{}}
	s.env.loads.Store(l)
	return l
}

// Close ends it: no host that leaves is noted any more.
func (l *LoadReporter) Close() { l.set.env.loads.CompareAndSwap(l, nil) }

// lingering is how long a host that has left is looked at though it has nothing to tell:
// an exchange may have chosen it, and be counted yet.
const lingering = 10 * time.Second

// mostLeft is how many hosts that have left are remembered: of more, while nobody is there
// to be told, what they had is not told any more.
const mostLeft = 10_000

// LoadReport is what was asked since the report before.
type LoadReport struct {
	Clusters []ClusterLoad // by name; those that are followed and there, and those with hosts that have left

	loads *LoadReporter
	at    time.Time
	told  []hostReport
	drops []clusterReport
}

// ClusterLoad is the load of a cluster.
type ClusterLoad struct {
	Name     string
	Interval time.Duration     // all that is reported was within
	Dropped  map[string]uint64 // exchanges, by category, of what discovery says is to be dropped; nil: none
	Refused  uint64            // exchanges, by circuit breakers
	Hosts    []HostLoad        // those with anything to tell
}

// HostLoad is the load of a host. An attempt is an exchange, a connection that carries
// bytes, or a session of datagrams.
type HostLoad struct {
	Address  string
	Priority uint32
	Locality config.Locality

	Issued    uint64 // attempts that began
	Succeeded uint64 // that have ended well
	Failed    uint64 // that brought no answer, or one that says that the host has failed: 5xx, and what is like it in gRPC
	InFlight  uint64 // now
}

// counts are those of a host since it came.
type counts struct{ issued, succeeded, failed uint64 }

// hostCounters is what a host counts at a moment, as it is read.
type hostCounters struct{ attempts, inFlight, failures, unsent, cancelled, bad uint64 }

// reading reads the host's counts. What has not ended is seen in flight, or not at all.
func (h *Host) reading() hostCounters {
	s := hostCounters{attempts: h.attempts.Load()}
	s.inFlight = uint64(max(0, h.load.InFlight()+h.dialing.Load())) //nolint:gosec // not below 0
	s.failures, s.unsent, s.cancelled, s.bad = h.failures.Load(), h.unsent.Load(), h.cancelled.Load(), h.bad.Load()
	return s
}

// ended is how many attempts have.
func (s *hostCounters) ended() uint64 { return less(s.attempts, s.inFlight) }

// less is a-b, and 0 below that.
func less(a, b uint64) uint64 { return a - min(a, b) }

// countsOf is what a host has counted for sure, of two readings: what had ended at both,
// and how as the later one has it. How an attempt went is counted a moment after it
// has ended: at the first reading it may be missing yet.
func countsOf(first, second hostCounters) counts {
	bad := less(second.failures, second.unsent) + second.bad
	return counts{
		issued:    less(first.attempts, second.unsent),
		succeeded: less(min(first.ended(), second.ended()), second.failures+second.cancelled+second.bad),
		failed:    bad,
	}
}

// since is what is more in c than in what was told before; nothing is less.
func (c counts) since(told *counts) counts {
	if told == nil {
		return c
	}
	return counts{less(c.issued, told.issued), less(c.succeeded, told.succeeded), less(c.failed, told.failed)}
}

// hostReport is what will have been told of a host.
type hostReport struct {
	host   *Host
	first  hostCounters
	counts counts // more than before
	left   bool   // the configuration
}

// clusterCounts are those that were told of a cluster.
type clusterCounts struct {
	since   time.Time // when they were
	dropped map[string]uint64
	refused uint64
}

type clusterReport struct {
	cluster *Cluster
	counts  clusterCounts
}

// serverFailed is the first status that says that the host has failed.
const serverFailed = 500

// isBad reports whether an answer that was good by its head, or is none of those, shows
// in the end that the host has failed. One that was bad by its head was counted then.
func (e *attemptOutcome) isBad() bool {
	if e.answer == 0 || e.answer >= serverFailed {
		return false
	}
	if e.reason == protocol.ReasonNone {
		return e.code > 0 && e.protocol == string(config.HTTP2) && statusOfGRPC(e.code) >= serverFailed
	}
	return isLocal(e.reason)
}

// followed returns since when a cluster is; ok is false if it is not.
func (l *LoadReporter) followed(name string) (since time.Time, ok bool) {
	if l.all {
		return l.since, true
	}
	since, ok = l.names[name]
	return since, ok
}

// SetClusters says which clusters are reported from now on, whether there are any of these
// names yet or not. Those that were before go on where they were.
func (l *LoadReporter) SetClusters(all bool, names ...string) {
	l.set.changes.Lock()
	defer l.set.changes.Unlock()
	now := time.Now()
	l.last = now
	next := make(map[string]time.Time, len(names))
	for _, n := range names {
		next[n] = now
		if since, ok := l.followed(n); ok {
			next[n] = since
		}
	}
	old := &LoadReporter{all: l.all, names: l.names, since: l.since}
	if all && !l.all {
		l.since = now
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all, l.names = all, next
	for _, c := range l.set.list() {
		_, is := l.followed(c.name)
		if _, was := old.followed(c.name); is && !was {
			c.beginLoad(now)
		}
	}
	for h := range l.left {
		_, is := l.followed(h.cluster.name)
		if _, was := old.followed(h.cluster.name); !is || !was {
			delete(l.left, h)
		}
	}
}

// beginLoad makes what is counted until now what was told.
func (c *Cluster) beginLoad(now time.Time) {
	c.told = &clusterCounts{since: now, dropped: c.DropOverloadCounts(), refused: c.refusals.Load()}
	for _, h := range c.state.Load().members() {
		s := h.reading()
		n := countsOf(s, s)
		h.told = &n
	}
}

// leaves notes that a host has left the configuration.
func (l *LoadReporter) leaves(h *Host) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ok := l.followed(h.cluster.name); ok && len(l.left) < mostLeft {
		l.left[h] = time.Now()
	}
}

// Collect returns what was asked since the last report that was told. settle is called
// meanwhile: it waits until what has just ended is sure to be counted as what it was,
// some milliseconds.
func (l *LoadReporter) Collect(settle func()) *LoadReport {
	r := &LoadReport{loads: l, at: time.Now()}
	hosts := l.look(r)
	settle()
	for i := range r.drops {
		c := r.drops[i].cluster
		told := c.told
		now := clusterCounts{r.at, c.DropOverloadCounts(), c.refusals.Load()}
		one := ClusterLoad{Name: c.name, Interval: r.at.Sub(told.since), Refused: less(now.refused, told.refused)}
		for category, n := range now.dropped {
			if more := less(n, told.dropped[category]); more > 0 {
				if one.Dropped == nil {
					one.Dropped = map[string]uint64{}
				}
				one.Dropped[category] = more
			}
		}
		r.drops[i].counts = now
		for _, h := range hosts[c] {
			r.host(&one, h)
		}
		r.Clusters = append(r.Clusters, one)
	}
	l.last = r.at
	return r
}

// look reads the hosts of the clusters that are followed, and begins the part of r that
// is the clusters'.
func (l *LoadReporter) look(r *LoadReport) map[*Cluster][]hostReport {
	l.set.changes.Lock()
	defer l.set.changes.Unlock()
	hosts := map[*Cluster][]hostReport{}
	for _, c := range l.set.list() {
		if !l.includes(c, r.at) {
			continue
		}
		hosts[c] = nil
		for _, h := range c.state.Load().members() {
			if s := h.reading(); s.inFlight > 0 || countsOf(s, s).since(h.told) != (counts{}) {
				hosts[c] = append(hosts[c], hostReport{host: h, first: s})
			}
		}
	}
	l.mu.Lock()
	for h := range l.left {
		if c := h.cluster; l.includes(c, r.at) {
			hosts[c] = append(hosts[c], hostReport{host: h, first: h.reading(), left: true})
		}
	}
	l.mu.Unlock()
	for _, c := range slices.SortedFunc(maps.Keys(hosts), func(a, b *Cluster) int { return cmp.Compare(a.name, b.name) }) {
		r.drops = append(r.drops, clusterReport{cluster: c})
	}
	return hosts
}

// includes reports whether a cluster is followed, and sees to it that it is known what was
// told of it.
func (l *LoadReporter) includes(c *Cluster, now time.Time) bool {
	since, ok := l.followed(c.name)
	switch {
	case !ok:
		return false
	case c.told == nil: // it has come since
		c.told = &clusterCounts{since: l.last}
	case c.told.since.Before(since): // it was followed, and not, and has come back
		c.beginLoad(now)
	}
	return true
}

// host adds what is to be told of a host.
func (r *LoadReport) host(to *ClusterLoad, h hostReport) {
	second := h.host.reading()
	h.counts = countsOf(h.first, second).since(h.host.told)
	r.told = append(r.told, h)
	one := HostLoad{
		Address: h.host.address, Priority: h.host.Config().Priority, Locality: h.host.Config().Locality,
		Issued: h.counts.issued, Succeeded: h.counts.succeeded, Failed: h.counts.failed, InFlight: h.first.inFlight,
	}
	if h.counts != (counts{}) || one.InFlight > 0 {
		to.Hosts = append(to.Hosts, one)
	}
}

// Commit says that the report has reached who asked for it. What is in a report that is
// dropped instead is in the next one again.
func (r *LoadReport) Commit() {
	for i := range r.drops {
		r.drops[i].cluster.told = &r.drops[i].counts
	}
	r.loads.mu.Lock()
	defer r.loads.mu.Unlock()
	for i := range r.told {
		h := &r.told[i]
		if h.left {
			if h.counts != (counts{}) || h.first.inFlight > 0 {
				r.loads.left[h.host] = r.at
			} else if r.at.Sub(r.loads.left[h.host]) > lingering {
				delete(r.loads.left, h.host)
			}
		}
		if h.host.told == nil {
			h.host.told = &counts{}
		}
		t := h.host.told
		t.issued, t.succeeded, t.failed = t.issued+h.counts.issued, t.succeeded+h.counts.succeeded, t.failed+h.counts.failed
	}
}
