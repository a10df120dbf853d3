package proxy

import (
	"context"
	"slices"

	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/proxy/service"
	"github.com/weft-proxy/weft/pkg/router"
	"github.com/weft-proxy/weft/pkg/upstream"
)

// canApplyPart reports whether the clusters and route tables of d can change without the rest of
// the configuration. They cannot if the TLS settings of a cluster change or a new cluster has TLS
// settings, because the server, not the cluster, owns the credentials. Nor can they if a table of d
// is not in use yet or its on-demand settings change.
func (s *Server) canApplyPart(d config.Delta) bool {
	for _, next := range d.Clusters {
		c := s.clusters.Find(next.Name)
		if c == nil && (next.TLS != nil || len(next.AlternateTLS) > 0) || c != nil && !upstream.SameTLS(c.Config(), next) {
			return false
		}
	}
	for _, t := range d.Routes {
		if live := s.tables[t.Name]; live == nil || live.table.Config().OnDemand != t.OnDemand {
			return false
		}
	}
	return true
}

// applyPart applies a change of clusters and route tables. The caller holds s.applying.
func (s *Server) applyPart(ctx context.Context, d config.Delta) error {
	clusters, err := s.clusters.PrepareSome(d.Clusters)
	if err != nil {
		return err
	}
	routes, err := s.prepareTables(d.Routes)
	if err != nil {
		clusters.Rollback()
		return err
	}
	if err := s.warm(ctx, clusters); err != nil {
		routes.rollback()
		clusters.Rollback()
		return err
	}
	clusters.Commit()
	routes.activate()
	if len(d.Routes) > 0 {
		s.running.Store(withTables(s.running.Load(), d.Routes))
	}
	return nil
}

// tableChange is a change of live route tables that is ready to be activated.
type tableChange struct {
	live    []*liveTable
	next    []*router.Table // next[i] replaces the table of live[i]
	updates []*service.RouteUpdate
}

// prepareTables compiles the changed routes of live tables and composes their services.
func (s *Server) prepareTables(changed []*config.RouteTable) (c tableChange, err error) {
	defer func() {
		if err != nil {
			c.rollback()
		}
	}()
	b := &builder{server: s}
	for _, t := range changed {
		live := s.tables[t.Name]
		table, err := compileTable(live, t)
		if err != nil {
			return c, err
		}
		c.live, c.next = append(c.live, live), append(c.next, table)
		for _, r := range live.routers {
			update, err := b.prepareRoutes(r, table, live.metrics)
			if err != nil {
				return c, err
			}
			c.updates = append(c.updates, update)
		}
	}
	return c, nil
}

func (c *tableChange) activate() {
	for _, u := range c.updates {
		u.Activate()
	}
	for i, live := range c.live {
		live.table = c.next[i]
	}
}

func (c *tableChange) rollback() {
	for _, u := range c.updates {
		u.Rollback()
	}
}

// prepareRoutes prepares a change of r's routes to those of table.
func (b *builder) prepareRoutes(r *liveRouter, table *router.Table, recorder *metrics.Routes) (*service.RouteUpdate, error) {
	return r.Prepare(table, recorder, func(route *router.Route) (protocol.Service, error) {
		return b.buildRoute(r, route)
	})
}

// withTables returns c with the changed route tables in place of those with the same names.
func withTables(c *config.Snapshot, changed []*config.RouteTable) *config.Snapshot {
	next := *c
	next.Routes = slices.Clone(c.Routes)
	for _, t := range changed {
		for i, old := range next.Routes {
			if old.Name == t.Name {
				next.Routes[i] = t
			}
		}
	}
	return &next
}
