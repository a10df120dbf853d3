package cors

import (
	"context"
	"errors"
	"flag"
	"strings"
	"testing"

	"github.com/weft-proxy/weft/pkg/filter/filtertest"
	"github.com/weft-proxy/weft/pkg/protocol"
)

var update = flag.Bool("update", false, "write the tables of README.md")

func TestReadme(t *testing.T) {
	examples := filtertest.CheckReadme(t, Factory(), *update)
	if len(examples) != 3 {
		t.Fatalf("%d examples, want 3", len(examples))
	}
	const shop = "https://shop.example.com"
	for _, test := range []struct {
		settings filtertest.Settings
		request  string
		want     string
	}{
		{examples[0], "GET Origin: " + shop,
			"app: 1, Vary: Origin, Access-Control-Allow-Origin: " + shop + ", Access-Control-Allow-Credentials: true, Access-Control-Expose-Headers: x-request-id"},
		{examples[0], "OPTIONS Origin: https://a-1.preview.example.com, Access-Control-Request-Method: PUT",
			"Vary: Origin, Access-Control-Allow-Origin: https://a-1.preview.example.com, Access-Control-Allow-Credentials: true, " +
				"Access-Control-Allow-Methods: GET, PUT, DELETE, Access-Control-Allow-Headers: content-type, x-tenant, Access-Control-Max-Age: 600"},
		{examples[0], "GET Origin: https://shop.example.com.evil.test", "app: 1, Vary: Origin"},
		{examples[1], "GET Origin: " + shop, "app: 1"},
		{examples[2], "GET Origin: https://any.test", "app: 1, Vary: Origin, Access-Control-Allow-Origin: https://any.test"},
	} {
		if got := serveRequest(t, test.settings, test.request, "app: 1"); got != test.want {
			t.Errorf("%s:\n got %s\nwant %s", test.request, got, test.want)
		}
	}
}

// serveRequest serves a request in the form "METHOD Field: value, Field: value" by an application
// that responds with the headers in response. It returns the headers of the response.
func serveRequest(t *testing.T, s filtertest.Settings, request, response string) string {
	t.Helper()
	f, _ := filtertest.Build(t, Factory(), s)
	x := newRequest(request)
	err := x.Serve(t.Context(), f(protocol.BlockingFunc(func(_ context.Context, x *protocol.Exchange) error {
		x.Request.Header.Del("origin") // as a later filter may do
		x.LocalReply(200, "", "")
		filtertest.AddHeaderList(&x.Response.Header, response)
		return nil
	})))
	if err != nil || x.Response.Status != 200 {
		t.Fatalf("Serve = %v, status %d; want nil, 200", err, x.Response.Status)
	}
	return filtertest.FormatHeaders(&x.Response.Header)
}

func newRequest(request string) *protocol.Exchange {
	x := new(protocol.Exchange)
	x.Reset()
	var fields string
	x.Request.Method, fields, _ = strings.Cut(request, " ")
	filtertest.AddHeaderList(&x.Request.Header, fields)
	return x
}

