package xds

import (
	"context"
	"sync"

	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/pkg/xds/load"
)

// startLoadReports reports load until ctx ends, on a goroutine of group.
func (s *Source) startLoadReports(ctx context.Context, group *sync.WaitGroup) {
	r := s.newLoadReporter()
	if r == nil {
		return
	}
	group.Go(func() { r.Run(ctx) })
}

// newLoadReporter returns the load reporter of the bootstrap; nil if load is not reported.
func (s *Source) newLoadReporter() *load.Reporter {
	if s.boot.LRSCluster == "" || s.opts.NewLoadReporter == nil {
		return nil
	}
	r := &load.Reporter{
		Name: s.boot.LRSCluster, Dialer: s.newDialer(s.boot.LRSCluster), Node: s.boot.Node,
		Loads: s.opts.NewLoadReporter(), ServiceNames: s.edsServiceNames, OnReport: func() {}, Log: s.opts.Log,
	}
	if s.opts.Metrics != nil {
		r.OnReport = func() { s.opts.Metrics.Counter(metrics.XDSLoadReports, r.Name).Add(1) }
	}
	return r
}

// edsServiceNames returns the EDS service names of the active clusters, by cluster name. It omits
// clusters whose two names are equal.
func (s *Source) edsServiceNames() map[string]string {
	s.stack.Lock()
	defer s.stack.Unlock()
	names := map[string]string{}
	for name, c := range s.state.Clusters() {
		if c.Active != nil && c.Active.EDSServiceName != "" && c.Active.EDSServiceName != name {
			names[name] = c.Active.EDSServiceName
		}
	}
	return names
}
