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
func serveRequest(t *testing.T, s filtertest.Settings, x *protocol.Exchange) (reason protocol.Reason, counters [3]float64) {
	t.Helper()
	f, counts := filtertest.Build(t, Factory(), s)
	called := false
	err := x.Serve(t.Context(), f(protocol.BlockingFunc(func(context.Context, *protocol.Exchange) error {
		called = true
		return nil
	})))
	reason = protocol.ReasonOf(err)
	if called != (reason == protocol.ReasonNone) {
		t.Errorf("next service called: %t, Serve = %v; want %t", called, err, reason == protocol.ReasonNone)
	}
	return reason, [3]float64{counts.Value(validMetric()), counts.Value(invalidMetric()), counts.Value(missingMetric())}
}

func TestOrigins(t *testing.T) {
	oneValid, oneInvalid, oneMissing := [3]float64{1, 0, 0}, [3]float64{0, 1, 0}, [3]float64{0, 0, 1}
	for _, test := range []struct {
		name    string
		x       *protocol.Exchange
		want    protocol.Reason
		counted [3]float64
	}{
		{"same origin", newRequest("POST", "Origin: https://api.test"), protocol.ReasonNone, oneValid},
		{"same origin in upper case", newRequest("PUT", "ORIGIN: HTTPS://API.test"), protocol.ReasonNone, oneValid},
		{"other origin", newRequest("POST", "Origin: https://evil.test"), protocol.ReasonDenied, oneInvalid},
		{"other port", newRequest("DELETE", "Origin: https://api.test:8443"), protocol.ReasonDenied, oneInvalid},
		{"same origin as a prefix", newRequest("PATCH", "Origin: https://api.test.evil.test"), protocol.ReasonDenied, oneInvalid},
		{"same origin as a suffix", newRequest("POST", "Origin: https://evil-api.test"), protocol.ReasonDenied, oneInvalid},
		{"same origin as user information", newRequest("POST", "Origin: https://api.test@evil.test"), protocol.ReasonDenied, oneInvalid},
		{"backslash", newRequest("POST", `Origin: https://evil.test\@api.test`), protocol.ReasonDenied, oneInvalid},
		{"no origin", newRequest("POST"), protocol.ReasonDenied, oneMissing},
		{"additional origin", newRequest("POST", "Origin: https://shop.test"), protocol.ReasonNone, oneValid},
		{"same origin in Referer", newRequest("POST", "Referer: https://api.test/page?x=1"), protocol.ReasonNone, oneValid},
		{"other origin in Referer", newRequest("POST", "Referer: https://evil.test/https://api.test/"), protocol.ReasonDenied, oneInvalid},
		{"opaque origin", newRequest("POST", "Origin: null"), protocol.ReasonDenied, oneInvalid},
		{"opaque origin, same origin in Referer", newRequest("POST", "Origin: null", "Referer: https://api.test/"), protocol.ReasonDenied, oneInvalid},
		{"empty Origin, same origin in Referer", newRequest("POST", "Origin: ", "Referer: https://api.test/"), protocol.ReasonNone, oneValid},
		{"Origin takes precedence over Referer", newRequest("POST", "Referer: https://api.test/", "Origin: https://evil.test"), protocol.ReasonDenied, oneInvalid},
		{"two origins", newRequest("POST", "Origin: https://api.test", "Origin: https://evil.test"), protocol.ReasonDenied, oneMissing},
		{"no scheme", newRequest("POST", "Origin: api.test"), protocol.ReasonDenied, oneInvalid},
		{"file URL", newRequest("POST", "Origin: file://api.test"), protocol.ReasonDenied, oneInvalid},
		{"unknown method", newRequest("MKCOL", "Origin: https://evil.test"), protocol.ReasonDenied, oneInvalid},
		{"GET", newRequest("GET", "Origin: https://evil.test"), protocol.ReasonNone, [3]float64{}},
		{"HEAD", newRequest("HEAD", "Origin: https://evil.test"), protocol.ReasonNone, [3]float64{}},
		{"OPTIONS", newRequest("OPTIONS", "Origin: https://evil.test"), protocol.ReasonNone, [3]float64{}},
		{"RPC", newRequest(""), protocol.ReasonNone, [3]float64{}},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, counted := serveRequest(t, `{"additional_origins": [{"exact": "shop.test"}]}`, test.x)
			if got != test.want || counted != test.counted {
				t.Errorf("reason %v, counters %v; want %v, %v", got, counted, test.want, test.counted)
			}
			const shadow = `{"additional_origins": [{"exact": "shop.test"}], "filter_enabled": {"default_value": {}}, "shadow_enabled": {"default_value": {"numerator": 100}}}`
			if got, counted = serveRequest(t, shadow, test.x); got != protocol.ReasonNone || counted != test.counted {
				t.Errorf("shadow mode: reason %v, counters %v; want no rejection, %v", got, counted, test.counted)
			}
			const off = `{"filter_enabled": {"default_value": {}}}`
			if got, counted = serveRequest(t, off, test.x); got != protocol.ReasonNone || counted != [3]float64{} {
				t.Errorf("disabled: reason %v, counters %v; want no rejection, zero counters", got, counted)
			}
		})
	}
}

func TestInvalidSettingsAreRejected(t *testing.T) {
	for name, test := range map[string]struct {
		settings filtertest.Settings
		want     string
	}{
		"invalid origin":             {`{"additional_origins": [{"exact": "a"}, {}]}`, "additional_origins[1]"},
		"fraction above 100 percent": {`{"shadow_enabled": {"default_value": {"numerator": 101}}}`, "shadow_enabled"},
		"unknown denominator":        {`{"filter_enabled": {"default_value": {"numerator": 1, "denominator": "TWO"}}}`, "TWO"},
		"no fraction":                {`{"filter_enabled": {}}`, "default_value"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := filtertest.DecodeErrors(t, Factory(), test.settings); !strings.Contains(got, test.want) {
				t.Errorf("rejected with %q, want an error with %q", got, test.want)
			}
		})
	}
}

func newService(t testing.TB) (protocol.Service, *protocol.Exchange) {
	f, _ := filtertest.Build(t, Factory(), `{"additional_origins": [{"exact": "shop.test"}]}`)
	s := f(protocol.BlockingFunc(func(context.Context, *protocol.Exchange) error { return nil }))
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
