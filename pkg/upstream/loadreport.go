package upstream

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
)

// LoadReporter reports the load of the hosts of clusters, from one report to the next. Reports are
// differences of counters that hosts maintain anyway, so exchanges cost nothing more. Each count is
// reported at most once. The next report includes hosts that have been removed from their cluster.
// One goroutine calls all methods except hostRemoved.
type LoadReporter struct {
	set *Set // immutable

	followAll  bool                 // all clusters are followed
	followed   map[string]time.Time // if not followAll: the followed clusters, and the time from which each is followed
	since      time.Time            // if followAll: time from which all clusters are followed
	lastReport time.Time            // time of the last report or SetClusters

	mu      sync.Mutex
	removed map[*Host]time.Time // guarded by mu; hosts removed from their cluster, and the time from which they have had nothing to report
}

// NewLoadReporter returns a LoadReporter for the set, which follows no cluster yet. The set records
// removed hosts only for the LoadReporter that was created last.
func (s *Set) NewLoadReporter() *LoadReporter {
	l := &LoadReporter{set: s, removed: map[*Host]time.Time{}}
	s.env.loadReporter.Store(l)
	return l
}

// Close stops the reporter: it no longer records removed hosts.
func (l *LoadReporter) Close() { l.set.env.loadReporter.CompareAndSwap(l, nil) }

// removedRetention is how long the reporter reads a removed host that has nothing to report: an
// exchange may have picked the host and not be counted yet.
const removedRetention = 10 * time.Second

// maxRemovedHosts bounds the removed hosts that a reporter keeps. The last counts of further
// removed hosts are not reported.
const maxRemovedHosts = 10_000

// LoadReport is the load since the last committed report.
type LoadReport struct {
	Clusters []ClusterLoad // followed clusters that are configured or have removed hosts, sorted by name

	reporter       *LoadReporter
	collectedAt    time.Time
	hostReports    []hostReport
	clusterReports []clusterReport
}

// ClusterLoad is the load of a cluster.
type ClusterLoad struct {
	Name     string
	Interval time.Duration     // the period that the counts cover
	Dropped  map[string]uint64 // exchanges by category of drop_overload; nil: none
	Rejected uint64            // exchanges rejected by circuit breakers
	Hosts    []HostLoad        // hosts with anything to report
}

// HostLoad is the load of a host. An attempt is an exchange, a forwarded connection or a UDP
// session.
type HostLoad struct {
	Address  string
	Priority uint32
	Locality config.Locality

	Issued    uint64 // attempts that began and that no limit of the cluster rejected
	Succeeded uint64 // attempts that succeeded
	Failed    uint64 // attempts without a response, with a 5xx or an equivalent gRPC status, or with an interrupted response
	InFlight  uint64 // attempts in flight now
}

// counts holds the counts of a host since it was added.
type counts struct{ issued, succeeded, failed uint64 }

// hostCounters holds the counters of a host as read at one moment.
type hostCounters struct{ attempts, inFlight, failures, limitFailures, canceled, badResponses uint64 }

// readCounters reads the host's counters. It reads attempts first, so that an attempt that has not
// ended is in flight or not counted.
func (h *Host) readCounters() hostCounters {
	s := hostCounters{attempts: h.attempts.Load()}
	s.inFlight = uint64(max(0, h.load.InFlight()+h.dialing.Load())) //nolint:gosec // not below 0
	s.failures, s.limitFailures, s.canceled, s.badResponses = h.failures.Load(), h.limitFailures.Load(), h.canceled.Load(), h.badResponses.Load()
	return s
}

// ended returns how many attempts have ended.
func (c *hostCounters) ended() uint64 { return saturatingSub(c.attempts, c.inFlight) }

// saturatingSub returns a-b, or 0 if that is negative.
func saturatingSub(a, b uint64) uint64 { return a - min(a, b) }

