package filter

import "github.com/weft-proxy/weft/pkg/config"

// HeaderAddition configures a header to add, like Envoy's HeaderValueOption.
type HeaderAddition struct {
	Header HeaderField `key:"header" doc:"The header." required:"true"`
	Append bool        `key:"append" doc:"true: adds the header and keeps other headers of that name; false: replaces them." default:"true" example:"false"`
	Action string      `key:"append_action" doc:"Envoy's alternative to append. ADD_IF_ABSENT adds the header only if there is none of that name; OVERWRITE_IF_EXISTS only replaces existing ones." enum:"APPEND_IF_EXISTS_OR_ADD|ADD_IF_ABSENT|OVERWRITE_IF_EXISTS_OR_ADD|OVERWRITE_IF_EXISTS" example:"\"ADD_IF_ABSENT\""`
}

// HeaderField is a header name with its value.
type HeaderField struct {
	Key   string `key:"key" doc:"Header name." required:"true" example:"\"x-caller\""`
	Value string `key:"value" doc:"Header value; %variables% are replaced." example:"\"%downstream_remote_address%\""`
}

// HeaderMutation returns the mutation that adds and removes these headers, for
// router.CompileMutation.
func HeaderMutation(add []HeaderAddition, remove []string) config.HeaderMutation {
	m := config.HeaderMutation{Remove: remove}
	for _, a := range add {
		v := config.HeaderValue{Name: a.Header.Key, Value: a.Header.Value, Append: a.Append}
		switch a.Action {
		case "APPEND_IF_EXISTS_OR_ADD":
			v.Append = true
		case "ADD_IF_ABSENT":
			v.Append, v.If = false, config.AddIfAbsent
		case "OVERWRITE_IF_EXISTS_OR_ADD":
			v.Append = false
		case "OVERWRITE_IF_EXISTS":
			v.Append, v.If = false, config.AddIfPresent
		}
		m.Add = append(m.Add, v)
	}
	return m
}
