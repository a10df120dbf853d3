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
// protocols with an ALPN name and c.handler for all others. key distinguishes c from all other
// chains.
func (b *builder) addConnectionFilters(cl *compiledListener, c *compiledChain, byALPN map[string]network.Handler, key string) error {
	filters, err := b.buildConnectionFilters(c.config.ConnectionFilters, key)
	if err != nil || len(filters) == 0 {
		return err
	}
	c.handler = &filteredHandler{filters, cl.config.Name, c.handler}
	for name, h := range byALPN {
		byALPN[name] = &filteredHandler{filters, cl.config.Name, h}
	}
	return nil
}

func (b *builder) buildConnectionFilters(list []config.Filter, key string) (filters []filter.ConnectionFilter, err error) {
	err = b.eachConnectionFilter(list, key, func(factory *filter.ConnectionFilterFactory, cfg any, env filter.Env) error {
		if factory.New == nil {
			return nil // the filter only observes sessions
		}
		f, err := factory.New(cfg, env)
		filters = append(filters, f)
		return err
	})
	return filters, err
}

// buildSessionObservers builds the network filters of a chain that observe its sessions.
func (b *builder) buildSessionObservers(list []config.Filter, key string) (observers []filter.SessionObserver, err error) {
	err = b.eachConnectionFilter(list, key, func(factory *filter.ConnectionFilterFactory, cfg any, env filter.Env) error {
		if factory.NewObserver == nil {
			return nil // the filter does not observe sessions
		}
		observer, err := factory.NewObserver(cfg, env)
		observers = append(observers, observer)
		return err
	})
	return observers, err
}

func (b *builder) eachConnectionFilter(list []config.Filter, key string, build func(factory *filter.ConnectionFilterFactory, cfg any, env filter.Env) error) error {
	for i, f := range list {
		factory := b.findConnectionFilter(f.Name)
		if factory == nil {
			return fmt.Errorf("network filter %q is not supported by this build", f.Name)
		}
		err := build(factory, f.Config, filter.Env{
			Log:           b.server.o.Log.With("filter", f.Name),
			Metrics:       b.server.o.Metrics,
			ClusterClient: clusterClient{server: b.server},
			Key:           fmt.Sprintf("%s network %d", key, i),
		})
		if err != nil {
			return fmt.Errorf("network filter %q: %w", f.Name, err)
		}
	}
	return nil
}

func (b *builder) findConnectionFilter(name string) *filter.ConnectionFilterFactory {
	for i := range b.server.o.ConnectionFilters {
		if f := &b.server.o.ConnectionFilters[i]; f.Name == name {
			return f
		}
	}
	return nil
}

// ServeConn implements network.Handler. It closes a denied connection with ClosedDenied.
func (h *filteredHandler) ServeConn(ctx context.Context, conn *network.Conn) error {
	meta := stream.NewConnMeta(h.listener, conn)
	for _, admit := range h.filters {
		if err := admit(&meta); err != nil {
			conn.CloseReason = network.ClosedDenied
			return err
		}
	}
	return serve(ctx, conn, h.next, false)
}