// completedCounts combines two readings of the same counters. It counts attempts as of the first
// reading and results as of the second: the result of an attempt is counted a moment after its end,
// so the first reading may miss it.
func completedCounts(first, second hostCounters) counts {
	failed := saturatingSub(second.failures, second.limitFailures) + second.badResponses
	return counts{
		issued:    saturatingSub(first.attempts, second.limitFailures),
		succeeded: saturatingSub(min(first.ended(), second.ended()), second.failures+second.canceled+second.badResponses),
		failed:    failed,
	}
}

// increaseOver returns the increase of c over the previous report, never negative.
func (c counts) increaseOver(previous *counts) counts {
	if previous == nil {
		return c
	}
	return counts{saturatingSub(c.issued, previous.issued), saturatingSub(c.succeeded, previous.succeeded), saturatingSub(c.failed, previous.failed)}
}

// hostReport is the part of a report about one host.
type hostReport struct {
	host         *Host
	firstReading hostCounters
	counts       counts // increase since the previous report
	removed      bool   // the host has left its cluster
}

// clusterCounts holds the reported counts of a cluster.
type clusterCounts struct {
	since    time.Time // time of the report
	dropped  map[string]uint64
	rejected uint64
}

type clusterReport struct {
	cluster *Cluster
	counts  clusterCounts
}

// minServerErrorStatus is the lowest status that counts as a failure of the host.
const minServerErrorStatus = 500

// followedSince returns the time from which a cluster is followed; ok is false if it is not.
func (l *LoadReporter) followedSince(name string) (since time.Time, ok bool) {
	if l.followAll {
		return l.since, true
	}
	since, ok = l.followed[name]
	return since, ok
}

// SetClusters sets the clusters to report from now on, whether or not they exist yet. It does not
// interrupt the reports of clusters that are followed already.
func (l *LoadReporter) SetClusters(all bool, names ...string) {
	l.set.changeMu.Lock()
	defer l.set.changeMu.Unlock()
	now := time.Now()
	l.lastReport = now
	followed := make(map[string]time.Time, len(names))
	for _, name := range names {
		followed[name] = now
		if since, ok := l.followedSince(name); ok {
			followed[name] = since
		}
	}
	old := &LoadReporter{followAll: l.followAll, followed: l.followed, since: l.since}
	if all && !l.followAll {
		l.since = now
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.followAll, l.followed = all, followed
	for _, c := range l.set.configuredClusters() {
		_, follows := l.followedSince(c.name)
		if _, followedBefore := old.followedSince(c.name); follows && !followedBefore {
			c.markReported(now)
		}
	}
	for h := range l.removed {
		_, follows := l.followedSince(h.cluster.name)
		if _, followedBefore := old.followedSince(h.cluster.name); !follows || !followedBefore {
			delete(l.removed, h)
		}
	}
}

// markReported marks everything counted until now as reported.
func (c *Cluster) markReported(now time.Time) {
	c.reportedCounts = &clusterCounts{since: now, dropped: c.DropOverloadCounts(), rejected: c.rejectedExchanges()}
	for _, h := range c.state.Load().currentHosts() {
		s := h.readCounters()
		counted := completedCounts(s, s)
		h.reportedCounts = &counted
	}
}

// hostRemoved records that a host has been removed from its cluster.
func (l *LoadReporter) hostRemoved(h *Host) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ok := l.followedSince(h.cluster.name); ok && len(l.removed) < maxRemovedHosts {
		l.removed[h] = time.Now()
	}
}

// Collect returns the load since the last committed report. Between its two readings it calls
// awaitResults, which waits some milliseconds until the results of attempts that have just ended
// are counted.
func (l *LoadReporter) Collect(awaitResults func()) *LoadReport {
	r := &LoadReport{reporter: l, collectedAt: time.Now()}
	hosts := l.readHosts(r)
	awaitResults()
	for i := range r.clusterReports {
		c := r.clusterReports[i].cluster
		previous := c.reportedCounts
		now := clusterCounts{r.collectedAt, c.DropOverloadCounts(), c.rejectedExchanges()}
		load := ClusterLoad{Name: c.name, Interval: r.collectedAt.Sub(previous.since), Rejected: saturatingSub(now.rejected, previous.rejected)}
		for category, n := range now.dropped {
			if dropped := saturatingSub(n, previous.dropped[category]); dropped > 0 {
				if load.Dropped == nil {
					load.Dropped = map[string]uint64{}
				}
				load.Dropped[category] = dropped
			}
		}
		r.clusterReports[i].counts = now
		for _, h := range hosts[c] {
			r.addHost(&load, h)
		}
		r.Clusters = append(r.Clusters, load)
	}
	l.lastReport = r.collectedAt
	return r
}

