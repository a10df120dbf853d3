// Package headermutation owns the header_mutation filter: it adds, replaces and
// removes fields of requests and answers, for a whole listener or, by
// per_filter_config, for a route.
package headermutation

import (
	"context"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/filter"
	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/router"
)

// Config is the filter's configuration, spelt as in a route table: removals
// first, then additions in order.
type Config struct {
	RequestAdd     []Addition `key:"request_headers_to_add" doc:"Fields added to requests."`
	RequestRemove  []string   `key:"request_headers_to_remove" doc:"Names of fields removed from requests." example:"[\"x-debug\"]"`
	ResponseAdd    []Addition `key:"response_headers_to_add" doc:"Fields added to answers."`
	ResponseRemove []string   `key:"response_headers_to_remove" doc:"Names of fields removed from answers." example:"[\"server\"]"`
}

// Addition is a field to add.
type Addition struct {
	Header Field `key:"header" doc:"The field." required:"true"`
	Append bool  `key:"append" doc:"true: beside fields of that name; false: in their place." default:"true" example:"false"`
}

// Field is a name with its value.
type Field struct {
	Key   string `key:"key" doc:"Field name." required:"true" example:"\"x-caller\""`
	Value string `key:"value" doc:"Field value; %variables% are replaced." example:"\"%downstream_remote_address%\""`
}

// Validate is called once the configuration was read.
func (c *Config) Validate() error {
	_, _, err := c.compile()
	return err
}

func (c *Config) compile() (request, response *router.Mutation, err error) {
	if request, err = router.CompileMutation(mutation(c.RequestAdd, c.RequestRemove)); err != nil {
		return nil, nil, err
	}
	if response, err = router.CompileResponseMutation(mutation(c.ResponseAdd, c.ResponseRemove)); err != nil {
		return nil, nil, err
	}
	return request, response, nil
}

// headerMutation is immutable.
type headerMutation struct {
	request, response *router.Mutation
	next              protocol.Starter
}

// Serve is protocol.Service's.
func (m *headerMutation) Serve(ctx context.Context, x *protocol.Exchange) error {
	return protocol.Run(ctx, m, x)
}

// Start is protocol.Starter's.
func (m *headerMutation) Start(ctx context.Context, x *protocol.Exchange) error {
	m.request.Apply(x, &x.Request.Header)
	x.Then(m)
	return m.next.Start(ctx, x)
}

// Finish is protocol.Finisher's.
func (m *headerMutation) Finish(_ context.Context, x *protocol.Exchange, err error) error {
	if err == nil {
		m.response.Apply(x, &x.Response.Header)
	}
	return err
}

func mutation(add []Addition, remove []string) config.HeaderMutation {
	m := config.HeaderMutation{Remove: remove}
	for _, a := range add {
		m.Add = append(m.Add, config.HeaderValue{Name: a.Header.Key, Value: a.Header.Value, Append: a.Append})
	}
	return m
}

// Kind is the filter's entry for the registry.
func Kind() filter.Stream {
	return filter.Stream{
		Name:   "header_mutation",
		Stage:  filter.AfterRoute,
		Config: func() any { return new(Config) },
		New: func(cfg any, _ filter.Env) (filter.Filter, error) {
			request, response, err := cfg.(*Config).compile() //nolint:forcetypeassert // what Config returned
			if err != nil {
				return nil, err
			}
			return func(next protocol.Service) protocol.Service {
				return &headerMutation{request, response, protocol.Halves(next)}
			}, nil
		},
	}
}
