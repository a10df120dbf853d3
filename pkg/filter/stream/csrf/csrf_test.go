package csrf

import (
	"context"
	"flag"
	"strings"
	"testing"

	"github.com/weft-proxy/weft/pkg/filter/filtertest"
	"github.com/weft-proxy/weft/pkg/protocol"
)

var update = flag.Bool("update", false, "write the tables of README.md")

func TestReadme(t *testing.T) {
	examples := filtertest.CheckReadme(t, Factory(), *update)
	if len(examples) != 2 {
		t.Fatalf("%d examples, want 2", len(examples))
	}
	for _, test := range []struct {
		settings filtertest.Settings
		origin   string
		want     protocol.Reason
	}{
		{examples[0], "Origin: https://api.test", protocol.ReasonNone},
		{examples[0], "Origin: https://shop.example.com", protocol.ReasonNone},
		{examples[0], "Origin: https://a.preview.example.com", protocol.ReasonNone},
		{examples[0], "Origin: https://evil.test", protocol.ReasonDenied},
		{examples[1], "Origin: https://evil.test", protocol.ReasonNone},
	} {
		if got, _ := serveRequest(t, test.settings, newRequest("POST", test.origin)); got != test.want {
			t.Errorf("%s with %s: %v, want %v", test.settings, test.origin, got, test.want)
		}
	}
}

// newRequest returns a request for api.test with headers in the form "name: value".
func newRequest(method string, fields ...string) *protocol.Exchange {
	x := new(protocol.Exchange)
	x.Request.Method, x.Request.Authority, x.Request.Path = method, "api.test", "/"
	filtertest.AddHeaders(&x.Request.Header, fields...)
	return x
}

// serveRequest returns the reason for a rejection of x, and the counters: valid, invalid, missing.
func serveRequest(t *testing.T, s filtertest.Settings, x *protocol.Exchange) (reason protocol.Reason, counted [3]float64) {
	t.Helper()
	made, counts := filtertest.Build(t, Factory(), s)
	passed := false
	err := x.Serve(t.Context(), made(protocol.BlockingFunc(func(context.Context, *protocol.Exchange) error {
		passed = true
		return nil
	})))
	reason = protocol.ReasonOf(err)
	if passed != (reason == protocol.ReasonNone) {
		t.Errorf("the next service was called: %t, with %v", passed, err)
	}
	return reason, [3]float64{counts.Value(validMetric()), counts.Value(invalidMetric()), counts.Value(missingMetric())}
}

