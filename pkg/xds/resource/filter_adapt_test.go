package resource

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-proxy/weft/pkg/filter/stream/adaptiveconcurrency"
	"github.com/weft-proxy/weft/pkg/filter/stream/basicauth"
	"github.com/weft-proxy/weft/pkg/filter/stream/buffer"
	"github.com/weft-proxy/weft/pkg/filter/stream/cdnloop"
	"github.com/weft-proxy/weft/pkg/filter/stream/jwtauthn"
	"github.com/weft-proxy/weft/pkg/filter/stream/localratelimit"
)

func TestBasicAuthSettings(t *testing.T) {
	const line = "u:{SHA}UWuXg/ylF+7L0dBk2i0WUxCxl1k="
	want := basicauth.Config{Users: basicauth.Users{Inline: line}, Header: "authorization", Inherit: true}
	for text, want := range map[string]basicauth.Config{
		`{"@type": "basic_auth.v3.BasicAuthPerRoute", "users": {"inline_string": "` + line + `"}}`:                                    want,
		`{"@type": "basic_auth.v3.BasicAuthPerRoute", "users": {"inline_bytes": "dTp7U0hBfVVXdVhnL3lsRis3TDBkQmsyaTBXVXhDeGwxaz0="}}`: want,
		`{"@type": "basic_auth.v3.BasicAuth", "users": {"inline_string": "` + line + `"}, "authentication_header": "x-a", "allow_missing": true}`: {
			Users: want.Users, Header: "x-a", AllowMissing: true, Inherit: true,
		},
	} {
		got, err := readRouteFilter(t, text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if diff := cmp.Diff(any(&want), got); diff != "" {
			t.Errorf("%s, - want + got:\n%s", text, diff)
		}
	}
	for text, want := range map[string]string{
		`"users": {"inline_string": "u:x"}`:                                         "users: line 1: only hashes of the form {SHA}HASH are supported",
		`"users": {"environment_variable": "USERS"}`:                                "environment_variable",
		`"users": {"inline_string": "` + line + `"}, "emit_dynamic_metadata": true`: "emit_dynamic_metadata",
	} {
		if _, err := readFilter(t, `{"@type": "basic_auth.v3.BasicAuth", `+text+`}`); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want one with %q", text, err, want)
		}
	}
}

func TestBufferAndCDNLoopSettings(t *testing.T) {
	for text, want := range map[string]any{
		`{"@type": "buffer.v3.Buffer", "max_request_bytes": 10}`:                                    &buffer.Config{Max: 10},
		`{"@type": "buffer.v3.BufferPerRoute", "buffer": {"max_request_bytes": 20}}`:                &buffer.Config{Max: 20},
		`{"@type": "buffer.v3.BufferPerRoute", "disabled": true}`:                                   &buffer.Config{Disabled: true, Max: 65536},
		`{"@type": "cdn_loop.v3.CdnLoopConfig", "cdn_id": "me.test", "max_allowed_occurrences": 2}`: &cdnloop.Config{ID: "me.test", Max: 2},
	} {
		got, err := readRouteFilter(t, text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s, - want + got:\n%s", text, diff)
		}
	}
}

func TestAdaptiveConcurrencySettings(t *testing.T) {
	got, err := readFilter(t, `{"@type": "adaptive_concurrency.v3.AdaptiveConcurrency", "gradient_controller_config": {"concurrency_limit_params": {"concurrency_update_interval": "0.1s"},
		"min_rtt_calc_params": {"interval": "60s"}}, "concurrency_limit_exceeded_status": {"code": "TooManyRequests"}}`)
	if err != nil {
		t.Fatal(err)
	}
	if c := got.(*adaptiveconcurrency.Config); c.Per != "filter" || c.Status.Code != 429 || c.Gradient.Limit.Max != 1000 {
		t.Errorf("settings %+v, want one limit of at most 1000 for the filter, and the status 429", c)
	}
}

// TestLocalRateLimitDefaults verifies that absent fractions are 0 %, as in Envoy.
func TestLocalRateLimitDefaults(t *testing.T) {
	const bucket = `{"@type": "local_ratelimit.v3.LocalRateLimit", "stat_prefix": "s", "token_bucket": {"max_tokens": 1, "fill_interval": "1s"}`
	for text, want := range map[string]float64{
		bucket + `}`: 0,
		bucket + `, "filter_enabled": {"default_value": {"numerator": 30}}, "filter_enforced": {"default_value": {"numerator": 30}}}`: 30,
	} {
		got, err := readFilter(t, text)
		if err != nil {
			t.Fatal(err)
		}
		c := got.(*localratelimit.Config)
		if float64(c.Enabled.Default.Numerator) != want || float64(c.Enforced.Default.Numerator) != want || c.Reset != "next_token" {
			t.Errorf("%s is read as %+v and %+v with the reset %q, want %v %%", text, c.Enabled, c.Enforced, c.Reset, want)
		}
	}
}

func TestJWTRequirementMap(t *testing.T) {
	const settings = `{"@type": "jwt_authn.v3.JwtAuthentication", "providers": {"p": {"local_jwks": {"inline_string": "{\"keys\":[]}"}}},
		"rules": [{"match": {"prefix": "/"}, "requirement_name": "r"}], "requirement_map": {"r": {"provider_name": "p"}}}`
	got, err := readFilter(t, settings)
	if err != nil {
		t.Fatal(err)
	}
	if c := got.(*jwtauthn.Config); c.Rules[0].Requires.Provider != "p" || c.RequirementMap["r"].Provider != "p" || !c.ChallengeRealm {
		t.Errorf("settings %+v, want the requirement in the rule and in the map, and a realm", c)
	}
}
