package proxy

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
	"slices"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/filter"
	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/proxy/service"
)

// addRouteFilters puts the filters of a route of p in front of next. A weighted cluster with settings
// of its own has its own chain of filters.
func addRouteFilters(next protocol.Service, p *config.Proxy, route *config.Route, filters []routeFilter) (protocol.Service, error) {
	s, err := buildRouteFilters(next, p, route.Name, route.Filters, filters)
	if err != nil || route.Forward == nil || !slices.ContainsFunc(route.Forward.WeightedClusters, func(w config.WeightedCluster) bool { return w.Extra().Filters != nil }) {
		return s, err
	}
	byCluster := make(service.WeightedClusters, len(route.Forward.WeightedClusters))
	for i, w := range route.Forward.WeightedClusters {
		settings := w.Extra().Filters
		if byCluster[i] = s; settings == nil {
			continue
		}
		if byCluster[i], err = buildRouteFilters(next, p, fmt.Sprintf("%s %d", route.Name, i), settings, filters); err != nil {
			return nil, fmt.Errorf("weighted cluster %d: %w", i, err)
		}
	}
	return byCluster, nil
}

// buildRouteFilters puts filters in front of next. settings are those of the route; key distinguishes
// them from other settings of the proxy.
func buildRouteFilters(next protocol.Service, p *config.Proxy, key string, settings map[string]any, filters []routeFilter) (protocol.Service, error) {
	for _, f := range slices.Backward(filters) {
		streamFilter, err := f.forRoute(p, key, settings)
		if err != nil {
			return nil, fmt.Errorf("per_filter_config %q: %w", f.name, err)
		}
		next = streamFilter(next)
	}
	return next, nil
}

// forRoute returns the filter for a route of p: with the listener's settings, with the route's
// settings, or a filter that does nothing. key distinguishes the settings from others of p.
func (f *routeFilter) forRoute(p *config.Proxy, key string, settings map[string]any) (filter.Filter, error) {
	cfg, ok := settings[f.routeKey]
	switch {
	case cfg == config.FilterDisabled{}, !ok && f.disabled:
		return func(next protocol.Service) protocol.Service { return next }, nil
	case !ok, cfg == config.FilterEnabled{}, f.factory == nil, reflect.TypeOf(cfg) != reflect.TypeOf(f.config):
		return f.defaultFilter, nil
	}
	env := f.env
	env.Key += fmt.Sprintf(" %q %q", p.RouteTable, key)
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
