package rbac

import (
	"strings"
	"testing"

	"github.com/weft-proxy/weft/pkg/filter"
	"github.com/weft-proxy/weft/pkg/filter/filtertest"
)

// TestFirstProblemIsStable verifies that settings with several problems always get the same error.
func TestFirstProblemIsStable(t *testing.T) {
	for range 100 {
		if got := filtertest.DecodeErrors(t, Factory(), `{"matcher": {}, "shadow_matcher": {}}`); strings.Contains(got, "shadow_matcher") {
			t.Fatalf("rejected with %q, want an error of matcher, the first key", got)
		}
	}
}

// TestUnsupportedKeysAreRejectedIfEmpty verifies that an empty condition or matcher is rejected. It
// restricts access, so the filter must not treat it as absent.
func TestUnsupportedKeysAreRejectedIfEmpty(t *testing.T) {
	const policy = `{"rules": {"policies": {"p": {"permissions": [{"any": true}], "principals": [{"any": true}], %s: {}}}}}`
	for key, text := range map[string]string{
		"condition":         strings.Replace(policy, "%s", `"condition"`, 1),
		"checked_condition": strings.Replace(policy, "%s", `"checked_condition"`, 1),
		"matcher":           `{"matcher": {}}`,
		"shadow_matcher":    `{"shadow_matcher": {}}`,
	} {
		for _, factory := range []filter.StreamFilterFactory{Factory(), {Config: ConnectionFactory().Config}} {
			want := key
			if strings.HasSuffix(key, "condition") {
				want = "CEL"
			}
			if got := filtertest.DecodeErrors(t, factory, filtertest.Settings(text)); !strings.Contains(got, want) {
				t.Errorf("%s is rejected with %s, want %s in it", text, got, want)
			}
		}
	}
}
