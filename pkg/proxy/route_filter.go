package proxy

import (
	"cmp"
	"context"
	"fmt"
	"reflect"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/filter"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// forRoute returns the filter for a route of p: with the listener's settings, with the route's
// settings, or a filter that does nothing.
func (f *routeFilter) forRoute(p *config.Proxy, route *config.Route) (filter.Filter, error) {
	cfg, ok := route.Filters[f.routeKey]
	switch {
	case cfg == config.FilterDisabled{}, !ok && f.disabled:
		return func(next protocol.Service) protocol.Service { return next }, nil
	case !ok, cfg == config.FilterEnabled{}, f.factory == nil, reflect.TypeOf(cfg) != reflect.TypeOf(f.config):
		return f.defaultFilter, nil
	}
	env := f.env
	env.Key += fmt.Sprintf(" %q %q", p.RouteTable, route.Name)
	if f.factory.Inherit != nil {
		cfg = f.factory.Inherit(f.config, cfg)
	}
	return f.factory.New(cfg, env)
}

// addMissingConfig adds a placeholder for a filter whose settings are missing. The placeholder
// fails every exchange or, if the filter is disabled, only those of routes that enable it.
func addMissingConfig(f config.Filter, beforeRoute []filter.Filter, inRoute []routeFilter) ([]filter.Filter, []routeFilter) {
	placeholder := func(protocol.Service) protocol.Service { return missingConfigFilter(f.Name) }
	if f.Disabled {
		return beforeRoute, append(inRoute, routeFilter{name: f.Name, routeKey: cmp.Or(f.RouteKey, f.Name), defaultFilter: placeholder, disabled: true})
	}
	return append(beforeRoute, placeholder), inRoute
}

// missingConfigFilter fails every exchange; its value is the name of a filter without settings.
type missingConfigFilter string

// Start implements protocol.Service.
func (f missingConfigFilter) Start(context.Context, *protocol.Exchange) error {
	return protocol.Faultf(protocol.Internal, "the configuration of filter %q was not received", string(f))
}
