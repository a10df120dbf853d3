package proxy

import (
	"context"
	"fmt"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/filter"
	"github.com/weft-proxy/weft/pkg/network"
	"github.com/weft-proxy/weft/pkg/stream"
)

// filteredHandler is a handler behind connection filters. next gets a connection only after all
// filters have allowed it. Immutable.
type filteredHandler struct {
	filters  []filter.ConnectionFilter
	listener string
	next     network.Handler
}

// addConnectionFilters puts the connection filters of c in front of its handlers: byALPN for
// protocols with an ALPN name and c.handler for the rest. place distinguishes c from all other
// chains.
func (b *builder) addConnectionFilters(e *compiledListener, c *compiledChain, byALPN map[string]network.Handler, place string) error {
	gates, err := b.buildConnectionFilters(c.config.ConnectionFilters, place)
	if err != nil || len(gates) == 0 {
		return err
	}
	c.handler = &filteredHandler{gates, e.config.Name, c.handler}
	for name, h := range byALPN {
		byALPN[name] = &filteredHandler{gates, e.config.Name, h}
	}
	return nil
}

func (b *builder) buildConnectionFilters(list []config.Filter, place string) (gates []filter.ConnectionFilter, err error) {
	err = b.eachConnectionFilter(list, place, func(kind *filter.ConnectionFilterFactory, cfg any, env filter.Env) error {
		if kind.New == nil {
			return nil // the filter only observes sessions
		}
		made, err := kind.New(cfg, env)
		gates = append(gates, made)
		return err
	})
	return gates, err
}

// buildSessionObservers builds the network filters of a chain that observe its sessions.
func (b *builder) buildSessionObservers(list []config.Filter, place string) (watchers []filter.SessionObserver, err error) {
	err = b.eachConnectionFilter(list, place, func(kind *filter.ConnectionFilterFactory, cfg any, env filter.Env) error {
		if kind.NewObserver == nil {
			return nil // the filter does not observe sessions
		}
		made, err := kind.NewObserver(cfg, env)
		watchers = append(watchers, made)
		return err
	})
	return watchers, err
}

func (b *builder) eachConnectionFilter(list []config.Filter, place string, build func(kind *filter.ConnectionFilterFactory, cfg any, env filter.Env) error) error {
	for i, f := range list {
		kind := b.findConnectionFilter(f.Name)
		if kind == nil {
			return fmt.Errorf("network filter %q is not supported by this build", f.Name)
		}
		err := build(kind, f.Config, filter.Env{
			Log:           b.server.o.Log.With("filter", f.Name),
			Metrics:       b.server.o.Metrics,
			ClusterClient: clusterClient{b.server},
			Key:           fmt.Sprintf("%s network %d", place, i),
		})
		if err != nil {
			return fmt.Errorf("network filter %q: %w", f.Name, err)
		}
	}
	return nil
}

func (b *builder) findConnectionFilter(name string) *filter.ConnectionFilterFactory {
	for i := range b.server.o.ConnectionFilters {
		if k := &b.server.o.ConnectionFilters[i]; k.Name == name {
			return k
		}
	}
	return nil
}

// ServeConn implements network.Handler. It closes a denied connection with ClosedDenied.
func (g *filteredHandler) ServeConn(ctx context.Context, conn *network.Conn) error {
	known := stream.NewConnMeta(g.listener, conn)
	for _, admit := range g.filters {
		if err := admit(&known); err != nil {
			conn.CloseReason = network.ClosedDenied
			return err
		}
	}
	return serve(ctx, conn, g.next, false)
}
