package xds

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/pkg/xds/ads"
	"github.com/weft-proxy/weft/pkg/xds/resource"
)

// OnDemand is where exchanges come for what is left with the control plane until it is
// used. Safe for concurrent use.
type OnDemand interface {
	// Requested receives when Take may have something.
	Requested() <-chan struct{}
	// TakeRequested returns the names of what was asked for since it was called last.
	TakeRequested() []string
	// Used reports whether what has a name is being used, or was since this was called
	// last.
	Used(name string) bool
}

// sweepsPerIdle is how often it is looked, in the time after which something is dropped,
// whether it is used.
const sweepsPerIdle = 4

// naps is what a Source needs to leave resources with the control plane. The zero value
// leaves nothing there.
type naps struct {
	clusters, tables <-chan struct{} // immutable; receive when some were asked for
	sweep            *time.Timer     // set while something is awake
	sweeping         bool            // it is set; guarded by the Source's work

	asleepClusters, asleepTables atomic.Int64 // for metrics
}

// beginNaps has the Source leave with the control plane what its bootstrap says.
func (s *Source) beginNaps() {
	n := &s.naps
	n.sweep = time.NewTimer(time.Hour)
	n.sweep.Stop()
	if s.world.lazy = newLazy(s.o.Bootstrap.Lazy); s.world.lazy != nil {
		n.clusters, n.tables = s.o.Clusters.Requested(), s.o.Tables.Requested()
	}
	if s.o.Metrics != nil {
		s.o.Metrics.Func(metrics.XDSAsleep, func() float64 { return float64(n.asleepClusters.Load()) }, "cluster")
		s.o.Metrics.Func(metrics.XDSAsleep, func() float64 { return float64(n.asleepTables.Load()) }, "route")
	}
}

// countAsleep has the numbers of those that are asleep be right again; tables: other tables
// may be than before. s.work is held.
func (s *Source) countAsleep(tables bool) {
	if s.world.lazy == nil {
		return
	}
	s.naps.asleepClusters.Store(int64(s.world.references.asleep))
	if tables {
		s.naps.asleepTables.Store(int64(len(s.world.asleepTables())))
	}
}

// rouse asks for what exchanges have come for.
func (s *Source) rouse(ctx context.Context) {
	s.work.Lock()
	defer s.work.Unlock()
	defer s.world.commit()
	now := time.Now()
	s.world.mark()
	began := false
	for _, name := range s.o.Clusters.TakeRequested() {
		began = s.world.wakeCluster(name, now) || began
	}
	for _, name := range s.o.Tables.TakeRequested() {
		began = s.world.wakeTable(name, now) || began
	}
	if began {
		s.settleNaps(ctx)
		s.sweepLater()
	}
}

// doze drops what nobody has used for long enough.
func (s *Source) doze(ctx context.Context) {
	s.work.Lock()
	defer s.work.Unlock()
	defer s.world.commit()
	s.naps.sweeping = false
	now, l := time.Now(), s.world.lazy
	s.world.mark()
	clusters := l.clusters.unused(s.o.Clusters.Used, now, l.Idle)
	for _, name := range clusters {
		s.world.sleepCluster(name)
	}
	tables := l.tables.unused(s.o.Tables.Used, now, l.Idle)
	for _, name := range tables {
		s.world.sleepTable(name)
	}
	if len(clusters)+len(tables) > 0 {
		s.settleNaps(ctx)
	}
	s.sweepLater()
}

// unused are those that were not used for a time.
func (f *wakeful) unused(used func(name string) bool, now time.Time, idle time.Duration) (names []string) {
	for name, one := range f.all {
		switch {
		case used(name):
			one.used = now
		case now.Sub(one.used) >= idle:
			names = append(names, name)
		}
	}
	return names
}

// sweepLater has doze called, if anything is awake. s.work is held.
func (s *Source) sweepLater() {
	l := s.world.lazy
	if s.naps.sweeping || len(l.clusters.all)+len(l.tables.all) == 0 {
		return
	}
	s.naps.sweeping = true
	s.naps.sweep.Reset(l.Idle / sweepsPerIdle)
}

// settleNaps puts in force who is asleep and who is not, and then asks for what is wanted
// now, so that nobody is without hosts who thinks that they are there.
func (s *Source) settleNaps(ctx context.Context) {
	s.settleLate(ctx)
	s.ask()
	s.recount()
}

// rouseKept asks for what has been kept on disk: that was in use. s.work is held.
func (s *Source) rouseKept(u ads.Update, now time.Time) {
	if s.world.lazy == nil {
		return
	}
	kept := map[string]bool{}
	for _, n := range u.Changed {
		kept[n.Name] = true
	}
	switch u.Type {
	case resource.EndpointType:
		for name, c := range s.world.clusters {
			if c.last != nil && kept[c.last.Endpoints] {
				s.world.wakeCluster(name, now)
			}
		}
	case resource.RouteType:
		for name := range kept {
			s.world.wakeTable(name, now)
		}
	case resource.DubboRouteType:
		for name := range kept {
			s.world.wakeTable(resource.DubboTable(name), now)
		}
	}
	s.ask()
	s.sweepLater()
}
