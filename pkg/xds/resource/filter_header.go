package resource

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"

	"github.com/weft-proxy/weft/pkg/config/document"
)

// adaptHeaderMutation converts ordered mutations to lists of headers to add and to remove, in
// several steps if the order matters. It sets the key "inherit", so that the mutations of the
// listener and of the route both apply.
func adaptHeaderMutation(settings *document.Value, _ fieldReader) error {
	mutations := settings.Get("mutations")
	settings.Delete("mutations")
	for _, side := range []string{"request", "response"} {
		key := side + "_mutations"
		steps, err := splitMutations(mutations.Get(key))
		mutations.Delete(key)
		if err != nil {
			return fmt.Errorf("mutations.%s%w", key, err)
		}
		steps[0].addTo(settings, side+"_headers_to_add", side+"_headers_to_remove")
		if len(steps) > 1 {
			further := make([]*document.Value, len(steps)-1)
			for i, step := range steps[1:] {
				further[i] = document.NewObject(2)
				step.addTo(further[i], "headers_to_add", "headers_to_remove")
			}
			settings.Set(side+"_steps", document.NewList(further...))
		}
	}
	for key, member := range mutations.Members() {
		settings.Set(key, member) // unsupported, so the decoder rejects it
	}
	settings.Set("inherit", document.NewBool(true))
	return nil
}

// mutationStep holds headers to remove, and then headers to add.
type mutationStep struct{ add, remove []*document.Value }

// addTo adds the lists that are not empty to v.
func (s *mutationStep) addTo(v *document.Value, addKey, removeKey string) {
	if len(s.add) > 0 {
		v.Set(addKey, document.NewList(s.add...))
	}
	if len(s.remove) > 0 {
		v.Set(removeKey, document.NewList(s.remove...))
	}
}

// splitMutations returns the steps of mutations, at least one. A removal after an addition of the
// same header begins a step. An error begins with the index in list.
func splitMutations(list *document.Value) ([]mutationStep, error) {
	steps := []mutationStep{{}}
	for i, m := range list.Elements() {
		step := &steps[len(steps)-1]
		option, name := m.Get("append"), m.Get("remove")
		switch {
		case option != nil:
			if err := adaptHeaderOption(option); err != nil {
				return nil, fmt.Errorf("[%d].append: %w", i, err)
			}
			step.add = append(step.add, option)
		case name == nil:
			return nil, fmt.Errorf("[%d]: only append and remove are supported", i)
		case slices.ContainsFunc(step.add, func(option *document.Value) bool {
			return strings.EqualFold(option.Get("header").Get("key").Text(), name.Text())
		}):
			steps = append(steps, mutationStep{remove: []*document.Value{name}})
		default:
			step.remove = append(step.remove, name)
		}
	}
	return steps, nil
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

// adaptLocalRateLimit converts the format commands of headers to Weft variables. Absent fractions
// are 0 % in Envoy, and x-ratelimit-reset is the time until the next token.
func adaptLocalRateLimit(settings *document.Value, _ fieldReader) error {
	settings.Set("ratelimit_reset", document.NewString("next_token"))
	for _, key := range []string{"filter_enabled", "filter_enforced"} {
		if settings.Get(key) == nil {
			none := document.NewObject(1)
			none.Add("default_value", document.NewObject(0))
			settings.Set(key, none)
		}
	}
	for _, key := range []string{"response_headers_to_add", "request_headers_to_add_when_not_enforced"} {
		for i, option := range settings.Get(key).Elements() {
			if err := adaptHeaderOption(option); err != nil {
				return fmt.Errorf("%s[%d]: %w", key, i, err)
			}
		}
	}
	return nil
}

// adaptStatus converts the name of an HttpStatus, which may be absent, to its number.
func adaptStatus(status *document.Value) {
	if name := status.Get("code"); name.Kind() == document.String {
		status.Set("code", document.NewNumber(strconv.Itoa(int(typev3.StatusCode_value[name.Text()]))))
	}
}

// adaptAdaptiveConcurrency selects one limit for the filter.
func adaptAdaptiveConcurrency(settings *document.Value, _ fieldReader) error {
	adaptStatus(settings.Get("concurrency_limit_exceeded_status"))
	settings.Set("per", document.NewString("filter"))
	return nil
}

// adaptExtAuthz adds "http://" to a server URI without a scheme, which Envoy's examples use, and
// converts the name of a status to its number.
func adaptExtAuthz(settings *document.Value, _ fieldReader) error {
	settings.Delete("stat_prefix")
	adaptStatus(settings.Get("status_on_error"))
	server := settings.Get("http_service").Get("server_uri")
	if uri := server.Get("uri").Text(); uri != "" && !strings.Contains(uri, "://") {
		server.Set("uri", document.NewString("http://"+uri))
	}
	return nil
}