func TestOrigins(t *testing.T) {
	isValid, isInvalid, isMissing := [3]float64{1, 0, 0}, [3]float64{0, 1, 0}, [3]float64{0, 0, 1}
	for _, test := range []struct {
		name    string
		x       *protocol.Exchange
		want    protocol.Reason
		counted [3]float64
	}{
		{"the target's own", newRequest("POST", "Origin: https://api.test"), protocol.ReasonNone, isValid},
		{"in another case", newRequest("PUT", "ORIGIN: HTTPS://API.test"), protocol.ReasonNone, isValid},
		{"another", newRequest("POST", "Origin: https://evil.test"), protocol.ReasonDenied, isInvalid},
		{"another port", newRequest("DELETE", "Origin: https://api.test:8443"), protocol.ReasonDenied, isInvalid},
		{"one that begins so", newRequest("PATCH", "Origin: https://api.test.evil.test"), protocol.ReasonDenied, isInvalid},
		{"one that ends so", newRequest("POST", "Origin: https://evil-api.test"), protocol.ReasonDenied, isInvalid},
		{"one with the target as its user", newRequest("POST", "Origin: https://api.test@evil.test"), protocol.ReasonDenied, isInvalid},
		{"a backslash", newRequest("POST", `Origin: https://evil.test\@api.test`), protocol.ReasonDenied, isInvalid},
		{"none", newRequest("POST"), protocol.ReasonDenied, isMissing},
		{"an additional one", newRequest("POST", "Origin: https://shop.test"), protocol.ReasonNone, isValid},
		{"of the referer", newRequest("POST", "Referer: https://api.test/page?x=1"), protocol.ReasonNone, isValid},
		{"of another referer", newRequest("POST", "Referer: https://evil.test/https://api.test/"), protocol.ReasonDenied, isInvalid},
		{"an opaque one", newRequest("POST", "Origin: null"), protocol.ReasonDenied, isInvalid},
		{"an opaque one, with the target's own referer", newRequest("POST", "Origin: null", "Referer: https://api.test/"), protocol.ReasonDenied, isInvalid},
		{"an empty one, with the target's own referer", newRequest("POST", "Origin: ", "Referer: https://api.test/"), protocol.ReasonNone, isValid},
		{"the origin goes before the referer", newRequest("POST", "Referer: https://api.test/", "Origin: https://evil.test"), protocol.ReasonDenied, isInvalid},
		{"two", newRequest("POST", "Origin: https://api.test", "Origin: https://evil.test"), protocol.ReasonDenied, isMissing},
		{"of no scheme", newRequest("POST", "Origin: api.test"), protocol.ReasonDenied, isInvalid},
		{"of a file", newRequest("POST", "Origin: file://api.test"), protocol.ReasonDenied, isInvalid},
		{"of an unknown method", newRequest("MKCOL", "Origin: https://evil.test"), protocol.ReasonDenied, isInvalid},
		{"of who only looks", newRequest("GET", "Origin: https://evil.test"), protocol.ReasonNone, [3]float64{}},
		{"of HEAD", newRequest("HEAD", "Origin: https://evil.test"), protocol.ReasonNone, [3]float64{}},
		{"of a preflight", newRequest("OPTIONS", "Origin: https://evil.test"), protocol.ReasonNone, [3]float64{}},
		{"of RPC", newRequest(""), protocol.ReasonNone, [3]float64{}},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, counted := serveRequest(t, `{"additional_origins": [{"exact": "shop.test"}]}`, test.x)
			if got != test.want || counted != test.counted {
				t.Errorf("%v, counted %v; want %v, %v", got, counted, test.want, test.counted)
			}
			const shadow = `{"additional_origins": [{"exact": "shop.test"}], "filter_enabled": {"default_value": {}}, "shadow_enabled": {"default_value": {"numerator": 100}}}`
			if got, counted = serveRequest(t, shadow, test.x); got != protocol.ReasonNone || counted != test.counted {
				t.Errorf("in the shadow: %v, counted %v; want it let in, %v", got, counted, test.counted)
			}
			const off = `{"filter_enabled": {"default_value": {}}}`
			if got, counted = serveRequest(t, off, test.x); got != protocol.ReasonNone || counted != [3]float64{} {
				t.Errorf("switched off: %v, counted %v", got, counted)
			}
		})
	}
}

func TestInvalidSettingsAreRejected(t *testing.T) {
	for name, test := range map[string]struct {
		settings filtertest.Settings
		want     string
	}{
		"a bad origin":   {`{"additional_origins": [{"exact": "a"}, {}]}`, "additional_origins[1]"},
		"more than all":  {`{"shadow_enabled": {"default_value": {"numerator": 101}}}`, "shadow_enabled"},
		"a share of two": {`{"filter_enabled": {"default_value": {"numerator": 1, "denominator": "TWO"}}}`, "TWO"},
		"no share":       {`{"filter_enabled": {}}`, "default_value"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := filtertest.DecodeErrors(t, Factory(), test.settings); !strings.Contains(got, test.want) {
				t.Errorf("rejected with %q, want an error with %q", got, test.want)
			}
		})
	}
}

func newService(t testing.TB) (protocol.Service, *protocol.Exchange) {
	made, _ := filtertest.Build(t, Factory(), `{"additional_origins": [{"exact": "shop.test"}]}`)
	s := made(protocol.BlockingFunc(func(context.Context, *protocol.Exchange) error { return nil }))
	return s, newRequest("POST", "Accept: */*", "Origin: https://shop.test")
}

func TestPassingDoesNotAllocate(t *testing.T) {
	s, x := newService(t)
	filtertest.CheckNoAllocs(t, s, x)
}

func BenchmarkServe(b *testing.B) {
	s, x := newService(b)
	filtertest.Bench(b, s, x)
}
