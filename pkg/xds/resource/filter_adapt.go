package resource

import (
	"encoding/base64"
	"fmt"
	"strconv"

	"github.com/weft-proxy/weft/pkg/config/document"
)

// unwrapKey moves the members of the object under key to settings. Some filters nest their route
// settings under such a key.
func unwrapKey(settings *document.Value, key string) {
	inner := settings.Get(key)
	if inner.Kind() != document.Object {
		return
	}
	settings.Delete(key)
	for name, member := range inner.Members() {
		settings.Set(name, member)
	}
}

// adaptRBAC unwraps the settings of routes, stores the decision of shadow rules in the metadata, and
// rejects matcher trees.
func adaptRBAC(settings *document.Value, p fieldReader) error {
	unwrapKey(settings, "rbac")
	if settings.Get("shadow_rules") != nil {
		settings.Set("shadow_rules_metadata", document.NewBool(true))
	}
	return rejectMatcherTrees(settings, p)
}

// rejectMatcherTrees rejects the matcher trees of RBAC. In Envoy an empty matcher denies every
// request, but Weft's filter would treat it as absent.
func rejectMatcherTrees(settings *document.Value, _ fieldReader) error {
	for _, key := range []string{"matcher", "shadow_matcher"} {
		if settings.Get(key) != nil {
			return unsupportedKeyError(key)
		}
	}
	return nil
}

// adaptFault converts percentages to numbers and renames http_status to status.
func adaptFault(settings *document.Value, _ fieldReader) error {
	settings.Delete("disable_downstream_cluster_stats") // Weft does not have these statistics
	for _, fault := range []string{"delay", "abort"} {
		unit := settings.Get(fault).Get("percentage").Get("denominator").Text()
		if settings.Get(fault).Get("header_"+fault) != nil && unit != "" && unit != "HUNDRED" {
			return fmt.Errorf("%s.percentage.denominator: is %s, but with header_%[1]s only HUNDRED is supported", fault, unit)
		}
	}
	if delay := settings.Get("delay"); delay != nil {
		delay.Set("percentage", floatValue(percentOf(delay.Get("percentage")), 64))
	}
	if abort := settings.Get("abort"); abort != nil {
		abort.Set("percentage", floatValue(percentOf(abort.Get("percentage")), 64))
		if status := abort.Get("http_status"); status != nil {
			abort.Delete("http_status")
			abort.Set("status", status)
		}
	}
	for _, header := range settings.Get("headers").Elements() {
		if header.Len() == 1 {
			header.Set("present_match", document.NewBool(true)) // the matcher has only a header name
		}
	}
	return nil
}

// percentOf returns a FractionalPercent, which may be absent, as a percentage of at most 100.
func percentOf(fraction *document.Value) float64 {
	n, _ := strconv.ParseFloat(fraction.Get("numerator").Text(), 64) // absent: 0
	switch fraction.Get("denominator").Text() {
	case "TEN_THOUSAND":
		n /= 100
	case "MILLION":
		n /= 10_000
	}
	return min(n, 100)
}

// adaptHealthCheck converts percentages to numbers.
func adaptHealthCheck(settings *document.Value, _ fieldReader) error {
	percentages := settings.Get("cluster_min_healthy_percentages")
	adapted := document.NewObject(percentages.Len())
	for cluster, percent := range percentages.Members() {
		value := percent.Get("value")
		if value.Kind() != document.Number { // absent, or not finite
			value = document.NewNumber("0")
		}
		adapted.Add(cluster, value)
	}
	if percentages != nil {
		settings.Set("cluster_min_healthy_percentages", adapted)
	}
	return nil
}

// adaptJWT resolves the requirement names of rules, converts clock_skew_seconds, adds the realm to
// challenges, and ignores jwt_cache_config, async_fetch and retry_policy. A local key set without
// usable keys makes the tokens of its issuer invalid, but does not reject the listener.
func adaptJWT(settings *document.Value, p fieldReader) error {
	for name, provider := range settings.Get("providers").Members() {
		adaptProvider(provider, p.field("providers").key(name))
	}
	settings.Set("challenge_realm", document.NewBool(true))
	requirements := settings.Get("requirement_map")
	for i, rule := range settings.Get("rules").Elements() {
		if rule.Get("match").Len() == 0 {
			return fmt.Errorf("rules[%d].match has no condition on the path", i)
		}
		name := rule.Get("requirement_name")
		if name == nil {
			continue
		}
		requires := requirements.Get(name.Text())
		if requires == nil {
			return fmt.Errorf("rules[%d].requirement_name: %q is not in requirement_map", i, name.Text())
		}
		rule.Delete("requirement_name")
		rule.Set("requires", requires)
	}
	return nil
}

func adaptProvider(provider *document.Value, p fieldReader) {
	p.ignoreKey(provider, "jwt_cache_config")
	if skew := provider.Get("clock_skew_seconds"); skew != nil {
		provider.Delete("clock_skew_seconds")
		provider.Set("clock_skew", document.NewString(skew.Text()+"s"))
	}
	if local := provider.Get("local_jwks"); local != nil {
		local.Set("accept_without_usable_keys", document.NewBool(true))
	}
	if remote := provider.Get("remote_jwks"); remote != nil {
		at := p.field("remote_jwks")
		at.ignoreKey(remote, "async_fetch")
		at.ignoreKey(remote, "retry_policy")
	}
}

// adaptBuffer unwraps the settings of routes.
func adaptBuffer(settings *document.Value, _ fieldReader) error {
	unwrapKey(settings, "buffer")
	return nil
}

// adaptBasicAuth decodes users that are given as bytes. Routes replace only the users.
func adaptBasicAuth(settings *document.Value, _ fieldReader) error {
	users := settings.Get("users")
	if encoded := users.Get("inline_bytes"); encoded != nil {
		text, err := base64.StdEncoding.DecodeString(encoded.Text())
		if err != nil {
			return fmt.Errorf("users.inline_bytes: %w", err)
		}
		users.Delete("inline_bytes")
		users.Set("inline_string", document.NewString(string(text)))
	}
	settings.Set("inherit", document.NewBool(true))
	return nil
}

// ignoreKey deletes the member key of v, if v has it, and reports it as ignored. p is the reader of
// v.
func (p fieldReader) ignoreKey(v *document.Value, key string) {
	if v.Get(key) != nil {
		v.Delete(key)
		p.field(key).ignore()
	}
}
