package resource

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
)

// adaptHeaderMutation makes lists of what is added and removed of mutations in order, and
// has the listener's hold beside a route's.
func adaptHeaderMutation(settings map[string]any) error {
	mutations, _ := settings["mutations"].(map[string]any)
	delete(settings, "mutations")
	for _, side := range []string{"request", "response"} {
		key := side + "_mutations"
		list, _ := mutations[key].([]any)
		delete(mutations, key)
		add, remove, err := splitMutations(list)
		if err != nil {
			return fmt.Errorf("mutations.%s%w", key, err)
		}
		if len(add) > 0 {
			settings[side+"_headers_to_add"] = add
		}
		if len(remove) > 0 {
			settings[side+"_headers_to_remove"] = remove
		}
	}
	maps.Copy(settings, mutations) // which are refused
	settings["inherit"] = true
	return nil
}

// splitMutations returns what mutations add and what they remove, which comes first then. An
// error begins with the place in list.
func splitMutations(list []any) (add, remove []any, err error) {
	for i, one := range list {
		m, _ := one.(map[string]any)
		option, adds := m["append"].(map[string]any)
		name, removes := m["remove"].(string)
		switch {
		case adds:
			if err := adaptHeaderOption(option); err != nil {
				return nil, nil, fmt.Errorf("[%d].append: %w", i, err)
			}
			add = append(add, option)
		case !removes:
			return nil, nil, fmt.Errorf("[%d]: only append and remove are supported", i)
		case slices.ContainsFunc(add, func(option any) bool { return strings.EqualFold(headerOptionName(option), name) }):
			return nil, nil, fmt.Errorf("[%d].remove: an earlier element appends %s: this order is not supported", i, name)
		default:
			remove = append(remove, name)
		}
	}
	return add, remove, nil
}

// headerOptionName returns the name of the field that a HeaderValueOption is about.
func headerOptionName(option any) string {
	o, _ := option.(map[string]any)
	header, _ := o["header"].(map[string]any)
	name, _ := header["key"].(string)
	return name
}

// adaptHeaderOption makes the variables of a HeaderValueOption Weft's.
func adaptHeaderOption(option map[string]any) error {
	delete(option, "keep_empty_value")
	header, _ := option["header"].(map[string]any)
	value, _ := header["value"].(string)
	r := &report{}
	text, ok := fieldReader{report: r, path: "header.value"}.convertFormat(value)
	if !ok {
		return r.rejection()
	}
	if value != "" {
		header["value"] = text
	}
	return nil
}

// adaptLocalRateLimit makes the variables in fields Weft's.
func adaptLocalRateLimit(settings map[string]any) error {
	for _, key := range []string{"response_headers_to_add", "request_headers_to_add_when_not_enforced"} {
		list, _ := settings[key].([]any)
		for i, one := range list {
			option, _ := one.(map[string]any)
			if err := adaptHeaderOption(option); err != nil {
				return fmt.Errorf("%s[%d]: %w", key, i, err)
			}
		}
	}
	return nil
}

// adaptExtAuthz makes an address of HTTP of one without a scheme, as Envoy's guide writes
// it, and a status of its name.
func adaptExtAuthz(settings map[string]any) error {
	delete(settings, "stat_prefix")
	if status, ok := settings["status_on_error"].(map[string]any); ok {
		if name, ok := status["code"].(string); ok {
			status["code"] = typev3.StatusCode_value[name]
		}
	}
	service, _ := settings["http_service"].(map[string]any)
	server, _ := service["server_uri"].(map[string]any)
	if uri, _ := server["uri"].(string); uri != "" && !strings.Contains(uri, "://") {
		server["uri"] = "http://" + uri
	}
	return nil
}