func TestResponses(t *testing.T) {
	const allowA = `{"allow_origin_string_match": [{"exact": "https://a.test"}]`
	const granted = "Access-Control-Allow-Origin: https://a.test"
	const preflight = "OPTIONS Origin: https://a.test, Access-Control-Request-Method: PUT"
	for _, test := range []struct {
		name                    string
		settings                filtertest.Settings
		request, response, want string
	}{
		{"allowed origin", allowA + `}`, "GET Origin: https://a.test", "", "Vary: Origin, " + granted},
		{"other origin", allowA + `}`, "GET Origin: https://b.test", "", "Vary: Origin"},
		{"no origin", allowA + `}`, "GET ", "", "Vary: Origin"},
		{"two origins", allowA + `}`, "GET Origin: https://a.test, Origin: https://b.test", "", "Vary: Origin"},
		{"two matching origins", `{"allow_origin_string_match": [{"safe_regex": {"regex": "https://.*"}}]}`, "GET Origin: https://a.test, Origin: https://b.test", "", "Vary: Origin"},
		{"other scheme", allowA + `}`, "GET Origin: http://a.test", "", "Vary: Origin"},
		{"Vary has Origin", allowA + `}`, "GET ", "vary: accept; origin, VARY: Origin", "vary: accept; origin, VARY: Origin"},
		{"Vary is *", allowA + `}`, "GET ", "Vary: *", "Vary: *"},
		{"application sets CORS headers for an allowed origin", allowA + `}`, "GET Origin: https://a.test",
			"access-control-allow-origin: *, Access-Control-Allow-Credentials: true", "Vary: Origin, " + granted},
		{"application sets CORS headers for another origin", allowA + `}`, "GET Origin: https://b.test",
			"access-control-allow-origin: *", "access-control-allow-origin: *, Vary: Origin"},
		{"OPTIONS without a preflight", allowA + `}`, "OPTIONS Origin: https://a.test", "allow: GET", "allow: GET, Vary: Origin, " + granted},
		{"preflight", allowA + `, "allow_methods": "PUT"}`, preflight, "app: 1", "Vary: Origin, " + granted + ", Access-Control-Allow-Methods: PUT"},
		{"preflight of another origin", allowA + `}`, "OPTIONS Origin: https://b.test, Access-Control-Request-Method: PUT", "app: 1", "app: 1, Vary: Origin"},
		{"preflight of another origin is not forwarded", allowA + `, "forward_not_matching_preflights": false}`,
			"OPTIONS Origin: https://b.test, Access-Control-Request-Method: PUT", "app: 1", "Vary: Origin"},
		{"private network access allowed", allowA + `, "allow_private_network_access": true}`,
			preflight + ", Access-Control-Request-Private-Network: true", "", "Vary: Origin, " + granted + ", Access-Control-Allow-Private-Network: true"},
		{"private network access not allowed", allowA + `}`,
			preflight + ", Access-Control-Request-Private-Network: true", "", "Vary: Origin, " + granted},
		{"disabled", allowA + `, "filter_enabled": {"default_value": {"numerator": 0}}}`, "GET Origin: https://a.test", "app: 1", "app: 1"},
		{"shadow mode", allowA + `, "filter_enabled": {"default_value": {}}, "shadow_enabled": {"default_value": {"numerator": 100}}}`,
			preflight, "app: 1", "app: 1"},
		{"RPC", allowA + `}`, " Origin: https://a.test", "app: 1", "app: 1"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := serveRequest(t, test.settings, test.request, test.response); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestOriginsAreCounted(t *testing.T) {
	for _, settings := range []filtertest.Settings{
		`{"allow_origin_string_match": [{"suffix": ".a.test"}]}`,
		`{"allow_origin_string_match": [{"suffix": ".a.test"}], "filter_enabled": {"default_value": {}}, "shadow_enabled": {"default_value": {"numerator": 100}}}`,
	} {
		f, counts := filtertest.Build(t, Factory(), settings)
		s := f(protocol.BlockingFunc(func(context.Context, *protocol.Exchange) error { return nil }))
		for _, request := range []string{"GET Origin: https://x.a.test", "GET Origin: https://y.a.test", "GET Origin: https://b.test", "GET "} {
			if err := newRequest(request).Serve(t.Context(), s); err != nil {
				t.Fatal(err)
			}
		}
		if valid, invalid := counts.Value(validMetric()), counts.Value(invalidMetric()); valid != 2 || invalid != 1 {
			t.Errorf("%s: %v valid and %v invalid, want 2 and 1", settings, valid, invalid)
		}
	}
}

func TestFaultsHaveCORSHeaders(t *testing.T) {
	f, _ := filtertest.Build(t, Factory(), `{"allow_origin_string_match": [{"exact": "https://a.test"}]}`)
	serveError := func(appErr error) (*protocol.Exchange, error) {
		x := newRequest("GET Origin: https://a.test")
		return x, x.Serve(t.Context(), f(protocol.BlockingFunc(func(context.Context, *protocol.Exchange) error { return appErr })))
	}
	x, err := serveError(protocol.NewFault(protocol.NoHealthyHost, nil))
	if err != nil || x.Response.Status != 502 || x.Record.Reason != protocol.NoHealthyHost || x.Response.Header.Get(allowOrigin) != "https://a.test" {
		t.Errorf("fault: %v, %d %s with %q; want 502 %s with the allowed origin https://a.test", err, x.Response.Status, x.Record.Reason, filtertest.FormatHeaders(&x.Response.Header), protocol.NoHealthyHost)
	}
	var p *protocol.PanicError
	if _, err = serveError(protocol.NewFault(protocol.Internal, &protocol.PanicError{Value: "x"})); !errors.As(err, &p) {
		t.Errorf("panic: Serve = %v, want the PanicError for the engine", err)
	}
}

// TestFirstProblemIsStable verifies that settings with several problems always get the same error.
func TestFirstProblemIsStable(t *testing.T) {
	settings := filtertest.Settings(`{"allow_methods": "\r", "allow_headers": "\r", "expose_headers": "\r"}`)
	for range 100 {
		if got := filtertest.DecodeErrors(t, Factory(), settings); !strings.Contains(got, "allow_methods") {
			t.Fatalf("rejected with %q, want an error of allow_methods, the first key", got)
		}
	}
}

func TestInvalidSettingsAreRejected(t *testing.T) {
	for name, test := range map[string]struct {
		settings filtertest.Settings
		want     string
	}{
		"any origin with credentials": {`{"allow_origin_string_match": [{"exact": "*"}], "allow_credentials": true}`, "allow_credentials"},
		"invalid expression":          {`{"allow_origin_string_match": [{"exact": "a"}, {"safe_regex": {"regex": "("}}]}`, "allow_origin_string_match[1]"},
		"line break":                  {`{"allow_methods": "GET\r\nSet-Cookie: a=b"}`, "control character"},
		"invalid age":                 {`{"max_age": "10m"}`, "max_age"},
		"fraction above 100 percent":  {`{"filter_enabled": {"default_value": {"numerator": 200}}}`, "filter_enabled"},
		"deprecated list of origins":  {`{"allow_origin": ["*"]}`, "allow_origin"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := filtertest.DecodeErrors(t, Factory(), test.settings); !strings.Contains(got, test.want) {
				t.Errorf("rejected with %q, want an error with %q", got, test.want)
			}
		})
	}
}

func newService(t testing.TB) (protocol.Service, *protocol.Exchange) {
	f, _ := filtertest.Build(t, Factory(), `{"allow_origin_string_match": [{"exact": "https://b.test"}, {"suffix": ".a.test"}], "expose_headers": "x-id"}`)
	s := f(protocol.BlockingFunc(func(context.Context, *protocol.Exchange) error { return nil }))
	return s, newRequest("GET Accept: */*, Origin: https://x.a.test")
}

func TestPassingDoesNotAllocate(t *testing.T) {
	s, x := newService(t)
	ctx := t.Context()
	if n := testing.AllocsPerRun(100, func() {
		x.Response.Header.Reset()
		if err := x.Serve(ctx, s); err != nil || x.Response.Header.Len() == 0 {
			t.Fatalf("Serve = %v with %d headers, want nil and at least one header", err, x.Response.Header.Len())
		}
	}); n != 0 {
		t.Errorf("Serve allocates %v times, want 0", n)
	}
}

func BenchmarkServe(b *testing.B) {
	s, x := newService(b)
	ctx := b.Context()
	b.ReportAllocs()
	for b.Loop() {
		x.Response.Header.Reset()
		_ = x.Serve(ctx, s)
	}
}
