package configjson

import (
	"slices"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/config/document"
	"github.com/weft-proxy/weft/pkg/router"
)

// mutationJSON contains the header mutations of tables, virtual hosts and routes.
type mutationJSON struct {
	RequestAdd     []headerAddJSON `key:"request_headers_to_add" doc:"Headers to add to requests."`
	RequestRemove  []string        `key:"request_headers_to_remove" doc:"Headers to remove from requests. The changes of the route run first, then those of the virtual host, then those of the table; each removes headers and then adds headers." example:"[\"x-internal\"]"`
	ResponseAdd    []headerAddJSON `key:"response_headers_to_add" doc:"Headers to add to responses."`
	ResponseRemove []string        `key:"response_headers_to_remove" doc:"Headers to remove from responses. The changes run in the order that request_headers_to_remove describes." example:"[\"server\"]"`
}

type headerAddJSON struct {
	Header struct {
		Node  document.Node `key:"."`
		Key   string        `key:"key" doc:"Name of the header." required:"true" example:"\"x-added\""`
		Value string        `key:"value" doc:"Value of the header, with %variables%." example:"\"%request_header_x-id%\""`
	} `key:"header" doc:"The header." required:"true"`
	Append bool `key:"append" doc:"true: keep existing headers with the name; false: replace them. The RPC headers service, method, version and group occur once: use false." example:"false" default:"true"`
}

// readMutations converts the header mutations in the object n.
func (r *routeReader) readMutations(n document.Node, j *mutationJSON) (request, response config.HeaderMutation) {
	if j.RequestAdd == nil && j.RequestRemove == nil && j.ResponseAdd == nil && j.ResponseRemove == nil {
		return request, response
	}
	request = r.readMutation(n, "request_headers_to_remove", j.RequestAdd, j.RequestRemove, func(m config.HeaderMutation) error {
		_, err := router.Compile(&config.RouteTable{Request: m})
		return err
	})
	response = r.readMutation(n, "response_headers_to_remove", j.ResponseAdd, j.ResponseRemove, func(m config.HeaderMutation) error {
		_, err := router.Compile(&config.RouteTable{Response: m})
		return err
	})
	return request, response
}

// readMutation converts the mutations of one direction and checks each separately.
func (r *routeReader) readMutation(n document.Node, removeKey string, add []headerAddJSON, remove []string, check func(config.HeaderMutation) error) config.HeaderMutation {
	var out config.HeaderMutation
	for i := range add {
		h := &add[i].Header
		if h.Key == "" {
			continue // already reported
		}
		value := config.HeaderValue{Name: h.Key, Value: h.Value, Append: add[i].Append}
		if err := check(config.HeaderMutation{Add: []config.HeaderValue{value}}); err != nil {
			r.report.Errorf(h.Node, "%s", joinLines(err.Error()))
			continue
		}
		out.Add = append(out.Add, value)
	}
	nodes := slices.Collect(n.Get(removeKey).All())
	for i, name := range remove {
		if nodes[i].Kind() != document.String {
			continue // already reported
		}
		if err := check(config.HeaderMutation{Remove: []string{name}}); err != nil {
			r.report.Errorf(nodes[i], "%s", joinLines(err.Error()))
			continue
		}
		out.Remove = append(out.Remove, name)
	}
	return out
}
