package jwtauthn

import (
	"slices"
	"strings"
	"testing"

	"github.com/golang-jwt/jwt/v5"

	"github.com/weft-proxy/weft/pkg/filter/filtertest"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// TestSpaceDelimitedClaimsAreLists verifies that top-level string claims with at least one word
// become lists of their words, as in Envoy 1.40, and that other claims stay unchanged.
func TestSpaceDelimitedClaimsAreLists(t *testing.T) {
	token := signToken(t, jwt.SigningMethodRS256, "rsa", validClaims(map[string]any{
		"scope": " read  write ", "one": "admin", "tab": "a\tb", "plain": "a b", "none": " ", "n": 7, "list": []any{"a b"},
		"inner": map[string]any{"scope": "a b"},
	}), nil)
	settings := `{"providers": {"one": ` + localProvider(`, "payload_in_metadata": "claims", "forward_payload_header": "x-payload",
		"normalize_payload_in_metadata": {"space_delimited_claims": ["scope", "one", "tab", "none", "n", "list", "missing"]}`) + `},
		"rules": [{"requires": {"provider_name": "one"}}]}`
	got, x := serveRequest(t, settings, "/", "Authorization: Bearer "+token)
	for _, test := range []struct {
		claim  string
		values []string
		isList bool
	}{
		{"scope", []string{"read", "write"}, true},
		{"one", []string{"admin"}, true},
		{"tab", []string{"a\tb"}, true},
		{"plain", []string{"a b"}, false},
		{"none", []string{" "}, false},
		{"n", []string{"7"}, false},
		{"list", []string{"a b"}, true},
		{"inner/scope", []string{"a b"}, false},
		{"missing", nil, false},
	} {
		key := protocol.MetadataKey(append([]string{"claims"}, strings.Split(test.claim, "/")...)...)
		if got := slices.Collect(x.Metadata.Values(namespace, key)); !slices.Equal(got, test.values) {
			t.Errorf("%s is %q, want %q", test.claim, got, test.values)
		}
		if got := x.Metadata.IsList(namespace, key); got != test.isList {
			t.Errorf("%s is a list: %v, want %v", test.claim, got, test.isList)
		}
	}
	if want := strings.Split(token, ".")[1]; got.Get("x-payload") != want {
		t.Errorf("the forwarded payload is %q, want %q", got.Get("x-payload"), want)
	}
}

// TestFailedStatusIsRejected verifies that settings with failed_status_in_metadata are rejected
// with an error that names the key. A policy that denies by this metadata would never match.
func TestFailedStatusIsRejected(t *testing.T) {
	settings := `{"providers": {"one": ` + localProvider(`, "failed_status_in_metadata": "failed"`) + `}}`
	if got := filtertest.DecodeErrors(t, Factory(), filtertest.Settings(settings)); !strings.Contains(got, "failed_status_in_metadata") {
		t.Errorf("rejected with %q, want an error about failed_status_in_metadata", got)
	}
}
