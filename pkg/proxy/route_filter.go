package proxy

import (
	"context"
	"fmt"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/filter"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// forRoute returns the filter for a route of p: with the listener's settings, with the route's own,
// or a filter that does nothing.
func (f *routeFilter) forRoute(p *config.Proxy, route *config.Route) (filter.Filter, error) {
	own, ok := route.Filters[f.name]
	switch {
	case own == config.FilterDisabled{}, !ok && f.disabled:
		return func(next protocol.Service) protocol.Service { return next }, nil
	case !ok, own == config.FilterEnabled{}, f.factory == nil:
		return f.shared, nil
	}
	env := f.env
	env.Key += fmt.Sprintf(" %q %q", p.RouteTable, route.Name)
	if f.factory.Inherit != nil {
		own = f.factory.Inherit(f.config, own)
	}
	return f.factory.New(own, env)
}

// addMissingConfig adds a placeholder for a filter whose settings are missing. It affects every
// exchange or, if the filter is off, only routes that enable it.
func addMissingConfig(f config.Filter, before []filter.Filter, after []routeFilter) ([]filter.Filter, []routeFilter) {
	stand := func(protocol.Service) protocol.Service { return missingConfigFilter(f.Name) }
	if f.Disabled {
		return before, append(after, routeFilter{name: f.Name, shared: stand, disabled: true})
	}
	return append(before, stand), after
}

// missingConfigFilter fails every exchange; its value is the name of a filter without settings.
type missingConfigFilter string

// Start implements protocol.Service.
func (u missingConfigFilter) Start(context.Context, *protocol.Exchange) error {
	return protocol.Faultf(protocol.Internal, "the configuration of filter %q was not received", string(u))
}
