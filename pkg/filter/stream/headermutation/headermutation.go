// Package headermutation implements the header_mutation filter, which adds, replaces and removes
// headers of requests and responses, for a listener or, with per_filter_config, for a route.
package headermutation

import (
	"context"

	"github.com/weft-proxy/weft/pkg/filter"
	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/router"
)

// Config is the filter's configuration. It has the keys of a route table. Removals apply first,
// then additions in order.
type Config struct {
	RequestAdd     []filter.HeaderAddition `key:"request_headers_to_add" doc:"Headers to add to requests."`
	RequestRemove  []string                `key:"request_headers_to_remove" doc:"Names of headers to remove from requests." example:"[\"x-debug\"]"`
	ResponseAdd    []filter.HeaderAddition `key:"response_headers_to_add" doc:"Headers to add to responses."`
	ResponseRemove []string                `key:"response_headers_to_remove" doc:"Names of headers to remove from responses." example:"[\"server\"]"`

	RequestSteps  []Step `key:"request_steps" doc:"Further changes of requests, in order, after the removals and additions."`
	ResponseSteps []Step `key:"response_steps" doc:"Further changes of responses, in order, after the removals and additions."`

	// Inherit applies the listener's settings before the route's, as Envoy does.
	Inherit bool `key:"inherit" doc:"In the settings of a route. true: the settings of the listener are applied first. false: the settings of the route replace them." default:"false" example:"true"`
}

// Step is a change of the headers of a message. Removals apply first, then additions in order.
type Step struct {
	Add    []filter.HeaderAddition `key:"headers_to_add" doc:"Headers to add."`
	Remove []string                `key:"headers_to_remove" doc:"Names of headers to remove." example:"[\"x-debug\"]"`
}

// Validate checks the configuration after it was decoded.
func (c *Config) Validate() error {
	_, err := c.compile()
	return err
}

// compile returns the mutations in the order in which they apply; at least one.
func (c *Config) compile() ([]mutation, error) {
	requests := append([]Step{{c.RequestAdd, c.RequestRemove}}, c.RequestSteps...)
	responses := append([]Step{{c.ResponseAdd, c.ResponseRemove}}, c.ResponseSteps...)
	mutations := make([]mutation, max(len(requests), len(responses)))
	for i := range mutations {
		var request, response Step
		if i < len(requests) {
			request = requests[i]
		}
		if i < len(responses) {
			response = responses[i]
		}
		var err error
		if mutations[i].request, err = router.CompileMutation(filter.HeaderMutation(request.Add, request.Remove)); err != nil {
			return nil, err
		}
		if mutations[i].response, err = router.CompileResponseMutation(filter.HeaderMutation(response.Add, response.Remove)); err != nil {
			return nil, err
		}
	}
	return mutations, nil
}

// inheritedConfig holds a route's settings and those of the listener, which apply first.
type inheritedConfig struct{ listener, route *Config }

// inherit implements filter.StreamFilterFactory.Inherit.
func inherit(listenerConfig, routeConfig any) any {
	listener, listenerOK := listenerConfig.(*Config)
	route, routeOK := routeConfig.(*Config)
	if !listenerOK || !routeOK || !route.Inherit {
		return routeConfig
	}
	return &inheritedConfig{listener, route}
}

// compileAll compiles the result of inherit, a *Config or an *inheritedConfig, into mutations in
// the order in which they apply.
func compileAll(cfg any) (mutations []mutation, err error) {
	var configs []*Config
	switch cfg := cfg.(type) {
	case *inheritedConfig:
		configs = []*Config{cfg.listener, cfg.route}
	case *Config:
		configs = []*Config{cfg}
	}
	for _, c := range configs {
		m, err := c.compile()
		if err != nil {
			return nil, err
		}
		mutations = append(mutations, m...)
	}
	return mutations, nil
}

// mutation is a compiled step of requests, and one of responses.
type mutation struct{ request, response *router.Mutation }

// headerMutation is immutable.
type headerMutation struct {
	mutations []mutation
	next      protocol.Service
}

// Start implements protocol.Service.
func (m *headerMutation) Start(ctx context.Context, x *protocol.Exchange) error {
	for i := range m.mutations {
		m.mutations[i].request.Apply(x, &x.Request.Header)
	}
	x.PushFinisher(m)
	return m.next.Start(ctx, x)
}

// Finish implements protocol.Finisher. It does not change the response to a failed request.
func (m *headerMutation) Finish(_ context.Context, x *protocol.Exchange, err error) error {
	if err != nil {
		return err
	}
	for i := range m.mutations {
		m.mutations[i].response.Apply(x, &x.Response.Header)
	}
	return nil
}

// Factory returns the filter factory.
func Factory() filter.StreamFilterFactory {
	return filter.StreamFilterFactory{
		Name:    "header_mutation",
		Stage:   filter.AfterRoute,
		Config:  func() any { return new(Config) },
		Inherit: inherit,
		New: func(cfg any, _ filter.Env) (filter.Filter, error) {
			mutations, err := compileAll(cfg)
			if err != nil {
				return nil, err
			}
			return func(next protocol.Service) protocol.Service {
				return &headerMutation{mutations, next}
			}, nil
		},
	}
}