// readHosts reads the hosts of the followed clusters, and adds these clusters to r.
func (l *LoadReporter) readHosts(r *LoadReport) map[*Cluster][]hostReport {
	l.set.changeMu.Lock()
	defer l.set.changeMu.Unlock()
	hosts := map[*Cluster][]hostReport{}
	for _, c := range l.set.configuredClusters() {
		if !l.ensureFollowed(c, r.collectedAt) {
			continue
		}
		hosts[c] = nil
		for _, h := range c.state.Load().currentHosts() {
			if s := h.readCounters(); s.inFlight > 0 || completedCounts(s, s).increaseOver(h.reportedCounts) != (counts{}) {
				hosts[c] = append(hosts[c], hostReport{host: h, firstReading: s})
			}
		}
	}
	l.mu.Lock()
	for h := range l.removed {
		if c := h.cluster; l.ensureFollowed(c, r.collectedAt) {
			hosts[c] = append(hosts[c], hostReport{host: h, firstReading: h.readCounters(), removed: true})
		}
	}
	l.mu.Unlock()
	for _, c := range slices.SortedFunc(maps.Keys(hosts), func(a, b *Cluster) int { return cmp.Compare(a.name, b.name) }) {
		r.clusterReports = append(r.clusterReports, clusterReport{cluster: c})
	}
	return hosts
}

// ensureFollowed reports whether a cluster is followed, and initializes its reported counts.
func (l *LoadReporter) ensureFollowed(c *Cluster, now time.Time) bool {
	since, ok := l.followedSince(c.name)
	switch {
	case !ok:
		return false
	case c.reportedCounts == nil: // the cluster was added after SetClusters
		c.reportedCounts = &clusterCounts{since: l.lastReport}
	case c.reportedCounts.since.Before(since): // the cluster was unfollowed and followed again
		c.markReported(now)
	}
	return true
}

// addHost adds the load of a host.
func (r *LoadReport) addHost(cluster *ClusterLoad, h hostReport) {
	second := h.host.readCounters()
	h.counts = completedCounts(h.firstReading, second).increaseOver(h.host.reportedCounts)
	r.hostReports = append(r.hostReports, h)
	load := HostLoad{
		Address: h.host.address, Priority: h.host.Config().Priority, Locality: h.host.Config().Locality,
		Issued: h.counts.issued, Succeeded: h.counts.succeeded, Failed: h.counts.failed, InFlight: h.firstReading.inFlight,
	}
	if h.counts != (counts{}) || load.InFlight > 0 {
		cluster.Hosts = append(cluster.Hosts, load)
	}
}

// Commit marks the report as delivered. The next report repeats the content of a report that is not
// committed.
func (r *LoadReport) Commit() {
	for i := range r.clusterReports {
		r.clusterReports[i].cluster.reportedCounts = &r.clusterReports[i].counts
	}
	r.reporter.mu.Lock()
	defer r.reporter.mu.Unlock()
	for i := range r.hostReports {
		h := &r.hostReports[i]
		if h.removed {
			if h.counts != (counts{}) || h.firstReading.inFlight > 0 {
				r.reporter.removed[h.host] = r.collectedAt
			} else if r.collectedAt.Sub(r.reporter.removed[h.host]) > removedRetention {
				delete(r.reporter.removed, h.host)
			}
		}
		if h.host.reportedCounts == nil {
			h.host.reportedCounts = &counts{}
		}
		reported := h.host.reportedCounts
		reported.issued, reported.succeeded, reported.failed = reported.issued+h.counts.issued, reported.succeeded+h.counts.succeeded, reported.failed+h.counts.failed
	}
}
