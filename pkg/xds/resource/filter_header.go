package resource

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
)

// adaptHeaderMutation converts ordered mutations to lists of headers to add and to remove. It sets
// inherit, so that the mutations of the listener and of the route both apply.
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
	maps.Copy(settings, mutations) // unsupported, so the decoder rejects them
	settings["inherit"] = true
	return nil
}

// splitMutations returns the headers that mutations add and remove. Weft removes first, so a
// removal after an addition of the same header is an error. An error begins with the index in list.
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

// headerOptionName returns the header name of a HeaderValueOption.
func headerOptionName(option any) string {
	o, _ := option.(map[string]any)
	header, _ := o["header"].(map[string]any)
	name, _ := header["key"].(string)
	return name
}

// adaptHeaderOption converts the format commands of a HeaderValueOption to Weft variables.
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

// adaptLocalRateLimit converts the format commands of headers to Weft variables.
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

// adaptExtAuthz adds "http://" to an address without a scheme, as in Envoy's guide, and converts
// the name of a status to its number.
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
