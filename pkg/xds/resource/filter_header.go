package resource

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"

	"github.com/weft-proxy/weft/pkg/config/document"
)

// adaptHeaderMutation converts ordered mutations to lists of headers to add and to remove. It sets
// the key "inherit", so that the mutations of the listener and of the route both apply.
func adaptHeaderMutation(settings *document.Value, _ fieldReader) error {
	mutations := settings.Get("mutations")
	settings.Delete("mutations")
	for _, side := range []string{"request", "response"} {
		key := side + "_mutations"
		add, remove, err := splitMutations(mutations.Get(key))
		mutations.Delete(key)
		if err != nil {
			return fmt.Errorf("mutations.%s%w", key, err)
		}
		if len(add) > 0 {
			settings.Set(side+"_headers_to_add", document.NewList(add...))
		}
		if len(remove) > 0 {
			settings.Set(side+"_headers_to_remove", document.NewList(remove...))
		}
	}
	for key, member := range mutations.Members() {
		settings.Set(key, member) // unsupported, so the decoder rejects it
	}
	settings.Set("inherit", document.NewBool(true))
	return nil
}

// splitMutations returns the headers that mutations add and remove. Weft removes first, so a
// removal after an addition of the same header is an error. An error begins with the index in list.
func splitMutations(list *document.Value) (add, remove []*document.Value, err error) {
	for i, m := range list.Elements() {
		option, name := m.Get("append"), m.Get("remove")
		switch {
		case option != nil:
			if err := adaptHeaderOption(option); err != nil {
				return nil, nil, fmt.Errorf("[%d].append: %w", i, err)
			}
			add = append(add, option)
		case name == nil:
			return nil, nil, fmt.Errorf("[%d]: only append and remove are supported", i)
		case slices.ContainsFunc(add, func(option *document.Value) bool {
			return strings.EqualFold(option.Get("header").Get("key").Text(), name.Text())
		}):
			return nil, nil, fmt.Errorf("[%d].remove: an earlier element appends %s: this order is not supported", i, name.Text())
		default:
			remove = append(remove, name)
		}
	}
	return add, remove, nil
}

// adaptHeaderOption converts the format commands of a HeaderValueOption to Weft variables.
func adaptHeaderOption(option *document.Value) error {
	option.Delete("keep_empty_value")
	header := option.Get("header")
	value := header.Get("value").Text()
	r := &report{}
	text, ok := fieldReader{report: r, path: "header.value"}.convertFormat(value)
	if !ok {
		return r.rejection()
	}
	if value != "" {
		header.Set("value", document.NewString(text))
	}
	return nil
}

// adaptLocalRateLimit converts the format commands of headers to Weft variables.
func adaptLocalRateLimit(settings *document.Value, _ fieldReader) error {
	for _, key := range []string{"response_headers_to_add", "request_headers_to_add_when_not_enforced"} {
		for i, option := range settings.Get(key).Elements() {
			if err := adaptHeaderOption(option); err != nil {
				return fmt.Errorf("%s[%d]: %w", key, i, err)
			}
		}
	}
	return nil
}

// adaptExtAuthz adds "http://" to a server URI without a scheme, which Envoy's examples use, and
// converts the name of a status to its number.
func adaptExtAuthz(settings *document.Value, _ fieldReader) error {
	settings.Delete("stat_prefix")
	status := settings.Get("status_on_error")
	if name := status.Get("code"); name.Kind() == document.String {
		status.Set("code", document.NewNumber(strconv.Itoa(int(typev3.StatusCode_value[name.Text()]))))
	}
	server := settings.Get("http_service").Get("server_uri")
	if uri := server.Get("uri").Text(); uri != "" && !strings.Contains(uri, "://") {
		server.Set("uri", document.NewString("http://"+uri))
	}
	return nil
}
